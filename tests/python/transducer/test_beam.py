"""Beam search: enumeration of all paths, the definition, batches, streams, language models."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transducer.decoding_reference import (
    FAMILIES,
    Family,
    LastTwo,
    all_hypotheses,
    beam_search,
    log_add,
    model,
)
from tests.python.transducer.test_greedy import Recurrent, on
from warpalign.transducer import (
    Hypotheses,
    JointFunction,
    transducer_beam_decode,
    transducer_greedy_decode,
)

# Families so small that 16 hypotheses are all there are.
SMALL = {
    "rnnt": (Family(2, max_symbols=1), 3),
    "several labels in a frame": (Family(1, max_symbols=3), 3),
    "multi-blank": (Family(1, (2,), max_symbols=1), 4),
    "big blanks beyond the end": (Family(1, (2, 5, 3), max_symbols=1), 2),
    "tdt": (Family(1, durations=(0, 1, 2), max_symbols=2), 2),
    "tdt-without-0": (Family(1, durations=(2, 1)), 4),
}


def search(
    encoder: Tensor, lengths: Tensor | None, parts: tuple[LastTwo, Any], family: Family, **options: Any
) -> list[Hypotheses]:
    return transducer_beam_decode(encoder, lengths, *parts, **family.keywords() | options)  # type: ignore[arg-type]


def labels_of(found: Hypotheses, b: int) -> tuple[int, ...]:
    return tuple(found.tokens[b, : int(found.lengths[b])].tolist())


@pytest.mark.parametrize("merge", ["sum", "max"])
@pytest.mark.parametrize("name", SMALL)
def test_a_wide_beam_is_the_enumeration(name: str, merge: str, device: torch.device) -> None:
    family, frames = SMALL[name]
    parts = model(family, 6, blank=0.3)
    encoder = randn(2, frames, 6, seed=20, dtype=torch.float64)
    predictor, joint = on(device, parts)
    found = search(
        encoder.to(device),
        None,
        (predictor.double(), joint),
        family,
        beam=16,
        n_best=16,
        merge=merge,
        score_norm=False,
    )
    for b in range(2):
        expected = all_hypotheses(
            encoder[b], *model(family, 6, blank=0.3), family, log_add if merge == "sum" else max
        )
        living = [h for h in found if h.scores[b] > -math.inf]
        got = {labels_of(h, b): float(h.scores[b]) for h in living}
        assert len(got) == len(living) and got.keys() == expected.keys()
        for labels, score in expected.items():
            assert got[labels] == pytest.approx(score, abs=1e-10)
        scores = [float(h.scores[b]) for h in found]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("merge", ["sum", "max"])
@pytest.mark.parametrize("beam", [2, 5])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_the_definition(name: str, beam: int, merge: str, device: torch.device) -> None:
    family = FAMILIES[name]
    parts = model(family, blank=0.5)
    lengths = [9, 0, 4, 1]
    encoder = randn(4, 9, 12, seed=21, dtype=torch.float64)
    for b, length in enumerate(lengths):
        encoder[b, length:] = torch.nan
    predictor, joint = on(device, parts)
    found = search(
        encoder.to(device),
        torch.tensor(lengths, device=device),
        (predictor.double(), joint),
        family,
        beam=beam,
        n_best=beam,
        merge=merge,
        score_norm=False,
    )
    for b, length in enumerate(lengths):
        expected = beam_search(
            encoder[b, :length],
            *model(family, blank=0.5),
            family,
            beam,
            add=log_add if merge == "sum" else max,
        )
        for k, h in enumerate(found):
            if k >= len(expected):
                assert h.scores[b] == -math.inf and h.lengths[b] == 0
                continue
            assert labels_of(h, b) == expected[k].labels
            count = len(expected[k].labels)
            places = list(zip(h.frames[b, :count].tolist(), h.durations[b, :count].tolist(), strict=True))
            assert places == list(expected[k].places)
            assert (h.tokens[b, count:] == -1).all() and (h.frames[b, count:] == -1).all()
            assert float(h.scores[b]) == pytest.approx(expected[k].score, abs=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_alone_it_has_the_same_bits(name: str, device: torch.device) -> None:
    family = FAMILIES[name]
    parts = on(device, model(family, 33, activation="tanh", blank=0.7))
    lengths = [0, 1, 17, 25, 9]
    encoder = randn(5, 25, 33, seed=23).to(device)
    together = search(encoder, torch.tensor(lengths, device=device), parts, family, n_best=4)
    for b, length in enumerate(lengths):
        for one, other in zip(
            search(encoder[b : b + 1, :length], None, parts, family, n_best=4), together, strict=True
        ):
            assert labels_of(one, 0) == labels_of(other, b)
            assert torch.equal(one.scores[0], other.scores[b])
            count = int(one.lengths)
            assert torch.equal(one.frames[0, :count], other.frames[b, :count])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("cuts", [(0,), (1, 2, 3), (7, 7, 20)])
def test_a_stream_in_chunks_is_the_whole(name: str, cuts: tuple[int, ...], device: torch.device) -> None:
    family = FAMILIES[name]
    parts = on(device, model(family, blank=0.7))
    lengths = torch.tensor([25, 0, 17, 8], device=device)
    encoder = randn(4, 25, 12, seed=24).to(device)
    whole = search(encoder, lengths, parts, family, n_best=4)
    state = None
    for begin, end in zip((0, *cuts), (*cuts, 25), strict=True):
        inside = (lengths - begin).clamp(0, end - begin)
        found = search(encoder[:, begin:end], inside, parts, family, n_best=4, state=state)
        state = found[0].state
    for one, other in zip(found, whole, strict=True):
        for k in range(5):
            assert torch.equal(one[k], other[k])


@pytest.mark.parametrize("name", FAMILIES)
def test_new_tokens_are_those_of_all_hypotheses(name: str, device: torch.device) -> None:
    """No later chunk changes a new token, and every token that all hypotheses share has been one."""
    family = FAMILIES[name]
    parts = on(device, model(family, blank=0.7))
    encoder = 3 * randn(4, 25, 12, seed=24).to(device)
    lengths = torch.tensor([25, 0, 17, 8], device=device)
    state, final = None, [()] * 4  # type: ignore[var-annotated]
    for begin in range(0, 25, 5):
        found = search(encoder[:, begin : begin + 5], (lengths - begin).clamp(0, 5), parts, family, beam=4,
                       n_best=4, state=state)  # fmt: skip
        state = found[0].state
        for b in range(4):
            new = found[0].new_tokens[b].tolist()
            assert torch.equal(found[0].new_tokens, found[-1].new_tokens)
            final[b] += tuple(k for k in new if k >= 0)
            assert new == [k for k in new if k >= 0] + [-1] * new.count(-1)
            tokens = labels_of_places(state, b)
            shared = next(
                (k for k, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1),
                min(map(len, tokens)),
            )
            assert final[b] == tokens[0][:shared]
            assert all(
                labels_of(h, b)[: len(final[b])] == final[b] for h in found if h.scores[b] > -torch.inf
            )
    assert any(final)


def labels_of_places(state: Any, b: int) -> list[tuple[int, ...]]:
    """The labels of every hypothesis that a stream goes on with."""
    found: list[tuple[int, ...]] = []
    for k in (state.log_prob[b] > -torch.inf).nonzero()[:, 0].tolist():
        node = int(state.hypothesis[b, k, 2])
        labels: list[int] = []
        while node >= 0:
            parent, label = state.nodes[b, node, :2].tolist()
            labels.insert(0, label)
            node = parent
        found.append(tuple(labels))
    return found


def test_a_state_can_be_continued_twice() -> None:
    family = FAMILIES["rnnt"]
    parts = model(family, blank=0.5)
    encoder = randn(2, 20, 12, seed=25)
    (first,) = search(encoder[:, :9], None, parts, family)
    kept = [t.clone() for t in (first.state.nodes, first.state.used, first.state.hypothesis)]
    one, other = (search(encoder[:, 9:], None, parts, family, state=first.state)[0] for _ in range(2))
    assert torch.equal(one.tokens, other.tokens) and torch.equal(one.scores, other.scores)
    for before, after in zip(
        kept, (first.state.nodes, first.state.used, first.state.hypothesis), strict=True
    ):
        assert torch.equal(before, after)


def test_score_norm_orders_by_the_mean() -> None:
    family = FAMILIES["rnnt"]
    parts = model(family, blank=0.5)
    encoder = randn(3, 20, 12, seed=26)
    found = search(encoder, None, parts, family, n_best=4, score_norm=True)
    plain = search(encoder, None, parts, family, n_best=4, score_norm=False)
    for b in range(3):
        mean = [float(h.scores[b]) / (int(h.lengths[b]) + 1) for h in found]
        assert mean == sorted(mean, reverse=True)
        assert {labels_of(h, b) for h in found} == {labels_of(h, b) for h in plain}


class Bigrams(torch.nn.Module):
    """A language model of the last token; its state is that token."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        table = torch.randn(family.vocabulary, family.vocabulary, generator=generator, dtype=torch.float64)
        self.table = torch.nn.Parameter(3 * table.log_softmax(-1))

    def initial_state(self, batch: int) -> list[Tensor]:
        return [torch.zeros(batch, 1, device=self.table.device)]

    def step(self, tokens: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return self.table[tokens], state


@pytest.mark.parametrize("family", [Family(), Family(durations=(0, 1))], ids=["rnnt", "tdt"])
def test_language_models(family: Family) -> None:
    predictor, joint = model(family, blank=0.5)
    language = Bigrams(family)
    encoder = randn(2, 8, 12, seed=27, dtype=torch.float64)
    options: dict[str, Any] = {"beam": 4, "n_best": 4, "score_norm": False}
    found = search(
        encoder, None, (predictor.double(), joint), family, language_model=language, lm_weight=0.7, **options
    )
    without = search(encoder, None, (predictor, joint), family, **options)
    assert any(labels_of(h, 0) != labels_of(other, 0) for h, other in zip(found, without, strict=True))

    def label_scores(labels: tuple[int, ...]) -> list[float]:
        row: list[float] = (0.7 * language.table[labels[-1] if labels else family.blank]).tolist()
        return row

    for b in range(2):
        expected = beam_search(encoder[b], predictor, joint, family, 4, label_scores=label_scores)
        assert len(expected) >= 2
        for h, want in zip(found, expected, strict=False):
            assert labels_of(h, b) == want.labels
            assert float(h.scores[b]) == pytest.approx(want.score, abs=1e-9)


def test_functions_and_recurrent_predictors() -> None:
    torch.manual_seed(0)
    family = FAMILIES["rnnt"]
    predictor, weights = Recurrent(family, 12), model(family, blank=0.5)[1]
    encoder = randn(3, 15, 12, seed=28)

    def joint(frames: Tensor, rows: Tensor) -> Tensor:
        return torch.nn.functional.linear((frames + rows).relu(), weights.weight, weights.bias)

    options: dict[str, Any] = {
        "max_symbols_per_frame": 3,
        "n_best": 3,
    }
    one = transducer_beam_decode(encoder, None, predictor, weights, **options)
    other = transducer_beam_decode(encoder, None, predictor, family.function(joint), **options)
    for found, again in zip(one, other, strict=True):
        assert torch.equal(found.tokens, again.tokens) and int(found.lengths.max()) > 1
        torch.testing.assert_close(found.scores, again.scores)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rnnt", "tdt"])
def test_a_cuda_graph_finds_the_same(name: str, cuda: torch.device) -> None:
    family = FAMILIES[name]
    encoder = randn(3, 40, 12, seed=13).to(cuda)
    lengths = torch.tensor([40, 0, 25], device=cuda)
    language = Bigrams(family).to(cuda)
    # The memory for nodes grows more than once, between graphs.
    given: Any = {"beam": 3, "n_best": 2, "steps_per_round": 3, "language_model": language, "lm_weight": 0.3}
    states: Any = {True: None, False: None}
    for chunk in encoder.split(20, dim=1):
        found = {}
        for graph in (True, False):
            given |= {"cuda_graph": graph, "state": states[graph]}
            found[graph] = search(chunk, lengths.clamp(max=20), on(cuda, model(family)), family, **given)
            states[graph] = found[graph][0].state
        for got, want in zip(found[True], found[False], strict=True):
            for one, other in zip(got[:5], want[:5], strict=True):
                assert torch.equal(one, other)
        lengths = lengths.clamp(min=20) - 20


def test_dead_arcs(device: torch.device) -> None:
    """Scores by hand: a joint function that hands on the encoder."""
    inf, nan = torch.inf, torch.nan
    predictor = LastTwo(Family(labels=3), 4).to(device)

    def run(*frames: list[float]) -> Hypotheses:
        encoder = torch.tensor([frames], dtype=torch.float32, device=device)
        (found,) = transducer_beam_decode(
            encoder,
            None,
            predictor,
            JointFunction(lambda x, _: x, 3),
            max_symbols_per_frame=1,
            score_norm=False,
        )
        return found

    found = run([-inf, 1, -inf, -inf], [0, 0, 0, 5])
    assert found.tokens.tolist() == [[1]]
    for dead in ([-inf] * 4, [nan, 0, 0, 0]):  # no arc leads on
        found = run([0, 0, 0, 5], dead)
        assert found.scores.tolist() == [-inf] and found.lengths.tolist() == [0]


def test_no_frames_and_no_utterances(device: torch.device) -> None:
    family = FAMILIES["rnnt"]
    parts = on(device, model(family))
    for batch, frames in ((0, 5), (3, 0), (0, 0)):
        (got,) = search(torch.zeros(batch, frames, 12, device=device), None, parts, family)
        assert got.tokens.shape == (batch, 0) and got.scores.tolist() == [0] * batch
        (again,) = search(torch.zeros(batch, 2, 12, device=device), None, parts, family, state=got.state)
        assert again.scores.shape == (batch,)


def test_opcheck(device: torch.device) -> None:
    hypothesis = torch.tensor([[[0, 0, -1, 0], [1, 0, 0, 1]]] * 2, dtype=torch.int32, device=device)
    log_prob = torch.tensor([[0.0, -1.0]] * 2, dtype=torch.float64, device=device)
    hashes = torch.tensor([[0, 5]] * 2, device=device)
    nodes = torch.zeros(2, 6, 4, dtype=torch.int32, device=device)
    nodes[..., 0] = -1
    used = torch.tensor([1, 4], dtype=torch.int32, device=device)
    lengths = torch.tensor([3, 0], dtype=torch.int32, device=device)
    scores = randn(2, 2, 7, seed=29).to(device)
    torch.library.opcheck(
        torch.ops.warpalign.transducer_beam_step.default,
        (hypothesis, log_prob, hashes, nodes, used, lengths, lengths, scores, scores),
        {"frames": 3, "blank": 6},
    )


def test_it_takes_weights_without_bias() -> None:
    family = FAMILIES["rnnt"]
    predictor, joint = model(family)
    encoder = randn(1, 6, 12, seed=30)
    (found,) = search(encoder, None, (predictor, joint._replace(bias=None)), family)
    zero = joint._replace(bias=torch.zeros(family.columns))
    (same,) = search(encoder, None, (predictor, zero), family)
    assert torch.equal(found.tokens, same.tokens) and torch.equal(found.scores, same.scores)


def test_decoding_within_compiled_code() -> None:
    torch._dynamo.reset()
    family, frames = SMALL["rnnt"]
    predictor, joint = model(family, 6, blank=0.3)
    encoder = randn(2, frames, 6, seed=21)

    def scores(encoder: Tensor) -> Tensor:
        best, *_ = search(2 * encoder, None, (predictor, joint), family, beam=2, n_best=2)
        greedy = transducer_greedy_decode(2 * encoder, None, predictor, joint, **family.keywords())  # type: ignore[arg-type]
        return torch.stack([best.scores, greedy.scores]) + 1

    torch.testing.assert_close(torch.compile(scores, backend="eager")(encoder), scores(encoder))
