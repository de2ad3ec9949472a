"""Soft-DTW as a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from warpalign._core.checks import Precision, Reduction, check_flag, check_reduction, warn_of_one_series
from warpalign._core.costs import Cost, CostFunction, check_cost
from warpalign._core.series import Lengths, Mask, SeriesInput
from warpalign._soft_dtw.checks import check_gamma, check_settings
from warpalign._soft_dtw.functional import soft_dtw
from warpalign._soft_dtw.settings import Band

_DEFAULTS = soft_dtw.__kwdefaults__ or {}


class SoftDTW(nn.Module):
    """Soft-DTW as a loss: ``SoftDTW(gamma)(x, y)`` is :func:`warpalign.soft_dtw` with fixed settings.

    Args:
        gamma: smoothing, in units of the cost: a number >= 0, or a tensor () or (B,), which becomes a buffer and moves with
            the module. An nn.Parameter is learnt (but the value alone, lowered, only makes it grow). To anneal a number, assign it
            between steps: ``loss.gamma = 0.9 * loss.gamma``. A tensor is in the state_dict and a number is not, so that neither
            kind's state_dict loads into a module of the other.
        cost, bandwidth, band, max_slope, step_penalty, normalize, precision, batch_invariant: as in :func:`warpalign.soft_dtw`.
        reduction: "none" (the default; torch's losses have "mean") for one value per pair, or their "mean" or "sum".
        unbatched: as in :func:`warpalign.soft_dtw`. The warning also comes for (N, D), D > 1, that requires a gradient.

    Raises:
        TypeError, ValueError: an argument does not fit; a call raises what :func:`warpalign.soft_dtw` raises.

    Examples:
        >>> loss = SoftDTW(gamma=0.1, reduction="mean")
        >>> prediction = torch.randn(8, 100, 3, requires_grad=True)
        >>> loss(prediction, torch.randn(8, 120, 3)).backward()
    """

    def __init__(
        self,
        gamma: float | Tensor = 1.0,
        *,
        cost: Cost | CostFunction = "sqeuclidean",
        bandwidth: int | None = None,
        band: Band = "sakoe_chiba",
        max_slope: float | None = None,
        step_penalty: float = 0.0,
        normalize: bool = False,
        reduction: Reduction = "none",
        precision: Precision | None = None,
        batch_invariant: bool = False,
        unbatched: bool = False,
    ) -> None:
        super().__init__()
        check_settings(bandwidth, band, max_slope, step_penalty, precision, batch_invariant)
        check_cost(cost)
        self.gamma: float | Tensor
        checked = check_gamma(gamma)
        if isinstance(checked, Tensor) and not isinstance(checked, nn.Parameter):
            self.register_buffer("gamma", checked)
        else:
            self.gamma = checked
        self.reduction: Reduction = check_reduction(reduction)
        self._options: dict[str, Any] = {
            "cost": cost,
            "bandwidth": bandwidth,
            "band": band,
            "max_slope": max_slope,
            "step_penalty": step_penalty,
            "normalize": check_flag(normalize, "normalize"),
            "precision": precision,
            "batch_invariant": batch_invariant,
            "unbatched": check_flag(unbatched, "unbatched"),
        }

    def forward(
        self,
        x: SeriesInput,
        y: SeriesInput,
        x_lengths: Lengths | None = None,
        y_lengths: Lengths | None = None,
        x_mask: Mask | None = None,
        y_mask: Mask | None = None,
    ) -> Tensor:
        """x (B, N, D), y (B, M, D), lengths (B,), masks (B, N) and (B, M) -> (B,), or 0-d with a reduction."""
        if not self._options["unbatched"]:
            for given in (x, y):  # a forecast (B, N) would be trained as one series
                if isinstance(given, Tensor) and given.requires_grad:
                    warn_of_one_series(given, ("x", "y"))
        return soft_dtw(
            x,
            y,
            gamma=self.gamma,
            x_lengths=x_lengths,
            y_lengths=y_lengths,
            x_mask=x_mask,
            y_mask=y_mask,
            reduction=self.reduction,
            **self._options,
        )

    def extra_repr(self) -> str:
        changed = {name: value for name, value in self._options.items() if value != _DEFAULTS[name]}
        settings = {"gamma": self.gamma, **changed, "reduction": self.reduction}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
