"""From the losses of a batch of utterances to what a caller has asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from torch import Tensor

BatchReduction = Literal["none", "sum", "mean", "mean_target", "mean_volume", "mean_frame"]


class BatchLengths(NamedTuple):
    """(B,) lengths, or where there are none the length of all."""

    of_frames: Tensor | None
    frames: int
    of_targets: Tensor | None
    labels: int


def reduced(losses: Tensor, lengths: BatchLengths, reduction: BatchReduction, unbatched: bool) -> Tensor:
    """The reduction of (B,) losses. unbatched: the call had one utterance without a batch axis."""
    if reduction == "none":
        return losses.squeeze(0) if unbatched else losses
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.mean()
    if reduction == "mean_frame":
        return _mean_by(losses, lengths.of_frames, lengths.frames)
    if reduction == "mean_target":
        return _mean_by(losses, lengths.of_targets, lengths.labels)
    if lengths.of_targets is None:
        return losses.sum() / max(losses.shape[0] * lengths.labels, 1)
    return losses.sum() / lengths.of_targets.sum().clamp(min=1)


def _mean_by(losses: Tensor, lengths: Tensor | None, length: int) -> Tensor:
    """Mean of losses, each divided by its length."""
    if lengths is None:
        return losses.mean() / max(length, 1)
    return (losses / lengths.clamp(min=1)).mean()


def check_reduction(reduction: object) -> BatchReduction:
    names = get_args(BatchReduction)
    if reduction not in names:
        expected = ", ".join(f'"{name}"' for name in names)
        raise ValueError(f"reduction: expected one of {expected}, got {reduction!r}")
    return reduction  # type: ignore[return-value]
