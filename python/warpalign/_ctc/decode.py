"""Greedy and prefix beam search of CTC's frames."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import (
    can_be_read,
    check_count,
    check_flag,
    check_number,
    naming_arguments,
    shape_of,
)
from warpalign._core.hypotheses import Hypotheses, Predictor, State, advanced, agreed, cut_out
from warpalign._core.labels import check_column, keyword_only
from warpalign._core.series import Lengths
from warpalign._core.transforms import not_compiled, refuse_vmap
from warpalign._ctc import ops
from warpalign._ctc.checks import check_lengths, check_logits, check_prior
from warpalign._ctc.language import LanguageModel, check_language

_MOST_BEAMS = 128
_MOST_SCORED_BEAMS = 64


class CTCGreedyState(NamedTuple):
    """Where a stream of greedy search stands."""

    walk: Tensor
    """(B, 2) int64: the core's CtcWalk."""

    def new_tokens(self, tokens: Tensor) -> Tensor:
        """Of the hypotheses' ``tokens``: all of them."""
        return tokens


class CTCBeamState(NamedTuple):
    """Where a stream of beam search stands: B utterances, K prefixes of each."""

    hypotheses: Tensor
    """(B, K, 9) int64: the core's CtcHypothesis."""
    nodes: Tensor
    """(B, capacity, K, 2) int32: the labels of all prefixes, each with the one before it."""
    frames: Tensor
    """(B,) int32: frames so far."""
    language_rows: Tensor | None
    """(B·K, C): the language model's log-probabilities."""
    language: State
    final_before: Tensor | None
    """(B,) int64: labels that the chunks before have made final; None: the stream has had one chunk."""

    def new_tokens(self, tokens: Tensor) -> Tensor:
        """Labels that the last chunk has made final, −1 after them: (B, L) for tokens (B, L), or (L,) for (L,)."""
        labels, final = self.agreed()
        before = torch.zeros_like(final) if self.final_before is None else self.final_before
        found = cut_out(labels, before, final, tokens.shape[-1])
        return found if tokens.dim() == 2 else found.squeeze(0)

    def agreed(self) -> tuple[Tensor, Tensor]:
        """(B, L) labels of a prefix of each utterance, and (B,) how many of the first ones all prefixes share."""
        tokens, _, _, scores = ops.beam_labels(
            self.hypotheses, self.nodes, self.hypotheses.shape[1], self.nodes.shape[1]
        )
        return agreed(tokens, scores > -math.inf)


class _Frames(NamedTuple):
    """Checked logits and what is known of their classes."""

    logits: Tensor
    """(B, T, C)."""
    lengths: Tensor | None
    unbatched: bool
    keywords: dict[str, Any]

    @property
    def batch(self) -> int:
        return self.logits.shape[0]


def _check_frames(
    logits: object, logit_lengths: object, blank: object, from_log_probs: object, label_prior: object
) -> _Frames:
    given = check_logits(logits).detach()
    unbatched = given.dim() == 2
    batched = given.unsqueeze(0) if unbatched else given
    batch, frames, classes = batched.shape
    lengths = check_lengths(
        logit_lengths, "logit_lengths", given.device, batch, frames, "T", unbatched=unbatched
    )
    keywords = {
        "blank": check_column(blank, "blank", classes),
        "from_log_probs": check_flag(from_log_probs, "from_log_probs"),
    }
    prior = check_prior(label_prior, batched, classes)
    if prior is not None:
        batched = _without_prior(batched, prior, bool(keywords["from_log_probs"]))
        keywords["from_log_probs"] = True
    return _Frames(batched, lengths, unbatched, keywords)


