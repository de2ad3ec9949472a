"""The two sets of a Gromov-Wasserstein problem as matrices of their intra-domain distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_table, shape_of, warn_once
from warpalign._core.costs import COSTS
from warpalign._core.series import widened
from warpalign._core.torch_internals import is_forward_mode, is_wrapped
from warpalign._core.transforms import needs_gradient
from warpalign._transport import anchor_ops
from warpalign._transport.convergence import is_known
from warpalign._transport.costs import DistanceNormalization, largest_and_mean, pair_costs, sizes_of_sides
from warpalign._transport.graphs import (
    NeighborGraph,
    check_graph,
    connected_components,
    device_of,
    knn_graph,
    shortest_paths,
)
from warpalign._transport.gromov_landmarks import paths_of_graphs, paths_to_landmarks
from warpalign._transport.options import Geodesic, Geometry

_ROUNDED = 4  # roots of eps: larger differences of distances from their transposes are no rounding
Geometries = Literal["auto"] | Geometry | tuple[Literal["auto"] | Geometry, Literal["auto"] | Geometry]
_NAMED = ("auto", "euclidean", "sqeuclidean", "geodesic")


class Distances(NamedTuple):
    """Intra-domain distances of both sets, of one batch, dtype and device."""

    x: Tensor
    """(B, N, N)"""
    y: Tensor
    """(B, M, M)"""
    symmetric: bool
    """Whether both are known to be."""
    unbatched: bool
    names: tuple[str, str]
    """Names of the arguments that the geometries come from."""


def inner_distances(
    points: tuple[object, object],
    distances: object,
    graphs: object,
    *,
    geometry: object,
    normalization: DistanceNormalization | None,
) -> Distances:
    """Both sets' distances by their arguments and geometries."""
    first, second = of_sides(points, distances, graphs, geometry=geometry)
    x, x_name = table_of(first), first.name
    y, y_name = table_of(second), second.name
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
    if normalization is not None:
        x_divisor, y_divisor = divisors(x, y, normalization)
        x, y = x / x_divisor, y / y_divisor
    (x, of_x), (y, of_y) = _symmetric(first.kind, x, x_name), _symmetric(second.kind, y, y_name)
    x, y = (z.expand(batch, -1, -1) for z in (x, y))
    return Distances(x, y, of_x and of_y, unbatched, (x_name, y_name))


class _Kind(NamedTuple):
    """A geometry by the name of what is computed."""

    name: str
    """One of _NAMED, or "landmark"."""
    geodesic: Geodesic

    @staticmethod
    def of(geometry: object) -> _Kind:
        if isinstance(geometry, Geodesic):
            return _Kind("geodesic" if geometry.n_landmarks is None else "landmark", geometry)
        return _Kind(str(geometry), Geodesic())


def _kinds(geometry: object) -> tuple[_Kind, _Kind]:
    pair = geometry if isinstance(geometry, tuple) else (geometry, geometry)
    if len(pair) != 2 or any(one not in _NAMED and not isinstance(one, Geodesic) for one in pair):
        names = ", ".join(f'"{name}"' for name in _NAMED)
        raise ValueError(f"geometry: expected {names}, a Geodesic, or a pair of them, got {geometry!r}")
    return _Kind.of(pair[0]), _Kind.of(pair[1])


def _pair(given: object, name: str) -> tuple[object, object]:
    if given is None:
        return None, None
    if not isinstance(given, (tuple, list)) or len(given) != 2 or hasattr(given, "_fields"):
        raise TypeError(f"{name}: expected a pair, one for x and one for y, got {type(given).__name__}")
    return given[0], given[1]


class Side(NamedTuple):
    """What one set's distances are made of."""

    kind: str
    """"matrix", "euclidean", "sqeuclidean", "geodesic" or "landmark"."""
    name: str
    """The argument that the set comes from."""
    table: Tensor | None
    """(B, N, D) or (N, D) points, (B, N, N) or (N, N) distances, or (N, L) distances to landmarks."""
    graph: NeighborGraph | None
    """The graph of the geometry "geodesic", on `device`."""
    device: torch.device
    """Where the distances are."""


