"""Greedy and prefix beam search: against the enumeration of all prefixes, a beam in plain Python, and their properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.ctc import decode_reference
from warpalign import Hypotheses, ctc_beam_decode, ctc_greedy_decode, ctc_loss
from warpalign._ctc import ops

TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5, torch.float16: 3e-5, torch.bfloat16: 3e-5}


def labels_of(found: Hypotheses, b: int) -> tuple[int, ...]:
    count = int(found.lengths[b])
    assert (found.tokens[b, count:] == -1).all() and (found.frames[b, count:] == -1).all()
    assert (found.durations[b, :count] == 0).all() and (found.durations[b, count:] == -1).all()
    return tuple(found.tokens[b, :count].tolist())


def logits_for(batch: int, frames: int, classes: int, seed: int, blank: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(batch, frames, classes, generator=generator, dtype=torch.float64)
    logits[..., blank] += 1.5
    return logits


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(12))
def test_a_wide_beam_is_exact(seed: int, dtype: torch.dtype, device: torch.device) -> None:
    frames, classes = (4, 4) if seed % 2 else (5, 3)
    blank = seed % classes
    logits = logits_for(2, frames, classes, seed, blank).to(dtype)
    lengths = [frames, seed % (frames + 1)]
    found = ctc_beam_decode(logits.to(device), lengths, beam=128, n_best=128, blank=blank)
    for b, length in enumerate(lengths):
        expected = decode_reference.prefixes(logits[b, :length], None, blank)
        assert len(expected) <= 128
        got = {labels_of(one, b): float(one.scores[b]) for one in found[: len(expected)]}
        assert got == pytest.approx(dict(expected), abs=TOLERANCE[dtype])
        scores = [float(one.scores[b]) for one in found]
        assert scores == sorted(scores, reverse=True) and set(scores[len(expected) :]) <= {-math.inf}
        assert sum(map(math.exp, scores)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("beam", [1, 2, 5, 16, 40])
def test_it_is_the_definition(beam: int, dtype: torch.dtype, device: torch.device) -> None:
    blank = beam % 9
    logits = logits_for(3, 20, 9, beam, blank).to(dtype)
    lengths = torch.tensor([20, 11, 0])
    given = logits.clone()
    given[1, 11:] = math.nan  # padding is never read
    given = given.to(device).transpose(0, 1).contiguous().transpose(0, 1)
    threshold = 4.0 if beam == 5 else None
    found = ctc_beam_decode(
        given, lengths.to(device), beam=beam, n_best=beam, blank=blank, beam_threshold=threshold
    )
    for b, length in enumerate(lengths.tolist()):
        expected = decode_reference.prefixes(logits[b, :length], beam, blank, threshold or math.inf)
        for one, wanted in zip(found, expected, strict=False):
            assert float(one.scores[b]) == pytest.approx(wanted.score, abs=TOLERANCE[dtype])
            assert labels_of(one, b) == wanted.labels
        assert all(one.scores[b] == -math.inf and one.lengths[b] == 0 for one in found[len(expected) :])
        exact = ctc_loss(
            logits[b : b + 1, :length].double(), torch.tensor([expected[0].labels]), blank=blank
        ) if expected[0].labels else torch.zeros(())  # fmt: skip
        assert not expected[0].labels or expected[0].score <= -exact + 1e-9


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_scores_with_priors_are_the_loss_with_priors(dtype: torch.dtype, device: torch.device) -> None:
    """A beam of all prefixes is exact; greedy search takes the best class of w = log p - prior."""
    logits = logits_for(2, 4, 4, 3).to(device, dtype)
    prior = torch.tensor([-0.2, -3.0, 1.0, 0.5], device=device)
    found = ctc_beam_decode(logits, beam=128, n_best=5, label_prior=prior)
    plain = ctc_beam_decode(logits, beam=128, n_best=5)
    assert any(
        labels_of(a, b) != labels_of(p, b) for a, p in zip(found, plain, strict=True) for b in range(2)
    )
    for one in found:
        for b in range(2):
            targets = torch.tensor([labels_of(one, b)], dtype=torch.int64, device=device)
            loss = ctc_loss(logits[b : b + 1].double(), targets, label_prior=prior)
            assert float(one.scores[b]) == pytest.approx(-float(loss), abs=TOLERANCE[dtype])
    weights = logits.double().log_softmax(-1) - prior
    greedy = ctc_greedy_decode(logits, label_prior=prior)
    expected = ctc_greedy_decode(weights, from_log_probs=True)
    assert torch.equal(greedy.tokens, expected.tokens)
    torch.testing.assert_close(greedy.scores.double(), expected.scores, rtol=1e-5, atol=1e-5)
    given = logits.double().log_softmax(-1).to(dtype)
    again = ctc_greedy_decode(given, label_prior=prior, from_log_probs=True)
    assert torch.equal(again.tokens, expected.tokens)


def test_a_frame_of_nothing_with_priors() -> None:
    logits = torch.full((1, 2, 3), -math.inf)
    logits[0, 1] = 0
    found = ctc_greedy_decode(logits, label_prior=torch.zeros(3))
    assert found.scores.tolist() == [-math.inf] and found.lengths.tolist() == [0]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_greedy_search_is_the_best_path(dtype: torch.dtype, device: torch.device) -> None:
    for classes, frames, blank in ((1, 4, 0), (3, 50, 2), (40, 300, 0), (700, 9, 5)):
        logits = logits_for(3, frames, classes, classes, blank).to(dtype)
        lengths = [frames, frames // 2, 0]
        found = ctc_greedy_decode(logits.to(device), lengths, blank=blank)
        for b, length in enumerate(lengths):
            labels, at, score = decode_reference.greedy(logits[b, :length], blank)
            assert labels_of(found, b) == tuple(labels)
            assert found.frames[b, : len(at)].tolist() == at
            assert float(found.scores[b]) == pytest.approx(score, rel=1e-6, abs=1e-5)


def test_classes_may_change_places(device: torch.device) -> None:
    logits = logits_for(2, 30, 12, 1)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    place = torch.empty_like(order)
    place[order] = torch.arange(12)
    (found,) = ctc_beam_decode(logits.to(device), beam=6)
    (other,) = ctc_beam_decode(logits[..., order].to(device), beam=6, blank=int(place[0]))
    for b in range(2):
        assert [int(order[k]) for k in labels_of(other, b)] == list(labels_of(found, b))
    torch.testing.assert_close(other.scores, found.scores)


def test_a_wider_beam_is_no_worse_than_the_best_path(device: torch.device) -> None:
    logits = logits_for(4, 40, 20, 2).to(device)
    greedy = ctc_greedy_decode(logits)
    for beam in (8, 64):
        (found,) = ctc_beam_decode(logits, beam=beam)
        assert (found.scores > greedy.scores).all()  # one path of many
        for b in range(4):
            labels = torch.tensor([labels_of(found, b)], device=device)
            assert float(found.scores[b]) <= -float(ctc_loss(logits[b : b + 1], labels)) + 1e-9


def test_frames_are_those_of_the_best_path(device: torch.device) -> None:
    """A label that becomes probable slowly begins where it is probable, not where its prefix was first kept."""
    rows = [[0.97, 0.02, 0.01]] * 3 + [[0.1, 0.89, 0.01], [0.98, 0.01, 0.01], [0.05, 0.05, 0.9]]
    logits = torch.tensor([rows], device=device).log()
    (found,) = ctc_beam_decode(logits, beam=8)
    assert labels_of(found, 0) == (1, 2)
    assert found.frames[0, :2].tolist() == [3, 5]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_alone_it_has_the_same_bits(dtype: torch.dtype, device: torch.device) -> None:
    logits = logits_for(5, 40, 33, 8).to(device, dtype)
    (together,), greedy = ctc_beam_decode(logits, beam=12), ctc_greedy_decode(logits)
    for b in range(5):
        (alone,) = ctc_beam_decode(logits[b].clone(), beam=12)
        assert torch.equal(alone.tokens, together.tokens[b]) and torch.equal(alone.scores, together.scores[b])
        assert torch.equal(ctc_greedy_decode(logits[b].clone()).scores, greedy.scores[b])


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_stream_is_the_whole(search: str, device: torch.device) -> None:
    logits = logits_for(3, 30, 11, 4).float().to(device)
    lengths = torch.tensor([30, 17, 3])

    def run(chunk: Tensor, counts: Tensor, state: Any) -> Hypotheses:
        given = (chunk, counts.to(device))
        if search == "greedy":
            return ctc_greedy_decode(*given, state=state)
        return ctc_beam_decode(*given, beam=7, state=state)[0]

    whole = run(logits, lengths, None)
    state, begin, parts = None, 0, []
    for count in (4, 1, 0, 13, 12):
        parts.append(run(logits[:, begin : begin + count], (lengths - begin).clamp(0, count), state))
        state, begin = parts[-1].state, begin + count
    torch.testing.assert_close(parts[-1].scores, whole.scores, rtol=1e-6, atol=0)
    for b in range(3):
        final = [k for part in parts for k in part.new_tokens[b].tolist() if k >= 0]
        if search == "greedy":
            assert final == list(labels_of(whole, b))
            got = [t for part in parts for t in part.tokens[b, : int(part.lengths[b])].tolist()]
            at = [t for part in parts for t in part.frames[b, : int(part.lengths[b])].tolist()]
        else:
            every = ctc_beam_decode(logits[b, : lengths[b]], beam=7, n_best=7)
            tokens = [h.tokens[: int(h.lengths)].tolist() for h in every if h.scores > -torch.inf]
            assert all(labels[: len(final)] == final for labels in tokens)
            assert final == tokens[0] or any(
                labels[: len(final) + 1] != tokens[0][: len(final) + 1] for labels in tokens
            )
            got = list(labels_of(parts[-1], b))
            at = parts[-1].frames[b, : len(got)].tolist()
        assert got == list(labels_of(whole, b))
        assert at == whole.frames[b, : len(at)].tolist()


class Bigram(torch.nn.Module):
    """A language model whose state is the number of labels: log-probabilities from the last label and that number."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(3, classes, classes, generator=generator).double().log_softmax(-1)
        self.table = torch.nn.Buffer(table)

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, dtype=torch.int64, device=self.table.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.table[state % 3, tokens], state + 1


