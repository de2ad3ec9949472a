"""From the losses of a batch of utterances to what a caller has asked for."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from warpalign._core.reduction import BatchReduction
from warpalign._core.scalars import Reduction


def reduced_values(values: Array, reduction: Reduction, unbatched: bool) -> Array:
    """The reduction of (B,) values; without one, (B,) or 0-d."""
    if reduction == "none":
        return values[0] if unbatched else values
    return values.sum() if reduction == "sum" else values.mean()


def reduced(
    losses: Array,
    frame_lengths: Array | None,
    frames: int,
    target_lengths: Array | None,
    labels: int,
    reduction: BatchReduction,
    unbatched: bool,
) -> Array:
    """The reduction of (B,) losses. Where there are no lengths, all have `frames` and `labels`."""
    if reduction == "none" or reduction == "sum" or reduction == "mean":
        return reduced_values(losses, reduction, unbatched)
    if reduction == "mean_frame":
        return _mean_by(losses, frame_lengths, frames)
    if reduction == "mean_target":
        return _mean_by(losses, target_lengths, labels)
    if target_lengths is None:
        return losses.sum() / max(losses.shape[0] * labels, 1)
    return losses.sum() / jnp.maximum(target_lengths.sum(), 1).astype(losses.dtype)


def _mean_by(losses: Array, lengths: Array | None, length: int) -> Array:
    """Mean of losses, each divided by its length."""
    if lengths is None:
        return losses.mean() / max(length, 1)
    return (losses / jnp.maximum(lengths, 1).astype(losses.dtype)).mean()
