"""Alignment of a text's positions to frames: the forward-sum loss, and monotonic alignment search."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.reduction import BatchReduction, check_reduction
from warpalign._ctc.settings import MonotonicOutput, Settings, check_blank_logprob, check_output
from warpalign.jax._arrays import check_floats, check_lengths
from warpalign.jax._call import call
from warpalign.jax._ctc import Inputs, losses
from warpalign.jax._reduction import reduced


def forward_sum_loss(
    attention_logprob: Array,
    text_lengths: Any = None,
    frame_lengths: Any = None,
    blank_logprob: float = -1.0,
    *,
    reduction: BatchReduction = "mean_target",
) -> Array:
    """Forward-sum loss of an aligner; :func:`warpalign.forward_sum_loss` for arrays of JAX.

    Args:
        attention_logprob: (B, T, S) or (B, 1, T, S): logarithm of the attention that frame t pays to position s, which need not be
            normalised; float64, float32, float16 or bfloat16.
        text_lengths: (B,) true numbers of positions S_b, 0 to S, as lengths in :func:`ctc_loss`. None: all S.
        frame_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        blank_logprob: the logit of blank at every frame.
        reduction: as in :func:`ctc_loss`. "mean_target": mean over the batch of loss / max(S_b, 1).

    Returns:
        0-d, or (B,) with "none"; float64 for float64 attention, else float32. An item without any path has the loss 0.

    Raises:
        TypeError, ValueError: an argument is invalid.
        NotImplementedError: for second derivatives.

    Examples:
        >>> attention = jnp.zeros((2, 60, 20))
        >>> jax.grad(forward_sum_loss)(attention, [20, 15], [60, 50]).shape
        (2, 60, 20)
    """
    table = check_floats(
        attention_logprob, "attention_logprob", "T, S", (3, 4), shapes="(B, T, S) or (B, 1, T, S)"
    )
    if table.ndim == 4:
        if table.shape[1] != 1:
            raise ValueError(
                f"attention_logprob: expected (B, T, S) or (B, 1, T, S), got shape {table.shape}"
            )
        table = table[:, 0]
    blank = check_blank_logprob(blank_logprob)
    reduction = check_reduction(reduction)
    batch, frames, positions = table.shape
    texts = check_lengths(text_lengths, "text_lengths", batch, positions, "S", unit="item")
    lengths = check_lengths(frame_lengths, "frame_lengths", batch, frames, "T", unit="item")
    logits = jnp.pad(table, ((0, 0), (0, 0), (1, 0)), constant_values=blank)
    index = jnp.arange(1, positions + 1, dtype=jnp.int32)
    if texts is not None:
        beyond = jnp.pad(index > texts[:, None], ((0, 0), (1, 0)))
        logits = jnp.where(beyond[:, None], -jnp.inf, logits)
    targets = jnp.broadcast_to(index, (batch, positions))
    found = losses(Settings(zero_infinity=True), Inputs(logits, targets, lengths, texts, None))
    return reduced(found, lengths, frames, texts, positions, reduction, False)


def monotonic_alignment_search(
    scores: Array, text_lengths: Any = None, frame_lengths: Any = None, *, output: MonotonicOutput = "path"
) -> Array:
    """The monotonic alignment of greatest score, in which every position of the text has at least one frame;
    :func:`warpalign.monotonic_alignment_search` for arrays of JAX. It has no gradient.

    Args:
        scores: (B, S, T) or (S, T): of text position and frame, float64, float32, float16 or bfloat16.
        text_lengths: (B,) true numbers of positions S_b, 0 to S. None: all S.
        frame_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T. Padding is ignored.
        output: "path" or "durations".

    Returns:
        (B, S, T) bools for "path", True where the frame belongs to the position; (B, S) int32 for "durations", the numbers
        of frames of each position. All False, or 0, where there is no path, because S_b > T_b, or where a score is NaN or +inf.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> scores = jnp.zeros((2, 5, 20))
        >>> monotonic_alignment_search(scores, output="durations").sum(1).tolist()
        [20, 20]
    """
    table = jax.lax.stop_gradient(check_floats(scores, "scores", "S, T"))
    wants_path = check_output(output) == "path"
    unbatched = table.ndim == 2
    table = table[None] if unbatched else table
    batch, positions, frames = table.shape
    _, durations, path = call(
        "monotonic_alignment",
        scores=table,
        text_lengths=check_lengths(
            text_lengths, "text_lengths", batch, positions, "S", unbatched=unbatched, unit="item"
        ),
        frame_lengths=check_lengths(
            frame_lengths, "frame_lengths", batch, frames, "T", unbatched=unbatched, unit="item"
        ),
        wants_path=wants_path,
    )
    found = path if wants_path else durations
    return found[0] if unbatched else found
