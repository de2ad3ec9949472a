"""The two sets of a Gromov-Wasserstein problem as matrices of their inner distances."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_table, shape_of
from warpalign._core.costs import COSTS
from warpalign._core.series import widened
from warpalign._transport.costs import Scale, pair_costs, size_of_costs
from warpalign._transport.graphs import (
    NeighborGraph,
    check_graph,
    connected_components,
    knn_graph,
    shortest_paths,
)

Geometry = Literal["auto", "matrix", "euclidean", "sqeuclidean", "geodesic"]
GEOMETRIES: tuple[str, ...] = get_args(Geometry)


class Distances(NamedTuple):
    """Inner distances of both sets, of one batch, dtype and device."""

    x: Tensor
    """(B, N, N)"""
    y: Tensor
    """(B, M, M)"""
    symmetric: bool
    """Whether both are known to be."""
    unbatched: bool
    names: tuple[str, str]
    """Of the arguments that they come from."""


def inner_distances(
    points: tuple[object, object],
    distances: object,
    graphs: object,
    *,
    geometry: object,
    k: int,
    scale: Scale | None,
) -> Distances:
    """Both sets' distances by their arguments and geometries."""
    first, second = of_sides(points, distances, graphs, geometry=geometry, k=k)
    x, x_name = _distances(first), first.name
    y, y_name = _distances(second), second.name
    if y.dtype != x.dtype or y.device != x.device:
        raise TypeError(
            f"{y_name}: expected {x.dtype} on {x.device}, as {x_name}, got {y.dtype} on {y.device}"
        )
    if x.dim() != y.dim():
        raise ValueError(
            f"{y_name}: expected as many axes as {x_name}, which gives {shape_of(x)}, got {shape_of(y)}"
        )
    unbatched = x.dim() == 2
    if unbatched:
        x, y = x.unsqueeze(0), y.unsqueeze(0)
    if x.shape[0] != y.shape[0] and 1 not in (x.shape[0], y.shape[0]):
        raise ValueError(
            f"{y_name}: expected a batch of {x.shape[0]}, as {x_name}, or of 1, got shape {shape_of(y)}"
        )
    batch = y.shape[0] if x.shape[0] == 1 else x.shape[0]
    x, y = (_scaled(z, scale) for z in (x, y))
    x, y = (z.expand(batch, -1, -1) for z in (x, y))
    symmetric = _is_symmetric(first.kind, x) and _is_symmetric(second.kind, y)
    return Distances(x, y, symmetric, unbatched, (x_name, y_name))


def _kinds(geometry: object) -> tuple[str, str]:
    pair = geometry if isinstance(geometry, tuple) else (geometry, geometry)
    if len(pair) != 2 or any(kind not in GEOMETRIES for kind in pair):
        names = ", ".join(f'"{name}"' for name in GEOMETRIES)
        raise ValueError(f"geometry: expected one of {names}, or a pair of them, got {geometry!r}")
    return pair


def _pair(given: object, name: str) -> tuple[object, object]:
    if given is None:
        return None, None
    if not isinstance(given, (tuple, list)) or len(given) != 2 or hasattr(given, "_fields"):
        raise TypeError(f"{name}: expected a pair, one for x and one for y, got {type(given).__name__}")
    return given[0], given[1]


class Side(NamedTuple):
    """What one set's distances are made of."""

    kind: str
    """A geometry other than "auto"."""
    name: str
    """Of the argument that they come from."""
    table: Tensor | None
    """(B, N, D) or (N, D) points, or (B, N, N) or (N, N) distances."""
    graph: NeighborGraph | None
    """Of the geometry "geodesic"."""


def of_sides(
    points: tuple[object, object], distances: object, graphs: object, *, geometry: object, k: int
) -> tuple[Side, Side]:
    """Both sets by their arguments and geometries."""
    kinds = _kinds(geometry)
    given, of_graphs = _pair(distances, "distances"), _pair(graphs, "graphs")
    first, second = (
        _side(name, side, kinds[side], points[side], given[side], of_graphs[side], k)
        for side, name in enumerate(("x", "y"))
    )
    return first, second


def _side(name: str, side: int, kind: str, points: object, distances: object, graph: object, k: int) -> Side:
    if kind == "auto":
        kind = "matrix" if distances is not None else "geodesic" if graph is not None else "euclidean"
    if kind == "matrix":
        return _matrix(distances, f"distances[{side}]", points, name)
    if distances is not None:
        raise ValueError(
            f'distances[{side}]: expected None with the geometry "{kind}", got {type(distances).__name__}'
        )
    if kind == "geodesic":
        return _geodesic(name, side, points, graph, k)
    if graph is not None:
        raise ValueError(
            f'graphs[{side}]: expected None with the geometry "{kind}", got {type(graph).__name__}'
        )
    if points is None:
        raise ValueError(f'{name}: expected points with the geometry "{kind}", got None')
    return Side(kind, name, widened(check_table(points, name, "N, D")), None)


def _matrix(distances: object, name: str, points: object, name_of_points: str) -> Side:
    if distances is None:
        raise ValueError(f'{name}: expected a matrix (N, N) with the geometry "matrix", got None')
    if points is not None:
        raise ValueError(f"{name_of_points}: expected None beside {name}, got {type(points).__name__}")
    table = widened(check_table(distances, name, "N, N"))
    if table.shape[-1] != table.shape[-2]:
        raise ValueError(f"{name}: expected a square matrix (N, N), got shape {shape_of(table)}")
    return Side("matrix", name, table, None)


def _geodesic(name: str, side: int, points: object, graph: object, k: int) -> Side:
    if graph is None:
        if points is None:
            raise ValueError(f'{name}: expected points with the geometry "geodesic", got None')
        return Side("geodesic", name, None, knn_graph(points, k))  # type: ignore[arg-type]
    argument = f"graphs[{side}]"
    if points is not None:
        raise ValueError(f"{name}: expected None beside {argument}, got {type(points).__name__}")
    of = check_graph(graph, argument)
    if int(connected_components(of).max()) > 0:
        raise ValueError(f"{argument}: expected a graph with a path between all nodes, got one without")
    return Side("geodesic", argument, None, of)


def _distances(side: Side) -> Tensor:
    """(B, N, N) or (N, N)"""
    if side.graph is not None:
        return shortest_paths(side.graph)
    assert side.table is not None
    if side.kind == "matrix":
        return side.table
    batched = side.table if side.table.dim() == 3 else side.table.unsqueeze(0)
    table = pair_costs(COSTS.index(side.kind), batched, batched)
    return table if side.table.dim() == 3 else table[0]


def _is_symmetric(kind: str, table: Tensor) -> bool:
    """Whether a side's distances are. A device is asked once; asymmetric ones cost twice as many products."""
    if kind in ("euclidean", "sqeuclidean"):
        return True
    # The lengths of a path are added in the order of its direction.
    return bool(torch.allclose(table, table.mT, rtol=1e-6 if kind == "geodesic" else 0.0, atol=0.0))


def _scaled(table: Tensor, scale: Scale | None) -> Tensor:
    if scale is None:
        return table
    size = size_of_costs(scale, lambda rows: table[:, rows], (table.shape[0], *table.shape[1:]), (None, None))
    return table / size[:, None, None]
