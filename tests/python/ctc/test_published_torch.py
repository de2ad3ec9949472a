"""torch's published cases of CTC, written anew: the drop-in and torch's own function side by side, on the same tensors.

The cases are those of pytorch/test/test_nn.py and of torch's CTCLoss entries in common_nn.py: lengths of all kinds, no labels,
no frames, the length at which torch's other kernels begin, reductions, infinities, layouts, and errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from warpalign.compat import torch as compat


def random_log_probs(
    *shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, grad: bool = True
) -> Tensor:
    logits = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return logits.log_softmax(-1).requires_grad_(grad)


def by_both(log_probs: Tensor, *rest: Any, **options: Any) -> list[tuple[Tensor, Tensor]]:
    """Losses and gradients of a log_softmax' argument, by torch and by the drop-in."""
    results = []
    for function in (F.ctc_loss, compat.ctc_loss):
        logits = log_probs.detach().clone().requires_grad_()
        loss = function(logits.log_softmax(-1), *rest, **options)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        results.append((loss.detach(), gradient))
    return results


def assert_equal(log_probs: Tensor, *rest: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """What the drop-in returns, which is torch's."""
    expected, found = by_both(log_probs, *rest, **options)
    tolerance = (
        {"rtol": 1e-9, "atol": 1e-11} if log_probs.dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    )
    torch.testing.assert_close(found, expected, **tolerance)
    return found


def assert_same_error(*arguments: Any, **options: Any) -> str:
    """The first line of torch's message, which is the drop-in's."""
    with pytest.raises((RuntimeError, ValueError)) as expected:
        F.ctc_loss(*arguments, **options)
    with pytest.raises(type(expected.value)) as found:
        compat.ctc_loss(*arguments, **options)
    message = str(expected.value).split("\n")[0]
    assert str(found.value) == message
    return message


# test_CTCLoss_lengthchecks_cpu, test_CTCLoss_typechecks, test_ctc_loss_error: what is refused, and how.


@pytest.mark.parametrize("targets", ["padded", "concatenated"])
def test_lengths_beyond_the_axes(targets: str) -> None:
    labels = torch.randint(1, 15, (3, 29)) if targets == "padded" else torch.randint(1, 15, (29,))
    log_probs = random_log_probs(25, 3, 15, dtype=torch.float32)
    assert_same_error(log_probs, labels, [25, 25, 25], [30, 25, 20])
    assert_same_error(log_probs, labels, [24, 26, 25], [10, 9, 10])


def test_lengths_must_be_integral() -> None:
    labels = torch.randint(1, 15, (3, 29), dtype=torch.int32)
    log_probs = random_log_probs(50, 3, 15, dtype=torch.float32)
    counts = torch.tensor([10, 9, 10])
    message = assert_same_error(log_probs, labels, torch.tensor([50.0, 50.0, 50.0]), counts)
    assert message == "input_lengths must be integral"
    message = assert_same_error(log_probs, labels, torch.tensor([50, 50, 50]), counts.float())
    assert message == "target_lengths must be integral"


def test_log_probs_must_not_be_empty() -> None:
    message = assert_same_error(
        torch.rand(0, 1, 4), torch.tensor([[1]]), torch.tensor([0]), torch.tensor([1])
    )
    assert message == "log_probs tensor must not be empty"


# test_CTCLoss_long_targets, test_CTCLoss_critical_target_len: around 255 and 256 labels, where torch's kernels change.


@pytest.mark.parametrize("labels", [254, 255, 256, 257])
def test_critical_target_length(labels: int) -> None:
    torch.manual_seed(labels)
    targets = torch.randint(1, 20, (1, labels))
    assert_equal(random_log_probs(520, 1, 20, seed=labels), targets, (520,), (labels,))


def test_long_targets() -> None:
    torch.manual_seed(0)
    targets = torch.randint(1, 20, (4, 300))
    losses, _ = assert_equal(
        random_log_probs(700, 4, 20), targets, [700] * 4, [300] * 4, reduction="sum", zero_infinity=True
    )
    assert losses > 0


# test_CTCLoss_zero_infinity, test_CTCLoss_zero_lengths, test_ctc_loss_empty_target: utterances without paths, labels, frames.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_infinity(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    targets, counts = torch.randint(1, 15, (80,)), [20, 60]
    lengths = [60, 25]  # the second one is too short for its labels
    losses, gradient = assert_equal(
        random_log_probs(60, 2, 15, dtype=dtype),
        targets,
        lengths,
        counts,
        reduction="none",
        zero_infinity=True,
    )
    assert losses[1] == 0 and losses[0] > 0
    assert not gradient[:, 1].any() and gradient[:, 0].any()
    infinite = compat.ctc_loss(
        random_log_probs(60, 2, 15, dtype=dtype), targets, lengths, counts, reduction="none"
    )
    assert infinite.tolist() == [losses[0].item(), float("inf")]


@pytest.mark.parametrize("concatenated", [False, True])
def test_empty_targets(concatenated: bool) -> None:
    torch.manual_seed(0)
    targets = torch.randint(1, 15, (3, 0)) if not concatenated else torch.randint(1, 15, (0,))
    losses, _ = assert_equal(
        random_log_probs(50, 3, 15), targets, [50] * 3, [0] * 3, reduction="none", zero_infinity=True
    )
    blanks = random_log_probs(50, 3, 15)[..., 0].sum(0)
    torch.testing.assert_close(losses, -blanks.detach())
    mixed = torch.randint(1, 15, (29,)) if concatenated else torch.randint(1, 15, (3, 25))
    assert_equal(random_log_probs(50, 3, 15), mixed, [50] * 3, [25, 0, 4], reduction="none")


@pytest.mark.parametrize(
    ("lengths", "counts"), [((0, 0, 0), (0, 0, 0)), ((0, 5, 9), (0, 2, 0)), ((0, 9, 9), (3, 2, 1))]
)
def test_no_frames(lengths: tuple[int, ...], counts: tuple[int, ...]) -> None:
    targets = torch.tensor([[1, 2, 3], [2, 2, 1], [4, 1, 1]])
    losses, gradient = assert_equal(
        random_log_probs(9, 3, 5), targets, lengths, counts, reduction="none", zero_infinity=True
    )
    assert losses[0] == 0 and not gradient[:, 0].any()
    plain = random_log_probs(9, 3, 5)
    rest = (plain, targets, lengths, counts)
    expected = F.ctc_loss(*rest, reduction="none")
    torch.testing.assert_close(compat.ctc_loss(*rest, reduction="none"), expected)
    assert expected[0] == (float("inf") if counts[0] else 0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_no_utterances(reduction: str) -> None:
    assert_same_error(
        torch.zeros(9, 0, 5), torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64), reduction=reduction,
    )  # fmt: skip


# ctcloss_reference of common_nn.py: lengths as lists, tuples and tensors; targets of one and of two axes.


KINDS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    **{
        str(dtype).removeprefix("torch."): lambda given, dtype=dtype: torch.tensor(given, dtype=dtype)
        for dtype in (torch.int32, torch.int64, torch.uint8, torch.int16, torch.int8)
    },
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["padded", "concatenated"])
def test_kinds_of_lengths(kind: str, layout: str) -> None:
    torch.manual_seed(0)
    lengths, counts = [50, 48, 44], [30, 25, 20]
    targets = torch.randint(1, 15, (3, 30))
    if layout == "concatenated":
        targets = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
    for reduction in ("none", "mean", "sum"):
        assert_equal(
            random_log_probs(50, 3, 15),
            targets,
            KINDS[kind](lengths),
            KINDS[kind](counts),
            reduction=reduction,
        )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("blank", [0, 14, 7])
