"""Costs between the steps or points of two sets: by name, or a function of the caller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from warpalign._core.checks import DTYPES, shape_of
from warpalign._core.scalars import COSTS as COSTS
from warpalign._core.scalars import Cost as Cost
from warpalign._core.transforms import no_autocast

CostFunction = Callable[[Tensor, Tensor], Tensor]


class Mahalanobis(nn.Module):
    """The squared Mahalanobis distance, or a learned linear metric: C[i, j] = |(x[i] - y[j]) L|^2, with a factor L.

    L L^T is the matrix of the distance. It is of any rank: with K < D columns the metric looks at K directions alone. Pass it as the
    cost of any function, module or estimator of time series. These multiply the series with L and align the K features, so that no
    N x M x D table exists and costs of large K use matrix units as "sqeuclidean" does. Gradients with respect to L come with those of
    the series. Elsewhere, as in :func:`sinkhorn`, it is a function that returns the costs.

    Args:
        factor: L, (D, K), a floating-point tensor on the device and in the dtype of the series (float32 for series of half types). An
            nn.Parameter is learned: hand it to the optimizer, or the parameters of the :class:`SoftDTW` that has this cost. Another
            tensor is a buffer.

    Raises:
        TypeError, ValueError: the factor is no matrix of floating-point numbers, or does not fit the series.

    Examples:
        >>> cost = Mahalanobis(torch.nn.Parameter(torch.eye(3)))
        >>> x, y = torch.randn(8, 50, 3), torch.randn(8, 60, 3)
        >>> from warpalign import soft_dtw
        >>> soft_dtw(x, y, cost=cost).sum().backward()
        >>> cost.factor.grad.shape
        torch.Size([3, 3])
    """

    factor: Tensor

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        if not isinstance(factor, Tensor):
            raise TypeError(f"factor: expected a torch.Tensor, got {type(factor).__name__}")
        if factor.dtype not in DTYPES:
            raise TypeError(
                f"factor: expected dtype float64, float32, float16 or bfloat16, got {factor.dtype}"
            )
        if factor.dim() != 2 or 0 in factor.shape:
            raise ValueError(f"factor: expected (D, K) without an empty axis, got shape {shape_of(factor)}")
        if isinstance(factor, nn.Parameter):
            self.factor = factor
        else:
            self.register_buffer("factor", factor)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """(B, N, M) costs.

        Args:
            x: (B, N, D).
            y: (B, M, D).
        """
        by_differences = "donot_use_mm_for_euclid_dist"  # products would cancel where steps are close
        return torch.cdist(self.features(x), self.features(y), compute_mode=by_differences).square()

    def features(self, series: Tensor) -> Tensor:
        """(B, N, K): the features of which the costs are squared distances, series L.

        Args:
            series: (B, N, D).
        """
        factor = self.factor
        if factor.dtype in (torch.float16, torch.bfloat16) and series.dtype == torch.float32:
            factor = factor.float()
        if factor.dtype != series.dtype:
            raise TypeError(
                f"factor: expected the dtype of the series, {series.dtype}, got {factor.dtype}: write factor.to({series.dtype})"
            )
        if factor.device != series.device:
            raise ValueError(
                f"factor: expected the device of the series, {series.device}, got {factor.device}: move the cost with .to({str(series.device)!r})"
            )
        if factor.shape[0] != series.shape[-1]:
            raise ValueError(
                f"factor: expected (D, K) with the D = {series.shape[-1]} features of the series, got shape {shape_of(factor)}"
            )
        with no_autocast():
            return series @ factor


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
