"""Both sides of sampled Gromov-Wasserstein transport by the public function's arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from warpalign._core.checks import check_table, shape_of
from warpalign._core.costs import COSTS
from warpalign._core.series import widened
from warpalign._transport.anchor_ops import DISTANCES
from warpalign._transport.checks import (
    check_plan,
    check_rows,
    check_sums,
    with_equal_sums,
)
from warpalign._transport.convergence import is_known
from warpalign._transport.costs import DistanceNormalization, pair_costs
from warpalign._transport.graphs import shortest_paths
from warpalign._transport.gromov_features import check_features
from warpalign._transport.gromov_geometry import (
    Side,
    infinite_distances,
    largest_differences,
)
from warpalign._transport.gromov_plans import PointSet, Start, pairs_of_product, pairs_of_table
from warpalign._transport.plan import TransportPlan
from warpalign._transport.settings import Settings


def point_sets(
    found: tuple[Side, Side], normalization: DistanceNormalization | None
) -> tuple[PointSet, PointSet]:
    # The kernels round coordinates to binary16, which has room for distances of at most 1.
    has_kernels = normalization in ("max", "common")
    sides = _point_set(found[0], has_kernels), _point_set(found[1], has_kernels)
    x, y = sides[0].like, sides[1].like
    if y.dtype != x.dtype or y.device != x.device:
        raise TypeError(
            f"{found[1].name}: expected {x.dtype} on {x.device}, as {found[0].name}, got {y.dtype} on {y.device}"
        )
    return sides


def side_weights(
    given: tuple[object, object], first: str, sides: tuple[PointSet, PointSet], settings: Settings
) -> tuple[Tensor | None, Tensor | None]:
    """(1, N) and (1, M); None: uniform ones."""
    a, b = (
        check_rows(one, name, side.like.view(1, 1), first, side.size)
        for name, one, side in zip(("a", "b"), given, sides, strict=True)
    )
    if settings.is_balanced:
        a, b = with_equal_sums(given, (a, b), (None, None))
        check_sums((a, b))
    return a, b


def _point_set(side: Side, has_kernels: bool) -> PointSet:
    """One side's distances, by its geometry. has_kernels: whether kernels may make them."""
    if side.graph is not None:
        graph, device = side.graph, side.device

        def of_graph(places: Tensor) -> Tensor:
            return shortest_paths(graph, places).to(device)

        return PointSet(
            lambda places: of_graph(places).T,
            lambda places, others: of_graph(others)[:, places].T,
            graph.indptr.numel() - 1,
            graph.weights.new_zeros((), device=device),
        )
    assert side.table is not None
    table = side.table.detach()
    if side.kind == "matrix" and table.dim() == 2 and is_known(table) and bool(table.isinf().any()):
        raise infinite_distances(table[None], side.name)
    if table.dim() != 2:
        raise ValueError(f"{side.name}: expected one set without a batch, got shape {shape_of(table)}")
    like = table[0, 0]
    if side.kind == "matrix":
        return PointSet(
            lambda places: table[places].T,
            lambda places, others: table[places[:, None], others],
            table.shape[0],
            like,
        )

    def of_points(points: Tensor, others: Tensor) -> Tensor:
        if side.kind == "landmark":
            return largest_differences(points, others)
        return pair_costs(COSTS.index(side.kind), points[None], others[None])[0]

    has_kernel = has_kernels and table.is_cuda and table.dtype == torch.float32 and side.kind in DISTANCES
    return PointSet(
        lambda places: of_points(table, table[places]),
        lambda places, others: of_points(table[places], table[others]),
        table.shape[0],
        like,
        table.contiguous() if has_kernel else None,
        DISTANCES.index(side.kind) if has_kernel else 0,
    )


def start_of(
    init: object,
    sides: tuple[PointSet, PointSet],
    weights: tuple[Tensor | None, Tensor | None],
    settings: Settings,
) -> Start | None:
    if isinstance(init, TransportPlan):
        plan, shape = init, (sides[0].size, sides[1].size)
        if tuple(plan.shape) != shape:
            raise ValueError(f"init: expected a plan {shape}, got one of shape {tuple(plan.shape)}")
        return Start(_drawn_from(plan), plan.mass)
    if isinstance(init, Tensor):
        table = table_of_pairs(init, "init", sides)
        check_plan(table, "init")
        return Start(partial(pairs_of_table, table), table.sum)
    if init == "product":
        a, b = (
            side.like.new_full((side.size,), 1 / side.size) if given is None else given[0]
            for side, given in zip(sides, weights, strict=True)
        )
        mass = a.new_tensor(settings.mass) if settings.mass > 0 else (a.sum() * b.sum()).sqrt()
        return Start(partial(pairs_of_product, a, b), lambda: mass)
    if init not in ("eccentricity", "multiscale"):
        raise ValueError(
            f'init: expected "eccentricity", "product", "multiscale" or a plan (N, M), got {init!r}'
        )
    return None


def _drawn_from(plan: TransportPlan) -> Callable[[int, torch.Generator], Tensor]:
    def drawn(count: int, generator: torch.Generator) -> Tensor:
        return plan.sample(count, generator=generator)

    return drawn


def table_of_pairs(given: object, name: str, sides: tuple[PointSet, PointSet]) -> Tensor:
    """(N, M), of the sides' dtype and device."""
    table = widened(check_table(given, name, "N, M")).detach()
    shape, like = (sides[0].size, sides[1].size), sides[0].like
    if tuple(table.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {shape_of(table)}")
    return _like(table, name, like)


def _like(table: Tensor, name: str, like: Tensor) -> Tensor:
    if table.device != like.device:
        raise ValueError(f"{name}: expected a tensor on {like.device}, got one on {table.device}")
    return table.to(like.dtype)


def side_features(features: object, sides: tuple[PointSet, PointSet]) -> tuple[Tensor, Tensor]:
    like = sides[0].like
    x, y = check_features(features, (sides[0].size, sides[1].size), like.device)
    return x.detach().to(like.dtype), y.detach().to(like.dtype)
