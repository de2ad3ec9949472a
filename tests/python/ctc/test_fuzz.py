"""Random calls: dtypes, layouts, lengths and labels of all kinds, against torch in float64."""

from __future__ import annotations

import math
import random

import pytest
import torch
import torch.nn.functional as F

from tests.python.ctc.cases import Problem, torch_losses
from tests.python.ctc.decode_reference import prefixes
from tests.python.helpers import DTYPES
from warpalign import ctc_align, ctc_beam_decode, ctc_loss, ctc_posteriors


@pytest.mark.parametrize("seed", range(60))
def test_random_calls(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice(DTYPES)
    batch, frames = draw.randint(1, 5), draw.randint(1, 70)
    classes, labels = draw.choice([2, 3, 17, 64, 500]), draw.randint(0, 40)
    blank = draw.randrange(classes)
    scale = draw.choice([0.1, 1.0, 10.0])
    logits = (scale * torch.randn(batch, frames, classes)).to(dtype)
    targets = torch.randint(0, classes - 1, (batch, labels))
    targets += targets >= blank
    lengths, counts = torch.randint(0, frames + 1, (batch,)), torch.randint(0, labels + 1, (batch,))
    exact = logits.double().requires_grad_()
    expected = torch_losses(Problem(exact, targets, lengths, counts), blank, zero_infinity=True)
    expected.sum().backward()
    assert exact.grad is not None
    order = draw.choice([(0, 1, 2), (1, 0, 2), (2, 1, 0)])  # of the axes in memory
    strided = logits.permute(order).contiguous().permute(order)
    own = strided.detach().requires_grad_()
    given = (
        targets
        if draw.random() < 0.5
        else torch.cat([row[:n] for row, n in zip(targets, counts, strict=True)])
    )
    losses = ctc_loss(own, given, lengths, counts, blank=blank, zero_infinity=True, reduction="none")
    losses.sum().backward()
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-6, atol=1e-5)
    assert own.grad is not None
    rounding = {torch.float16: 2**-11, torch.bfloat16: 2**-8}.get(dtype, 0.0)
    assert ((own.grad.double() - exact.grad).abs() <= 1e-6 + rounding * exact.grad.abs()).all()
    padding = torch.arange(frames) >= lengths[:, None]
    assert not own.grad[padding].any()
    sums = ctc_posteriors(strided, targets, lengths, counts, blank=blank).sum(2)
    assert (sums <= 1 + 1e-5).all() and not sums[padding].any()
    found = ctc_align(strided, targets, lengths, counts, blank=blank)
    has_path = expected != 0
    score = found.scores.double().sum(1)
    torch.testing.assert_close(found.score.double()[has_path], score[has_path], rtol=1e-5, atol=1e-4)
    # The best path is one of the paths that the loss sums over.
    assert (found.score.double()[has_path] <= -losses.double()[has_path] + 1e-3).all()
    lp = F.log_softmax(strided.double(), -1)
    for b in has_path.nonzero().flatten().tolist():
        labels_of = found.labels[b, : lengths[b]].long()
        torch.testing.assert_close(
            lp[b, torch.arange(len(labels_of)), labels_of],
            found.scores[b, : lengths[b]].double(),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("seed", range(40))
def test_random_searches(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice(DTYPES)
    batch, frames, classes = draw.randint(1, 3), draw.randint(1, 15), draw.choice([2, 3, 6, 40])
    blank, beam = draw.randrange(classes), draw.choice([1, 2, 3, 8, 20])
    threshold = draw.choice([None, 3.0, 10.0])
    # Numbers of a type that are no multiples of a step are not equal by accident.
    logits = (draw.choice([0.5, 2.0, 8.0]) * torch.randn(batch, frames, classes)).to(dtype)
    if draw.random() < 0.3:
        logits[tuple(draw.randrange(size) for size in logits.shape)] = -math.inf
    from_log_probs = draw.random() < 0.3
    given = logits.double().log_softmax(-1).to(dtype) if from_log_probs else logits
    lengths = torch.randint(0, frames + 1, (batch,))
    order = draw.choice([(0, 1, 2), (1, 0, 2), (2, 1, 0)])
    strided = given.permute(order).contiguous().permute(order)
    found = ctc_beam_decode(
        strided, lengths, beam=beam, n_best=beam, blank=blank, beam_threshold=threshold, from_log_probs=from_log_probs
    )  # fmt: skip
    for b, length in enumerate(lengths.tolist()):
        expected = prefixes(given[b, :length], beam, blank, threshold or math.inf, from_log_probs)
        scores = torch.tensor([float(one.scores[b]) for one in found])
        wanted = torch.tensor([one.score for one in expected] + [-math.inf] * (beam - len(expected)))
        exact = dtype == torch.float64
        if exact:  # half types tie, and float32 nearly so: what comes first may differ
            got = [tuple(one.tokens[b, : int(one.lengths[b])].tolist()) for one in found[: len(expected)]]
            assert got == [one.labels for one in expected], f"seed {seed}, utterance {b}"
            torch.testing.assert_close(scores, wanted, rtol=1e-6, atol=1e-6)
        elif expected:
            assert float(scores[0]) == pytest.approx(expected[0].score, abs=0.05)