def _without_prior(logits: Tensor, prior: Tensor, from_log_probs: bool) -> Tensor:
    """Log-probabilities less the prior, float64 for float64 logits, else float32."""
    if can_be_read(prior) and not bool(prior.isfinite().all()):
        at = int(prior.isfinite().logical_not().nonzero()[0])
        raise ValueError(f"label_prior: expected finite numbers, got {float(prior[at])} at index {at}")
    wide = logits.to(prior.dtype)
    if not from_log_probs:
        sums = wide.logsumexp(-1, keepdim=True)
        wide = wide - sums.masked_fill(sums == -math.inf, 0)  # a frame of -inf alone stays one
    return wide - prior


def _result(
    frames: _Frames, tokens: Tensor, token_frames: Tensor, lengths: Tensor, scores: Tensor, state: object
) -> Hypotheses:
    real = scores.to(ops.real_of(frames.logits.dtype))
    parts = (tokens, token_frames, tokens.clamp(max=0), lengths, real)
    first, at, durations, counts, totals = (p.squeeze(0) for p in parts) if frames.unbatched else parts
    return Hypotheses(first, at, durations, counts, totals, state)


@keyword_only(2, "write blank=")
def ctc_greedy_decode(
    logits: Tensor,
    logit_lengths: Lengths | None = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Tensor | None = None,
    state: CTCGreedyState | None = None,
) -> Hypotheses:
    """Greedy (best path) search: the best class of every frame; equal neighbours become one label, and blanks are left out.

    Source: Graves et al., "Connectionist temporal classification", ICML 2006, section 3.2.

    Args:
        logits: (B, T, C) or (T, C): scores of the classes of each frame, float64, float32, float16 or bfloat16, of any strides.
            Logits (T, B, C) need ``transpose(0, 1)`` alone.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the device of logits, a list, a tuple
            or an array. None: all T. A tensor on a GPU is not read back. Padding is ignored.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: logits are log-probabilities already, which changes the scores alone.
        label_prior: (C,) logarithms of priors of the classes, optionally scaled, which are subtracted from the
            log-probabilities, as in :func:`ctc_loss`. The logits are copied then. None: there is none.
        state: ``state`` of the hypotheses of a stream's last chunk; None: the stream begins.

    Returns:
        :class:`warpalign.Hypotheses` of this chunk's labels; tokens and frames have T columns. A frame is the first one
        of its label, counted from the beginning of the stream. Durations are 0. A score is the log-probability of the best
        path since the stream began, float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU lengths are clamped.

    Of equal classes the lowest is taken. A frame without any logit above −inf counts as a blank, and the score is −inf. A
    NaN or +inf in a true frame makes that utterance's score NaN, and it has no labels.

    Examples:
        >>> logits = torch.tensor([[0.0, 2.0], [0.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
        >>> found = ctc_greedy_decode(logits)
        >>> found.tokens, found.frames
        (tensor([ 1,  1, -1, -1]), tensor([ 0,  3, -1, -1]))
    """
    refuse_vmap("ctc_greedy_decode", logits, logit_lengths, label_prior)
    frames = _check_frames(logits, logit_lengths, blank, from_log_probs, label_prior)
    walk = None if state is None else _check_walk(state, frames)
    with naming_arguments():
        tokens, token_frames, lengths, after = ops.greedy_search(
            frames.logits, frames.lengths, walk, **frames.keywords
        )
    scores = after.view(torch.float64)[:, 0]
    return _result(frames, tokens, token_frames, lengths, scores, CTCGreedyState(after))


def _check_walk(state: object, frames: _Frames) -> Tensor:
    if not isinstance(state, CTCGreedyState):
        raise TypeError(
            f"state: expected the state of greedy CTC hypotheses, or None, got {type(state).__name__}"
        )
    if state.walk.shape[0] != frames.batch:
        raise ValueError(
            f"state: expected one of {frames.batch} utterances, as the logits, got {state.walk.shape[0]}"
        )
    return state.walk


