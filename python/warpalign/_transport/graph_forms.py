"""The forms that graphs come in: compressed rows, sparse and dense matrices of torch, SciPy, NumPy and pandas, NetworkX graphs."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from warpalign._core.checks import shape_of


class NeighborGraph(NamedTuple):
    """A graph as a square matrix of edge lengths in compressed rows. An edge of length 0 is an edge."""

    indptr: Tensor
    """(N + 1,) int64: the edges of node i are those from indptr[i] to indptr[i + 1]."""
    indices: Tensor
    """(edges,) int32: the nodes that edges lead to."""
    weights: Tensor
    """(edges,) float32 or float64: lengths >= 0."""


@runtime_checkable
class SparseMatrix(Protocol):
    """SciPy's sparse matrices and arrays of any layout."""

    shape: tuple[int, int]

    def tocsr(self) -> Any: ...


Graph = NeighborGraph | SparseMatrix | Tensor
_Parts = tuple[Tensor, Tensor, Tensor]


def compressed(graph: Any, name: str) -> _Parts:
    """Begins of the rows, columns and lengths. Entries of sparse matrices are edges even where they are 0, but for blocks."""
    if isinstance(graph, NeighborGraph):
        return graph.indptr, graph.indices, graph.weights
    networkx = sys.modules.get("networkx")  # who has a graph of it has imported it
    if networkx is not None and isinstance(graph, networkx.Graph):
        graph = networkx.to_scipy_sparse_array(graph, weight="weight", dtype=float, format="csr")
    if isinstance(graph, SparseMatrix):
        _check_square(graph.shape, name)
        rows = graph.tocsr()
        if getattr(graph, "format", "csr") == "bsr":  # blocks hold zeros for what is no edge
            rows.eliminate_zeros()
        indptr, indices, weights = (torch.as_tensor(part) for part in (rows.indptr, rows.indices, rows.data))
        return indptr, indices, weights
    if hasattr(graph, "__array__") and not isinstance(graph, Tensor):
        graph = _dense_array(graph, name)
    if not isinstance(graph, Tensor):
        raise TypeError(
            f"{name}: expected a NeighborGraph, a sparse tensor, a SciPy matrix, a NetworkX graph or a square matrix, "
            f"got {type(graph).__name__}"
        )
    if graph.dim() != 2:
        raise ValueError(f"{name}: expected a square matrix (N, N), got shape {shape_of(graph)}")
    _check_square(tuple(graph.shape), name)
    if graph.layout == torch.sparse_csr:
        return graph.crow_indices(), graph.col_indices(), graph.values()
    return _rows_of_pairs(graph)


def _rows_of_pairs(graph: Tensor) -> _Parts:
    """Of a dense matrix, in which 0 is no edge, or a sparse tensor of another layout, whose double entries are added."""
    if graph.layout == torch.strided:
        rows, columns = graph.nonzero(as_tuple=True)
        weights = graph[rows, columns]
    else:
        pairs = (graph if graph.layout == torch.sparse_coo else graph.to_sparse_coo()).coalesce()
        (rows, columns), weights = pairs.indices(), pairs.values()
        if graph.layout in (torch.sparse_bsr, torch.sparse_bsc):  # blocks hold zeros for what is no edge
            rows, columns, weights = (part[weights != 0] for part in (rows, columns, weights))
    counts = torch.bincount(rows, minlength=graph.shape[0])
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns, weights


def _dense_array(graph: Any, name: str) -> Tensor:
    array = graph.__array__()
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected a square matrix of real numbers, got {array.dtype}")
    if hasattr(graph, "index") and list(graph.index) != list(graph.columns):
        raise ValueError(
            f"{name}: expected a DataFrame whose columns are the nodes of its rows, in their order, got other names: "
            f"write {name}.to_numpy() if only the order counts"
        )
    return torch.tensor(array)


def _check_square(shape: tuple[int, ...], name: str) -> None:
    if shape[0] != shape[1]:
        raise ValueError(f"{name}: expected a square matrix (N, N), got shape {tuple(shape)}")
