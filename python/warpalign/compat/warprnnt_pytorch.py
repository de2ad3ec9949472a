"""``warprnnt_pytorch`` (warp-transducer): ``RNNTLoss`` and ``rnnt_loss``, as ESPnet imports them.

:func:`install` puts this module under the name ``warprnnt_pytorch``. "mean" and "sum" have the shape (1,). What differs:
half types are taken, on a CPU the gradient is by the logits as well, and padding needs no particular values.
"""

from __future__ import annotations

import sys

from torch import Tensor, nn

from warpalign.compat._installation import Installation
from warpalign.transducer import transducer_loss


def rnnt_loss(
    acts: Tensor,
    labels: Tensor,
    act_lens: Tensor,
    label_lens: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    fastemit_lambda: float = 0.0,
) -> Tensor:
    """RNN-T loss of logits (B, T, U+1, V).

    Args:
        acts: (B, T, U+1, V) logits.
        labels: (B, U) labels.
        act_lens: (B,) numbers of frames.
        label_lens: (B,) numbers of labels.
        blank: the column of the blank.
        reduction: "mean" or "sum" over the batch, of shape (1,); "none": (B,).
        fastemit_lambda: FastEmit: the gradient of label arcs is scaled by 1 + lambda. The value is that of the RNN-T loss.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
    losses = transducer_loss(
        acts,
        labels,
        act_lens,
        label_lens,
        blank=blank,
        fastemit_lambda=fastemit_lambda,
        reduction="none",
    )
    if reduction == "none":
        return losses
    return (losses.mean() if reduction == "mean" else losses.sum()).unsqueeze(-1)


class RNNTLoss(nn.Module):
    """:func:`rnnt_loss` as a module.

    Args:
        blank: the column of the blank.
        reduction: "mean" or "sum" over the batch, of shape (1,); "none": (B,).
        fastemit_lambda: FastEmit's weight.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", fastemit_lambda: float = 0.0) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.fastemit_lambda = fastemit_lambda

    def forward(self, acts: Tensor, labels: Tensor, act_lens: Tensor, label_lens: Tensor) -> Tensor:
        """The loss.

        Args:
            acts: (B, T, U+1, V) logits.
            labels: (B, U) labels.
            act_lens: (B,) numbers of frames.
            label_lens: (B,) numbers of labels.
        """
        return rnnt_loss(acts, labels, act_lens, label_lens, self.blank, self.reduction, self.fastemit_lambda)


def install() -> Installation:
    """Lets ``from warprnnt_pytorch import RNNTLoss`` find this module: ESPnet's transducers import it so when they are made.

    Returns:
        The replaced name. A ``with`` block takes it away at its end, and restores a package of that name that was imported.
    """
    return Installation.of_module("warprnnt_pytorch", sys.modules[__name__])
