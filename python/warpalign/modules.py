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

    Raises:
        TypeError, ValueError: gamma or reduction do not fit; a call raises what :func:`warpalign.soft_dtw` raises.

    Example:
        >>> loss = SoftDTW(gamma=0.1, reduction="mean")
        >>> prediction = torch.randn(8, 100, 3, requires_grad=True)
        >>> loss(prediction, torch.randn(8, 120, 3)).backward()
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
