"""CTC on a GPU: against the CPU path in float64, in CUDA graphs with changing lengths, without synchronisation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.ctc.measure import not_reproducible
from tests.python.ctc.cases import problem
from warpalign import ctc_align, ctc_loss, ctc_posteriors, monotonic_alignment_search

pytestmark = pytest.mark.gpu

# Of float32's recursion; of one rounding of gradients in [-1, 1] to a half type.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("frames", "classes", "labels"), [(60, 11, 20), (150, 40, 60), (70, 800, 25), (900, 6, 300)]
)
def test_agrees_with_the_cpu(
    dtype: torch.dtype, frames: int, classes: int, labels: int, cuda: torch.device
) -> None:
    given = problem(4, frames, classes, labels, seed=frames)
    lengths = (given.targets, given.logit_lengths, given.target_lengths)
    x = given.logits.to(dtype)
    wide = x.double().requires_grad_()
    own = x.to(cuda).requires_grad_()
    expected = ctc_loss(wide, *lengths, reduction="none", zero_infinity=True)
    value = ctc_loss(own, *(n.to(cuda) for n in lengths), reduction="none", zero_infinity=True)
    rtol = 1e-11 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(value.cpu().double(), expected, rtol=rtol, atol=rtol)
    upstream = torch.tensor([1.0, 0.5, 0.0, -1.0], dtype=torch.float64)
    (wanted,) = torch.autograd.grad(expected, wide, upstream)
    (found,) = torch.autograd.grad(value, own, upstream.to(cuda, value.dtype))
    assert (found.cpu().double() - wanted).abs().max() <= TOLERANCE[dtype]
    posteriors = ctc_posteriors(x.to(cuda), *(n.to(cuda) for n in lengths))
    torch.testing.assert_close(
        posteriors.cpu().double(), ctc_posteriors(x.double(), *lengths), rtol=0, atol=max(rtol, 1e-11)
    )


def test_alignments_are_the_cpu_path_s(cuda: torch.device) -> None:
    for frames, classes, labels in ((60, 11, 20), (700, 40, 150), (600, 800, 400)):
        given = problem(4, frames, classes, labels, seed=frames)
        lengths = (given.targets, given.logit_lengths, given.target_lengths)
        expected = ctc_align(given.logits, *lengths)
        found = ctc_align(given.logits.to(cuda), *(n.to(cuda) for n in lengths))
        assert torch.equal(found.labels.cpu(), expected.labels) and torch.equal(
            found.spans.cpu(), expected.spans
        )
        torch.testing.assert_close(found.score.cpu(), expected.score)
        torch.testing.assert_close(found.scores.cpu(), expected.scores)


def test_monotonic_alignments_are_the_cpu_path_s(cuda: torch.device) -> None:
    for positions, frames in ((5, 9), (100, 300), (700, 800)):
        scores = torch.randn(3, positions, frames, generator=torch.Generator().manual_seed(positions))
        lengths = torch.tensor([positions, 3, positions]), torch.tensor([frames, frames - 4, 2])
        expected = monotonic_alignment_search(scores, *lengths)
        assert torch.equal(
            monotonic_alignment_search(scores.to(cuda), *(n.to(cuda) for n in lengths)).cpu(), expected
        )


@pytest.mark.parametrize("shape", [(3, 40, 33, 8), (2, 300, 12, 140), (2, 70, 900, 40)])
def test_cuda_graph_with_changing_lengths(shape: tuple[int, int, int, int], cuda: torch.device) -> None:
    b, t, c, u = shape
    x = torch.randn(b, t, c, device=cuda, requires_grad=True)
    y = torch.randint(1, c, (b, u), device=cuda)
    frames, labels = torch.full((b,), t, device=cuda), torch.full((b,), u, device=cuda)

    def step() -> tuple[Tensor, ...]:
        value = ctc_loss(x, y, frames, labels, reduction="none", zero_infinity=True)
        best = ctc_align(x.detach(), y, frames, labels)
        return value, torch.autograd.grad(value.sum(), x)[0], best.score, best.labels

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for share in (1.0, 0.3, 0.7):
        frames.copy_(torch.linspace(share, 1, b) * t)
        labels.copy_(torch.linspace(1, share, b) * u / 2)
        y.copy_(torch.randint(1, c, (b, u)))
        with torch.no_grad():
            x.normal_()
        graph.replay()
        for captured, wanted in zip(results, step(), strict=True):
            assert torch.equal(captured, wanted)


def test_streams_and_no_synchronisation(cuda: torch.device) -> None:
    x = torch.randn(3, 400, 33, device=cuda, requires_grad=True)
    y, frames = torch.randint(1, 33, (3, 90), device=cuda), torch.full((3,), 390, device=cuda)

    def step() -> list[Any]:
        value = ctc_loss(x, y, frames)
        return [value, torch.autograd.grad(value, x)[0], ctc_align(x.detach(), y, frames).labels]

    expected = step()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            found = step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert all(map(torch.equal, found, expected))


def test_bits_are_the_same_every_time(cuda: torch.device) -> None:
    assert not_reproducible(cuda, 5)[:] == []
