"""Greedy decoding: the definition, batches, streams, functions as joint networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import HALF_DTYPES, randn
from tests.python.transducer.decoding_reference import FAMILIES, Family, Found, LastTwo, greedy, model
from warpalign._core.hypotheses import leaves
from warpalign.transducer import Hypotheses, JointFunction, JointWeights, transducer_greedy_decode

LENGTHS = [0, 1, 2, 15, 16, 17, 40, 33]


def decode(
    encoder: Tensor, lengths: Tensor | None, parts: tuple[LastTwo, Any], family: Family, **options: Any
) -> Hypotheses:
    predictor, joint = parts
    return transducer_greedy_decode(encoder, lengths, predictor, joint, **family.keywords() | options)  # type: ignore[arg-type]


def on(device: torch.device, parts: tuple[LastTwo, JointWeights]) -> tuple[LastTwo, JointWeights]:
    predictor, joint = parts
    assert joint.bias is not None
    return predictor.to(device), joint._replace(weight=joint.weight.to(device), bias=joint.bias.to(device))


def assert_found(got: Hypotheses, b: int, expected: Found) -> None:
    length = int(got.lengths[b])
    assert got.tokens[b, :length].tolist() == expected.tokens
    assert got.frames[b, :length].tolist() == expected.frames
    assert got.durations[b, :length].tolist() == expected.durations
    for padding in (got.tokens, got.frames, got.durations):
        assert (padding[b, length:] == -1).all()
    # Every arc's score is a sum of numbers below 16, rounded by some ε each; the arcs of a path add up.
    arcs = expected.end + length + 1
    assert float(got.scores[b]) == pytest.approx(
        expected.score, abs=arcs * 16 * torch.finfo(torch.float32).eps
    )


@pytest.mark.parametrize("hidden", [1, 33])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", FAMILIES)
def test_it_is_the_definition(name: str, activation: str, hidden: int, device: torch.device) -> None:
    family = FAMILIES[name]
    parts = model(family, hidden, activation=activation)
    encoder = randn(len(LENGTHS), max(LENGTHS), hidden, seed=1)
    lengths = torch.tensor(LENGTHS)
    for b, length in enumerate(LENGTHS):
        encoder[b, length:] = torch.nan  # padding is never read
    got = decode(encoder.to(device), lengths.to(device), on(device, parts), family)
    assert got.tokens.dtype == got.frames.dtype == got.lengths.dtype == torch.int64
    assert int(got.lengths.max()) > 5 or hidden == 1
    for b, length in enumerate(LENGTHS):
        assert_found(
            got, b, greedy(encoder[b, :length], *model(family, hidden, activation=activation), family)
        )


@pytest.mark.parametrize("labels", [1, 2, 15, 16, 17, 63, 64, 65, 200])
def test_vocabularies(labels: int, device: torch.device) -> None:
    for family in (
        Family(labels),
        Family(labels, durations=tuple(range(16))),
        Family(labels, tuple(range(2, 10))),
    ):
        encoder = randn(3, 20, 12, seed=2)
        got = decode(encoder.to(device), None, on(device, model(family, blank=3.0)), family)
        for b in range(3):
            assert_found(got, b, greedy(encoder[b], *model(family, blank=3.0), family))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_function_finds_the_same(name: str, device: torch.device) -> None:
    family = FAMILIES[name]
    predictor, weights = on(device, model(family))
    encoder = randn(5, 21, 12, seed=3).to(device)
    lengths = torch.tensor([21, 4, 0, 13, 20], device=device)

    def joint(frames: Tensor, rows: Tensor) -> Tensor:
        assert frames.shape == rows.shape and frames.dim() == 2
        return torch.nn.functional.linear((frames + rows).relu(), weights.weight, weights.bias)

    want = decode(encoder, lengths, (predictor, weights), family)
    got = decode(encoder, lengths, (predictor, family.function(joint)), family)
    for one, other in zip(got[:4], want[:4], strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(got.scores, want.scores)


@pytest.mark.parametrize("name", FAMILIES)
def test_alone_it_has_the_same_bits(name: str, device: torch.device) -> None:
    family = FAMILIES[name]
    parts = on(device, model(family, 33, activation="tanh"))
    encoder = randn(len(LENGTHS), max(LENGTHS), 33, seed=4).to(device)
    together = decode(encoder, torch.tensor(LENGTHS, device=device), parts, family)
    for b, length in enumerate(LENGTHS):
        alone = decode(encoder[b : b + 1, :length], None, parts, family)
        count = int(alone.lengths)
        assert count == int(together.lengths[b])
        for one, other in zip(alone[:3], together[:3], strict=True):
            assert torch.equal(one[0], other[b, :count])
        assert torch.equal(alone.scores[0], together.scores[b])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("cuts", [(0,), (1, 2, 3), (7, 7, 20), (16, 32)])
def test_a_stream_in_chunks_is_the_whole(name: str, cuts: tuple[int, ...], device: torch.device) -> None:
    family = FAMILIES[name]
    parts = on(device, model(family))
    lengths = torch.tensor([40, 0, 17, 33], device=device)
    encoder = randn(4, 40, 12, seed=5).to(device)
    whole = decode(encoder, lengths, parts, family)
    state, tokens, frames = None, [[] for _ in range(4)], [[] for _ in range(4)]  # type: ignore[var-annotated]
    for begin, end in zip((0, *cuts), (*cuts, 40), strict=True):
        part = decode(
            encoder[:, begin:end], (lengths - begin).clamp(0, end - begin), parts, family, state=state
        )
        state = part.state
        for b, count in enumerate(part.lengths.tolist()):
            tokens[b] += part.tokens[b, :count].tolist()
            frames[b] += part.frames[b, :count].tolist()
        assert torch.equal(part.new_tokens, part.tokens)
    for b, count in enumerate(whole.lengths.tolist()):
        assert tokens[b] == whole.tokens[b, :count].tolist()
        assert frames[b] == whole.frames[b, :count].tolist()
    assert torch.equal(part.scores, whole.scores)


def test_a_state_can_be_continued_twice() -> None:
    family = FAMILIES["tdt"]
    parts = model(family)
    encoder = randn(2, 30, 12, seed=6)
    first = decode(encoder[:, :11], None, parts, family)
    kept = first.state.walk.clone()
    one, other = (decode(encoder[:, 11:], None, parts, family, state=first.state) for _ in range(2))
    assert torch.equal(first.state.walk, kept)
    assert torch.equal(one.tokens, other.tokens) and torch.equal(one.scores, other.scores)


class Recurrent(torch.nn.Module):
    """An LSTM, whose states have the batch on axis 1."""

    batch_axis = 1

    def __init__(self, family: Family, hidden: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(family.vocabulary, 5)
        self.lstm = torch.nn.LSTM(5, hidden, num_layers=2)

    def initial_state(self, batch: int) -> dict[str, Any]:
        zeros = torch.zeros(2, batch, self.lstm.hidden_size, device=self.embedding.weight.device)
        return {"lstm": (zeros, zeros)}

    def step(self, tokens: Tensor, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        rows, after = self.lstm(self.embedding(tokens)[None], state["lstm"])
        return rows[0], {"lstm": after}


def test_recurrent_predictors() -> None:
    torch.manual_seed(0)
    family = FAMILIES["rnnt"]
    predictor, weights = Recurrent(family, 12), model(family)[1]
    encoder = randn(4, 25, 12, seed=7)
    got = transducer_greedy_decode(encoder, None, predictor, weights, max_symbols_per_frame=3)
    assert int(got.lengths.min()) > 3
    for b in range(4):
        # By hand: the predictor reads each label once.
        state, tokens, t, symbols = predictor.initial_state(1), [], 0, 0
        row, state = predictor.step(torch.tensor([family.blank]), state)
        while t < 25:
            assert weights.bias is not None
            best = int((weights.weight @ (encoder[b, t] + row[0]).relu() + weights.bias).argmax())
            if best != family.blank:
                tokens.append(best)
                symbols += 1
                row, state = predictor.step(torch.tensor([best]), state)
            if best == family.blank or symbols == 3:
                t, symbols = t + 1, 0
        assert got.tokens[b, : int(got.lengths[b])].tolist() == tokens


def assert_same_bits(got: Hypotheses, want: Hypotheses) -> None:
    for one, other in zip(got[:5], want[:5], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(leaves(got.state), leaves(want.state), strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
def test_a_cuda_graph_finds_the_same(name: str, cuda: torch.device) -> None:
    family = FAMILIES[name]
    predictor, weights = on(cuda, model(family))
    encoder = randn(4, 50, 12, seed=13).to(cuda)
    lengths = torch.tensor([50, 0, 17, 33], device=cuda)

    def joint(frames: Tensor, rows: Tensor) -> Tensor:
        return torch.nn.functional.linear((frames + rows).relu(), weights.weight, weights.bias)

    for network in (weights, family.function(joint)):
        given: Any = {"labels_per_round": 3}
        state: Any = {True: None, False: None}
        for chunk in encoder.split(30, dim=1):
            found = {}
            for graph in (True, False):
                given |= {"cuda_graph": graph, "state": state[graph]}
                found[graph] = decode(chunk, lengths.clamp(max=30), (predictor, network), family, **given)
                state[graph] = found[graph].state
            assert_same_bits(found[True], found[False])
            lengths = lengths.clamp(min=30) - 30
        lengths = torch.tensor([50, 0, 17, 33], device=cuda)


@pytest.mark.gpu
def test_recurrent_predictors_in_a_cuda_graph(cuda: torch.device) -> None:
    torch.manual_seed(0)
    family = FAMILIES["rnnt"]
    predictor, weights = Recurrent(family, 12).to(cuda), on(cuda, model(family))[1]
    encoder = randn(4, 45, 12, seed=7).to(cuda)
    given: Any = (encoder, None, predictor, weights)
    want, got, again = (
        transducer_greedy_decode(*given, labels_per_round=4, cuda_graph=graph)
        for graph in (False, True, True)
    )
    assert int(got.lengths.min()) > 8
    assert_same_bits(got, want)
    assert_same_bits(again, want)  # the graphs' memory is that of the graph before


@pytest.mark.gpu
def test_what_a_cuda_graph_cannot_hold(cuda: torch.device) -> None:
    family = FAMILIES["rnnt"]
    predictor, weights = on(cuda, model(family))

    class Waiting(LastTwo):
        def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            assert int(tokens.min()) >= 0
            return super().step(tokens, state)

    encoder = randn(2, 40, 12, seed=14).to(cuda)
    want = decode(encoder, None, (predictor, weights), family)
    predictor.__class__ = Waiting
    with pytest.raises(RuntimeError, match="^cuda_graph: expected a predictor and a joint whose steps"):
        decode(encoder, None, (predictor, weights), family, labels_per_round=2, cuda_graph=True)
    torch.randn(3, device=cuda)  # the device's random numbers are as before
    predictor.__class__ = LastTwo
    for graph in (False, True):
        assert_same_bits(decode(encoder, None, (predictor, weights), family, cuda_graph=graph), want)


def test_ties_nan_and_dead_rows(device: torch.device) -> None:
    """Scores by hand: a joint function that hands on the encoder."""
    inf, nan = torch.inf, torch.nan
    predictor = LastTwo(Family(labels=3), 4).to(device)

    def run(*frames: list[float], durations: Any = None) -> Hypotheses:
        encoder = torch.tensor([frames], dtype=torch.float32, device=device)
        return transducer_greedy_decode(
            encoder, None, predictor, JointFunction(lambda x, _: x, 3, durations), max_symbols_per_frame=1
        )

    found = run([1, 1, 0, 1], [nan, -1, 2, nan], [-inf, -inf, -inf, -inf], [0, 0, 0, 0.5], [nan] * 4)
    assert found.tokens.tolist() == [[0, 2]] and found.frames.tolist() == [[0, 1]]
    assert found.scores.isnan().all()
    dead = run([-inf] * 4, [0, 1, 0, 0])
    assert dead.tokens.tolist() == [[1]] and dead.scores.tolist() == [-inf]
    # The blank has no duration of 0, and of equal ones takes the first.
    tdt = run([0, 0, 0, 1, 9, 2, 2], [5, 0, 0, 0, 0, 0, 0], [0, 7, 0, 0, 0, 0, 0], durations=(0, 2, 1))
    assert tdt.tokens.tolist() == [[1]] and tdt.frames.tolist() == [[2]]


def test_no_frames_and_no_utterances(device: torch.device) -> None:
    family = FAMILIES["rnnt"]
    parts = on(device, model(family))
    for batch, frames in ((0, 5), (3, 0), (0, 0)):
        got = decode(torch.zeros(batch, frames, 12, device=device), None, parts, family)
        assert got.tokens.shape == (batch, 0) and got.scores.tolist() == [0] * batch
        again = decode(torch.zeros(batch, 2, 12, device=device), None, parts, family, state=got.state)
        assert again.scores.shape == (batch,)


@pytest.mark.parametrize("dtype", [*HALF_DTYPES, torch.float64])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    family = FAMILIES["multi-blank"]
    predictor, joint = on(device, model(family))
    predictor = predictor.to(dtype)
    encoder = randn(3, 20, 12, seed=8).to(device, dtype)
    got = decode(encoder, None, (predictor, joint._replace(weight=joint.weight.to(dtype))), family)
    assert got.scores.dtype == (dtype if dtype == torch.float64 else torch.float32)
    wide = predictor.double()
    exact = joint._replace(weight=joint.weight.to(dtype).double(), bias=joint.bias.double())
    if dtype == torch.float64:
        want = decode(encoder, None, (wide, exact), family)
    else:  # a half type's predictor rows are rounded, the rest is float32's
        rows = LastTwo(family, 12).to(device)
        rows.tables.data = predictor.to(dtype).tables.detach().float()
        widened = joint._replace(weight=joint.weight.to(dtype).float())

        class Rounded(LastTwo):
            def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
                row, after = super().step(tokens, state)
                return row.to(dtype).float(), after

        rows.__class__ = Rounded
        want = decode(encoder.float(), None, (rows, widened), family)
    assert torch.equal(got.tokens, want.tokens)
    torch.testing.assert_close(got.scores, want.scores)


def test_strided_encoders_and_integers(device: torch.device) -> None:
    family = FAMILIES["rnnt"]
    parts = on(device, model(family))
    encoder = randn(3, 20, 12, seed=9).to(device)
    want = decode(encoder, torch.tensor([20, 3, 11], device=device), parts, family)
    for strided in (
        encoder.transpose(0, 1).contiguous().transpose(0, 1),
        encoder.transpose(1, 2).contiguous().transpose(1, 2),
        torch.cat([encoder, encoder], -1)[..., :12],
    ):
        for dtype in (torch.int32, torch.uint8):
            got = decode(strided, torch.tensor([20, 3, 11], dtype=dtype, device=device), parts, family)
            assert torch.equal(got.tokens, want.tokens) and torch.equal(got.scores, want.scores)


def test_no_gradient_is_kept() -> None:
    predictor, joint = model(FAMILIES["rnnt"])
    encoder = randn(2, 9, 12, seed=10, grad=True)
    found = transducer_greedy_decode(encoder, None, predictor, joint)
    assert not found.scores.requires_grad and not found.state.rows.requires_grad


def operator_arguments(device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    walk = torch.zeros(3, 5, dtype=torch.int32, device=device)
    log_prob = torch.zeros(3, dtype=torch.float64, device=device)
    lengths = torch.tensor([5, 4, 0], dtype=torch.int32, device=device)
    return (walk, log_prob, lengths), {"blank": 6, "max_symbols": 2}


def test_opcheck(device: torch.device) -> None:
    family = FAMILIES["rnnt"]
    _, joint = on(device, model(family))
    encoder, rows = randn(3, 5, 12, seed=11).to(device), randn(3, 12, seed=12).to(device)
    given, settings = operator_arguments(device)
    ops = torch.ops.warpalign
    torch.library.opcheck(
        ops.transducer_greedy_joint_step.default,
        (*given, encoder, rows, joint.weight, joint.bias),
        {"activation": 1, "window": 5} | settings,
    )
    frame = torch.tensor([0, 2, -1], dtype=torch.int32, device=device)
    arguments = (frame, given[2], encoder, rows, joint.weight, None)
    torch.library.opcheck(ops.transducer_scores.default, arguments, {"window": 2})
    scores = ops.transducer_scores(*arguments, window=2)
    assert (scores[2] == 0).all() and (scores[1] != 0).any()
    torch.library.opcheck(ops.transducer_greedy_step.default, (*given, scores), {"frames": 5} | settings)
    walk, _, tokens, found = ops.transducer_greedy_step(*given, scores, frames=5, **settings)
    assert torch.equal(found, walk[:, 2] >= 0) and torch.equal(tokens, walk[:, 2].clamp(min=0).long())


def test_it_is_public() -> None:
    assert warpalign.transducer_greedy_decode is transducer_greedy_decode