def test_dtypes_of_targets_and_blanks(dtype: torch.dtype, blank: int) -> None:
    torch.manual_seed(1)
    targets = torch.randint(0, 14, (3, 10))
    targets = (targets + (targets >= blank)).to(dtype)
    lengths = torch.tensor([50, 50, 50], dtype=dtype)
    assert_equal(
        random_log_probs(50, 3, 15), targets, lengths, torch.tensor([10, 7, 0], dtype=dtype), blank=blank
    )


def test_targets_on_another_device_are_refused_or_moved() -> None:
    """The drop-in moves targets and lengths to the log-probabilities' device, as torch's kernels for CUDA do with lengths."""
    log_probs = random_log_probs(9, 2, 5)
    targets = torch.tensor([[1, 2], [3, 1]])
    with pytest.raises(NotImplementedError):  # a tensor without data cannot be moved
        compat.ctc_loss(log_probs, targets.to("meta"), [9, 9], [2, 2])
    if torch.cuda.is_available():
        expected = compat.ctc_loss(log_probs, targets, [9, 9], [2, 2])
        for device in ("cpu", "cuda"):
            found = compat.ctc_loss(
                log_probs.cuda(), targets.to(device), torch.tensor([9, 9]), torch.tensor([2, 2])
            )
            torch.testing.assert_close(found.cpu(), expected)


