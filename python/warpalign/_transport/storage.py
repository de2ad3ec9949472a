"""Costs that are stored: rounded to float16, or those of points, which are else computed anew in every iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import replaced
from warpalign._transport.costs import row_blocks, stored_costs
from warpalign._transport.settings import UPDATES, Inputs, Settings

_COST = Inputs._fields.index("cost")
_ITERATIONS = 5  # the place among the results of the operator sinkhorn
_HIGHEST = 0  # the precision
_LAST = 8  # iterations on the points, at most


def with_storage(settings: Settings, storage: object, precision: object, *known: str) -> Settings:
    """Settings with a storage, one of the known ones or None. precision: the caller's."""
    if storage is None:
        return settings
    if storage not in known:
        expected = ", ".join(f'"{one}"' for one in known)
        raise ValueError(f"storage: expected {expected} or None, got {storage!r}")
    if storage == "full":
        if precision not in (None, "highest"):
            raise ValueError(
                f'precision: expected "highest" or None with storage="full", whose costs have float32\'s accuracy, got {precision!r}'
            )
        unsupported = {"batch_invariant=True": settings.batch_invariant, "mass": settings.mass > 0}
        for option, is_given in unsupported.items():
            if is_given:
                raise ValueError(f'storage: expected None with {option}, got "full"')
        settings = replaced(settings, precision=_HIGHEST)
    return replaced(settings, storage=storage)


def in_half(cost: Tensor) -> Tensor:
    """Costs (B, N, M) as float16. Finite ones of 65520 or more, which it does not have, become NaN.

    A GPU reads them fastest where rows begin at even places. So rows of an odd length have one more element in memory.
    """
    if cost.dtype == torch.float16 and (not cost.is_cuda or all(s == 1 or s % 2 == 0 for s in cost.stride())):
        return cost
    return with_even_rows(cost)


def with_even_rows(cost: Tensor) -> Tensor:
    """A copy of costs (B, N, M) in float16 whose rows begin at even places of memory."""
    batch, n, m = cost.shape
    half = torch.empty((batch, n, m + m % 2), dtype=torch.float16, device=cost.device)[..., :m]
    for rows in row_blocks(batch, n, m):
        given = cost[:, rows]
        rounded = given.half()  # the costs themselves, if they are float16
        half[:, rows] = rounded.masked_fill(rounded.isinf() & given.isfinite(), torch.nan)
    return half


def rounding(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The operator on tensors that begin with Inputs, with rounded costs if the storage is "half"."""

    def run(*tensors: Any, storage: str | None = None, **settings: Any) -> Any:
        cost = tensors[_COST]
        if storage == "half" and cost is not None:
            tensors = (*tensors[:_COST], in_half(cost), *tensors[_COST + 1 :])
        return operator(*tensors, **settings)

    return run


def storing(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The operator sinkhorn. If the storage is "full", a GPU iterates on stored costs of the points.

    The last iterations are on the points, and so are all results: rounding of the stored costs moves no more than where they start.
    Without a tolerance there is one such iteration; else there are as many as the tolerance needs, up to `_LAST`.
    """

    def run(*tensors: Any, storage: str | None = None, **settings: Any) -> Any:
        of, needs = Inputs(*tensors[: len(Inputs._fields)]), tensors[len(Inputs._fields) :]
        count, tolerance = settings["max_iterations"], settings["tolerance"]
        if storage != "full" or of.x is None or of.y is None or count == 1 or not _is_served(of.x):
            return operator(*tensors, storage=storage, **settings)
        is_equal = _has_equal_sides(of, settings)
        if is_equal:
            settings["updates"] = UPDATES.index("symmetric")
        last_count = min(_LAST, count - 1) if tolerance > 0 else 1
        _, _, f, g, _, before, *_ = operator(
            *of._replace(x=None, y=None, cost=stored_costs(settings["cost_kind"], of.x, of.y)),
            *(False for _ in needs),
            **settings | {"max_iterations": count - last_count},
        )
        last = settings | {"max_iterations": last_count, "epsilon_start": 0.0}
        if settings["updates"] == UPDATES.index("mixed"):
            is_symmetric = count <= 4 + math.ceil(-math.log2(min(max(tolerance, 2**-24), 1.0)))  # problem.h
            last["updates"] = UPDATES.index("symmetric" if is_symmetric else "alternating")
        f, g = (start.nan_to_num(0.0, 0.0, 0.0) for start in (f, g))
        result = list(operator(*of._replace(f0=f, g0=f if is_equal else g), *needs, **last))
        result[_ITERATIONS] = result[_ITERATIONS] + before
        return tuple(result)

    return run


def _is_served(x: Tensor) -> bool:
    """A CPU stores costs within the operator."""
    return x.is_cuda


def _has_equal_sides(of: Inputs, settings: dict[str, Any]) -> bool:
    """Whether the problem is one of a set with itself, whose potentials stay equal: both sides are one tensor."""
    sides = ((of.x, of.y), (of.a, of.b), (of.x_lengths, of.y_lengths), (of.f0, of.g0))
    return (
        all(one is other for one, other in sides)
        and settings["rho_a"] == settings["rho_b"]
        and settings["mass"] == 0
        and settings["updates"] != UPDATES.index("alternating")
    )
