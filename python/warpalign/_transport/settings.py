"""What transport may be told besides its tensors."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

Reference = Literal["product", "counting"]
Updates = Literal["alternating", "symmetric"]
UPDATES: tuple[str, ...] = get_args(Updates)


class Settings(NamedTuple):
    """What the operators take besides tensors: keyword arguments of their schemas, with the schemas' defaults."""

    cost_kind: int = 0
    """The place in `Cost`."""
    cost_scale: float = 1.0
    epsilon: float = 1.0
    """Not looked at where `epsilons` holds one per problem."""
    epsilon_start: float = 0.0
    """0: no annealing."""
    epsilon_factor: float = 0.5
    rho_a: float = math.inf
    rho_b: float = math.inf
    mass: float = 0.0
    """0: not partial."""
    reference: int = 0
    """The place in `Reference`."""
    updates: int = 0
    """The place in `Updates`."""
    max_iterations: int = 1000
    tolerance: float = 1e-5
    precision: int = 0
    """The place in `Precision`."""
    batch_invariant: bool = False
    half_costs: bool = False
    """Costs are rounded to float16 before the operators see them (half.py)."""

    @property
    def is_balanced(self) -> bool:
        """Whether both sides' sums are exact."""
        return self.mass == 0 and math.isinf(self.rho_a) and math.isinf(self.rho_b)


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands."""
    return dict(zip(Settings._fields, settings, strict=True))


def of_results(table: Tensor) -> Tensor:
    """The points or costs; of float16 costs, a float32 tensor of their shape without values."""
    if table.dtype != torch.float16:
        return table
    return torch.empty((), dtype=torch.float32, device=table.device).expand(table.shape)


class Inputs(NamedTuple):
    """The tensors of a call: x and y, or cost. Contiguous but for those three, of one floating-point dtype."""

    x: Tensor | None
    """(B, N, D) float64 or float32, any strides."""
    y: Tensor | None
    """(B, M, D)"""
    cost: Tensor | None
    """(B, N, M), any strides; float16, too, where all others are float32."""
    a: Tensor | None
    """(B, N); None: uniform."""
    b: Tensor | None
    """(B, M)"""
    epsilons: Tensor | None
    """(B,), in the place of Settings.epsilon."""
    x_lengths: Tensor | None
    """(B,) int32"""
    y_lengths: Tensor | None
    f0: Tensor | None
    """(B, N): where to start."""
    g0: Tensor | None
    """(B, M)"""

    @property
    def first(self) -> Tensor:
        """A tensor whose dtype, device and batch all have. It has no values where costs are float16."""
        tensor = self.x if self.cost is None else self.cost
        assert tensor is not None
        return of_results(tensor)

    @property
    def sizes(self) -> tuple[int, int]:
        """(N, M)"""
        if self.cost is not None:
            return self.cost.shape[1], self.cost.shape[2]
        assert self.x is not None and self.y is not None
        return self.x.shape[1], self.y.shape[1]
