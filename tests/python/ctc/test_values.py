"""Losses, gradients and posteriors of CTC against torch in float64 and against all paths."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.python.ctc.cases import Problem, brute_force, problem, torch_losses
from tests.python.helpers import DTYPES
from warpalign import CTCLoss, ctc_loss, ctc_posteriors

SIZES = [(4, 12, 6, 4), (3, 40, 5, 17), (5, 30, 200, 8), (2, 300, 33, 64)]
# Rounding of p and g to float32, each at most 1; half types besides round each number of the gradient.
TOLERANCE = {torch.float64: 2e-12, torch.float32: 4e-7, torch.float16: 6e-4, torch.bfloat16: 4e-3}


def loss_and_gradient(given: Problem, dtype: torch.dtype, **options: object) -> tuple[Tensor, Tensor]:
    logits = given.logits.detach().to(dtype).clone().requires_grad_()
    losses = ctc_loss(logits, *given[1:], reduction="none", **options)  # type: ignore[arg-type]
    losses.sum().backward()
    assert logits.grad is not None and logits.grad.dtype == dtype
    return losses.detach(), logits.grad


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("blank", [0, 2])
def test_torch_in_float64(sizes: tuple[int, ...], dtype: torch.dtype, blank: int) -> None:
    given = problem(*sizes, seed=sum(sizes), blank=blank)
    given = given._replace(logits=given.logits.to(dtype).double().requires_grad_())
    expected = torch_losses(given, blank)
    expected.sum().backward()
    losses, gradient = loss_and_gradient(given, dtype, blank=blank)
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-6, atol=1e-5)
    assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert given.logits.grad is not None
    assert (gradient.double() - given.logits.grad).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_no_path(zero_infinity: bool) -> None:
    given = problem(3, 8, 5, 4, seed=3)
    given = given._replace(
        targets=torch.tensor([[1, 1, 1, 1], [1, 2, 3, 4], [2, 2, 3, 3]]),
        logit_lengths=torch.tensor([6, 3, 8]),
        target_lengths=torch.tensor([4, 4, 4]),
    )
    losses, gradient = loss_and_gradient(given, torch.float32, zero_infinity=zero_infinity)
    expected = torch_losses(given, zero_infinity=zero_infinity)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-6, atol=1e-5)
    assert not gradient[:2].any() and gradient[2].any()


@pytest.mark.parametrize("star", [None, 2, 9])
@pytest.mark.parametrize("has_prior", [False, True])
@pytest.mark.parametrize("from_log_probs", [False, True])
def test_all_paths(star: int | None, has_prior: bool, from_log_probs: bool) -> None:
    """Also where no other package has what is computed: stars and priors."""
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    prior = torch.tensor([-0.5, 0.25, 1.0, -2.0], dtype=torch.float64) if has_prior else None
    last = 3 if star is None else star
    for targets in ([], [1], [1, last], [1, 1], [last, last], [1, last, 2], [2, 1, last]):
        logits = x.clone().requires_grad_()
        lp = logits if from_log_probs else F.log_softmax(logits, -1)
        # A star has no prior: add it to what brute_force() takes for all classes.
        if star in targets and has_prior:
            continue
        weights = lp if prior is None else lp - prior
        expected = brute_force(weights, targets, 0, star)
        wanted = torch.zeros_like(x)
        if not expected.isinf():
            (wanted,) = torch.autograd.grad(expected, logits)
        own = x.clone().requires_grad_()
        loss = ctc_loss(
            own,
            torch.tensor(targets, dtype=torch.int64),
            from_log_probs=from_log_probs,
            label_prior=prior,
            star=star,
        )
        loss.backward()
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(own.grad, wanted, rtol=1e-10, atol=1e-12)


def test_a_prior_does_not_change_a_star() -> None:
    x = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    prior = torch.tensor([0.0, 3.0, -1.0, 0.5], dtype=torch.float64)
    stars = torch.tensor([9, 9])
    torch.testing.assert_close(
        ctc_loss(x, stars, star=9, label_prior=prior), ctc_loss(x, stars, star=9), rtol=1e-12, atol=1e-12
    )


def test_layouts_are_equal() -> None:
    given = problem(3, 20, 7, 5, seed=11)
    losses, gradient = loss_and_gradient(given, torch.float32)
    counts = given.target_lengths
    flat = torch.cat([row[:count] for row, count in zip(given.targets, counts, strict=True)])
    changed = [
        given._replace(logits=given.logits.transpose(0, 1).contiguous().transpose(0, 1)),
        given._replace(logits=given.logits.transpose(1, 2).contiguous().transpose(1, 2)),
        given._replace(logits=F.pad(given.logits, (3, 2))[..., 3:-2]),
        given._replace(targets=flat),
        given._replace(targets=given.targets.to(torch.int32), target_lengths=counts.to(torch.uint8)),
        given._replace(
            targets=given.targets.to(torch.int8), logit_lengths=given.logit_lengths.to(torch.int16)
        ),
    ]
    for other in changed:
        logits = other.logits.float().requires_grad_()
        found = ctc_loss(logits, *other[1:], reduction="none")
        found.sum().backward()
        assert torch.equal(found, losses)
        assert logits.grad is not None and torch.equal(logits.grad, gradient)
    lists = ctc_loss(
        given.logits.float(),
        given.targets,
        given.logit_lengths.tolist(),
        tuple(counts.tolist()),
        reduction="none",
    )
    assert torch.equal(lists, losses)


def test_one_utterance_has_no_batch_axis() -> None:
    given = problem(1, 9, 5, 3, seed=5)
    batched = ctc_loss(given.logits, given.targets, reduction="none")
    single = ctc_loss(given.logits[0], given.targets[0], reduction="none")
    assert single.shape == () and torch.equal(single, batched[0])
    assert ctc_posteriors(given.logits[0], given.targets[0]).shape == (9, 3)
    shorter = ctc_loss(given.logits[0], given.targets[0], torch.tensor(7), torch.tensor(2))
    assert torch.equal(shorter, ctc_loss(given.logits[:, :7], given.targets[:, :2]))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "mean_target", "mean_volume", "mean_frame"])
def test_reductions(reduction: str) -> None:
    given = problem(4, 12, 6, 4, seed=21)
    losses = ctc_loss(given.logits, *given[1:], reduction="none")
    frames, labels = given.logit_lengths, given.target_lengths
    expected = {
        "none": losses,
        "sum": losses.sum(),
        "mean": losses.mean(),
        "mean_target": (losses / labels.clamp(min=1)).mean(),
        "mean_volume": losses.sum() / labels.sum(),
        "mean_frame": (losses / frames).mean(),
    }[reduction]
    torch.testing.assert_close(ctc_loss(given.logits, *given[1:], reduction=reduction), expected)  # type: ignore[arg-type]
    torch.testing.assert_close(CTCLoss(reduction=reduction)(given.logits, *given[1:]), expected)  # type: ignore[arg-type]


def test_impossible_classes_have_finite_gradients() -> None:
    """torch's gradients are NaN there."""
    given = problem(2, 10, 6, 3, seed=8)
    given.logits[0, :, 5] = -math.inf
    given.logits[0, 4, 0] = -math.inf
    given.logits[1, 3] = -math.inf
    given = given._replace(
        targets=torch.tensor([[1, 2, 3], [1, 2, 3]]),
        target_lengths=torch.tensor([3, 3]),
        logit_lengths=torch.tensor([10, 10]),
    )
    losses, gradient = loss_and_gradient(given, torch.float32)
    assert losses[0].isfinite() and losses[1] == math.inf
    assert gradient.isfinite().all() and not gradient[1].any() and not gradient[0, :, 5].any()


