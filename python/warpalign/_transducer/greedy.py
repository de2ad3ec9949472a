"""Greedy search of transducers."""

from __future__ import annotations

from operator import ge
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count, naming_arguments
from warpalign._core.hypotheses import Hypotheses, Predictor, State, where
from warpalign._core.series import Lengths
from warpalign._core.transforms import not_compiled
from warpalign._transducer.decode_model import Model, check_graph, check_model
from warpalign._transducer.decode_ops import greedy_joint_step, greedy_step
from warpalign._transducer.fusion import Fusion, check_fusion
from warpalign._transducer.joint_weights import JointFunction, JointWeights
from warpalign._transducer.replay import captured

# Columns of the operators' `walk`.
FRAME, SYMBOLS, LABEL, LABEL_FRAME, LABEL_DURATION = range(5)
# Frames that a step looks at, where scores are made for all of them before the first label is known.
_WINDOW_CUDA, _WINDOW_FUNCTION = 16, 4
# On a GPU few utterances look further: so many rows of scores take as long as fewer.
_MOST_WINDOW, _ROWS = 64, 256


class GreedyState(NamedTuple):
    """Where a stream of greedy search stands."""

    rows: Tensor
    predictor: State
    walk: Tensor
    """(B, 5) int32; the frame is that of the next chunk."""
    log_prob: Tensor
    """(B,) float64"""
    language: State
    """The language model's rows (B, V) and its state; empty without one."""
    frames_before: Tensor
    """(B,) int64: frames of all chunks so far."""

    def new_tokens(self, tokens: Tensor) -> Tensor:
        """Of the hypotheses' ``tokens``: all of them."""
        return tokens


