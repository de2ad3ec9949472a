"""Checks of what soft_dtw_barycenter takes besides series."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from warpalign._core.series import SeriesSet

Method = Literal["lbfgs", "adam", "dba"]


def check_groups(groups: object, series: SeriesSet) -> Tensor:
    """(n,) int64 on the CPU."""
    n = len(series.values)
    if groups is None:
        return torch.zeros(n, dtype=torch.int64)
    try:
        membership = torch.as_tensor(groups).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"groups: expected integers, got {type(groups).__name__} of others") from None
    if membership.is_floating_point() or membership.is_complex() or membership.dtype == torch.bool:
        raise TypeError(f"groups: expected integers, got {membership.dtype}")
    if membership.shape != (n,):
        raise ValueError(
            f"groups: expected shape ({n},), one group per series, got {tuple(membership.shape)}"
        )
    membership = membership.long()
    if int(membership.min()) < 0:
        raise ValueError(f"groups: expected numbers from 0, got {int(membership.min())}")
    empty = (membership.bincount() == 0).nonzero()
    if len(empty):
        raise ValueError(
            f"groups: expected every number from 0 to {int(membership.max())}, got none of {int(empty[0])}"
        )
    return membership


def check_weights(weights: object, membership: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) and their sums by group (k,), float64 on the CPU."""
    n = len(membership)
    if weights is None:
        checked = torch.ones(n, dtype=torch.float64)
    else:
        try:
            checked = torch.as_tensor(weights).detach().to("cpu", torch.float64)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"weights: expected numbers, got {type(weights).__name__} of others") from None
        if checked.shape != (n,):
            raise ValueError(
                f"weights: expected shape ({n},), one weight per series, got {tuple(checked.shape)}"
            )
        if not bool(((checked >= 0) & checked.isfinite()).all()):
            raise ValueError("weights: expected finite numbers >= 0, got others")
    totals = checked.new_zeros(int(membership.max()) + 1).index_add_(0, membership, checked)
    if bool((totals == 0).any()):
        raise ValueError("weights: expected a positive one in every group, got only zeros in one")
    return checked, totals


def check_method(method: object, annealing: list[float], options: dict[str, Any]) -> None:
    if method not in get_args(Method):
        raise ValueError(f'method: expected "lbfgs", "adam" or "dba", got {method!r}')
    if method != "dba":
        return
    if annealing:
        raise ValueError(f'annealing: expected none with method="dba", which has no gamma, got {annealing}')
    if options.get("cost", "sqeuclidean") != "sqeuclidean":
        raise ValueError(
            f'cost: expected "sqeuclidean" with method="dba", whose means minimise no other, got {options["cost"]!r}'
        )
    if "normalize" in options:
        raise TypeError('normalize: expected no such argument with method="dba", got one')
