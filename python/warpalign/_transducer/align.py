"""The best path of a transducer, and how probable each of its arcs is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._core.losses import fold_inputs
from warpalign._core.series import Lengths
from warpalign._core.torch_internals import is_forward_mode, is_transforming
from warpalign._core.transforms import Dim, apply, unfold
from warpalign._transducer import ops
from warpalign._transducer.autograd import Inputs
from warpalign._transducer.checks import (
    check_duration_logits,
    check_flag,
    check_inputs,
    check_joined_columns,
    check_logits,
    explained,
)
from warpalign._transducer.columns import check_columns, check_durations
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import BigBlanks, Settings, as_keywords


class TransducerPosteriors(NamedTuple):
    """The posterior probability of each arc, given the logits and the labels: the sum of the probabilities of the paths through it.

    Rows are (B, T, U+1): with packed logits (N,), for one utterance (T, U+1). Padding has 0. The sum of ``blank``, ``label``
    and ``big_blank`` at a node is the probability that a path visits it.
    """

    blank: Tensor
    """Rows: the node's blank; with durations, its blanks of every duration."""
    label: Tensor
    """(B, T, U), or with packed logits (N,): label u + 1, with any duration, is emitted at frame t. Sums to 1 over t."""
    big_blank: Tensor
    """(n, rows): big blank i."""
    duration: Tensor
    """(D, rows): the arcs of duration d, blank and label."""


class TransducerAlignment(NamedTuple):
    """The best path of every utterance. Integers are int32; -1 in the padding, and for utterances without a path."""

    score: Tensor
    """(B,): the log of the best path's weight. -inf without a path."""
    frames: Tensor
    """(B, U), or as the targets: the frame at which each label is emitted."""
    durations: Tensor
    """(B, U), or as the targets: the frames that each label's arc consumes, 0 without durations."""
    blanks: Tensor
    """(B, T): the frames that the blank consumes that leaves frame t, -1 where none does: at frames that an arc skips or that
    a label of a duration above 0 leaves. With packed logits (N,): at the node that the blank leaves."""
    posteriors: TransducerPosteriors | None
    """With ``posteriors=True``: how probable each arc is."""


def transducer_align(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    duration_logits: Tensor | None = None,
    durations: Sequence[int] | None = None,
    blank: int = -1,
    big_blanks: BigBlanks = (),
    sigma: float = 0.0,
    penalties: TransducerPenalties | None = None,
    from_log_probs: bool = False,
    packed: bool = False,
    posteriors: bool = False,
) -> TransducerAlignment:
    """Alignment of labels to frames by a transducer: the best path through its lattice, and the posteriors of its arcs.

    The lattice is that of :func:`transducer_loss`, or with durations that of :func:`tdt_loss`. The best path has the largest
    sum of arc weights. Ties between paths are resolved from their end: blanks before labels,
    and longer arcs before shorter ones. Labels are therefore emitted as early as possible.

    Sources: Viterbi, "Error bounds for convolutional codes and an asymptotically optimum decoding algorithm" (1967); Graves,
    "Sequence transduction with recurrent neural networks" (2012), section 2.4.

    Args:
        logits: (B, T, U+1, V), (T, U+1, V), or with ``packed`` (N, V), float64, float32, float16 or bfloat16. Any strides but
            the last, which is 1.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type. A label lies in [0, V) and is not the column of a blank.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the logits' device, a list, a tuple or
            an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored.
        duration_logits: (B, T, U+1, D), (T, U+1, D), or with ``packed`` (N, D), with ``durations``. None: they are the last
            D columns of ``logits``, as in :func:`tdt_loss`.
        durations: the D different numbers of frames of a TDT model, 0 to 64, at most 16. None: the model is not a TDT model.
        blank: the blank's column; below 0 it counts from V.
        big_blanks: the frames that each big blank consumes, in the columns blank−1, blank−2, ..., or {column: frames}; not with
            durations.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        penalties: for late labels, the end of an utterance and unknown labels: :class:`TransducerPenalties`. None: no penalty.
        from_log_probs: True: the logits are log-probabilities.
        packed: row (t, u) of utterance b is row offset_b + t (U_b + 1) + u of (N, V), N = sum of T_b (U_b + 1). Both lengths
            are needed.
        posteriors: whether to compute them; they take the time and the memory of a loss with its gradient's lattice.

    Returns:
        TransducerAlignment. Reals are float64 for float64 logits, else float32. For one utterance the batch axis is left out.
        The results are not differentiable.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's score and posteriors NaN.

    A NaN or +inf among an utterance's logits makes its score and posteriors NaN, no other's.

    Examples:
        >>> logits, targets = torch.randn(4, 50, 11, 30), torch.randint(0, 29, (4, 10))
        >>> alignment = transducer_align(logits, targets, posteriors=True)
        >>> alignment.frames.shape, alignment.posteriors.label.shape
        (torch.Size([4, 10]), torch.Size([4, 50, 10]))
    """
    packed = check_flag(packed, "packed")
    wanted = check_flag(posteriors, "posteriors")
    logits = check_logits(logits, "logits", packed)
    durations_given = () if durations is None else check_durations(durations)
    if durations is not None and duration_logits is None:
        joined, columns = logits, check_joined_columns(logits, durations_given, "logits")
        logits, duration_logits = joined[..., :columns], joined[..., columns:]
    columns = logits.shape[-1]
    of = check_columns(blank, durations, big_blanks, columns + len(durations_given))
    if durations is None:
        if duration_logits is not None:
            raise ValueError("durations: expected the durations of duration_logits, got None")
    else:
        duration_logits = check_duration_logits(duration_logits, logits, of.durations, packed, "logits")
    settings = check_settings(of, penalties, sigma=sigma, from_log_probs=from_log_probs, packed=packed)
    inputs, unbatched = check_inputs(logits, duration_logits, targets, logit_lengths, target_lengths, packed)
    try:
        with naming_arguments():
            score, frames, label_frames, blanks, *parts = _aligned(inputs, settings, wanted)
    except ValueError as error:
        # Packed logits have rows and columns alone.
        frames_of, states = (0, 1) if packed else inputs.logits.shape[1:3]
        raise explained(error, settings, frames_of, states, columns) from None
    found = _posteriors(parts, durations is not None, packed) if wanted else None
    result = TransducerAlignment(score, frames, label_frames, blanks, found)
    return of_one_utterance(result) if unbatched else result


