"""Neighbourhood graphs and shortest paths next to SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import clusters, spiral, swiss_roll
from warpalign import GromovTransport
from warpalign.compat.torchgw import sampled_gw
from warpalign.transport import (
    NeighborGraph,
    connected_components,
    farthest_landmarks,
    gromov_wasserstein,
    knn_graph,
    shortest_paths,
)

sparse = pytest.importorskip("scipy.sparse")
csgraph = pytest.importorskip("scipy.sparse.csgraph")
spatial = pytest.importorskip("scipy.spatial")

GAUSS = torch.from_numpy(np.random.default_rng(4).normal(size=(3000, 30)).astype(np.float32))
# The seven graphs of points, and how many components their nearest neighbours make.
CLOUDS = {
    "spiral 4k": (spiral(4000, 0), 5),
    "spiral 20k": (spiral(20000, 0), 5),
    "Swiss roll 5k": (swiss_roll(5000, 1), 5),
    "Swiss roll 50k": (swiss_roll(50000, 1), 5),
    "Swiss roll 50k, k 30": (swiss_roll(50000, 1), 30),
    "20 clusters in 30-D": (clusters(20, 100, 30), 5),
    "Gauss 30-D": (GAUSS, 5),
}


def as_scipy(graph: NeighborGraph) -> object:
    n = graph.indptr.numel() - 1
    parts = (graph.weights.double().numpy(), graph.indices.numpy(), graph.indptr.numpy())
    return sparse.csr_matrix(parts, shape=(n, n))


@pytest.mark.parametrize("name", CLOUDS)
def test_the_seven_graphs(name: str) -> None:
    x, k = CLOUDS[name]
    n = x.shape[0]
    # In several dimensions SciPy's search of some points stands for all.
    asked = np.arange(0, n, max(n // 500, 1))
    graph = knn_graph(x, k)
    distances, indices = spatial.cKDTree(x.double().numpy()).query(x[asked].double().numpy(), k + 1)
    for row, point in enumerate(asked):
        begin, end = int(graph.indptr[point]), int(graph.indptr[point + 1])
        found = graph.indices[begin:end].tolist()
        assert set(indices[row, 1:]) <= set(found)
        at = [found.index(j) for j in indices[row, 1:]]
        np.testing.assert_allclose(graph.weights[begin:end].numpy()[at], distances[row, 1:], rtol=1e-6)
    matrix = as_scipy(graph)
    assert (abs(matrix - matrix.T)).max() == 0
    assert csgraph.connected_components(matrix)[0] == 1
    if n > 20000:  # in one piece: the comparison above has said so
        return
    bare = knn_graph(x, k, stitch=False)
    labels = connected_components(bare)
    count, expected = csgraph.connected_components(as_scipy(bare))
    assert torch.equal(labels, torch.from_numpy(expected).long())
    assert graph.indices.numel() == bare.indices.numel() + 2 * (count - 1)
    sources = torch.tensor([n // 3])
    lengths = csgraph.dijkstra(matrix, indices=sources.numpy())
    np.testing.assert_allclose(shortest_paths(graph, sources).numpy(), lengths, rtol=1e-6, atol=0)


def test_stitches_are_the_shortest() -> None:
    """The edges that join components are those of a minimum spanning tree between them."""
    x = clusters(12, 15, 4).double()
    bare, graph = knn_graph(x, 3, stitch=False), knn_graph(x, 3)
    labels = connected_components(bare).numpy()
    count = labels.max() + 1
    assert count >= 8
    distances = torch.cdist(x, x).numpy()
    between = np.full((count, count), np.inf)
    np.minimum.at(between, (labels[:, None], labels[None]), distances)
    np.fill_diagonal(between, 0)
    added = float(graph.weights.sum() - bare.weights.sum()) / 2
    assert added == pytest.approx(csgraph.minimum_spanning_tree(between).sum(), rel=1e-12)


def test_equal_points_keep_their_edges() -> None:
    """20 of 60 points are equal and k is 5: edges of length 0 are kept, and the graph is connected."""
    x = torch.randn(60, 2)
    x[:20] = x[0]
    graph = knn_graph(x, 5)
    assert int((graph.weights == 0).sum()) >= 100
    assert connected_components(graph).max() == 0
    lengths = shortest_paths(graph, [0])
    assert torch.equal(lengths[0, :20], torch.zeros(20))
    assert torch.isfinite(lengths).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_strides_and_few_points(dtype: torch.dtype) -> None:
    x = torch.randn(3, 40, dtype=dtype).T
    graph = knn_graph(x, 4)
    wide = x if dtype == torch.float64 else x.float()
    assert graph.weights.dtype == wide.dtype
    again = knn_graph(wide.contiguous(), 4)
    assert all(torch.equal(one, other) for one, other in zip(graph, again, strict=True))
    assert [part.tolist() for part in knn_graph(x[:1])] == [[0, 0], [], []]
    assert knn_graph(x[:3], 30).indices.tolist() == [1, 2, 0, 2, 0, 1]
    assert shortest_paths(knn_graph(x[:1])).tolist() == [[0.0]]


def test_graphs_of_others() -> None:
    """What knn_graph makes, torch's sparse tensors and SciPy's matrices are the same graph."""
    graph = knn_graph(spiral(50, 0), 3)
    shape = (50, 50)
    of_torch = torch.sparse_csr_tensor(graph.indptr, graph.indices.long(), graph.weights, shape)
    parts = (graph.weights.numpy(), graph.indices.numpy(), graph.indptr.numpy())
    expected = shortest_paths(graph)
    for other in (of_torch, sparse.csr_matrix(parts, shape=shape)):
        assert torch.equal(shortest_paths(other), expected)
    np.testing.assert_allclose(expected.numpy(), csgraph.dijkstra(as_scipy(graph)), rtol=1e-6)


def test_landmarks_are_farthest() -> None:
    graph = knn_graph(spiral(300, 0), 5)
    landmarks = farthest_landmarks(graph, 20, start=4)
    everything = shortest_paths(graph)
    assert torch.equal(landmarks.distances, everything[landmarks.indices])
    nearest = torch.full((300,), torch.inf)
    for k, node in enumerate(landmarks.indices.tolist()):
        assert k == 0 or nearest[node] == nearest.max()
        nearest = torch.minimum(nearest, everything[node])
    assert landmarks.indices[0] == 4 and landmarks.indices.unique().numel() == 20
    assert float(landmarks.distances.gather(1, landmarks.indices[:, None].long()).abs().max()) == 0


def _all(x: Tensor) -> list[Tensor]:
    graph = knn_graph(x, 4)
    return [*graph, shortest_paths(graph), connected_components(graph), *farthest_landmarks(graph, 5)]


def test_the_same_bits_for_any_number_of_threads() -> None:
    x = clusters(6, 200, 3)
    torch.set_num_threads(1)
    one = _all(x)
    torch.set_num_threads(4)
    assert all(torch.equal(a, b) for a, b in zip(one, _all(x), strict=True))


@pytest.mark.parametrize("of", [gromov_wasserstein, GromovTransport, sampled_gw])
def test_no_docstring_denies_graphs_on_a_gpu(of: object) -> None:
    """test_graphs_cuda.py has the searches themselves."""
    assert "on cpus" not in str(of.__doc__).lower()
    assert gromov_wasserstein.__doc__ and "where graphs are built and searched" in gromov_wasserstein.__doc__


def test_operators_of_torch() -> None:
    graph = knn_graph(spiral(30, 0), 3)
    ops = torch.ops.warpalign
    torch.library.opcheck(ops.knn_graph.default, (spiral(30, 0), 3, True), test_utils="test_schema")
    for arguments in (
        (ops.shortest_paths.default, (*graph, torch.tensor([1, 2], dtype=torch.int32))),
        (ops.connected_components.default, tuple(graph)),
        (ops.farthest_landmarks.default, (*graph, 4, 0)),
    ):
        torch.library.opcheck(*arguments)
