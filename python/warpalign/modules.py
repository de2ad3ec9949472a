"""Soft-DTW as a module."""

from __future__ import annotations

from torch import Tensor, nn

from warpalign._checks import Reduction, check_gamma, check_reduction
from warpalign.functional import soft_dtw


class SoftDTW(nn.Module):
    """Soft-DTW as a loss: ``SoftDTW(gamma)(x, y)`` is :func:`warpalign.soft_dtw` with fixed settings.

    Args:
        gamma: smoothing, in units of the cost; finite and > 0.
        reduction: "none" for one value per pair, or their "mean" or "sum".
    """

    def __init__(self, gamma: float = 1.0, *, reduction: Reduction = "none") -> None:
        super().__init__()
        self.gamma = check_gamma(gamma)
        self.reduction: Reduction = check_reduction(reduction)

    def forward(
        self, x: Tensor, y: Tensor, x_lengths: Tensor | None = None, y_lengths: Tensor | None = None
    ) -> Tensor:
        """x (B, N, D), y (B, M, D), lengths (B,) -> (B,), or 0-d with a reduction."""
        return soft_dtw(
            x, y, gamma=self.gamma, x_lengths=x_lengths, y_lengths=y_lengths, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}, reduction={self.reduction!r}"