@keyword_only(2, "write beam=")
def ctc_beam_decode(
    logits: Tensor,
    logit_lengths: Lengths | None = None,
    *,
    beam: int = 16,
    n_best: int = 1,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Tensor | None = None,
    beam_threshold: float | None = None,
    language_model: Predictor | None = None,
    lm_weight: float | None = None,
    start_id: int | None = None,
    state: CTCBeamState | None = None,
) -> list[Hypotheses]:
    """Prefix beam search: the most probable label sequences, each by the sum over all its paths that the beam has kept.

    After each frame the ``beam`` most probable prefixes stay. A prefix that several paths lead to is one, with the sum of their
    probabilities. A beam that holds all prefixes is exact: a score is then minus :func:`ctc_loss` of the labels.

    Without a language model all frames are searched by two kernels of a GPU, which read nothing back, so that a CUDA graph may
    hold the call. With one, every frame is a step, after which the language model reads the new labels.

    Source: Hannun et al., "First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs",
    arXiv 1408.2873, algorithm 1.

    Args:
        logits: (B, T, C) or (T, C), as in :func:`ctc_greedy_decode`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T, as in :func:`ctc_greedy_decode`.
        beam: prefixes of an utterance, 1 to 128, or 64 with a language model.
        n_best: hypotheses that are returned, 1 to beam.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        label_prior: (C,) logarithms of priors of the classes, optionally scaled, which are subtracted from the
            log-probabilities, as in :func:`ctc_loss`. The logits are copied then. None: there is none.
        beam_threshold: prefixes whose log-probability is more than this below the best one's are left out, too; above 0. None:
            none are.
        language_model: has the methods of :class:`warpalign.Predictor`; its rows are (N, C) log-probabilities of the next
            label, of which blank's is not looked at: :class:`warpalign.NGramLanguageModel`, :class:`warpalign.PhraseBoost`, or
            a network. If it has a method ``final``, the hypotheses that are returned are ranked and scored as if the labels
            ended with the chunk; the state of a stream is not.
        lm_weight: the factor of the language model's log-probabilities, which are added to the log-probabilities of new labels. Required with
            language_model; None without one.
        start_id: the token that the language model reads first. None: blank.
        state: ``state`` of the hypotheses of a stream's last chunk; None: the stream begins. beam must be the same.

    Returns:
        A list of ``n_best`` Hypotheses, the best first, each with all labels since the stream began; tokens and frames have as
        many columns as the stream has frames. Where an utterance has fewer hypotheses, a score is −inf and the length 0. A
        frame is the first one of its label on the prefix's best path, counted from the beginning of the stream. Durations are
        0. Scores are log-probabilities, with the language model's part, float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU lengths are clamped.

    Among equal scores, a prefix that was in the beam before comes first; then new ones by the place of the prefix that they
    extend, by the label's weight, and by its class. A class of −inf cannot be emitted; without any, an utterance has no
    hypothesis. A NaN or +inf in a true frame makes that utterance's score NaN, and it has no labels.

    Examples:
        >>> logits = torch.randn(2, 40, 30)
        >>> best, second = ctc_beam_decode(logits, beam=8, n_best=2)
        >>> bool((best.scores >= second.scores).all())
        True
    """
    refuse_vmap("ctc_beam_decode", logits, logit_lengths, label_prior)
    frames = _check_frames(logits, logit_lengths, blank, from_log_probs, label_prior)
    width = check_count(beam, "beam")
    scored = language_model is not None
    most, beside = (_MOST_SCORED_BEAMS, " with a language_model") if scored else (_MOST_BEAMS, "")
    if width > most:
        raise ValueError(f"beam: expected at most {most}{beside}, got {beam}")
    count = check_count(n_best, "n_best")
    if count > width:
        raise ValueError(f"n_best: expected at most beam = {width}, got {n_best}")
    threshold = math.inf if beam_threshold is None else check_number(beam_threshold, "beam_threshold", None)
    frames.keywords["beam_threshold"] = threshold
    model = check_language(language_model, lm_weight, start_id, frames.keywords["blank"])
    before = None if state is None else _check_state(state, frames, width, model)
    with naming_arguments():
        if model is None:
            after = _search(frames, width, before)
        else:
            after = _search_with(model, frames, width, before)
        returned = count if model is None else width
        found = ops.beam_labels(after.hypotheses, after.nodes, returned, after.nodes.shape[1])
        found = found if model is None else model.ended(found, after.language)
    each = [[part[:, k] for part in found] for k in range(count)]
    return [_result(frames, tokens, at, lengths, scores, after) for tokens, at, lengths, scores in each]


