"""The best path of a transducer, and how probable each of its arcs is, for arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.scalars import check_flag
from warpalign._transducer.columns import check_columns, check_durations
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import BigBlanks
from warpalign.jax._call import call
from warpalign.jax._transducer import check_duration_logits, check_inputs, check_logits


class TransducerPosteriors(NamedTuple):
    """The posterior probability of each arc, given the logits and the labels. For one utterance B is left out."""

    blank: Array
    """(B, T, U+1): the node's blank; with durations, its blanks of every duration."""
    label: Array
    """(B, T, U): label u + 1, with any duration, is emitted at frame t. Sums to 1 over t."""
    big_blank: Array
    """(n, B, T, U+1): big blank i."""
    duration: Array
    """(D, B, T, U+1): the arcs of duration d, blank and label."""


class TransducerAlignment(NamedTuple):
    """The best path of every utterance, by :func:`transducer_align`. Integers are int32; -1 in the padding, and for utterances
    without a path. For one utterance B is left out."""

    score: Array
    """(B,): the log of the best path's weight. -inf without a path."""
    frames: Array
    """(B, U): the frame at which each label is emitted."""
    durations: Array
    """(B, U): the frames that each label's arc consumes, 0 without durations."""
    blanks: Array
    """(B, T): the frames that the blank consumes that leaves frame t, -1 where none does."""
    posteriors: TransducerPosteriors | None
    """With ``posteriors=True``: how probable each arc is."""


def transducer_align(
    logits: Array,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    duration_logits: Array | None = None,
    durations: Sequence[int] | None = None,
    blank: int = -1,
    big_blanks: BigBlanks = (),
    sigma: float = 0.0,
    penalties: TransducerPenalties | None = None,
    from_log_probs: bool = False,
    posteriors: bool = False,
) -> TransducerAlignment:
    """Alignment of labels to frames by a transducer; :func:`warpalign.transducer_align` for arrays of JAX. It has no gradient.

    Args:
        logits: (B, T, U+1, V) or (T, U+1, V), float64, float32, float16 or bfloat16.
        targets: (B, U) labels, or (U,) for one utterance, as in :func:`transducer_loss`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored.
        duration_logits: (B, T, U+1, D) or (T, U+1, D), with ``durations``. None: they are the last D columns of ``logits``.
        durations: the D different numbers of frames of a TDT model, 0 to 64, at most 16. None: the model is not a TDT model.
        blank: the blank's column; below 0 it counts from V.
        big_blanks: the frames that each big blank consumes, or {column: frames}, as in :func:`transducer_loss`; not with durations.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        penalties: for late labels, the end of an utterance and unknown labels:
            :class:`warpalign.transducer.TransducerPenalties`. None: no penalty.
        from_log_probs: True: the logits are log-probabilities.
        posteriors: whether to compute them; they take the time and the memory of a loss with its gradient's lattice.

    Returns:
        TransducerAlignment(score, frames, durations, blanks, posteriors). Reals are float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: as :func:`transducer_loss`.

    Examples:
        >>> logits, targets = jnp.zeros((4, 50, 11, 30)), jnp.ones((4, 10), int)
        >>> alignment = transducer_align(logits, targets, posteriors=True)
        >>> alignment.frames.shape, alignment.posteriors.label.shape
        ((4, 10), (4, 50, 10))
    """
    wanted = check_flag(posteriors, "posteriors")
    logits = check_logits(logits, "logits")
    lengths = () if durations is None else check_durations(durations)
    if durations is not None:
        logits, duration_logits = check_duration_logits(logits, duration_logits, lengths, "logits")
    elif duration_logits is not None:
        raise ValueError("durations: expected the durations of duration_logits, got None")
    columns = check_columns(blank, durations, big_blanks, logits.shape[-1] + len(lengths))
    settings = check_settings(columns, penalties, sigma=sigma, from_log_probs=from_log_probs)
    of, unbatched = check_inputs(logits, duration_logits, targets, logit_lengths, target_lengths)
    of = jax.tree.map(jax.lax.stop_gradient, of)
    score, frames, label_frames, blanks, blank_posteriors, label_posteriors, grouped = call(
        "transducer_align", **of._asdict(), **settings._asdict(), posteriors=wanted
    )
    found = None
    if wanted:
        none = jnp.zeros((0, *blank_posteriors.shape), blank_posteriors.dtype)
        big_blank, by_duration = (
            (none, grouped) if columns.tdt else (grouped if columns.durations else none, none)
        )
        found = TransducerPosteriors(blank_posteriors, label_posteriors[..., :-1], big_blank, by_duration)
    result = TransducerAlignment(score, frames, label_frames, blanks, found)
    return _of_one_utterance(result) if unbatched else result


def _of_one_utterance(a: TransducerAlignment) -> TransducerAlignment:
    p = a.posteriors
    if p is not None:
        p = TransducerPosteriors(p.blank[0], p.label[0], p.big_blank[:, 0], p.duration[:, 0])
    return TransducerAlignment(a.score[0], a.frames[0], a.durations[0], a.blanks[0], p)
