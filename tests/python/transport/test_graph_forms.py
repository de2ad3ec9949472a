"""Graphs in every form that users have: the same answers as of compressed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warpalign.transport import (
    connected_components,
    farthest_landmarks,
    gromov_wasserstein,
    joint_embedding,
    knn_graph,
    shortest_paths,
)

sparse = pytest.importorskip("scipy.sparse")

# A ring of eight nodes with a chord; lengths are whole numbers, so that every type holds them.
EDGES = [(i, (i + 1) % 8, 1 + i % 3) for i in range(8)] + [(0, 4, 2)]


def adjacency(dtype: Any = np.float64) -> Any:
    table = np.zeros((8, 8), dtype=dtype)
    for i, j, length in EDGES:
        table[i, j] = table[j, i] = length
    return table


def networkx_graph() -> Any:
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from("abcdefgh")
    graph.add_weighted_edges_from([("abcdefgh"[i], "abcdefgh"[j], length) for i, j, length in EDGES])
    return graph


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(adjacency(np.int64), index=list("abcdefgh"), columns=list("abcdefgh"))


def shuffled_pairs() -> torch.Tensor:
    """COO in another order, one edge as the sum of two entries."""
    pairs = torch.from_numpy(adjacency()).to_sparse_coo()
    order = torch.randperm(len(pairs.values()), generator=torch.Generator().manual_seed(0))
    indices, values = pairs.indices()[:, order], pairs.values()[order].clone()
    values[0] -= 0.5
    indices, values = (
        torch.cat([indices, indices[:, :1]], 1),
        torch.cat([values, torch.tensor([0.5]).double()]),
    )
    return torch.sparse_coo_tensor(indices, values, (8, 8))


FORMS: dict[str, Any] = {
    **{f"SciPy {layout}": lambda layout=layout: getattr(sparse, f"{layout}_array")(adjacency()) for layout in ("csr", "csc", "coo", "lil", "dok")},
    "SciPy bsr": lambda: sparse.bsr_array(adjacency(), blocksize=(2, 2)),
    "SciPy's older matrix": lambda: sparse.csc_matrix(adjacency()),
    **{f"SciPy of {name}": lambda name=name: sparse.coo_array(adjacency(name)) for name in ("int32", "int64", "uint8", "float32")},
    "NetworkX": networkx_graph,
    "a DataFrame": frame,
    "an array": adjacency,
    "an array of integers": lambda: adjacency(np.int32),
    "a dense tensor": lambda: torch.from_numpy(adjacency()),
    "a tensor of integers": lambda: torch.from_numpy(adjacency(np.int64)),
    "a half tensor": lambda: torch.from_numpy(adjacency()).half(),
    "COO": shuffled_pairs,
    "CSR of integers": lambda: torch.from_numpy(adjacency(np.int64)).to_sparse_csr(),
    "CSC": lambda: torch.from_numpy(adjacency()).to_sparse_csc(),
    "BSR": lambda: torch.from_numpy(adjacency()).to_sparse_bsr((2, 2)),
    "with a gradient that ends here": lambda: torch.from_numpy(adjacency()).requires_grad_(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Sparse")  # the tests make CSR tensors themselves
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_paths(form: str) -> None:
    graph = FORMS[form]()
    expected = sparse.csgraph.shortest_path(adjacency(), directed=False)
    paths = shortest_paths(graph)
    np.testing.assert_allclose(paths.numpy(), expected, rtol=1e-12)
    assert paths.dtype == (torch.float32 if form in ("a half tensor", "SciPy of float32") else torch.float64)
    np.testing.assert_allclose(shortest_paths(graph, np.array([3, 0])).numpy(), expected[[3, 0]], rtol=1e-12)
    assert connected_components(graph).tolist() == [0] * 8
    assert farthest_landmarks(graph, 2).indices[1] == expected[0].argmax()


def test_nodes_without_edges_and_edges_of_length_0() -> None:
    """A sparse matrix has its stored zeros as edges; a dense one has none where it is 0."""
    stored = sparse.coo_array((np.array([0.0, 0.0]), (np.array([0, 1]), np.array([1, 0]))), shape=(3, 3))
    assert connected_components(stored).tolist() == [0, 0, 1]
    assert connected_components(stored.toarray()).tolist() == [0, 1, 2]
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph([(0, 1), (1, 2)])  # without weights: length 1
    assert shortest_paths(graph, [0]).tolist() == [[0, 1, 2]]
    directed = networkx.DiGraph([(0, 1), (1, 2)])
    assert shortest_paths(directed, [2]).tolist() == [[torch.inf, torch.inf, 0]]


def test_gromov_wasserstein_and_the_embedding_take_them() -> None:
    table = networkx_graph()
    expected = gromov_wasserstein(
        graphs=(sparse.csr_array(adjacency()),) * 2, epsilon=1e-3, max_iter=5
    ).plan.to_dense()
    for graphs in ((table, table), (frame(), adjacency(np.int32)), (sparse.coo_array(adjacency()), table)):
        torch.testing.assert_close(
            gromov_wasserstein(graphs=graphs, epsilon=1e-3, max_iter=5).plan.to_dense(), expected
        )
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).double()
    graph = knn_graph(x, 4)
    parts = (graph.weights.numpy(), graph.indices.numpy(), graph.indptr.numpy())
    matrix = sparse.csr_array(parts, shape=(20, 20))
    plans = {"b": torch.eye(20).double() / 20}
    one, other = (
        joint_embedding({"a": x, "b": x}, plans, anchor="a", graphs={"a": given}, dim=2)["a"]
        for given in (graph, matrix.tocoo())
    )
    torch.testing.assert_close(one, other)


def test_a_plan_without_numpy_needs_none() -> None:
    """NumPy is not a requirement: `import warpalign` and plans of lists do without."""
    from tests.python.helpers import in_a_new_process

    code = """
import sys
sys.modules["numpy"] = None
import torch, warnings
warnings.simplefilter("ignore")
from warpalign.transport import shortest_paths, sinkhorn
plan = sinkhorn(torch.rand(3, 2), torch.rand(2, 2), epsilon=0.5).plan
plan @ [[1.0], [2.0]]; plan[[0, 2]]; plan.to_sparse(); plan.transfer_labels([0, -1, 1])
print(shortest_paths(torch.ones(2, 2), [0]).tolist())
"""
    assert in_a_new_process(code) == "[[0.0, 1.0]]\n"
