"""Drop-ins beside what they stand for: torch's CTC, torchaudio's alignment, the MAS packages, NeMo's ForwardSumLoss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.python.ctc.cases import problem
from tests.python.ctc.test_align import plain_forced_align, plain_forward_sum, plain_search
from warpalign.compat import monotonic_align, monotonic_alignment_search, nemo
from warpalign.compat import torch as compat
from warpalign.compat.torchaudio import TokenSpan, forced_align, merge_tokens


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("form", ["padded", "concatenated", "tuples"])
def test_ctc_loss(reduction: str, zero_infinity: bool, form: str) -> None:
    given = problem(4, 15, 7, 5, seed=3, blank=2)
    targets: Tensor = given.targets
    lengths: Any = given.logit_lengths
    counts: Any = given.target_lengths
    if form == "concatenated":
        targets = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
    if form == "tuples":
        lengths, counts = tuple(lengths.tolist()), tuple(counts.tolist())
    results = []
    for function in (F.ctc_loss, compat.ctc_loss):
        logits = given.logits.clone().requires_grad_()
        log_probs = logits.log_softmax(-1).transpose(0, 1)
        loss = function(log_probs, targets, lengths, counts, 2, reduction, zero_infinity)
        loss.sum().backward()
        results.append((loss.detach(), logits.grad))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)
    module = compat.CTCLoss(2, reduction, zero_infinity)
    log_probs = given.logits.log_softmax(-1).transpose(0, 1)
    torch.testing.assert_close(module(log_probs, targets, lengths, counts), results[0][0])


def test_one_utterance() -> None:
    log_probs = torch.randn(9, 5).log_softmax(-1)
    targets, lengths, counts = torch.tensor([1, 2, 2]), torch.tensor(9), torch.tensor(3)
    for reduction in ("none", "mean", "sum"):
        expected = F.ctc_loss(log_probs, targets, lengths, counts, reduction=reduction)
        torch.testing.assert_close(
            compat.ctc_loss(log_probs, targets, lengths, counts, reduction=reduction), expected
        )


def test_no_labels() -> None:
    log_probs = torch.randn(6, 3, 5).log_softmax(-1)
    lengths, counts = torch.tensor([6, 0, 2]), torch.zeros(3, dtype=torch.int64)
    for targets in (
        torch.zeros(3, 0, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        torch.ones(3, 4, dtype=torch.int64),
    ):
        expected = F.ctc_loss(log_probs, targets, lengths, counts, reduction="none")
        torch.testing.assert_close(
            compat.ctc_loss(log_probs, targets, lengths, counts, reduction="none"), expected
        )


LP = torch.zeros(5, 2, 4)
LABELS, FRAMES, COUNTS = torch.tensor([[1, 2], [2, 1]]), torch.tensor([5, 5]), torch.tensor([2, 2])
BAD: dict[str, tuple[Any, ...]] = {
    "blank beyond": (LP, LABELS, FRAMES, COUNTS, 4),
    "blank below": (LP, LABELS, FRAMES, COUNTS, -1),
    "frames beyond": (LP, LABELS, torch.tensor([6, 5]), COUNTS),
    "frames below": (LP, LABELS, torch.tensor([-1, 5]), COUNTS),
    "labels beyond": (LP, LABELS, FRAMES, torch.tensor([3, 2])),
    "labels below": (LP, LABELS, FRAMES, torch.tensor([-1, 2])),
    "one length": (LP, LABELS, torch.tensor([5]), COUNTS),
    "one count": (LP, LABELS, FRAMES, torch.tensor([2])),
    "float lengths": (LP, LABELS, FRAMES.float(), COUNTS),
    "float counts": (LP, LABELS, FRAMES, COUNTS.float()),
    "too few labels": (LP, torch.tensor([1, 2, 3]), FRAMES, COUNTS),
    "no frames": (LP[:0], LABELS, FRAMES, COUNTS),
    "three axes": (LP, LABELS[None], FRAMES, COUNTS),
    "another batch": (LP, LABELS[:1], FRAMES, COUNTS),
    "no such reduction": (LP, LABELS, FRAMES, COUNTS, 0, "max"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_torch_s(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError)) as expected:
        F.ctc_loss(*BAD[name])
    with pytest.raises(type(expected.value)) as found:
        compat.ctc_loss(*BAD[name])
    # torch's messages have a trace of C++ behind their first line.
    assert str(found.value) == str(expected.value).split("\n")[0]


def test_forced_align() -> None:
    given = problem(1, 60, 8, 12, seed=2)
    lp = given.logits.log_softmax(-1)
    paths, scores = forced_align(lp, given.targets)
    expected = plain_forced_align(lp[0], given.targets[0].tolist(), 0)
    assert paths.dtype == given.targets.dtype and paths[0].tolist() == expected
    torch.testing.assert_close(scores[0], lp[0, torch.arange(60), paths[0]])
    spans = merge_tokens(paths[0], scores[0])
    assert [span.token for span in spans] == given.targets[0].tolist()
    first = spans[0]
    assert isinstance(first, TokenSpan) and len(first) == first.end - first.start
    assert first.score == pytest.approx(scores[0, first.start : first.end].mean().item())


def test_forced_align_errors() -> None:
    lp = torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match="shouldn't contain blank index"):
        forced_align(lp, torch.tensor([[1, 0]]))
    with pytest.raises(ValueError, match="targets values must be less than the CTC dimension"):
        forced_align(lp, torch.tensor([[1, 4]]))
    message = "Found log_probs length: 3, targets length: 3, and number of repeats: 1"
    with pytest.raises(RuntimeError, match=message):
        forced_align(lp, torch.tensor([[1, 1, 2]]))
    with pytest.raises(ValueError, match="must be 1D Tensor"):
        merge_tokens(lp[0], lp[0])
    with pytest.raises(ValueError, match="must be the same length"):
        merge_tokens(torch.ones(3), torch.ones(2))


def test_torchaudio_s_own_paths() -> None:
    """Where torchaudio is installed: 1000 random problems, and one of 30000 frames."""
    functional = pytest.importorskip("torchaudio.functional")
    generator = torch.Generator().manual_seed(0)
    for frames, labels in [
        (int(n) + 4, int(n) // 3 + 1) for n in torch.randint(1, 60, (1000,), generator=generator)
    ] + [(30000, 5000)]:
        lp = torch.randn(1, frames, 20, generator=generator, dtype=torch.float64).log_softmax(-1)
        targets = torch.randint(1, 20, (1, labels), generator=generator)
        for found, expected in zip(
            forced_align(lp, targets), functional.forced_align(lp, targets), strict=True
        ):
            assert torch.equal(found, expected)


def test_maximum_path() -> None:
    value = torch.randn(3, 7, 20)
    texts, frames = torch.tensor([7, 3, 6]), torch.tensor([20, 11, 6])
    mask = (torch.arange(7) < texts[:, None])[:, :, None] & (torch.arange(20) < frames[:, None])[:, None]
    path = monotonic_alignment_search.maximum_path(value, mask.float())
    assert path.dtype == value.dtype
    for b in range(3):
        expected = plain_search(value[b, : texts[b], : frames[b]])
        assert torch.equal(path[b, : texts[b]].sum(1).int(), expected)
    for same in (
        monotonic_alignment_search.maximum_path_cython,
        monotonic_alignment_search.maximum_path_numpy,
    ):
        assert torch.equal(same(value, mask.float()), path)
    turned = monotonic_align.maximum_path(value.transpose(1, 2), mask.float().transpose(1, 2))
    assert torch.equal(turned, path.transpose(1, 2))
    with pytest.raises(NotImplementedError):
        monotonic_alignment_search.maximum_path(value, mask, "triton")


def test_the_package_of_monotonic_alignment_search() -> None:
    package = pytest.importorskip("monotonic_alignment_search")
    value = torch.randn(4, 30, 100)
    mask = torch.ones_like(value)
    assert torch.equal(
        monotonic_alignment_search.maximum_path(value, mask), package.maximum_path(value, mask)
    )


def test_nemo_forward_sum() -> None:
    attention = torch.randn(3, 1, 20, 7, dtype=torch.float64)
    texts, frames = torch.tensor([7, 4, 6]), torch.tensor([20, 11, 18])
    loss = nemo.ForwardSumLoss()(attn_logprob=attention, in_lens=texts, out_lens=frames)
    torch.testing.assert_close(loss, plain_forward_sum(attention, texts, frames))
