"""Derivatives of shortest paths with respect to the points of a graph, against autograd through Bellman and Ford's algorithm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warpalign._transport import path_gradients
from warpalign._transport.path_gradients import path_lengths
from warpalign.transport import NeighborGraph, knn_graph


def relaxed(points: Tensor, graph: NeighborGraph, sources: Tensor) -> Tensor:
    """(S, N): the same lengths, by as many relaxations of all edges as there are points."""
    n = len(points)
    heads = torch.repeat_interleave(torch.arange(n), graph.indptr.diff())
    tails = graph.indices.long()
    weights = points.new_full((n, n), torch.inf)
    weights[heads, tails] = torch.linalg.vector_norm(points[heads] - points[tails], dim=1)
    lengths = points.new_full((len(sources), n), torch.inf)
    lengths[torch.arange(len(sources)), sources] = 0
    for _ in range(n):
        lengths = torch.minimum(lengths, (lengths[:, :, None] + weights).amin(1))
    return lengths


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("n", [2, 3, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_against_relaxations(n: int, k: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 with the same graph: its lengths are sums in float64 of rounded edges."""
    monkeypatch.setattr(path_gradients, "_MOST_ENTRIES", 60)  # several blocks of sources
    generator = torch.Generator().manual_seed(n + k)
    points = torch.randn(n, 3, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    graph = knn_graph(points.detach(), k)
    sources = torch.randint(n, (5,), generator=generator)  # some twice
    weight = torch.randn(5, n, generator=generator, dtype=torch.float64)
    exact_points = points.detach().double().requires_grad_()
    exact_lengths = relaxed(exact_points, graph, sources)
    (exact,) = torch.autograd.grad((exact_lengths * weight).sum(), exact_points)
    lengths = path_lengths(points, graph, sources)
    torch.testing.assert_close(lengths.double(), exact_lengths.detach(), rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad((lengths * weight.to(dtype)).sum(), points)
    # Sums of up to n numbers of magnitude 1 for each edge.
    tolerance = 4 * n * torch.finfo(dtype).eps * float(weight.abs().sum())
    torch.testing.assert_close(gradient.double(), exact, rtol=0, atol=tolerance)


def test_equal_points_are_passed_through() -> None:
    """Three points at one place, on the only path: the edges before and after them have the whole gradient, theirs have none."""
    points = torch.tensor([[0.0], [1.0], [1.0], [1.0], [3.0]], dtype=torch.float64, requires_grad=True)
    begins, ends = torch.tensor([0, 1, 3, 5, 7, 8]), torch.tensor([2, 2, 3, 0, 1, 1, 4, 3])
    lengths = torch.tensor([1.0, 0, 0, 1, 0, 0, 2, 2], dtype=torch.float64)
    graph = NeighborGraph(begins, ends.to(torch.int32), lengths)  # 0 – 2 – 1 – 3 – 4
    found = path_lengths(points, graph, torch.tensor([0]))
    assert found.tolist() == [[0, 1, 1, 1, 3]]
    (gradient,) = torch.autograd.grad(found[0, 4], points)
    assert gradient[:, 0].tolist() == [-1, 0, 1, -1, 1]


def test_points_without_a_path_have_no_gradient() -> None:
    points = torch.tensor([[0.0], [1.0], [10.0], [12.0]], requires_grad=True)
    graph = knn_graph(points.detach(), 1, stitch=False)
    lengths = path_lengths(points, graph, torch.tensor([0, 3]))
    assert lengths.isinf().tolist() == [[False, False, True, True], [True, True, False, False]]
    (gradient,) = torch.autograd.grad(lengths.nan_to_num(posinf=0.0).sum(), points)
    assert gradient[:, 0].tolist() == [-1, 1, -1, 1]


@pytest.mark.gpu
def test_a_gpu_agrees(cuda: torch.device) -> None:
    points = torch.randn(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for device in (torch.device("cpu"), cuda):
        x = points.to(device).requires_grad_()
        lengths = path_lengths(x, knn_graph(x.detach(), 4), torch.tensor([0, 7, 299], device=device))
        found.append(torch.autograd.grad(lengths.square().sum(), x)[0].cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)
