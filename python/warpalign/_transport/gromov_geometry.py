"""The two sets of a Gromov-Wasserstein problem as matrices of their inner distances."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from warpalign._core.checks import check_table, shape_of
from warpalign._core.costs import COSTS
from warpalign._core.series import widened
from warpalign._transport.costs import Scale, pair_costs, size_of_costs
from warpalign._transport.graphs import Graph, check_graph, knn_graph, shortest_paths

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
    kinds = _kinds(geometry)
    given, of_graphs = _pair(distances, "distances"), _pair(graphs, "graphs")
    sides = []
    for side, (name, kind) in enumerate(zip(("x", "y"), kinds, strict=True)):
        sides.append(_side(name, side, kind, points[side], given[side], of_graphs[side], k))
    (x, x_name, x_symmetric), (y, y_name, y_symmetric) = sides
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
    return Distances(x, y, x_symmetric and y_symmetric, unbatched, (x_name, y_name))


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


def _side(
    name: str, side: int, kind: str, points: object, distances: object, graph: object, k: int
) -> tuple[Tensor, str, bool]:
    """One set's distances, where they come from, and whether they are known to be symmetric."""
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
    z = widened(check_table(points, name, "N, D"))
    batched = z if z.dim() == 3 else z.unsqueeze(0)
    table = pair_costs(COSTS.index(kind), batched, batched)
    return (table if z.dim() == 3 else table[0]), name, True


def _matrix(distances: object, name: str, points: object, name_of_points: str) -> tuple[Tensor, str, bool]:
    if distances is None:
        raise ValueError(f'{name}: expected a matrix (N, N) with the geometry "matrix", got None')
    if points is not None:
        raise ValueError(f"{name_of_points}: expected None beside {name}, got {type(points).__name__}")
    table = widened(check_table(distances, name, "N, N"))
    if table.shape[-1] != table.shape[-2]:
        raise ValueError(f"{name}: expected a square matrix (N, N), got shape {shape_of(table)}")
    # A device is asked once; an asymmetric matrix costs twice as many products.
    return table, name, bool(torch.equal(table, table.mT))


def _geodesic(name: str, side: int, points: object, graph: object, k: int) -> tuple[Tensor, str, bool]:
    if graph is None:
        if points is None:
            raise ValueError(f'{name}: expected points with the geometry "geodesic", got None')
        return shortest_paths(knn_graph(points, k)), name, True  # type: ignore[arg-type]
    argument = f"graphs[{side}]"
    if points is not None:
        raise ValueError(f"{name}: expected None beside {argument}, got {type(points).__name__}")
    of: Graph = check_graph(graph, argument)
    lengths = shortest_paths(of)
    if not bool(lengths.isfinite().all()):
        raise ValueError(f"{argument}: expected a graph with a path between all nodes, got one without")
    return lengths, argument, bool(torch.equal(lengths, lengths.mT))


def _scaled(table: Tensor, scale: Scale | None) -> Tensor:
    if scale is None:
        return table
    size = size_of_costs(scale, lambda rows: table[:, rows], (table.shape[0], *table.shape[1:]), (None, None))
    return table / size[:, None, None]