def _check_state(state: object, frames: _Frames, width: int, model: LanguageModel | None) -> CTCBeamState:
    if not isinstance(state, CTCBeamState):
        raise TypeError(
            f"state: expected the state of beam CTC hypotheses, or None, got {type(state).__name__}"
        )
    batch, beams = state.hypotheses.shape[:2]
    if (batch, beams) != (frames.batch, width):
        raise ValueError(
            f"state: expected one of {frames.batch} utterances and beam = {width}, got {batch} and {beams}"
        )
    if (state.language_rows is None) != (model is None):
        raise ValueError(
            "state: expected one that was made with a language_model too, or without one too, got another"
        )
    return state


def _nodes(frames: _Frames, width: int, before: CTCBeamState | None) -> Tensor:
    """Nodes so far, with room for those of the chunk: the caller's stay as they are."""
    more = frames.logits.new_empty((frames.batch, frames.logits.shape[1], width, 2), dtype=torch.int32)
    return more if before is None else torch.cat([before.nodes, more], 1)


def _final(before: CTCBeamState | None) -> Tensor | None:
    """Labels that the chunks up to a state have made final."""
    return None if before is None else before.agreed()[1]


def _search(frames: _Frames, width: int, before: CTCBeamState | None) -> CTCBeamState:
    nodes = _nodes(frames, width, before)
    given = (None, None) if before is None else (before.hypotheses, before.frames)
    hypotheses, counts, _, _ = ops.beam_search(
        frames.logits, frames.lengths, *given, None, nodes, **frames.keywords
    )
    return CTCBeamState(hypotheses, nodes, counts, None, (), _final(before))


@not_compiled
@torch.no_grad()
def _search_with(
    model: LanguageModel, frames: _Frames, width: int, before: CTCBeamState | None
) -> CTCBeamState:
    """A step for each frame: the language model reads the labels of the prefixes that a frame has made."""
    logits = frames.logits
    batch, length, classes = logits.shape
    device, places = logits.device, batch * width
    rows: Tensor | None
    if before is None:
        rows, language = model.begin(places, device)
        hypotheses, counts = None, None
    else:
        rows, language = before.language_rows, before.language
        hypotheses, counts = before.hypotheses, before.frames
    nodes = _nodes(frames, width, before)
    first = torch.arange(0, places, width, device=device)[:, None]
    is_frame = None
    if frames.lengths is not None:
        is_frame = (torch.arange(length, device=device)[:, None] < frames.lengths).to(torch.int32)
    for t in range(length):
        assert rows is not None
        if rows.shape[1] != classes:
            raise ValueError(
                f"language_model: expected log-probabilities of {classes} classes, blank included, got shape {shape_of(rows)}"
            )
        added = (rows.to(ops.real_of(logits.dtype)) * model.weight).view(batch, width, classes)
        hypotheses, counts, source, label = ops.beam_search(
            logits[:, t : t + 1],
            None if is_frame is None else is_frame[t],
            hypotheses,
            counts,
            added,
            nodes,
            **frames.keywords,
        )
        picked, label = (source + first).view(-1), label.view(-1)
        rows, language = advanced(
            model.step, model.batch_axis, rows, language, picked, label.clamp(min=0).long(), label >= 0
        )
    if hypotheses is None or counts is None:  # no frames, no state: the empty prefix alone
        hypotheses, counts, _, _ = ops.beam_search(
            logits, frames.lengths, None, None, None, nodes, **frames.keywords
        )
    return CTCBeamState(hypotheses, nodes, counts, rows, language, _final(before))
