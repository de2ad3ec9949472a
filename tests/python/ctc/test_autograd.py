"""CTC's loss as a citizen of torch: gradcheck, opcheck, compile, torch.func, autocast, in place."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.python.ctc.cases import problem
from tests.python.helpers import OPCHECK_OF_SAVED, assert_compiled_equals_eager
from warpalign import (
    CTCHeadLoss,
    CTCLoss,
    ctc_align,
    ctc_loss,
    ctc_posteriors,
    monotonic_alignment_search,
)

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "log-probabilities": {"from_log_probs": True},
    "star": {"star": 2},
    "star, log-probabilities": {"star": 2, "from_log_probs": True},
    "prior": {"label_prior": torch.linspace(-1, 1, 5, dtype=torch.float64)},
    "blank": {"blank": -1},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_gradcheck(name: str) -> None:
    options = OPTIONS[name]
    given = problem(2, 6, 5, 3, seed=1, blank=4 if name == "blank" else 0)
    logits = given.logits.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: -1.5 * ctc_loss(x, *given[1:], reduction="none", **options), (logits,)
    )


def test_second_derivatives_are_refused() -> None:
    given = problem(2, 6, 5, 3, seed=1)
    logits = given.logits.requires_grad_()
    (gradient,) = torch.autograd.grad(ctc_loss(logits, *given[1:]), logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives of ctc_loss"):
        gradient.sum().backward()


def test_opcheck() -> None:
    ops = torch.ops.warpalign
    given = problem(2, 7, 5, 3, seed=4)
    prior = torch.zeros(5)
    for inputs in ((given.logits.float(), *given[1:], prior), (given.logits.bfloat16(), *given[1:], None)):
        torch.library.opcheck(ops.ctc_loss.default, (*inputs, False))
        torch.library.opcheck(ops.ctc_loss.default, (*inputs, True), test_utils=OPCHECK_OF_SAVED)
        value, saved = ops.ctc_loss(*inputs, True)
        torch.library.opcheck(ops.ctc_gradient.default, (*inputs, saved, torch.ones_like(value)))
        torch.library.opcheck(ops.ctc_gradient_.default, (*inputs, saved, torch.ones_like(value)))
        torch.library.opcheck(ops.ctc_posteriors.default, inputs)
        torch.library.opcheck(ops.ctc_align.default, inputs)
    scores = torch.randn(2, 4, 9)
    for wants_path in (False, True):
        torch.library.opcheck(ops.monotonic_alignment.default, (scores, None, None, wants_path))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    def step(logits: Tensor, targets: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
        return ctc_loss(logits * 2, targets, frames, labels, reduction="mean_target")

    calls = []
    for frames, labels in ((10, 3), (14, 5)):
        given = problem(2, frames, 6, labels, seed=frames)
        calls.append(((given.logits.float(),), given[1:]))
    assert_compiled_equals_eager(step, calls, dynamic=dynamic)


def test_vmap_is_a_larger_batch() -> None:
    given = problem(6, 9, 5, 3, seed=6)
    parts = [part.unflatten(0, (2, 3)) for part in given]

    def loss(*inputs: Tensor) -> Tensor:
        return ctc_loss(*inputs, reduction="none")

    losses, gradient = (
        ctc_loss(*given, reduction="none"),
        torch.func.grad(lambda x: loss(x, *given[1:]).sum())(given.logits),
    )
    torch.testing.assert_close(torch.func.vmap(loss)(*parts).flatten(), losses)
    by_parts = torch.func.vmap(torch.func.grad(lambda x, *rest: loss(x, *rest).sum()))(*parts)
    torch.testing.assert_close(by_parts.flatten(0, 1), gradient)
    alignments = torch.func.vmap(ctc_align)(*parts)
    torch.testing.assert_close(alignments.labels.flatten(0, 1), ctc_align(*given).labels)
    posteriors = torch.func.vmap(ctc_posteriors)(*parts)
    torch.testing.assert_close(posteriors.flatten(0, 1), ctc_posteriors(*given))
    scores = torch.randn(4, 3, 5, 11)
    paths = torch.func.vmap(monotonic_alignment_search)(scores)
    assert torch.equal(paths.flatten(0, 1), monotonic_alignment_search(scores.flatten(0, 1)))


def test_upstream_gradients() -> None:
    given = problem(3, 9, 5, 3, seed=7)
    logits = given.logits.requires_grad_()
    losses = ctc_loss(logits, *given[1:], reduction="none")
    rows = torch.eye(3, dtype=torch.float64)
    apart = torch.stack([torch.autograd.grad(losses, logits, row, retain_graph=True)[0] for row in rows])
    (together,) = torch.autograd.grad(losses, logits, rows, is_grads_batched=True)
    torch.testing.assert_close(together, apart)
    for b in range(3):
        assert apart[b, b].any() and not apart[b, [k for k in range(3) if k != b]].any()


def test_in_place_gradients() -> None:
    given = problem(3, 9, 5, 3, seed=8)
    weight = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    results = []
    for in_place in (False, True):
        logits = given.logits @ weight
        loss = ctc_loss(logits, *given[1:], inplace_grad=in_place)
        (gradient,) = torch.autograd.grad(loss, weight)
        results.append((loss.detach(), gradient))
    torch.testing.assert_close(*results)


def test_in_place_writes_into_the_logits() -> None:
    given = problem(2, 8, 5, 3, seed=9)
    leaf = given.logits.requires_grad_()
    logits = leaf * 1
    seen: list[int] = []
    logits.register_hook(lambda g: seen.append(g.data_ptr()))
    ctc_loss(logits, *given[1:], inplace_grad=True).backward()
    assert seen == [logits.data_ptr()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_reads_half_logits(dtype: torch.dtype) -> None:
    given = problem(2, 9, 5, 3, seed=10)
    head = nn.Linear(8, 5)
    x = torch.randn(2, 9, 8)
    with torch.autocast("cpu", dtype):
        logits = head(x)
        loss = CTCLoss()(logits, *given[1:])
    assert logits.dtype == dtype and loss.dtype == torch.float32
    loss.backward()
    assert head.weight.grad is not None and head.weight.grad.isfinite().all()


def test_empty_batches() -> None:
    logits = torch.zeros(0, 5, 4, requires_grad=True)
    losses = ctc_loss(logits, torch.zeros(0, 2, dtype=torch.int64), reduction="none")
    losses.sum().backward()
    assert losses.shape == (0,) and logits.grad is not None and logits.grad.shape == logits.shape
    frameless = torch.zeros(2, 0, 4, requires_grad=True)
    none = ctc_loss(frameless, torch.zeros(2, 0, dtype=torch.int64), reduction="none")
    none.sum().backward()
    assert none.tolist() == [0, 0]


@pytest.mark.parametrize("module", [CTCLoss(), CTCLoss(star=4, reduction="sum"), CTCHeadLoss(4, 5)])
def test_copies_have_the_same_repr(module: nn.Module) -> None:
    """A copy's words are equal to the defaults, but other objects."""
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    assert [repr(one) for one in copies] == [repr(module)] * 2
    assert "mean" not in repr(module)
