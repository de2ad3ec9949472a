"""Beam search of transducers."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_flag, naming_arguments
from warpalign._core.hypotheses import (
    Hypotheses,
    Predictor,
    State,
    advanced,
    agreed,
    check_weight,
    cut_out,
    final_scores,
)
from warpalign._core.series import Lengths
from warpalign._core.transforms import not_compiled
from warpalign._transducer.beam_labels import FRAME, LENGTH, NODE, Merge, labels_of, of_equal_labels
from warpalign._transducer.decode_model import Model, check_graph, check_model
from warpalign._transducer.decode_ops import beam_step
from warpalign._transducer.joint_weights import JointFunction, JointWeights
from warpalign._transducer.replay import captured

_MOST_BEAMS = 16


class BeamState(NamedTuple):
    """Where a stream of beam search stands: B utterances, 2 K places for hypotheses of each."""

    rows: Tensor
    """(B·2K, H)"""
    predictor: State
    language_rows: Tensor | None
    """(B·2K, V): the language model's log-probabilities."""
    language: State
    hypothesis: Tensor
    """(B, 2K, 4) int32; frames are those of the next chunk."""
    log_prob: Tensor
    """(B, 2K) float64; −inf: there is no such hypothesis."""
    hash: Tensor
    """(B, 2K) int64"""
    nodes: Tensor
    """(B, capacity, 4) int32: the labels of all hypotheses, each with the one before it."""
    used: Tensor
    """(B,) int32: nodes that are taken."""
    most_used: int
    """At least as many as any utterance uses, for hosts that do not read it back."""
    frames_before: Tensor
    """(B,) int32: frames of all chunks so far."""
    final_before: Tensor
    """(B,) int64: tokens that the chunks before have made final."""

    def new_tokens(self, _: Tensor) -> Tensor:
        """(B, L') int64: the tokens that the last chunk has made final, −1 after them."""
        tokens, final = self.agreed()
        counts = (final - self.final_before).clamp(min=0)  # below 0: all hypotheses have ended
        return cut_out(tokens, self.final_before, final, int(counts.max()) if counts.numel() else 0)

    def agreed(self) -> tuple[Tensor, Tensor]:
        """(B, L) tokens of a hypothesis of each utterance, and (B,) how many of the first ones all of them share."""
        tokens, *_ = labels_of(self.hypothesis, self.nodes)
        return agreed(tokens, self.log_prob > -torch.inf)


class _Search(NamedTuple):
    """Checked arguments besides those of the model."""

    places: int
    """2 K"""
    merge: Merge
    language: Model | None
    """The model with the language model in the predictor's place."""
    lm_weight: float
    score_norm: bool
    every: int
    cuda_graph: bool

    def language_scores(self, state: BeamState, model: Model, columns: int) -> Tensor | None:
        """(B, 2K, V) that are added to the labels' scores."""
        if state.language_rows is None:
            return None
        rows = state.language_rows
        if rows.shape[1] != columns:
            raise ValueError(
                f"language_model: expected log-probabilities of {columns} labels, blanks included, got shape {tuple(rows.shape)}"
            )
        return (rows.to(model.encoder.dtype) * self.lm_weight).view(model.batch, self.places, columns)

    def ended(self, state: BeamState) -> Tensor:
        """(B, 2K) log_prob, with the score of an end after each hypothesis if the language model has one."""
        if self.language is None or self.lm_weight == 0:
            return state.log_prob
        final = final_scores(
            self.language.predictor, "language_model", state.language, state.log_prob.numel()
        )
        if final is None:
            return state.log_prob
        return state.log_prob + self.lm_weight * final.double().view(state.log_prob.shape)