def _posteriors(parts: Sequence[Tensor], tdt: bool, packed: bool) -> TransducerPosteriors:
    blank, label, grouped = parts
    none = grouped[:0]
    return TransducerPosteriors(
        blank, label if packed else label[..., :-1], none if tdt else grouped, grouped if tdt else none
    )


def of_one_utterance(a: TransducerAlignment) -> TransducerAlignment:
    """Without the batch axis."""
    p = a.posteriors
    if p is not None:
        p = TransducerPosteriors(
            p.blank.squeeze(0), p.label.squeeze(0), p.big_blank.squeeze(1), p.duration.squeeze(1)
        )
    return TransducerAlignment(
        a.score.squeeze(0), a.frames.squeeze(0), a.durations.squeeze(0), a.blanks.squeeze(0), p
    )


class _Align(torch.autograd.Function):
    """The operator, for torch.func."""

    @staticmethod
    def forward(
        logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        posteriors: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        inputs = (logits, duration_logits, targets, logit_lengths, target_lengths, None)
        result: tuple[Tensor, ...] = ops.align(*inputs, posteriors, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * 7

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        posteriors: bool,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        given = (logits, duration_logits, targets, logit_lengths, target_lengths)
        folded = fold_inputs(given, in_dims[:5], size)
        *batched, grouped = apply(_Align, *folded, posteriors, settings)
        wanted = batched if posteriors else batched[:4]
        apart, dims = unfold(tuple(wanted), size)
        if not posteriors:
            return (*apart, *batched[4:], grouped), (*dims, None, None, None)
        return (*apart, grouped.unflatten(1, (size, grouped.shape[1] // size))), (*dims, 1)


def _aligned(inputs: Inputs, settings: Settings, posteriors: bool) -> tuple[Tensor, ...]:
    logits, durations, *rest = inputs
    logits, durations = logits.detach(), None if durations is None else durations.detach()
    if is_transforming() or is_forward_mode():
        result: tuple[Tensor, ...] = apply(_Align, logits, durations, *rest[:3], posteriors, tuple(settings))
        return result
    result = ops.align(logits, durations, *rest, posteriors, **as_keywords(settings))
    return result
