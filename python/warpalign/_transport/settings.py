"""What transport may be told besides its tensors, for every front end: importing this module imports no framework."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from warpalign._core.scalars import check_count, check_flag, check_number
from warpalign._transport.options import SINKHORN_FACTOR, check_annealing

if TYPE_CHECKING:
    from torch import Tensor

Reference = Literal["product", "counting"]
Updates = Literal["alternating", "symmetric", "mixed"]
Storage = Literal["half", "full"]
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
    storage: str | None = None
    """What becomes of the costs before the operators see them (storage.py): one of `Storage`."""

    @property
    def is_balanced(self) -> bool:
        """Whether both sides' sums are exact."""
        return self.mass == 0 and math.isinf(self.rho_a) and math.isinf(self.rho_b)


def as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands."""
    return dict(zip(Settings._fields, settings, strict=True))


def of_equal_sets(settings: Settings) -> Settings:
    """The same between a set and itself: mixed updates are symmetric throughout, also where a function makes the costs."""
    mixed, symmetric = (UPDATES.index(name) for name in ("mixed", "symmetric"))
    return settings._replace(updates=symmetric) if settings.updates == mixed else settings


def check_name(given: object, name: str, names: Any) -> int:
    """The place of a name among those of a Literal."""
    known = get_args(names)
    if given not in known:
        expected = " or ".join(f'"{one}"' for one in known)
        raise ValueError(f"{name}: expected {expected}, got {given!r}")
    return known.index(given)


def check_strength(rho: object, name: str) -> float:
    return math.inf if rho is None else check_number(rho, name)


DistanceNormalization = Literal["max", "mean", "common"]
"""Intra-domain distances are divided by the largest or the mean of their side, or all by the largest of both sides."""


def check_distance_normalization(normalization: object) -> DistanceNormalization | None:
    if normalization == "max" or normalization == "mean" or normalization == "common":
        return normalization
    if normalization is not None:
        raise ValueError(
            f'cost_normalization: expected "max", "mean", "common" or None, got {normalization!r}'
        )
    return None


def weight_of_features(weight: object, features: str | None) -> float:
    """The number behind feature_weight. features: the argument that gives features, if any does."""
    if weight is None and features is not None:
        raise ValueError(
            f"feature_weight: expected a number with {features}, got None: write feature_weight=0.5, or leave {features} away"
        )
    return 0.0 if weight is None else check_number(weight, "feature_weight")


def check_step(step: object) -> float:
    """The share of the way to the new plan that a step of the descent takes."""
    share = check_number(step, "step", None)
    if share > 1:
        raise ValueError(f"step: expected a number above 0 and at most 1, got {step}")
    return share


def settings_of(
    *,
    cost_scale: object = 1.0,
    annealing: object = None,
    factor: float = SINKHORN_FACTOR,
    rho_a: object = None,
    rho_b: object = None,
    mass: object = None,
    reference: object = "product",
    updates: object = "alternating",
    max_iter: object = 1000,
    tol: object = 1e-5,
    precision: int = 0,
    batch_invariant: object = False,
) -> Settings:
    """Of the public functions' arguments, without those that depend on the problem. Their defaults are what callers without these
    arguments have.

    Args:
        factor: of an annealing that has none of its own.
        precision: its number.
    """
    start, factor = check_annealing(annealing, factor)
    for name, rho in (("rho_a", rho_a), ("rho_b", rho_b)):
        if mass is not None and rho is not None:
            raise ValueError(f"{name}: expected None with mass, which ties both sides, got {rho}")
    count = check_count(max_iter, "max_iter")
    return Settings(
        cost_scale=check_number(cost_scale, "cost_scale", None),
        epsilon_start=start,
        epsilon_factor=factor,
        rho_a=check_strength(rho_a, "rho_a"),
        rho_b=check_strength(rho_b, "rho_b"),
        mass=0.0 if mass is None else check_number(mass, "mass", None),
        reference=check_name(reference, "reference", Reference),
        updates=check_name(updates, "updates", Updates),
        max_iterations=min(count, 2**31 - 1),
        tolerance=check_number(tol, "tol"),
        precision=precision,
        batch_invariant=check_flag(batch_invariant, "batch_invariant"),
    )


def of_results(table: Tensor) -> Tensor:
    """The points or costs; of float16 costs, a float32 tensor of their shape without values."""
    import torch

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
