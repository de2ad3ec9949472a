"""What both solvers of compat.torchgw share: where distances come from, and the sampled solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor

from warpalign._transport.gromov_gradients import Distances, of_geodesics, of_table
from warpalign._transport.gromov_result import GromovResult
from warpalign._transport.plan import TransportPlan
from warpalign.transport import Geodesic, NeighborGraph, gromov_wasserstein_sampled, knn_graph

ANNEALING = 10.0
"""Steps begin with so many times epsilon."""
_MODES = ("dijkstra", "precomputed", "landmark")


def check_modes(distance_mode: str, fgw_alpha: float, C_linear: Any) -> None:
    if distance_mode not in _MODES:
        raise ValueError(f"distance_mode: expected one of {', '.join(_MODES)}, got {distance_mode!r}")
    if not 0 <= fgw_alpha <= 1:
        raise ValueError(f"fgw_alpha: expected a number from 0 to 1, got {fgw_alpha}")
    if fgw_alpha > 0 and C_linear is None:
        raise ValueError(f"C_linear: expected costs (N, K) with fgw_alpha = {fgw_alpha}, got None")


def sides_of(
    distance_mode: str, points: tuple[Any, Any], tables: tuple[Any, Any], tensor: Callable[[Any], Tensor]
) -> list[Tensor]:
    """Both sets: points, or distances with distance_mode="precomputed"."""
    is_table = distance_mode == "precomputed"
    names = ("dist_source", "dist_target") if is_table else ("X_source", "X_target")
    given = tables if is_table else points
    for name, one in zip(names, given, strict=True):
        if one is None:
            raise TypeError(f'{name}: expected an array with distance_mode="{distance_mode}", got None')
    return [tensor(one) for one in given]


def geometry_of(
    sides: list[Tensor], distance_mode: str, k: int, n_landmarks: int, needs_distances: bool = False
) -> tuple[dict[str, Any], Callable[[], tuple[Distances, Distances]]]:
    """Both sets as the solver takes them, and their distances with gradients. needs_distances: whether these are used in any case."""
    x, y = sides
    if distance_mode == "precomputed":
        return {"distances": (x.detach(), y.detach())}, lambda: (of_table(x), of_table(y))
    landmarks = None if distance_mode == "dijkstra" else n_landmarks
    geometry = Geodesic(k=k, n_landmarks=landmarks)
    if not needs_distances and not require_gradients(*sides):
        return {"x": x, "y": y, "geometry": geometry}, lambda: _of_points(
            sides, [knn_graph(side, k) for side in sides], landmarks
        )
    graphs = [knn_graph(side.detach(), k) for side in sides]
    return {"graphs": tuple(graphs), "geometry": geometry}, lambda: _of_points(sides, graphs, landmarks)


def require_gradients(*tensors: Tensor | None) -> bool:
    return any(t is not None and t.requires_grad for t in tensors)


def _of_points(
    sides: list[Tensor], graphs: list[NeighborGraph], n_landmarks: int | None
) -> tuple[Distances, Distances]:
    of_x, of_y = (of_geodesics(side, graph, n_landmarks) for side, graph in zip(sides, graphs, strict=True))
    return of_x, of_y


def searched(
    given: dict[str, Any], options: dict[str, Any], *, min_iter: int, verbose_every: int | None, **course: Any
) -> tuple[GromovResult, dict[str, Any]]:
    """The sampled solve of both functions, and its log. verbose_every: None: nothing is printed."""
    found = gromov_wasserstein_sampled(
        **given,
        **options,
        **course,
        min_iter=max(min_iter, 1),
        callback=None if verbose_every is None else _printer(verbose_every),
        progress=None if verbose_every is None else False,
    )
    record = {
        "err_list": found.history.tolist(),
        "n_iter": int(found.iterations),
        "gw_cost": float(found.distortion),
    }
    return found, record


def start_of(
    multiscale: bool, T_init: Any, tensor: Callable[[Any], Tensor]
) -> Literal["eccentricity", "multiscale"] | Tensor | TransportPlan:
    if T_init is None:
        return "multiscale" if multiscale else "eccentricity"
    return T_init if isinstance(T_init, TransportPlan) else tensor(T_init).detach()


def _printer(every: int) -> Any:
    def report(step: int, epsilon: Tensor, cost: Tensor) -> None:
        if step % every == 0:
            print(f"step {step}: epsilon {float(epsilon):.3g}, linearised cost {float(cost):.6g}")

    return report
