"""``torchaudio.functional.rnnt_loss`` and ``torchaudio.transforms.RNNTLoss``, of torchaudio 2.11.

What differs: losses of float16 logits are float32, where torchaudio's overflow; bfloat16, float64, any strides and any integer
type are accepted; a length of 0 is fine, and no length must reach its axis.
"""

from __future__ import annotations

from torch import Tensor, nn

from warpalign.functional import transducer_loss


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
