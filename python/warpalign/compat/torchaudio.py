"""``torchaudio.functional.rnnt_loss`` and ``torchaudio.transforms.RNNTLoss``, of torchaudio 2.11.

What differs: losses of float16 logits are float32, where torchaudio's overflow; bfloat16, float64, any strides and any integer
type are accepted; a length of 0 is fine, and no length must reach its axis. Both may be compiled by torch.jit.script; a process
that loads them must import this module before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from warpalign.transducer import transducer_loss


def rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = -1,
    clamp: float = -1,
    reduction: str = "mean",
    fused_log_softmax: bool = True,
) -> Tensor:
    """RNN-T loss of logits (B, T, U+1, V); with ``fused_log_softmax=False`` of log-probabilities, and the gradient by them."""
    if torch.jit.is_scripting():  # type: ignore[attr-defined]
        result: Tensor = torch.ops.warpalign.torchaudio_rnnt_loss(
            logits, targets, logit_lengths, target_lengths, blank, clamp, reduction, fused_log_softmax
        )
        return result
    else:  # TorchScript would compile what follows a return
        return _rnnt_loss(
            logits, targets, logit_lengths, target_lengths, blank, clamp, reduction, fused_log_softmax
        )


def _rnnt_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    reduction: str,
    fused_log_softmax: bool,
) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError('reduction should be one of "none", "mean", or "sum"')
    return transducer_loss(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        blank=blank,
        clamp=clamp if clamp > 0 else None,
        from_log_probs=not fused_log_softmax,
        reduction=reduction,  # type: ignore[arg-type]
    )


# TorchScript calls an operator by its name, where it cannot read Python. Its gradient is that of the function within.
_library = torch.library.Library("warpalign", "FRAGMENT")
_library.define(
    "torchaudio_rnnt_loss(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
    "str reduction, bool fused_log_softmax) -> Tensor"
)
_library.impl("torchaudio_rnnt_loss", _rnnt_loss, "CompositeImplicitAutograd")


class RNNTLoss(nn.Module):
    """:func:`rnnt_loss` with fixed settings."""

    def __init__(
        self, blank: int = -1, clamp: float = -1.0, reduction: str = "mean", fused_log_softmax: bool = True
    ) -> None:
        super().__init__()
        self.blank = blank
        self.clamp = clamp
        self.reduction = reduction
        self.fused_log_softmax = fused_log_softmax

    def forward(
        self, logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor
    ) -> Tensor:
        return rnnt_loss(
            logits,
            targets,
            logit_lengths,
            target_lengths,
            self.blank,
            self.clamp,
            self.reduction,
            self.fused_log_softmax,
        )
