"""Problems of transport: their arrays, checked, and the operator that solves them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from warpalign._core.scalars import COSTS, check_number
from warpalign._transport.settings import Settings
from warpalign.jax._arrays import (
    check_lengths,
    check_numbers,
    check_pair,
    check_rows,
    check_table,
    unwrapped,
    widened,
)
from warpalign.jax._call import call
from warpalign.jax._derivatives import Family, Results

_ROUNDING = 64  # units in the last place: what rounding may add to an error
_ROUNDED_SUMS = 2**-6  # the relative difference of sums of half weights that is taken for rounding


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
    del given["storage"]
    return given


_INPUTS = Inputs._fields[:6]
POTENTIALS = ("log_scale", "f", "g")
"""The derivatives of the value by the logarithm of the costs' scale, and by forces on the potentials, all of them 0: the linear part and
the potentials (warpalign/sinkhorn.h)."""


def _run(settings: Settings, wanted: tuple[str, ...], of: Inputs) -> Results:
    value, linear, f, g, shift, iterations, error, *gradients = call(
        "sinkhorn",
        **of._asdict(),
        **keywords(settings),
        needs_grad_x="x" in wanted,
        needs_grad_y="y" in wanted,
        needs_grad_cost="cost" in wanted,
    )
    found = dict(zip((*_INPUTS, *POTENTIALS), (*gradients, linear, f, g), strict=True))
    others = {"f": f, "g": g, "shift": shift, "iterations": iterations, "error": error}
    return Results(value, {name: found[name] for name in wanted}, others)


def _bend(
    settings: Settings, wanted: tuple[str, ...], of: Inputs, others: dict[str, Array], along: dict[str, Array]
) -> dict[str, Array]:
    tangents: dict[str, Any] = {name: along.get(name) for name in (*_INPUTS, *POTENTIALS)}
    tangents["epsilon"] = tangents.pop("epsilons")
    _, *moved = call(
        "sinkhorn_jvp",
        **of._replace(f0=others["f"], g0=others["g"])._asdict(),
        **keywords(settings),
        **{f"{name}_tangent": tangent for name, tangent in tangents.items()},
        shift0=others["shift"],
        needs_grad_x="x" in wanted,
        needs_grad_y="y" in wanted,
        needs_grad_cost="cost" in wanted,
    )
    found = dict(zip((*POTENTIALS, *_INPUTS), moved, strict=True))
    return {name: found[name] for name in wanted}


def _refuse(settings: Settings, names: tuple[str, ...], of: Inputs) -> None:
    """All second derivatives are there."""


SINKHORN = Family((*_INPUTS, *POTENTIALS), _run, _bend, _refuse)


def has_converged(error: Array, settings: Settings) -> Array:
    return error <= settings.tolerance + _ROUNDING * float(np.finfo(error.dtype).eps)


def masked(rows: Array, lengths: Array | None) -> Array:
    """(B, N) with 0 after the true lengths."""
    if lengths is None:
        return rows
    return jnp.where(jnp.arange(rows.shape[1]) < lengths[:, None], rows, 0)


def with_equal_sums(of: Inputs, given: tuple[object, object]) -> Inputs:
    """Weights of balanced transport, of which those that came as a half type sum to what the other side's do."""

    found, lengths = [of.a, of.b], (of.x_lengths, of.y_lengths)
    for side in (1, 0):
        own, other = found[side], found[1 - side]
        dtype = getattr(given[side], "dtype", None)
        if own is None or dtype is None or dtype.itemsize != 2:
            continue
        wanted = 1.0 if other is None else masked(other, lengths[1 - side]).sum(1)
        ratio = wanted / masked(own, lengths[side]).sum(1)
        found[side] = own * jnp.where(jnp.abs(ratio - 1) < _ROUNDED_SUMS, ratio, 1)[:, None]
    return of._replace(a=found[0], b=found[1])


def _tables(x: object, y: object, cost_matrix: object, cost: object) -> tuple[Inputs, bool]:
    """Points or costs, and whether they came without a batch axis."""
    if cost not in COSTS:
        names = ", ".join(f'"{name}"' for name in COSTS)
        raise ValueError(f"cost: expected one of {names}, got {cost!r}: give other costs as cost_matrix")
    if cost_matrix is None:
        for name, given in (("x", x), ("y", y)):
            if given is None:
                raise ValueError(
                    f"{name}: expected points, or a cost_matrix in the place of x and y, got None"
                )
        left, right, unbatched = check_pair(x, y)
        return Inputs(left, right, None, None, None, None, None, None, None, None), unbatched
    for name, given in (("x", x), ("y", y)):
        if given is not None:
            raise ValueError(f"{name}: expected None with a cost_matrix, got {type(given).__name__}")
    if cost != "sqeuclidean":
        raise ValueError(f"cost: expected none with a cost_matrix, got {cost!r}")
    costs = check_table(cost_matrix, "cost_matrix", "N, M")
    unbatched = costs.ndim == 2
    costs = widened(costs[None] if unbatched else costs)
    return Inputs(None, None, costs, None, None, None, None, None, None, None), unbatched


def problem(
    settings: Settings,
    x: object,
    y: object,
    cost_matrix: object,
    *,
    cost: Any,
    epsilon: object,
    a: object,
    b: object,
    x_lengths: object,
    y_lengths: object,
) -> tuple[Inputs, Settings, bool]:
    """What the operators take, and whether the input came without a batch axis."""
    of, unbatched = _tables(x, y, cost_matrix, cost)
    table, (n, m) = of.first, of.sizes
    batch = table.shape[0]
    of = of._replace(
        x_lengths=check_lengths(
            x_lengths, "x_lengths", batch, n, "N", least=1, unbatched=unbatched, unit="pair"
        ),
        y_lengths=check_lengths(
            y_lengths, "y_lengths", batch, m, "M", least=1, unbatched=unbatched, unit="pair"
        ),
        a=check_rows(a, "a", table, n),
        b=check_rows(b, "b", table, m),
    )
    if settings.is_balanced:
        of = with_equal_sums(of, (a, b))
    epsilon = unwrapped(epsilon)
    if isinstance(epsilon, (jax.Array, np.ndarray)):
        of = of._replace(epsilons=check_numbers(epsilon, "epsilon", batch, table.dtype))
    else:
        settings = settings._replace(epsilon=check_number(epsilon, "epsilon", None))
    return of, settings._replace(cost_kind=COSTS.index(cost)), unbatched