def of_sides(
    points: tuple[object, object],
    distances: object,
    graphs: object,
    *,
    geometry: object,
) -> tuple[Side, Side]:
    """Both sets by their arguments and geometries."""
    kinds = _kinds(geometry)
    if geometry == "auto":
        _warn_of_tables(points)
    given, of_graphs = _pair(distances, "distances"), _pair(graphs, "graphs")

    def without_landmarks(side: int) -> Side:
        return _side("xy"[side], side, kinds[side], points[side], given[side], of_graphs[side])

    def of_side(side: int) -> Side:
        found, kind = without_landmarks(side), kinds[side]
        return _with_landmarks([found], [kind])[0] if kind.name == "landmark" else found

    if any(kind.name != "landmark" for kind in kinds):
        return of_side(0), of_side(1)
    if any(_on_gpu(part) for part in (*points, *of_graphs)):
        # What finds the landmarks of both takes as many kernels as of one.
        first, second = _with_landmarks([without_landmarks(0), without_landmarks(1)], kinds)
        return first, second
    # Landmarks are found one after the other, each by a search of one thread. (Another thread has another current stream.)
    with ThreadPoolExecutor(1) as other:
        later = other.submit(of_side, 1)
        first = of_side(0)
        return first, later.result()


def _side(
    name: str,
    side: int,
    of: _Kind,
    points: object,
    distances: object,
    graph: object,
) -> Side:
    kind = of.name
    if kind == "auto":
        kind = "matrix" if distances is not None else "geodesic" if graph is not None else "euclidean"
    if kind == "matrix":
        return _matrix(distances, f"distances[{side}]", points, name)
    if distances is not None:
        raise ValueError(
            f'distances[{side}]: expected None with the geometry "{kind}", got {type(distances).__name__}'
        )
    if kind in ("geodesic", "landmark"):
        return _geodesic(name, side, points, graph, of.geodesic.k)
    if graph is not None:
        raise ValueError(
            f'graphs[{side}]: expected None with the geometry "{kind}", got {type(graph).__name__}'
        )
    if points is None:
        raise ValueError(f'{name}: expected points with the geometry "{kind}", got None')
    table = widened(check_table(points, name, "N, D", series=False))
    return Side(kind, name, table, None, table.device)


def _matrix(distances: object, name: str, points: object, name_of_points: str) -> Side:
    if points is not None:
        raise ValueError(f"{name_of_points}: expected None beside {name}, got {type(points).__name__}")
    table = widened(check_table(distances, name, "N, N"))
    if table.shape[-1] != table.shape[-2]:
        raise ValueError(f"{name}: expected a square matrix (N, N), got shape {shape_of(table)}")
    return Side("matrix", name, table, None, table.device)


def _geodesic(name: str, side: int, points: object, graph: object, k: int) -> Side:
    if graph is None:
        if points is None:
            raise ValueError(f'{name}: expected points with the geometry "geodesic", got None')
        found = knn_graph(points, k)  # type: ignore[arg-type]
        return Side("geodesic", name, None, check_graph(found, name), found.weights.device)
    argument = f"graphs[{side}]"
    if points is not None:
        raise ValueError(f"{name}: expected None beside {argument}, got {type(points).__name__}")
    of = check_graph(graph, argument)
    components = int(connected_components(of).max()) + 1
    if components > 1:
        raise ValueError(
            f"{argument}: expected a graph with a path between all nodes, got {components} components: write knn_graph with more "
            "neighbours k or stitch=True, or match each component alone"
        )
    return Side("geodesic", argument, None, of, device_of(graph))  # type: ignore[arg-type]


def _on_gpu(part: object) -> bool:
    of = part.weights if isinstance(part, NeighborGraph) else part
    return isinstance(of, Tensor) and of.is_cuda


def _with_landmarks(sides: Sequence[Side], kinds: Sequence[_Kind]) -> list[Side]:
    """Sides whose points are known by their shortest paths to landmarks."""
    graphs = [side.graph for side in sides if side.graph is not None]
    counts = [
        min(kind.geodesic.n_landmarks or 1, graph.indptr.numel() - 1)
        for graph, kind in zip(graphs, kinds, strict=True)
    ]
    if len({(graph.weights.dtype, graph.weights.device) for graph in graphs}) == 1:
        found = paths_of_graphs(graphs, counts)
    else:
        found = [paths_to_landmarks(graph, count) for graph, count in zip(graphs, counts, strict=True)]
    return [
        Side("landmark", side.name, landmarks.distances.T.contiguous(), None, side.device)
        for side, landmarks in zip(sides, found, strict=True)
    ]