@not_compiled
@torch.no_grad()
def transducer_beam_decode(
    encoder_out: Tensor,
    encoder_lengths: Lengths | None,
    predictor: Predictor,
    joint: JointWeights | JointFunction,
    *,
    beam: int = 4,
    n_best: int = 1,
    merge: Merge = "sum",
    score_norm: bool = True,
    language_model: Predictor | None = None,
    lm_weight: float | None = None,
    start_id: int | None = None,
    max_symbols_per_frame: int = 10,
    state: BeamState | None = None,
    steps_per_round: int = 8,
    cuda_graph: bool = False,
) -> list[Hypotheses]:
    """Beam search for RNN-T, multi-blank RNN-T and TDT, of a whole batch or a stream's chunk.

    Every hypothesis has its own current frame. A step expands all hypotheses at the earliest frame of an utterance. The best
    ``beam`` of those that lead to later frames, or have waited there, go on. So do the best ``beam`` of those that are still
    at this frame, as far as they are better. Hypotheses with the same labels at the same frame are merged. Because the earliest go
    first, all paths to a frame are there before any leaves it, with big blanks and durations
    too: a beam that is wide enough is exact.

    Source: prefixes and their sums: Graves, "Sequence transduction with recurrent neural networks" (2012), section 2.6.

    Args:
        encoder_out: (B, T, H): outputs of the encoder; float64, float32, float16 or bfloat16. Half types are converted
            to float32.
        encoder_lengths: (B,) true numbers of frames, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T. A tensor on a GPU is not read back.
        predictor: has ``initial_state(batch)`` and ``step(tokens, state)``: :class:`warpalign.transducer.Predictor`.
        joint: :class:`warpalign.JointWeights`, which warpalign's kernels evaluate, or :class:`warpalign.JointFunction`, a
            joint network of any form. It says which columns are the blank, big blanks and durations.
        beam: hypotheses of an utterance, 1 to 16. The search considers the ``beam`` best labels of a hypothesis.
        n_best: hypotheses that are returned, 1 to beam.
        merge: the score of a hypothesis that several paths lead to: "sum" of their probabilities, or the largest, "max".
        score_norm: hypotheses are ranked by score / (labels + 1) at the end. False: by score.
        language_model: has the methods of a predictor; its rows are (N, V) log-probabilities of the next label, for all
            columns that are no durations. Those of blanks are ignored. :class:`warpalign.NGramLanguageModel` and
            :class:`warpalign.PhraseBoost` are language models. If it has a method ``final``, the hypotheses that are returned
            are ranked and scored as if the labels ended with the chunk; the state of a stream is not.
        lm_weight: the factor of the language model's log-probabilities, which are added to the labels' scores. Required with
            language_model; None without one.
        start_id: the token that the predictor reads first. None: blank.
        max_symbols_per_frame: the maximum number of labels per frame, after which a hypothesis advances to the next frame.
        state: ``state`` of the hypotheses of a stream's last chunk; None: the stream begins. The beam must be the same.
        steps_per_round: on a GPU, the number of steps after which the host checks whether all hypotheses have ended.
        cuda_graph: on a GPU the first ``steps_per_round`` steps run as they do without it. Then as many are captured in a
            CUDA graph, which does all others. Every step of the predictor and of the language model must launch the same
            work, on tensors of the same shapes, and must not synchronise.

    Returns:
        A list of ``n_best`` Hypotheses, the best first, each with all tokens since the stream began. Where an utterance has
        fewer hypotheses, a score is −inf and the length 0. Frames and durations are those of
        the best path. Scores are log-probabilities, with the language model's part, before ``score_norm``.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU lengths are clamped.
        IndexError: as :func:`warpalign.transducer_greedy_decode`.
        RuntimeError: a step of the predictor, the language model or the joint function cannot be captured.

    An arc whose weight is −inf or NaN is ignored. With ``JointWeights`` no result depends on the rest of the batch, provided
    that the predictor's outputs do not.

    Examples:
        >>> class LastToken(torch.nn.Embedding):
        ...     def initial_state(self, batch): return self.weight.new_zeros(batch, 0)
        ...     def step(self, tokens, state): return self(tokens), state
        >>> encoder_out, output = torch.randn(2, 40, 16), torch.nn.Linear(16, 30)
        >>> joint = JointWeights(output.weight, output.bias)
        >>> best, second = transducer_beam_decode(encoder_out, None, LastToken(30, 16), joint, n_best=2, score_norm=False)
        >>> bool((best.scores >= second.scores).all())
        True
    """
    model = check_model(
        encoder_out,
        encoder_lengths,
        predictor,
        joint,
        start_id=start_id,
        max_symbols_per_frame=max_symbols_per_frame,
    )
    width = check_count(beam, "beam")
    if width > _MOST_BEAMS:
        raise ValueError(f"beam: expected at most {_MOST_BEAMS}, got {beam}")
    count = check_count(n_best, "n_best")
    if count > width:
        raise ValueError(f"n_best: expected at most beam = {width}, got {n_best}")
    if merge not in get_args(Merge):
        raise ValueError(f'merge: expected "sum" or "max", got {merge!r}')
    normalised = check_flag(score_norm, "score_norm")
    language = None if language_model is None else model.reading(language_model, "language_model")
    weight = check_weight(lm_weight, language_model)
    every = check_count(steps_per_round, "steps_per_round")
    graph = check_graph(cuda_graph, model)
    every = every if model.encoder.is_cuda else 1
    search = _Search(2 * width, merge, language, weight, normalised, every, graph)
    if state is None:
        before = _initial(model, search)
    else:
        before = _check_state(state, model, search)
        before = before._replace(final_before=before.agreed()[1])
    with naming_arguments():
        after = _run(model, search, before)
    return _best(after, search, count, model.encoder.dtype)


