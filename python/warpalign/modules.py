"""Soft-DTW as a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from warpalign._checks import Band, Reduction, check_band, check_gamma, check_reduction
from warpalign.functional import soft_dtw

_DEFAULTS = soft_dtw.__kwdefaults__ or {}


class SoftDTW(nn.Module):
    """Soft-DTW as a loss: ``SoftDTW(gamma)(x, y)`` is :func:`warpalign.soft_dtw` with fixed settings.

    Args:
        gamma: smoothing, in units of the cost; finite and > 0.
        bandwidth, band, max_slope: which cells paths may use.
        reduction: "none" for one value per pair, or their "mean" or "sum".

    Raises:
        TypeError, ValueError: gamma or reduction do not fit; a call raises what :func:`warpalign.soft_dtw` raises.

    Example:
        >>> loss = SoftDTW(gamma=0.1, reduction="mean")
        >>> prediction = torch.randn(8, 100, 3, requires_grad=True)
        >>> loss(prediction, torch.randn(8, 120, 3)).backward()
    """

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        bandwidth: int | None = None,
        band: Band = "sakoe_chiba",
        max_slope: float | None = None,
        reduction: Reduction = "none",
    ) -> None:
        super().__init__()
        check_band(bandwidth, band, max_slope)
        self.gamma = check_gamma(gamma)
        self.options: dict[str, Any] = {"bandwidth": bandwidth, "band": band, "max_slope": max_slope}
        self.reduction: Reduction = check_reduction(reduction)

    def forward(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None = None, y_lengths: Tensor | None = None
    ) -> Tensor:
        """x (B, N, D), y (B, M, D), lengths (B,) -> (B,), or 0-d with a reduction."""
        return soft_dtw(
            x,
            y,
            gamma=self.gamma,
            x_lengths=x_lengths,
            y_lengths=y_lengths,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        changed = {name: value for name, value in self.options.items() if value != _DEFAULTS[name]}
        settings = {"gamma": self.gamma, **changed, "reduction": self.reduction}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