# test_ctc_loss_unbatched.


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("scalars", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_unbatched(reduction: str, scalars: bool, zero_infinity: bool) -> None:
    torch.manual_seed(2)
    targets = torch.randint(1, 20, (30,))
    lengths = torch.tensor(50 if scalars else [50]), torch.tensor(30 if scalars else [30])
    options: dict[str, Any] = {"reduction": reduction, "zero_infinity": zero_infinity}
    single, gradient = assert_equal(random_log_probs(50, 20), targets, *lengths, **options)
    batched, of_batch = assert_equal(
        random_log_probs(50, 20)[:, None], targets[None], (50,), (30,), **options
    )
    assert single.shape == () and torch.equal(single, batched.squeeze())
    assert torch.equal(gradient, of_batch[:, 0])


# test_CTCLoss_noncontiguous and torch's batches inside of larger tensors.


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_non_contiguous(order: tuple[int, int, int]) -> None:
    torch.manual_seed(3)
    targets, lengths, counts = torch.randint(1, 7, (4, 9)), [30, 28, 11, 30], [9, 4, 5, 0]
    expected, _ = assert_equal(random_log_probs(30, 4, 7), targets, lengths, counts, reduction="none")
    log_probs = random_log_probs(30, 4, 7, grad=False).permute(order).contiguous()
    log_probs = log_probs.permute([order.index(axis) for axis in range(3)])
    assert torch.equal(compat.ctc_loss(log_probs, targets, lengths, counts, reduction="none"), expected)
    wide = F.pad(log_probs, (2, 3), value=5.0)[..., 2:-3]
    assert torch.equal(compat.ctc_loss(wide, targets, lengths, counts, reduction="none"), expected)
    every_second = targets.repeat_interleave(2, 1)[:, ::2]
    assert torch.equal(compat.ctc_loss(wide, every_second, lengths, counts, reduction="none"), expected)
    flat = torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
    backwards = flat.flip(0).flip(0).repeat_interleave(3)[::3]
    assert torch.equal(compat.ctc_loss(wide, backwards, lengths, counts, reduction="none"), expected)


# test_ctc_loss_gradcheck, and the derivative that neither function has.


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradcheck(reduction: str) -> None:
    targets = torch.tensor([[1, 2, 2], [3, 1, 4]])
    logits = torch.randn(7, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for before in (lambda x: x.log_softmax(-1), lambda x: x):
        assert torch.autograd.gradcheck(
            lambda x, before=before: compat.ctc_loss(before(x), targets, [7, 6], [3, 2], reduction=reduction),
            (logits.clone().requires_grad_(),),
        )


def test_double_backward_is_an_error() -> None:
    """Of another type than torch's, which has no words for it but the operator's name."""
    for function, error in ((F.ctc_loss, RuntimeError), (compat.ctc_loss, NotImplementedError)):
        log_probs = random_log_probs(9, 1, 5)
        loss = function(log_probs, torch.tensor([[1, 2]]), [9], [2])
        (gradient,) = torch.autograd.grad(loss, log_probs, create_graph=True)
        with pytest.raises(error):
            torch.autograd.grad(gradient.sum(), log_probs)


# test_CTCLoss of the modules: settings and their names.


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_modules(reduction: str, zero_infinity: bool) -> None:
    given = (
        random_log_probs(50, 3, 15), torch.randint(0, 14, (3, 30), generator=torch.Generator().manual_seed(5)),
        (50, 50, 50), (30, 25, 20),
    )  # fmt: skip
    expected = torch.nn.CTCLoss(14, reduction, zero_infinity)
    found = compat.CTCLoss(14, reduction, zero_infinity)
    torch.testing.assert_close(found(*given), expected(*given), rtol=1e-9, atol=1e-11)
    for name in ("blank", "reduction", "zero_infinity"):
        assert getattr(found, name) == getattr(expected, name)
    assert list(found.state_dict()) == list(expected.state_dict())