def largest_differences(x: Tensor, y: Tensor) -> Tensor:
    """(..., N, M): max_l |x_l − y_l| of points (..., N, L) and (..., M, L).

    Of distances to landmarks l it is a lower bound of the distance, exact from a landmark, and short by no more than twice
    the distance to the nearest landmark. It is a metric (Kuratowski's embedding).
    """
    if (
        x.is_cuda
        or x.dim() != 2
        or is_forward_mode()
        or needs_gradient(x, y)
        or is_wrapped(x)
        or is_wrapped(y)
    ):
        return torch.cdist(x, y, p=torch.inf)
    distances: Tensor = anchor_ops.differences(x.contiguous(), y.contiguous())
    return distances


def table_of(side: Side) -> Tensor:
    """(B, N, N) or (N, N)"""
    if side.graph is not None:
        return shortest_paths(side.graph).to(side.device)
    assert side.table is not None
    if side.kind == "matrix":
        return side.table
    if side.kind == "landmark":
        return largest_differences(side.table, side.table)
    batched = side.table if side.table.dim() == 3 else side.table.unsqueeze(0)
    table = pair_costs(COSTS.index(side.kind), batched, batched)
    return table if side.table.dim() == 3 else table[0]


def _symmetric(kind: str, table: Tensor, name: str) -> tuple[Tensor, bool]:
    """Distances (B, N, N), and whether they are symmetric; none may be infinite. A device is asked once.

    Distances that were rounded differ from their transposes: by 1e-7 of the largest one along paths, by the root of that
    between close points where they are roots of products. Those become the mean of both. Antisymmetric parts enter the
    objective by their products alone. Asymmetric distances cost twice as many products.
    """
    if kind in ("euclidean", "sqeuclidean", "landmark"):
        return table, True
    fixed = table.detach()
    differences = (fixed - fixed.mT).abs_().amax((1, 2))
    most = _ROUNDED * torch.finfo(table.dtype).eps ** 0.5 * fixed.abs().amax((1, 2))
    answers = (differences == 0).all(), (differences <= most).all(), fixed.isinf().any()
    equal, near, infinite = torch.stack(answers).tolist()
    if infinite:
        raise infinite_distances(fixed, name)
    return table if equal or not near else (table + table.mT) / 2, near


def infinite_distances(table: Tensor, name: str) -> ValueError:
    """The error of distances (B, N, N), of which some are infinite."""
    place = int(table.isinf().any((1, 2)).nonzero()[0])
    finite = table[place].isfinite().cpu()
    edges, nodes = finite.nonzero()[:, 1], finite.shape[0]
    begins = torch.cat([torch.zeros(1, dtype=torch.int64), finite.sum(1).cumsum(0)])
    graph = NeighborGraph(begins, edges.to(torch.int32), torch.ones(len(edges)))
    count = int(connected_components(graph).max()) + 1
    which = f" in problem {place}" if table.shape[0] > 1 else ""
    between = f"{count} components of {nodes} points" if count > 1 else "connected points"
    return ValueError(
        f"{name}: expected finite distances, got infinite ones between {between}{which}: "
        f"write shortest_paths(knn_graph(points, k)) with more neighbours k, which joins them, or match each component alone"
    )


def _warn_of_tables(points: tuple[object, object]) -> None:
    """POT's order of arguments has matrices of distances where points are here."""
    if all(isinstance(z, Tensor) and is_known(z) and _is_table_of_distances(z) for z in points):
        warn_once(
            "x: expected points (N, D), got a square symmetric matrix with a zero diagonal, and y alike: did you mean "
            'distances=(x, y)? geometry="euclidean" says that they are points, and silences this.'
        )


def _is_table_of_distances(table: Tensor) -> bool:
    shape = table.shape
    if not table.is_floating_point() or table.dim() not in (2, 3) or shape[-1] != shape[-2] or shape[-1] < 2:
        return False
    near = _ROUNDED * torch.finfo(table.dtype).eps ** 0.5 * table.abs().amax()
    return bool(
        (table.diagonal(dim1=-2, dim2=-1).abs() <= near).all() and ((table - table.mT).abs() <= near).all()
    )


def divisors(x: Tensor, y: Tensor, normalization: DistanceNormalization | None) -> tuple[Tensor, Tensor]:
    """(B, 1, 1) each: what distances (B, N, N) and (B, M, M), or batches of 1, are divided by. Constants for gradients."""
    found = [largest_and_mean(_rows_of(table), (*table.shape,), (None, None)) for table in (x, y)]
    (most_x, mean_x), (most_y, mean_y) = found
    of_x, of_y = sizes_of_sides(normalization, (most_x, most_y), (mean_x, mean_y))
    return of_x[:, None, None], of_y[:, None, None]


def _rows_of(table: Tensor) -> Callable[[slice], Tensor]:
    return lambda rows: table[:, rows]