def _initial(model: Model, search: _Search) -> BeamState:
    batch, places, device = model.batch, search.places, model.encoder.device
    rows, predictor = model.begin(batch * places)
    language_rows, language = (None, ()) if search.language is None else search.language.begin(batch * places)
    hypothesis = torch.zeros(batch, places, 4, dtype=torch.int32, device=device)
    hypothesis[..., NODE] = -1
    log_prob = torch.full((batch, places), -torch.inf, dtype=torch.float64, device=device)
    log_prob[:, 0] = 0
    return BeamState(
        rows,
        predictor,
        language_rows,
        language,
        hypothesis,
        log_prob,
        torch.zeros(batch, places, dtype=torch.int64, device=device),
        torch.zeros(batch, 0, 4, dtype=torch.int32, device=device),
        torch.zeros(batch, dtype=torch.int32, device=device),
        0,
        torch.zeros(batch, dtype=torch.int32, device=device),
        torch.zeros(batch, dtype=torch.int64, device=device),
    )


def _check_state(state: object, model: Model, search: _Search) -> BeamState:
    if not isinstance(state, BeamState):
        raise TypeError(f"state: expected the state of beam hypotheses, or None, got {type(state).__name__}")
    batch, places = state.log_prob.shape
    if (batch, places) != (model.batch, search.places):
        raise ValueError(
            f"state: expected one of {model.batch} utterances and beam = {search.places // 2}, "
            f"got {batch} and {places // 2}"
        )
    if (state.language_rows is None) != (search.language is None):
        raise ValueError(
            "state: expected one that was made with a language_model too, or without one too, got another"
        )
    return state


def _first_to_expand(state: BeamState, limits: Tensor) -> Tensor:
    """(B, 2K) int32: the frame of those hypotheses that a chunk's first step takes arcs out of; −1: not."""
    frame = state.hypothesis[..., FRAME]
    waits = (state.log_prob > -torch.inf) & (frame < limits[:, None])
    earliest = torch.where(waits, frame, 2**31 - 1).amin(1, keepdim=True)
    return torch.where(waits & (frame == earliest), frame, -1).contiguous()


