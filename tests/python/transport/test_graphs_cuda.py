"""Graphs on a GPU: the CPU's results, nothing that waits for the GPU but the number of edges, streams, errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal, no_synchronisation
from tests.python.transport.clouds import clusters, spiral, swiss_roll
from tests.python.transport.gromov import solve_sampled
from warpalign.transport import (
    Geodesic,
    NeighborGraph,
    connected_components,
    farthest_landmarks,
    knn_graph,
    shortest_paths,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]

# Searches in shared memory, with distances there alone, and in global memory; three rounds of joined components.
CLOUDS = {
    "spiral 4k": (spiral(4000, 0), 5),
    "Swiss roll 20k": (swiss_roll(20000, 1), 30),
    "Swiss roll 40k": (swiss_roll(40000, 1), 5),
    "clusters in 30-D": (clusters(20, 100, 30), 5),
    "float64, many neighbours": (clusters(3, 100, 3).double(), 130),
}


def on_gpu(graph: NeighborGraph) -> NeighborGraph:
    return NeighborGraph(*(part.cuda() for part in graph))


def found(graph: NeighborGraph, sources: Tensor) -> tuple[Tensor, ...]:
    return shortest_paths(graph, sources), connected_components(graph), *farthest_landmarks(graph, 4, 3)


@pytest.mark.parametrize("name", CLOUDS)
def test_as_on_a_cpu(name: str) -> None:
    x, k = CLOUDS[name]
    expected = knn_graph(x, k)
    graph = knn_graph(x.cuda(), k)
    assert all(part.is_cuda for part in (*graph, shortest_paths(graph, [0])))
    assert_tensors_equal((graph.indptr.cpu(), graph.indices.cpu()), (expected.indptr, expected.indices))
    torch.testing.assert_close(graph.weights.cpu(), expected.weights, rtol=1e-7, atol=0)
    bare = knn_graph(x, k, stitch=False)
    for of in (expected, bare):
        sources = torch.tensor([0, 7, len(x) - 1])
        got = found(on_gpu(of), sources.cuda())
        assert all(part.is_cuda for part in got)
        assert_tensors_equal(tuple(part.cpu() for part in got), found(of, sources))


def test_the_current_stream_is_used_and_nothing_waits() -> None:
    graph = on_gpu(knn_graph(swiss_roll(3000, 1), 5))
    sources = torch.arange(0, 3000, 10, device="cuda")
    expected = found(graph, sources)
    late = NeighborGraph(graph.indptr.clone(), graph.indices.clone(), torch.zeros_like(graph.weights))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), no_synchronisation():
        torch.cuda._sleep(20_000_000)
        late.weights.copy_(graph.weights)
        got = found(late, sources)
    torch.cuda.synchronize()
    assert_tensors_equal(got, expected)


def test_two_streams_at_once() -> None:
    """Blocks that join components wait for each other: each call has counters of its own."""
    clouds = [clusters(8, 300, 3).cuda(), clusters(12, 200, 5).cuda()]
    expected = [knn_graph(x, 4) for x in clouds]
    streams = [torch.cuda.Stream() for _ in clouds]
    torch.cuda.synchronize()
    for _ in range(5):
        got = []
        for stream, x in zip(streams, clouds, strict=True):
            with torch.cuda.stream(stream):
                got.append(torch.ops.warpalign.knn_graph(x, 4, True))
        torch.cuda.synchronize()
        for parts, wanted in zip(got, expected, strict=True):
            edges = len(wanted.indices)
            assert_tensors_equal((parts[0], parts[1][:edges], parts[2][:edges]), wanted)


def test_operators_of_torch() -> None:
    x = spiral(60, 0).cuda()
    graph = knn_graph(x, 3)
    ops = torch.ops.warpalign
    torch.library.opcheck(ops.knn_graph.default, (x, 3, True), test_utils="test_schema")
    for arguments in (
        (ops.shortest_paths.default, (*graph, torch.tensor([1, 2], dtype=torch.int32, device="cuda"))),
        (ops.connected_components.default, tuple(graph)),
        (ops.farthest_landmarks.default, (*graph, 4, 0)),
    ):
        torch.library.opcheck(*arguments)


def test_landmark_transport_on_a_side_stream() -> None:
    x, y = spiral(300, 0).cuda(), swiss_roll(350, 1).cuda()

    def solve() -> Tensor:
        found = solve_sampled(x, y, geometry=Geodesic(k=5, n_landmarks=20), max_iter=20)
        return found.plan.f.detach()

    expected = solve()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        got = solve()
    torch.cuda.synchronize()
    assert torch.equal(got, expected)


def test_bad_calls() -> None:
    graph = knn_graph(torch.tensor([[0.0], [1.0]], device="cuda"), 1)
    for message, call in {
        "x: expected finite magnitudes below 2^500, got some that are not": lambda: knn_graph(
            torch.tensor([[0.0], [torch.nan]], device="cuda"), 1
        ),
        "sources: expected nodes from 0 to N - 1, got 2 at index 1": lambda: shortest_paths(graph, [0, 2]),
        "graph: expected parts on one device, got cpu, cuda:0 and cuda:0": lambda: connected_components(
            graph._replace(indptr=graph.indptr.cpu())
        ),
    }.items():
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message
