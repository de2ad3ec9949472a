"""The arrays of a call of transport, by name."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array

from warpalign._transport.settings import Settings


class Inputs(NamedTuple):
    """x and y, or cost; all of one floating-point dtype, float32 or float64."""

    x: Array | None
    """(B, N, D)"""
    y: Array | None
    """(B, M, D)"""
    cost: Array | None
    """(B, N, M)"""
    a: Array | None
    """(B, N); None: uniform."""
    b: Array | None
    """(B, M)"""
    epsilons: Array | None
    """(B,), in the place of Settings.epsilon."""
    x_lengths: Array | None
    """(B,) int32"""
    y_lengths: Array | None
    f0: Array | None
    """(B, N): where to start, or the solution."""
    g0: Array | None
    """(B, M)"""

    @property
    def first(self) -> Array:
        table = self.x if self.cost is None else self.cost
        assert table is not None
        return table

    @property
    def sizes(self) -> tuple[int, int]:
        """(N, M)"""
        if self.cost is not None:
            return self.cost.shape[1], self.cost.shape[2]
        assert self.x is not None and self.y is not None
        return self.x.shape[1], self.y.shape[1]


def keywords(settings: Settings) -> dict[str, Any]:
    """As the operators take them."""
    given = settings._asdict()
    del given["half_costs"]
    return given