def _run(model: Model, search: _Search, state: BeamState) -> BeamState:
    limits = model.limits()
    if model.batch == 0 or model.frames == 0:
        return state
    expand = _first_to_expand(state, limits)
    # Steps write nodes: those that the caller has stay as they are.
    state = state._replace(nodes=state.nodes.clone(), used=state.used.clone())
    first = torch.arange(0, expand.numel(), search.places, device=expand.device)[:, None]
    nodes_of_round = search.every * search.places

    def run(place: Any) -> tuple[Any, Tensor]:
        """A round of steps from a state's tensors and `expand`, and whether a hypothesis has not ended."""
        tensors, expand = place
        now = state._replace(**tensors)
        for _ in range(search.every):
            now, expand = _step(model, search, now, expand, first)
        return (_tensors(now), expand), (expand >= 0).any()

    place: Any = (_tensors(state), expand)
    used, graph, goes_on = state.most_used, None, (expand >= 0).any()
    while bool(goes_on):
        capacity = place[0]["nodes"].shape[1]
        if used + nodes_of_round > capacity:
            # Steps of a graph write to memory of one address: it has room for most searches.
            most = 2 * model.frames * search.places if search.cuda_graph else 0
            more = max(used + nodes_of_round, 2 * capacity, used + most) - capacity
            place[0]["nodes"] = torch.nn.functional.pad(place[0]["nodes"], (0, 0, 0, more))
            graph = None
        if search.cuda_graph and used > state.most_used:  # the first round has run
            graph = graph or captured(run, place, expand.device)
            goes_on, place = graph(), graph.state
        else:
            place, goes_on = run(place)
        used += nodes_of_round
    state = state._replace(**place[0], most_used=used)
    hypothesis = state.hypothesis.clone()
    hypothesis[..., FRAME] = (hypothesis[..., FRAME] - limits[:, None]).clamp(min=0)
    return state._replace(hypothesis=hypothesis, frames_before=state.frames_before + limits)


def _tensors(state: BeamState) -> dict[str, Any]:
    """What steps change."""
    names = ("rows", "predictor", "language", "hypothesis", "log_prob", "hash", "nodes", "used")
    language = {} if state.language_rows is None else {"language_rows": state.language_rows}
    return language | {name: getattr(state, name) for name in names}


def _step(
    model: Model, search: _Search, state: BeamState, expand: Tensor, first: Tensor
) -> tuple[BeamState, Tensor]:
    """first: (B, 1), each utterance's first hypothesis among all."""
    batch, places = model.batch, search.places
    scores = model.scores(expand.view(-1), state.rows, 1).view(batch, places, -1)
    columns = scores.shape[2] - (len(model.arcs.durations) if model.arcs.tdt else 0)
    hypothesis, log_prob, hashes, source, label, expand = beam_step(
        state.hypothesis,
        state.log_prob,
        state.hash,
        state.nodes,
        state.used,
        model.lengths,
        state.frames_before,
        scores,
        search.language_scores(state, model, columns),
        frames=model.frames,
        sum=search.merge == "sum",
        **model.arcs._asdict(),
    )
    picked = (source + first).view(-1)
    label = label.view(-1)
    tokens, found = label.clamp(min=0).long(), label >= 0
    rows, predictor = advanced(
        model.step, model.batch_axis, state.rows, state.predictor, picked, tokens, found
    )
    language_rows, language = state.language_rows, state.language
    if search.language is not None:
        assert language_rows is not None
        reader = search.language
        language_rows, language = advanced(
            reader.step, reader.batch_axis, language_rows, language, picked, tokens, found
        )
    state = state._replace(
        rows=rows,
        predictor=predictor,
        language_rows=language_rows,
        language=language,
        hypothesis=hypothesis,
        log_prob=log_prob,
        hash=hashes,
    )
    return state, expand


def _best(state: BeamState, search: _Search, count: int, dtype: torch.dtype) -> list[Hypotheses]:
    """The best hypotheses in order, with their labels."""
    lengths = state.hypothesis[..., LENGTH].long()
    tokens, frames, durations = labels_of(state.hypothesis, state.nodes)
    log_prob = of_equal_labels(search.ended(state), tokens, search.merge)
    lengths = torch.where(log_prob > -torch.inf, lengths, 0)
    by = log_prob / (lengths + 1) if search.score_norm else log_prob
    order = by.sort(dim=1, descending=True, stable=True).indices[:, :count]
    chosen = [t.gather(1, order) for t in (lengths, log_prob)]
    longest = int(chosen[0].max()) if order.numel() else 0
    inside = torch.arange(longest, device=order.device) < chosen[0][..., None]
    each = order[..., None].expand(-1, -1, longest)
    parts = [torch.where(inside, t[..., :longest].gather(1, each), -1) for t in (tokens, frames, durations)]
    return [
        Hypotheses(
            parts[0][:, k],
            parts[1][:, k],
            parts[2][:, k],
            chosen[0][:, k],
            chosen[1][:, k].to(dtype),
            state,
        )
        for k in range(count)
    ]
