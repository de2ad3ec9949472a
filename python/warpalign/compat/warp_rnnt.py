"""``warp_rnnt.rnnt_loss``, of warp-rnnt 0.7: from log-probabilities, with the gradient by them."""

from __future__ import annotations

from torch import Tensor

from warpalign.transducer import transducer_loss


def rnnt_loss(
    log_probs: Tensor,
    labels: Tensor,
    frames_lengths: Tensor,
    labels_lengths: Tensor,
    average_frames: bool = False,
    reduction: str | None = "none",
    blank: int = 0,
    gather: bool = False,
    fastemit_lambda: float = 0.0,
    compact: bool = False,
) -> Tensor:
    """RNN-T loss of log-probabilities: (B,) with "none" or None, else a number; the gradient is with respect to them.

    Args:
        log_probs: (B, T, U+1, V) log-probabilities, or with ``compact`` (N, V).
        labels: (B, U) labels, or with ``compact`` (sum of labels_lengths,).
        frames_lengths: (B,) true numbers of frames.
        labels_lengths: (B,) true numbers of labels.
        average_frames: whether each loss is divided by its number of frames.
        reduction: "none", "mean", "sum" or None, which is "none".
        blank: the column of the blank.
        gather: has no effect: there is no memory that it could save here.
        fastemit_lambda: strength of FastEmit, >= 0.
        compact: whether the batch is packed, without padding.
    """
    losses = transducer_loss(
        log_probs,
        labels,
        frames_lengths,
        labels_lengths,
        blank=blank,
        fastemit_lambda=fastemit_lambda,
        from_log_probs=True,
        packed=compact,
        reduction="none",
    )
    if average_frames:
        losses = losses / frames_lengths.to(losses)
    if reduction is None or reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.mean()
    raise ValueError(f"reduction: expected 'none', 'sum', 'mean' or None, got {reduction!r}")
