"""Soft-DTW as a metric: a torchmetrics.Metric if torchmetrics is installed, otherwise a class with the same methods.

Lightning, MetricCollection and synchronisation with torch.distributed require torchmetrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from warpalign._core.checks import check_flag, check_number
from warpalign._core.series import AnySeries, Lengths
from warpalign._soft_dtw.checks import check_metric_params, check_settings
from warpalign._soft_dtw.problem import problem
from warpalign._soft_dtw.settings import Settings


class _Sums(nn.Module):
    """The part of torchmetrics.Metric that a metric whose states are sums needs."""

    def __init__(self) -> None:
        super().__init__()
        self._zeros: dict[str, Tensor] = {}

    def add_state(self, name: str, default: Tensor, dist_reduce_fx: str) -> None:
        self._zeros[name] = default
        self.register_buffer(name, default.clone(), persistent=False)

    def update(self, *arguments: Any, **keywords: Any) -> None:
        raise NotImplementedError

    def compute(self) -> Tensor:
        raise NotImplementedError

    def reset(self) -> None:
        for name in self._zeros:
            getattr(self, name).zero_()

    def forward(self, *arguments: Any, **keywords: Any) -> Tensor:
        """Updates, and returns the metric of this batch alone."""
        before = {name: getattr(self, name).clone() for name in self._zeros}
        self.reset()
        self.update(*arguments, **keywords)
        value: Tensor = self.compute()
        for name, sums in before.items():
            getattr(self, name).add_(sums)
        return value


if TYPE_CHECKING:
    _Metric = _Sums
else:
    try:
        from torchmetrics import Metric as _Metric
    except ModuleNotFoundError:
        _Metric = _Sums


class SoftDTWMetric(_Metric):
    """Mean soft-DTW between predicted and true series, over all pairs since the last reset.

    Args:
        gamma: smoothing, in units of the cost; finite and >= 0. 0: hard DTW.
        normalize: soft-DTW divergence, which is not negative and 0 for equal series, instead of soft-DTW.
        metric_params: further arguments of :func:`warpalign.soft_dtw`, out of cost, bandwidth, band, max_slope, step_penalty and precision.
        unbatched: True says that update() gets single series (N, D), as for :func:`warpalign.soft_dtw`.
        options: further arguments of torchmetrics.Metric, dist_sync_on_step for instance.

    Examples:
        >>> metric = SoftDTWMetric(gamma=0.1, normalize=True)
        >>> for _ in range(3):
        ...     metric.update(torch.randn(8, 100, 3), torch.randn(8, 120, 3))
        >>> metric.compute().shape
        torch.Size([])
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    total: Tensor
    count: Tensor

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        normalize: bool = False,
        metric_params: dict[str, Any] | None = None,
        unbatched: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.gamma = check_number(gamma, "gamma")
        self.metric_params = check_metric_params(metric_params)
        self.normalize = check_flag(normalize, "normalize")
        self.unbatched = check_flag(unbatched, "unbatched")
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @torch.no_grad()
    def update(
        self,
        preds: AnySeries,
        target: AnySeries,
        preds_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> None:
        """Adds pairs of series to the mean.

        Args:
            preds: (B, N, D), or (N, D) for one pair: a tensor, an array, masked ones too, or a list of series, as for
                :func:`warpalign.dtw_path`.
            target: (B, M, D), or (M, D), in the same forms.
            preds_lengths: (B,) true lengths within preds, from 1 to N. None: all N. Padding is ignored.
            target_lengths: (B,) true lengths within target, from 1 to M. None: all M.
        """
        cost, settings = _metric_settings(**self.metric_params)
        of = problem(
            preds,
            target,
            gamma=self.gamma,
            cost=cost,
            x_lengths=preds_lengths,
            y_lengths=target_lengths,
            x_mask=None,
            y_mask=None,
            settings=settings,
            names=("preds", "target"),
            unbatched=self.unbatched,
            takes_arrays=True,
            takes_halves=True,
        )
        values = of.divergence() if self.normalize else of.value()
        self.total += values.double().sum().to(self.total.device)
        self.count += values.numel()

    def compute(self) -> Tensor:
        """The mean, 0-d; NaN before the first update."""
        return (self.total / self.count).float()


def _metric_settings(
    cost: object = "sqeuclidean",
    bandwidth: object = None,
    band: object = "sakoe_chiba",
    max_slope: object = None,
    step_penalty: object = 0.0,
    precision: object = None,
) -> tuple[object, Settings]:
    return cost, check_settings(bandwidth, band, max_slope, step_penalty, precision)
