"""Costs that are stored as float16: storage="half" of sinkhorn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._transport.costs import row_blocks
from warpalign._transport.settings import Inputs

_COST = Inputs._fields.index("cost")


def check_storage(storage: object) -> bool:
    if storage not in (None, "half"):
        raise ValueError(f'storage: expected "half" or None, got {storage!r}')
    return storage == "half"


def in_half(cost: Tensor) -> Tensor:
    """Costs (B, N, M) as float16. Finite ones beyond its range, 65504, become NaN.

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
    """The operator on tensors that begin with Inputs, with rounded costs if ``half_costs``."""

    def run(*tensors: Any, half_costs: bool = False, **settings: Any) -> Any:
        cost = tensors[_COST]
        if half_costs and cost is not None:
            tensors = (*tensors[:_COST], in_half(cost), *tensors[_COST + 1 :])
        return operator(*tensors, **settings)

    return run
