"""Neighbourhood graphs of points, and shortest paths in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core import library
from warpalign._core.checks import check_count, check_flag, check_table, naming_arguments, shape_of
from warpalign._core.series import widened
from warpalign._core.transforms import not_compiled
from warpalign._transport import graph_ops
from warpalign._transport.graph_forms import Graph as Graph
from warpalign._transport.graph_forms import NeighborGraph as NeighborGraph
from warpalign._transport.graph_forms import compressed

_PARTS = {"row_begins": "indptr", "neighbors": "indices", "lengths": "weights"}


class Landmarks(NamedTuple):
    """What :func:`farthest_landmarks` returns."""

    indices: Tensor
    """(count,) int64: the nodes or points chosen."""
    distances: Tensor
    """(count, N): from each of them."""


@not_compiled
def knn_graph(x: Tensor, k: int = 30, *, stitch: bool = True) -> NeighborGraph:
    """The undirected graph that joins points with their k nearest ones.

    i and j are neighbours where j is among the k points nearest to i, or i among those of j. At equal distances the
    smaller index is nearer. Equal points are neighbours at distance 0. Distances are Euclidean, computed in float64. The
    result is the same for any number of threads, and on a GPU. There all pairs of points are compared; the host waits once,
    for the number of edges.

    Args:
        x: (N, D) finite points, below 2^500 in magnitude. Half types are converted to float32. They get no gradient.
        k: neighbours of each point, at most N − 1 of which there are.
        stitch: whether components are joined by shortest edges (Borůvka's algorithm) until the graph is connected.

    Returns:
        NeighborGraph(indptr, indices, weights) on the device of x, the neighbours of a point in rising order.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> graph = knn_graph(torch.randn(100, 3), k=5)
        >>> shortest_paths(graph, [0, 1]).shape
        torch.Size([2, 100])
    """
    given = check_table(x, "x", "N, D", series=False)
    points = on_known_device(given, "x")
    if points.dim() != 2:
        raise ValueError(f"x: expected the points of one set (N, D), got shape {shape_of(x)}")
    count, joins = check_count(k, "k"), check_flag(stitch, "stitch")
    with naming_arguments():
        begins, neighbors, lengths = graph_ops.knn_graph(
            widened(points.detach()), min(count, points.shape[0] - 1), joins
        )
    edges = _edges_of(begins, points)
    return NeighborGraph(begins, neighbors[:edges].clone(), lengths[:edges].clone())


def _edges_of(begins: Tensor, points: Tensor) -> int:
    """How many edges there are. The core has looked at points on a CPU alone."""
    if not points.is_cuda:
        return int(begins[-1])
    edges, valid = torch.stack([begins[-1], (points.abs() < 2.0**500).all().long()]).tolist()
    if not valid:
        raise ValueError("x: expected finite magnitudes below 2^500, got some that are not")
    return int(edges)


def shortest_paths(graph: Graph, sources: Tensor | list[int] | None = None) -> Tensor:
    """The lengths of the shortest paths from each source to every node.

    Edges are followed in the direction of their row. Lengths are added in float64. Source: Meyer and Sanders,
    "Δ-stepping: a parallelizable shortest path algorithm", J. Algorithms 2003; each thread does its own sources.

    Args:
        graph: of :func:`knn_graph`, a sparse tensor or SciPy matrix (N, N) of any layout and type of numbers, a NetworkX graph, whose
            nodes are numbered in the order of ``graph.nodes`` and whose edges without "weight" have length 1, or a dense square
            matrix: a tensor, array or DataFrame, in which 0 is no edge. An inf is no edge. Integers become float64.
        sources: (S,) nodes, integers from 0 to N − 1, as a tensor, array or list; None: all nodes.

    Returns:
        (S, N) of the weights' dtype, on the graph's device; inf where there is no path. No gradient.

    On a GPU the values are the same, and the host does not wait. Values of a graph are not checked there: invalid edges are
    left out, and an invalid source reaches nothing.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """
    of = check_graph(graph, "graph")
    nodes = of.indptr.numel() - 1
    device = of.weights.device
    if sources is None:
        places = torch.arange(nodes, dtype=torch.int32, device=device)
    else:
        if not isinstance(sources, (Tensor, list)) and not hasattr(sources, "__array__"):
            raise TypeError(
                f"sources: expected a tensor, array or list of ints, got {type(sources).__name__}"
            )
        given = torch.tensor(sources, dtype=torch.int64) if isinstance(sources, list) else sources
        if not isinstance(given, Tensor):
            given = torch.tensor(given.__array__())
        known = _whole_numbers(on_known_device(given, "sources"), "sources")
        if device.type == "cuda" and not known.is_cuda:
            check_nodes(known, nodes, "sources")
        places = known.to(torch.int32).to(device, non_blocking=True).contiguous()
    with naming_arguments(), naming_parts("graph"):
        distances: Tensor = graph_ops.shortest_paths(*of, places)
    return distances


def connected_components(graph: Graph) -> Tensor:
    """The component of every node. Edges join nodes in both directions.

    Args:
        graph: (N, N), in any form that :func:`shortest_paths` takes.

    Returns:
        (N,) int64 labels from 0 on, in the order of the components' first nodes.
    """
    with naming_arguments(), naming_parts("graph"):
        labels, _ = graph_ops.connected_components(*check_graph(graph, "graph"))
    return labels.long()  # type: ignore[no-any-return]


def farthest_landmarks(graph: Graph, count: int, start: int = 0) -> Landmarks:
    """Nodes that lie far from each other: `start`, then again and again the node farthest from those chosen.

    Source: Gonzalez, "Clustering to minimize the maximum intercluster distance", Theor. Comput. Sci. 1985.

    Args:
        graph: (N, N), in any form that :func:`shortest_paths` takes.
        count: the number of landmarks, from 1 to N.
        start: the first landmark, from 0 to N − 1.

    Returns:
        Landmarks(indices, distances). The first of equally far nodes is taken; nodes that no path reaches are farthest.
    """
    of = check_graph(graph, "graph")
    nodes = of.indptr.numel() - 1
    number, first = check_count(count, "count"), check_count(start, "start", 0)
    if number > nodes:
        raise ValueError(f"count: expected at most {nodes}, the number of nodes, got {count}")
    if first >= nodes:
        raise ValueError(f"start: expected a node from 0 to {nodes - 1}, got {start}")
    with naming_arguments(), naming_parts("graph"):
        chosen, distances = graph_ops.farthest_landmarks(*of, number, first)
    return Landmarks(chosen.long(), distances)


def check_graph(graph: object, name: str) -> NeighborGraph:
    """The operators' arguments, on one device. The core checks their values on a CPU."""
    indptr, indices, weights = (on_known_device(part, name).detach() for part in compressed(graph, name))
    if not indptr.device == indices.device == weights.device:
        raise ValueError(
            f"{name}: expected parts on one device, got {indptr.device}, {indices.device} and {weights.device}"
        )
    if weights.is_complex():
        raise TypeError(f"{name}: expected real weights, got {weights.dtype}")
    whole = not weights.is_floating_point()
    return NeighborGraph(
        _whole_numbers(indptr, name).to(torch.int64).contiguous(),
        _whole_numbers(indices, name).to(torch.int32).contiguous(),
        (weights.double() if whole else widened(weights)).contiguous(),
    )


@contextmanager
def naming_parts(name: str) -> Iterator[None]:
    """The core's names of a graph's parts become those of NeighborGraph."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0].removeprefix("warpalign: ")
        part, _, rest = message.partition(": ")
        if part not in _PARTS:
            raise
        raise ValueError(f"{name}.{_PARTS[part]}: {rest}") from None


def device_of(graph: Graph) -> torch.device:
    """Where a graph is."""
    part = graph if isinstance(graph, Tensor) else getattr(graph, "weights", None)
    return part.device if isinstance(part, Tensor) else torch.device("cpu")


def on_known_device(tensor: Tensor, name: str) -> Tensor:
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: expected a tensor on a CPU or a GPU, got one on {tensor.device}")
    if tensor.is_cuda and not library.has_cuda:
        raise ValueError(
            f"{name}: expected a CPU tensor, because warpalign was installed without its CUDA operators, "
            f"got one on {tensor.device}"
        )
    return tensor


def check_nodes(places: Tensor, nodes: int, name: str) -> None:
    """As the core checks sources on a CPU."""
    wrong = ((places < 0) | (places >= nodes)).nonzero()
    if wrong.numel() > 0:
        at = int(wrong[0])
        raise ValueError(f"{name}: expected nodes from 0 to N - 1, got {int(places[at])} at index {at}")


def _whole_numbers(tensor: Tensor, name: str) -> Tensor:
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{name}: expected one axis of int64 or int32, got {tensor.dtype} of shape {shape_of(tensor)}"
        )
    return tensor