@pytest.mark.parametrize("beam", [1, 4, 24])
def test_a_language_model_counts(beam: int, device: torch.device) -> None:
    blank = 2
    logits = logits_for(2, 12, 6, beam, blank)
    model = Bigram(6)

    def added(prefix: tuple[int, ...], c: int) -> float:
        last = prefix[-1] if prefix else blank
        return 0.7 * float(model.table[len(prefix) % 3, last, c])

    lengths = [12, 7]
    expected = [
        decode_reference.prefixes(logits[b, :n], beam, blank, added=added) for b, n in enumerate(lengths)
    ]
    found = ctc_beam_decode(
        logits.to(device), lengths, beam=beam, n_best=beam, blank=blank, language_model=model.to(device), lm_weight=0.7
    )  # fmt: skip
    for b in range(2):
        for one, wanted in zip(found, expected[b], strict=True):
            assert labels_of(one, b) == wanted.labels
            assert float(one.scores[b]) == pytest.approx(wanted.score, abs=1e-10)
    # In chunks, and with a weight of 0.
    options: dict[str, Any] = {"beam": beam, "blank": blank, "language_model": model, "lm_weight": 0.7}
    (begun,) = ctc_beam_decode(logits[:, :5].to(device), [5, 5], **options)
    (ended,) = ctc_beam_decode(logits[:, 5:].to(device), [7, 2], state=begun.state, **options)
    assert torch.equal(ended.scores, found[0].scores)
    (alone,) = ctc_beam_decode(logits.to(device), lengths, beam=beam, blank=blank)
    (none,) = ctc_beam_decode(logits.to(device), lengths, **{**options, "lm_weight": 0.0})
    assert torch.equal(alone.tokens, none.tokens) and torch.equal(alone.scores, none.scores)


