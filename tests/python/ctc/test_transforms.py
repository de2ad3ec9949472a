"""The forward-sum loss and the drop-in for torch under compile, torch.func and autocast; random problems."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from tests.python.ctc.cases import problem
from tests.python.ctc.test_align import plain_forward_sum, plain_search
from tests.python.helpers import assert_compiled_equals_eager
from warpalign import ForwardSumLoss, ctc_align, forward_sum_loss, monotonic_alignment_search
from warpalign.compat.torch import ctc_loss as torch_s_ctc_loss


def attention_of(batch: int, frames: int, positions: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, S) float64, and lengths of texts and frames, the first ones full."""
    generator = torch.Generator().manual_seed(seed)
    attention = torch.randn(batch, frames, positions, generator=generator, dtype=torch.float64)
    texts = torch.randint(1, positions + 1, (batch,), generator=generator)
    counts = torch.randint(positions, frames + 1, (batch,), generator=generator)
    texts[0], counts[0] = positions, frames
    return attention, texts, counts


def test_gradcheck_of_the_forward_sum() -> None:
    attention, texts, frames = attention_of(2, 7, 3, seed=1)
    assert torch.autograd.gradcheck(
        lambda x: -1.5 * forward_sum_loss(x, texts, frames), (attention.requires_grad_(),)
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_forward_sum(dynamic: bool) -> None:
    def step(attention: Tensor, texts: Tensor, frames: Tensor) -> Tensor:
        return forward_sum_loss(attention * 2, texts, frames)

    calls = []
    for frames, positions in ((10, 3), (14, 5)):
        attention, *lengths = attention_of(2, frames, positions, seed=frames)
        calls.append(((attention.float(),), tuple(lengths)))
    assert_compiled_equals_eager(step, calls, dynamic=dynamic)


def test_forward_sum_under_vmap() -> None:
    attention, texts, frames = attention_of(6, 9, 4, seed=2)
    parts = [part.unflatten(0, (2, 3)) for part in (attention, texts, frames)]
    expected = torch.stack([forward_sum_loss(*one) for one in zip(*parts, strict=True)])
    torch.testing.assert_close(torch.func.vmap(forward_sum_loss)(*parts), expected)
    gradient = torch.func.vmap(torch.func.grad(forward_sum_loss))(*parts)
    by_hand = attention.clone().requires_grad_()
    halves = zip(by_hand.chunk(2), texts.chunk(2), frames.chunk(2), strict=True)
    torch.stack([plain_forward_sum(x[:, None], u, t) for x, u, t in halves]).sum().backward()
    torch.testing.assert_close(gradient.flatten(0, 1), by_hand.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_forward_sum_under_autocast(dtype: torch.dtype) -> None:
    _, texts, frames = attention_of(2, 9, 5, seed=3)
    head, x = nn.Linear(8, 5), torch.randn(2, 9, 8)
    with torch.autocast("cpu", dtype):
        attention = head(x)
        loss = ForwardSumLoss()(attention, texts, frames)
    assert attention.dtype == dtype and loss.dtype == torch.float32
    torch.testing.assert_close(
        loss, plain_forward_sum(attention.detach().float()[:, None], texts, frames), rtol=2e-2, atol=2e-2
    )
    loss.backward()
    assert head.weight.grad is not None and head.weight.grad.isfinite().all() and head.weight.grad.any()


def test_compiled_alignments() -> None:
    given = problem(2, 12, 6, 3, seed=6)
    scores = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(6))

    def align(logits: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return *ctc_align(2 * logits, *rest), monotonic_alignment_search(scores)

    torch.compiler.reset()
    compiled = torch.compile(align, fullgraph=True, backend="aot_eager")
    for found, expected in zip(compiled(*given), align(*given), strict=True):
        assert torch.equal(found, expected)


def test_compiled_drop_in_for_torch() -> None:
    def step(logits: Tensor, targets: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
        return torch_s_ctc_loss(logits.log_softmax(-1).transpose(0, 1), targets, frames, labels)

    given = problem(2, 10, 6, 3, seed=5)
    assert_compiled_equals_eager(step, [((given.logits.float(),), tuple(given[1:]))])


@pytest.mark.parametrize("seed", range(30))
def test_random_monotonic_problems(seed: int) -> None:
    """The search and the forward sum: sizes, layouts, lengths, types and scales of all kinds."""
    draw = random.Random(seed)
    positions = draw.randint(1, 40)
    frames = positions + draw.randint(0, 60)
    attention, texts, counts = attention_of(draw.randint(1, 4), frames, positions, seed)
    attention = draw.choice([0.1, 1.0, 20.0]) * attention
    if draw.random() < 0.3:
        attention = attention.round()  # many paths are equal
    order = draw.choice([(0, 1, 2), (1, 0, 2), (2, 1, 0)])  # of the axes in memory
    strided = attention.permute(order).contiguous().permute(order)
    lengths_dtype = draw.choice([torch.int64, torch.int32, torch.uint8])
    scores = strided.transpose(1, 2)
    durations = monotonic_alignment_search(
        scores, texts.to(lengths_dtype), counts.to(lengths_dtype), output="durations"
    )
    for b, (u, t) in enumerate(zip(texts.tolist(), counts.tolist(), strict=True)):
        assert torch.equal(durations[b, :u], plain_search(scores[b, :u, :t])) and not durations[b, u:].any()
    blank_logprob = draw.choice([-1.0, 0.0, 3.0])
    results = []
    for dtype, function in ((torch.float64, plain_forward_sum), (torch.float32, forward_sum_loss)):
        x = strided.detach().clone().requires_grad_()
        given = x[:, None] if function is plain_forward_sum else x.to(dtype)
        loss = function(given, texts, counts, blank_logprob)
        (gradient,) = torch.autograd.grad(loss, x)
        results.append((loss.detach().double(), gradient))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-5, atol=2e-6)