def test_a_nan_stays_in_its_utterance() -> None:
    given = problem(3, 10, 6, 3, seed=9)
    clean, expected = loss_and_gradient(given, torch.float32)
    given.logits[1, 2, 4] = math.nan
    losses, gradient = loss_and_gradient(given, torch.float32)
    assert losses[1].isnan() and gradient[1, : given.logit_lengths[1]].isnan().all()
    for b in (0, 2):
        assert torch.equal(losses[b], clean[b]) and torch.equal(gradient[b], expected[b])


def test_gradients_are_bitwise_equal() -> None:
    given = problem(4, 200, 50, 30, seed=13)
    first = loss_and_gradient(given, torch.float32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        second = loss_and_gradient(given, torch.float32)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    order = torch.tensor([2, 0, 3, 1])
    moved = loss_and_gradient(Problem(*(part[order] for part in given)), torch.float32)
    assert torch.equal(moved[0], first[0][order]) and torch.equal(moved[1], first[1][order])


def test_unused_classes_may_be_permuted() -> None:
    given = problem(2, 30, 20, 6, seed=15)
    given = given._replace(targets=given.targets % 5 + 1)
    order = torch.cat([torch.arange(6), 6 + torch.randperm(14, generator=torch.Generator().manual_seed(1))])
    losses, gradient = loss_and_gradient(given, torch.float64)
    permuted, by_permuted = loss_and_gradient(given._replace(logits=given.logits[..., order]), torch.float64)
    torch.testing.assert_close(permuted, losses)
    torch.testing.assert_close(by_permuted, gradient[..., order])


@pytest.mark.parametrize("case", [(1, 1500, 32, 300), (1, 6000, 32, 1500)])
def test_long_utterances(case: tuple[int, ...]) -> None:
    """The gradient's error does not grow with the length."""
    given = problem(*case, seed=17)
    given = given._replace(logits=given.logits.float().double().requires_grad_())
    torch_losses(given).sum().backward()
    _, gradient = loss_and_gradient(given, torch.float32)
    assert given.logits.grad is not None
    assert (gradient.double() - given.logits.grad).abs().max() < 5e-7


def test_posteriors_are_the_gradient() -> None:
    given = problem(3, 25, 9, 6, seed=19)
    posteriors = ctc_posteriors(given.logits, *given[1:])
    _, gradient = loss_and_gradient(given, torch.float64)
    p = F.softmax(given.logits, -1)
    for b in range(3):
        frames, count = int(given.logit_lengths[b]), int(given.target_lengths[b])
        assert not posteriors[b, frames:].any() and not posteriors[b, :, count:].any()
        by_class = torch.zeros(frames, 9, dtype=torch.float64)
        by_class.index_add_(1, given.targets[b, :count], posteriors[b, :frames, :count])
        by_class[:, 0] = 1 - by_class.sum(1)
        torch.testing.assert_close(p[b, :frames] - by_class, gradient[b, :frames], rtol=1e-9, atol=1e-12)