def test_what_cannot_be_is_told_by_scores(device: torch.device) -> None:
    logits = torch.zeros(5, 4, 3)
    logits[0, 2, 1] = math.nan
    logits[1, 3, 0] = math.inf
    logits[2, 1] = -math.inf
    logits[3, :, 1:] = -math.inf  # blanks alone
    (found,) = ctc_beam_decode(logits.to(device), beam=4)
    greedy = ctc_greedy_decode(logits.to(device))
    for one in (found, greedy):
        assert one.scores[:2].isnan().all() and (one.lengths[:4] == 0).all()
        assert one.scores[2] == -math.inf and one.scores[3] == 0
    assert int(found.lengths[4]) > 0 and found.scores[4].isfinite()
    assert greedy.scores[4].isfinite()


def test_no_frames_no_utterances_one_utterance(device: torch.device) -> None:
    (found,) = ctc_beam_decode(torch.zeros(2, 0, 3, device=device), beam=2)
    assert found.tokens.shape == (2, 0) and found.scores.tolist() == [0, 0]
    assert ctc_greedy_decode(torch.zeros(2, 0, 3, device=device)).scores.tolist() == [0, 0]
    assert ctc_beam_decode(torch.zeros(0, 4, 3, device=device))[0].tokens.shape == (0, 4)
    assert ctc_greedy_decode(torch.zeros(0, 4, 3, device=device)).lengths.shape == (0,)
    logits = logits_for(1, 9, 5, 0)[0].to(device)
    (alone,) = ctc_beam_decode(logits, torch.tensor(7, device=device), beam=3)
    (batched,) = ctc_beam_decode(logits[None], [7], beam=3)
    assert all(torch.equal(a, b[0]) for a, b in zip(alone[:5], batched[:5], strict=True))
    greedy = ctc_greedy_decode(logits)
    assert greedy.tokens.shape == (9,) and greedy.scores.shape == ()
    model = Bigram(3).to(device)
    (empty,) = ctc_beam_decode(
        torch.zeros(2, 0, 3, device=device), beam=2, language_model=model, lm_weight=0.7
    )
    assert empty.scores.tolist() == [0, 0]


