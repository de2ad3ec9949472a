"""Costs between the steps or points of two sets: by name, or a function of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from warpalign._core.checks import shape_of

Cost = Literal["sqeuclidean", "euclidean", "l1", "cosine", "huber"]
COSTS: tuple[str, ...] = get_args(Cost)
CostFunction = Callable[[Tensor, Tensor], Tensor]


def check_cost(cost: object) -> int | CostFunction:
    """The number of a cost that the operators have, or the caller's own function."""
    if isinstance(cost, str):
        if cost not in COSTS:
            names = ", ".join(f'"{name}"' for name in COSTS)
            raise ValueError(f"cost: expected one of {names}, or a function, got {cost!r}")
        return COSTS.index(cost)
    if not callable(cost):
        raise TypeError(f"cost: expected a str or a function, got {type(cost).__name__}")
    function: CostFunction = cost
    return function


def check_costs(costs: object, x: Tensor, y: Tensor) -> Tensor:
    """What the caller's function has made of x and y."""
    if not isinstance(costs, Tensor):
        raise TypeError(f"cost: expected a function that returns a torch.Tensor, got {type(costs).__name__}")
    shape = (x.shape[0], x.shape[1], y.shape[1])
    if costs.shape != shape or costs.dtype != x.dtype or costs.device != x.device:
        raise ValueError(
            f"cost: expected a function that returns shape {shape}, {x.dtype}, on {x.device}, "
            f"got shape {shape_of(costs)}, {costs.dtype}, on {costs.device}"
        )
    return costs


def without_padding(series: Tensor, lengths: Tensor | None) -> Tensor:
    """The first time step in place of padding: where the caller's function can be differentiated, as at 0 it may not."""
    if lengths is None:
        return series
    steps = torch.arange(series.shape[1], device=series.device)
    return torch.where((steps < lengths[:, None])[:, :, None], series, series[:, :1])
