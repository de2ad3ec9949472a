"""Forced alignment, monotonic alignment search and the forward-sum loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.python.ctc.cases import brute_force, problem
from warpalign import ForwardSumLoss, ctc_align, forward_sum_loss, monotonic_alignment_search


def plain_forced_align(lp: Tensor, targets: list[int], blank: int) -> list[int]:
    """Classes of the best path by dynamic programming over a table, with the documented choice among equal paths."""
    frames = lp.shape[0]
    extended = [blank]
    for label in targets:
        extended += [label, blank]
    table = np.full((frames, len(extended)), -math.inf)
    back = np.zeros((frames, len(extended)), dtype=int)
    p = lp.double().numpy()
    for t in range(frames):
        for s, z in enumerate(extended):
            if t == 0:
                table[t, s] = p[t, z] if s < 2 else -math.inf
                continue
            best, step = table[t - 1, s], 0
            if s >= 1 and table[t - 1, s - 1] > best:
                best, step = table[t - 1, s - 1], 1
            if s >= 2 and z != blank and z != extended[s - 2] and table[t - 1, s - 2] > best:
                best, step = table[t - 1, s - 2], 2
            table[t, s], back[t, s] = best + p[t, z], step
    s = len(extended) - 1
    if s > 0 and not table[-1, s] > table[-1, s - 1]:
        s -= 1
    path = []
    for t in range(frames - 1, -1, -1):
        path.append(extended[s])
        s -= back[t, s]
    return path[::-1]


@pytest.mark.parametrize("seed", range(30))
def test_dynamic_programming(seed: int) -> None:
    blank = seed % 3
    given = problem(3, 25 + seed, 6, 5, seed=seed, blank=blank)
    lp = F.log_softmax(given.logits, -1)
    if seed % 2:  # most sums are equal to others
        lp = given.logits.round().clamp(-3, 0)
    found = ctc_align(lp, *given[1:], blank=blank, from_log_probs=True)
    for b in range(3):
        frames, count = int(given.logit_lengths[b]), int(given.target_lengths[b])
        expected = plain_forced_align(lp[b, :frames], given.targets[b, :count].tolist(), blank)
        assert found.labels[b].tolist() == expected + [-1] * (lp.shape[1] - frames)
        scores = lp[b, torch.arange(frames), torch.tensor(expected)]
        torch.testing.assert_close(found.scores[b, :frames], scores)
        torch.testing.assert_close(found.score[b], scores.sum())
        assert found.spans[b, count:].eq(-1).all()


def test_spans_are_runs_of_labels() -> None:
    given = problem(4, 40, 6, 8, seed=3)
    found = ctc_align(given.logits, *given[1:])
    for b in range(4):
        for k in range(int(given.target_lengths[b])):
            first, last = found.spans[b, k].tolist()
            assert found.labels[b, first : last + 1].eq(given.targets[b, k]).all()
            if k > 0:
                assert first > found.spans[b, k - 1, 1]


@pytest.mark.parametrize("star", [2, 9])
def test_a_star_is_the_best_class(star: int) -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    lp = F.log_softmax(x, -1)
    for targets in ([star], [1, star], [star, star], [1, star, 3]):
        found = ctc_align(x, torch.tensor(targets), star=star)
        torch.testing.assert_close(-found.score, brute_force(lp, targets, 0, star, best=True))
        torch.testing.assert_close(found.scores.sum(), found.score)
        merged = [c for i, c in enumerate(found.labels.tolist()) if i == 0 or c != found.labels[i - 1]]
        assert [c for c in merged if c != 0] == targets


def test_flat_targets_have_flat_spans() -> None:
    given = problem(3, 30, 6, 5, seed=5)
    padded = ctc_align(given.logits, *given[1:])
    rows = [row[:count] for row, count in zip(given.targets, given.target_lengths, strict=True)]
    flat = ctc_align(given.logits, torch.cat(rows), *given[2:])
    expected = torch.cat([s[:count] for s, count in zip(padded.spans, given.target_lengths, strict=True)])
    assert torch.equal(flat.spans, expected) and torch.equal(flat.labels, padded.labels)


def test_no_path() -> None:
    found = ctc_align(torch.zeros(2, 3, 4), torch.tensor([[1, 1, 1], [1, 2, 3]]))
    assert found.score[0] == -math.inf and found.score[1].isfinite()
    assert found.labels[0].eq(-1).all() and not found.scores[0].any() and found.spans[0].eq(-1).all()


def test_one_long_utterance() -> None:
    given = problem(1, 30000, 8, 4000, seed=6)
    given = given._replace(target_lengths=torch.tensor([4000]), logit_lengths=torch.tensor([30000]))
    lp = F.log_softmax(given.logits.float(), -1)
    found = ctc_align(lp, *given[1:], from_log_probs=True)
    assert torch.isclose(found.scores.double().sum(), found.score.double()[0], rtol=1e-5)
    labels = found.labels[0]
    merged = labels[torch.cat([torch.tensor([True]), labels[1:] != labels[:-1]])]
    assert torch.equal(merged[merged != 0].long(), given.targets[0])


# Monotonic alignment search.


def plain_search(scores: Tensor) -> Tensor:
    """Durations by dynamic programming over a table, as Glow-TTS has it."""
    positions, frames = scores.shape
    x = scores.double().numpy()
    table = np.full((positions, frames), -math.inf)
    for t in range(frames):
        for s in range(min(positions, t + 1)):
            before = 0.0 if t == 0 else max(table[s, t - 1], table[s - 1, t - 1] if s else -math.inf)
            table[s, t] = before + x[s, t]
    durations, s = [0] * positions, positions - 1
    for t in range(frames - 1, -1, -1):
        durations[s] += 1
        if t and s and (s == t or table[s, t - 1] < table[s - 1, t - 1]):
            s -= 1
    return torch.tensor(durations, dtype=torch.int32)


@pytest.mark.parametrize("seed", range(10))
def test_monotonic_search(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 12, 30, generator=generator)
    if seed % 2:
        scores = scores.round()
    texts, frames = torch.tensor([12, 5, 1, 9]), torch.tensor([30, 21, 7, 9])
    durations = monotonic_alignment_search(scores, texts, frames, output="durations")
    path = monotonic_alignment_search(scores, texts, frames)
    assert path.dtype == torch.bool and torch.equal(path.sum(2, dtype=torch.int32), durations)
    swapped = scores.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(monotonic_alignment_search(swapped, texts, frames), path)
    for b in range(4):
        expected = plain_search(scores[b, : texts[b], : frames[b]])
        assert torch.equal(durations[b, : texts[b]], expected) and not durations[b, texts[b] :].any()
        assert torch.equal(
            monotonic_alignment_search(scores[b, : texts[b], : frames[b]], output="durations"), expected
        )


def test_more_text_than_frames() -> None:
    assert not monotonic_alignment_search(torch.zeros(1, 5, 3)).any()


# The forward-sum loss.


def plain_forward_sum(
    attention: Tensor, texts: Tensor, frames: Tensor, blank_logprob: float = -1.0
) -> Tensor:
    """NeMo's loop over the batch, in torch: nemo/collections/tts/losses/aligner_loss.py."""
    padded = F.pad(attention, (1, 0), value=blank_logprob)
    total = attention.new_zeros(())
    for b in range(attention.shape[0]):
        targets = torch.arange(1, int(texts[b]) + 1)[None]
        current = padded[b].permute(1, 0, 2)[: frames[b], :, : texts[b] + 1]
        current = F.log_softmax(current[None], -1)[0]
        total = total + F.ctc_loss(current, targets, frames[b : b + 1], texts[b : b + 1], zero_infinity=True)
    return total / attention.shape[0]


@pytest.mark.parametrize("blank_logprob", [-1.0, 0.5])
def test_forward_sum(blank_logprob: float) -> None:
    attention = torch.randn(3, 1, 20, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    texts, frames = torch.tensor([7, 4, 6]), torch.tensor([20, 11, 5])
    one, other = attention.clone().requires_grad_(), attention.clone().requires_grad_()
    expected = plain_forward_sum(one, texts, frames, blank_logprob)
    loss = forward_sum_loss(other, texts, frames, blank_logprob)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ForwardSumLoss(blank_logprob)(attention, texts, frames), expected)
    torch.testing.assert_close(forward_sum_loss(attention.squeeze(1), texts, frames, blank_logprob), expected)
    expected.backward()
    loss.backward()
    torch.testing.assert_close(other.grad, one.grad)