@not_compiled
@torch.no_grad()
def transducer_greedy_decode(
    encoder_out: Tensor,
    encoder_lengths: Lengths | None,
    predictor: Predictor,
    joint: JointWeights | JointFunction,
    *,
    language_model: Predictor | None = None,
    lm_weight: float | None = None,
    start_id: int | None = None,
    max_symbols_per_frame: int = 10,
    state: GreedyState | None = None,
    labels_per_round: int = 8,
    cuda_graph: bool = False,
) -> Hypotheses:
    """Greedy search: the best arc at every node, for RNN-T, multi-blank RNN-T and TDT, of a whole batch or a stream's chunk.

    Every step takes each utterance along blanks to its next label, in one launch; then the predictor reads all new labels.
    So a batch takes as many steps as its longest hypothesis has labels, not as it has frames.

    Whether a frame has a label, and which duration it has, is the joint network's choice. A language model chooses among the
    labels where there is one.

    Source: label-looping, Bataev et al., arXiv 2406.06220; with a language model: Bataev et al., arXiv 2505.22857.

    Args:
        encoder_out: (B, T, H): outputs of the encoder; float64, float32, float16 or bfloat16. Half types are converted
            to float32.
        encoder_lengths: (B,) true numbers of frames, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T. A tensor on a GPU is not read back.
        predictor: has ``initial_state(batch)`` and ``step(tokens, state)``: :class:`warpalign.transducer.Predictor`.
        joint: :class:`warpalign.JointWeights`, which warpalign's kernels evaluate, or :class:`warpalign.JointFunction`, a
            joint network of any form. It says which columns are the blank, big blanks and durations.
        language_model: as in :func:`warpalign.transducer_beam_decode`: its rows are (N, V) log-probabilities of the next label.
        lm_weight: the factor of the language model's log-probabilities, which are added to the labels' scores. Required with
            language_model; None without one.
        start_id: the token that the predictor and the language model read first. None: blank.
        max_symbols_per_frame: the maximum number of labels per frame, after which the search advances to the next frame.
        state: ``state`` of the hypotheses of a stream's last chunk; None: the stream begins.
        labels_per_round: on a GPU, the number of steps after which the host checks whether all utterances have ended.
        cuda_graph: on a GPU the first ``labels_per_round`` steps run as they do without it. Then as many are captured in a
            CUDA graph, which does all others. Every step of the predictor and of the language model must launch the same work,
            on tensors of the same shapes, and must not synchronise.

    Returns:
        :class:`warpalign.transducer.Hypotheses` of this chunk's tokens. Scores are sums of the log-probabilities of
        all labels, blanks and durations since the beginning of the stream, with the language model's part.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU lengths are clamped.
        IndexError: the predictor has no row for a label, as where the joint network of a TDT model has no ``durations``.
        RuntimeError: a step of the predictor, the language model or the joint function cannot be captured.

    Ties go to the lowest column. NaN counts as −inf. A frame without any score above −inf counts as a blank. A blank or a
    duration that leads beyond the end skips the first frames of the stream's next chunk. With ``JointWeights`` no result
    depends on the rest of the batch, provided that the predictor's outputs do not.

    Examples:
        >>> class LastToken(torch.nn.Embedding):
        ...     def initial_state(self, batch): return self.weight.new_zeros(batch, 0)
        ...     def step(self, tokens, state): return self(tokens), state
        >>> encoder_out, output = torch.randn(2, 40, 16), torch.nn.Linear(16, 30)
        >>> joint = JointWeights(output.weight, output.bias)
        >>> found = transducer_greedy_decode(encoder_out, None, LastToken(30, 16), joint)
        >>> found.tokens.shape == found.frames.shape
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
    every = check_count(labels_per_round, "labels_per_round")
    replayed = check_graph(cuda_graph, model)
    fusion = check_fusion(language_model, lm_weight, model)
    before = _initial(model, fusion) if state is None else _check_state(state, model, fusion)
    with naming_arguments():
        search = (
            _search_cuda(model, fusion, before, every, replayed)
            if model.encoder.is_cuda
            else _search_cpu(model, fusion, before)
        )
        walks, after = search
        scores = after.log_prob if fusion is None else fusion.ended(after.language, after.log_prob)
    return _hypotheses(walks, after, before, scores.to(model.encoder.dtype))


def _initial(model: Model, fusion: Fusion | None) -> GreedyState:
    rows, state = model.begin(model.batch)
    device = model.encoder.device
    return GreedyState(
        rows,
        state,
        torch.zeros(model.batch, 5, dtype=torch.int32, device=device),
        torch.zeros(model.batch, dtype=torch.float64, device=device),
        () if fusion is None else fusion.begin(model.batch),
        torch.zeros(model.batch, dtype=torch.int64, device=device),
    )


def _check_state(state: object, model: Model, fusion: Fusion | None) -> GreedyState:
    if not isinstance(state, GreedyState):
        raise TypeError(
            f"state: expected the state of greedy hypotheses, or None, got {type(state).__name__}"
        )
    if state.walk.shape[0] != model.batch:
        raise ValueError(f"state: expected one of {model.batch} utterances, got {state.walk.shape[0]}")
    if bool(state.language) == (fusion is None):
        raise ValueError(
            "state: expected one that was made with a language_model too, or without one too, got another"
        )
    return state


class _Place(NamedTuple):
    """Where all utterances are between two steps."""

    rows: Tensor
    predictor: State
    walk: Tensor
    log_prob: Tensor
    language: State


def _step(model: Model, fusion: Fusion | None, place: _Place) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every utterance to its next label, as far as the step looks: walk, log_prob, the label or 0, whether there is one."""
    result: Any
    of_weights = isinstance(model.joint, JointWeights)
    if model.encoder.is_cuda and of_weights:
        window = min(model.frames, _MOST_WINDOW, max(_WINDOW_CUDA, _ROWS // max(model.batch, 1)))
    else:
        window = min(_WINDOW_CUDA if model.encoder.is_cuda else _WINDOW_FUNCTION, model.frames)
    if of_weights and fusion is None:
        # On a CPU a step looks no further than it has to.
        result = greedy_joint_step(
            place.walk,
            place.log_prob,
            model.lengths,
            model.encoder,
            place.rows,
            window=max(window if model.encoder.is_cuda else model.frames, 1),
            **model.joint_keywords(),
            **model.arcs._asdict(),
        )
        walk, log_prob, tokens, found = result
        return walk, log_prob, tokens, found
    scores = model.scores(place.walk[:, FRAME].contiguous(), place.rows, window)
    result = greedy_step(
        place.walk, place.log_prob, model.lengths, scores, frames=model.frames, **model.arcs._asdict()
    )
    walk, log_prob, tokens, found = result
    if fusion is not None:
        at = (walk[:, LABEL_FRAME] - place.walk[:, FRAME]).clamp(0, window - 1).long()
        of_frame = scores.gather(1, at[:, None, None].expand(-1, -1, scores.shape[2])).squeeze(1)
        tokens, gained = fusion.chosen(of_frame, place.language, tokens, found)
        walk[:, LABEL] = torch.where(found, tokens.int(), walk[:, LABEL])
        log_prob = log_prob + gained
    return walk, log_prob, tokens, found


def _read(
    model: Model, fusion: Fusion | None, place: _Place, tokens: Tensor, found: Tensor
) -> tuple[Tensor, State, State]:
    """The predictor's rows and state after the labels that were found, and what the language model has read."""
    rows, predictor = model.step(tokens, place.predictor)
    rows = torch.where(found[:, None], rows, place.rows)
    language = place.language if fusion is None else fusion.read(place.language, tokens, found)
    return rows, where(found, predictor, place.predictor, model.batch_axis), language


def _nothing_to_do(model: Model, fusion: Fusion | None) -> bool:
    return model.batch == 0 or (
        model.frames == 0 and (fusion is not None or not isinstance(model.joint, JointWeights))
    )


def _search_cpu(model: Model, fusion: Fusion | None, state: GreedyState) -> tuple[Tensor, GreedyState]:
    """(steps, B, 5) walks of all steps, and where the stream stands after the chunk."""
    place, limits = _Place(*state[:5]), model.limits()
    last_frames = limits.tolist()
    walks: list[Tensor] = []
    ended = _nothing_to_do(model, fusion)
    while not ended:
        walk, log_prob, tokens, found = _step(model, fusion, place)
        walks.append(walk)
        # A list costs less than torch's operators on so few numbers.
        frames, _, labels, *_ = walk.T.tolist()
        ended = all(map(ge, frames, last_frames))
        rows, predictor, language = place.rows, place.predictor, place.language
        if min(labels) >= 0 and fusion is None:
            rows, predictor = model.step(tokens, predictor)
        elif max(labels) >= 0:
            rows, predictor, language = _read(model, fusion, place, tokens, found)
        place = _Place(rows, predictor, walk, log_prob, language)
    return _after(torch.stack(walks) if walks else place.walk[None][:0], place, state, limits)


def _search_cuda(
    model: Model, fusion: Fusion | None, state: GreedyState, every: int, replayed: bool
) -> tuple[Tensor, GreedyState]:
    """The same, in rounds of so many steps."""
    limits = model.limits()

    def run(place: _Place) -> tuple[_Place, tuple[Tensor, Tensor]]:
        """A round: its walks, and whether an utterance has not ended."""
        walks = []
        for _ in range(every):
            walk, log_prob, tokens, found = _step(model, fusion, place)
            walks.append(walk)
            rows, predictor, language = _read(model, fusion, place, tokens, found)
            place = _Place(rows, predictor, walk, log_prob, language)
        return place, (torch.stack(walks), (place.walk[:, FRAME] < limits).any())

    place = _Place(*state[:5])
    if _nothing_to_do(model, fusion):
        return _after(place.walk[None][:0], place, state, limits)
    place, (walks, goes_on) = run(place)
    all_walks, graph = [walks], None
    while bool(goes_on):
        if replayed:
            graph = graph or captured(run, place, model.encoder.device)
            walks, goes_on = graph()
        else:
            place, (walks, goes_on) = run(place)
        all_walks.append(walks)
    return _after(torch.cat(all_walks), graph.state if graph else place, state, limits)


def _after(walks: Tensor, place: _Place, before: GreedyState, limits: Tensor) -> tuple[Tensor, GreedyState]:
    """The walks, and where the stream stands after a chunk."""
    walk = place.walk.clone()
    walk[:, FRAME] -= limits
    return walks, GreedyState(
        place.rows, place.predictor, walk, place.log_prob, place.language, before.frames_before + limits
    )


def _hypotheses(walks: Tensor, after: GreedyState, before: GreedyState, scores: Tensor) -> Hypotheses:
    """The steps that found labels, without the others."""
    found = walks[..., LABEL] >= 0
    lengths = found.sum(0)
    longest = int(lengths.max()) if lengths.numel() else 0
    order = (~found).to(torch.uint8).argsort(dim=0, stable=True)[:longest]
    inside = torch.arange(longest, device=walks.device)[:, None] < lengths

    def column(which: int, offset: Tensor | int = 0) -> Tensor:
        values = walks[..., which].gather(0, order).long() + offset
        return torch.where(inside, values, -1).T.contiguous()

    return Hypotheses(
        column(LABEL),
        column(LABEL_FRAME, before.frames_before),
        column(LABEL_DURATION),
        lengths,
        scores,
        after,
    )