def test_no_gradient_is_kept(device: torch.device) -> None:
    logits = logits_for(1, 6, 4, 0).to(device).requires_grad_()
    (found,) = ctc_beam_decode(logits, beam=3)
    assert not found.scores.requires_grad and not ctc_greedy_decode(logits).scores.requires_grad


def test_compile(device: torch.device) -> None:
    logits = logits_for(2, 8, 5, 0).float().to(device)
    lengths = torch.tensor([8, 5], device=device)

    def decode(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        (best,) = ctc_beam_decode(x, n, beam=4)
        greedy = ctc_greedy_decode(x, n)
        return best.tokens, best.frames, best.scores, greedy.tokens, greedy.scores

    torch.compiler.reset()
    compiled = torch.compile(decode, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(compiled(logits, lengths), decode(logits, lengths), strict=True):
        assert torch.equal(got, wanted)


def test_opcheck(device: torch.device) -> None:
    logits = logits_for(2, 4, 5, 0).float().to(device)
    lengths = torch.tensor([4, 2], device=device)
    torch.library.opcheck(ops.greedy_search, (logits, lengths, None), {"blank": 1})
    walk = ops.greedy_search(logits, lengths, None)[3]
    torch.library.opcheck(ops.greedy_search, (logits, lengths, walk))
    nodes = torch.zeros(2, 8, 3, 2, dtype=torch.int32, device=device)
    threshold = {"beam_threshold": math.inf}
    torch.library.opcheck(ops.beam_search, (logits, lengths, None, None, None, nodes), threshold)
    hypotheses, frames, _, _ = ops.beam_search(logits, lengths, None, None, None, nodes, **threshold)
    added = torch.zeros(2, 3, 5, device=device)
    torch.library.opcheck(ops.beam_search, (logits[:, :1], None, hypotheses, frames, added, nodes), threshold)
    torch.library.opcheck(ops.beam_labels, (hypotheses, nodes, 2, 4))


@pytest.mark.gpu
def test_a_cuda_graph_with_changing_lengths(cuda: torch.device) -> None:
    logits = logits_for(4, 60, 30, 7).float().to(cuda)
    lengths = torch.tensor([60, 60, 60, 60], device=cuda)

    def decode() -> tuple[Tensor, ...]:
        (best,) = ctc_beam_decode(logits, lengths, beam=16)
        greedy = ctc_greedy_decode(logits, lengths)
        return best.tokens, best.frames, best.scores, greedy.tokens, greedy.scores

    decode()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = decode()
    for counts in ([60, 60, 60, 60], [3, 60, 0, 41]):
        lengths.copy_(torch.tensor(counts))
        graph.replay()
        got = [part.clone() for part in found]
        assert all(torch.equal(a, b) for a, b in zip(got, decode(), strict=True))


@pytest.mark.gpu
def test_nothing_waits_for_the_gpu(cuda: torch.device) -> None:
    logits = logits_for(4, 60, 30, 7).float().to(cuda)
    lengths = torch.tensor([60, 3, 0, 41], device=cuda)
    ctc_beam_decode(logits, lengths, beam=8)
    torch.cuda.set_sync_debug_mode("error")
    try:
        ctc_beam_decode(logits, lengths, beam=8)
        ctc_greedy_decode(logits, lengths)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize(("frames", "classes", "beam"), [(400, 1024, 16), (1500, 32, 32), (90, 5000, 128)])
def test_large_searches_are_the_cpu_path_s(frames: int, classes: int, beam: int, cuda: torch.device) -> None:
    logits = logits_for(4, frames, classes, beam)
    logits[..., 0] += 4
    lengths = torch.tensor([frames, frames // 2, 1, 0])
    expected = ctc_beam_decode(logits, lengths, beam=beam, n_best=2)
    found = ctc_beam_decode(logits.to(cuda), lengths.to(cuda), beam=beam, n_best=2)
    for one, other in zip(expected, found, strict=True):
        assert all(torch.equal(a, b.cpu()) for a, b in zip(one[:4], other[:4], strict=True))
        torch.testing.assert_close(one.scores, other.scores.cpu())
    greedy = ctc_greedy_decode(logits.to(cuda), lengths.to(cuda))
    assert torch.equal(greedy.tokens.cpu(), ctc_greedy_decode(logits, lengths).tokens)
