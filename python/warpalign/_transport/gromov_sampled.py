"""Gromov-Wasserstein transport of sets whose matrices of distances are too large to be stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_number, check_table, naming_arguments, shape_of
from warpalign._core.convergence import warn_of_convergence
from warpalign._core.costs import COSTS
from warpalign._core.random import check_generator
from warpalign._core.series import widened
from warpalign._core.transforms import not_compiled
from warpalign._transport.anchor_ops import DISTANCES
from warpalign._transport.checks import (
    check_callback,
    check_distance_normalization,
    check_rows,
    check_settings,
    check_step,
    check_sums,
    weight_of_features,
    with_equal_sums,
)
from warpalign._transport.convergence import is_known
from warpalign._transport.costs import DistanceNormalization, pair_costs
from warpalign._transport.graphs import Graph, shortest_paths
from warpalign._transport.gromov_anchors import Descent, PointSet, Start, pairs_of_table
from warpalign._transport.gromov_coarse import Course, coarse_anchors
from warpalign._transport.gromov_geometry import (
    Geometries,
    Side,
    infinite_distances,
    largest_differences,
    of_sides,
)
from warpalign._transport.gromov_patience import Patience
from warpalign._transport.gromov_progress import steps_shown
from warpalign._transport.gromov_solver import Schedule
from warpalign._transport.options import GROMOV_FACTOR, Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem

_LAST_PAIRS = 1000
_LARGEST_ERROR = 0.1
_COARSE_STEPS = 200
_COARSE_ITERATIONS = 20
_COARSE_LAST = 500
_COARSE_TOLERANCE = 1e-3
Callback = Callable[[int, float, Tensor], object]


class SampledGromovResult(NamedTuple):
    """What :func:`gromov_wasserstein_sampled` returns."""

    plan: TransportPlan
    """T, by its potentials and the distances to the last anchors. No gradient."""
    estimate: Tensor
    """0-d: Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] / (mass of T)², an unbiased estimate from independent pairs."""
    estimate_std: Tensor
    """0-d: its standard deviation, by leaving pairs out (jackknife)."""
    converged: bool
    """Whether the costs of steps fall no more, and the error is at most 0.1. On a GPU costs are looked at four steps later."""
    iterations: int
    history: Tensor
    """(iterations,): the linearised cost of each step's plan."""
    error: float
    """How far the last iteration and rounding move a potential, over epsilon: the plan's sums are off by about this share. NaN where
    costs are not finite."""


@not_compiled
def gromov_wasserstein_sampled(
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    epsilon: float,
    a: Tensor | None = None,
    b: Tensor | None = None,
    geometry: Geometries = "auto",
    distances: tuple[Tensor | None, Tensor | None] | None = None,
    graphs: tuple[Graph | None, Graph | None] | None = None,
    cost_normalization: DistanceNormalization | None = "max",
    features: tuple[Tensor, Tensor] | None = None,
    feature_cost: Tensor | None = None,
    feature_weight: float | None = None,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    init: Literal["eccentricity", "multiscale"] | Tensor | TransportPlan = "eccentricity",
    restarts: int = 1,
    n_anchors: int = 80,
    annealing: Annealing | float | None = 1e-2,
    step: float = 0.9,
    max_iter: int = 200,
    sinkhorn_iters: int = 2,
    polish_iters: int = 500,
    patience: int = 6,
    min_iter: int = 1,
    generator: torch.Generator | int | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> SampledGromovResult:
    """Entropic Gromov-Wasserstein transport with sampled gradients.

    No N × N or M × M table is stored. A plan has an N × M table of costs only up to 2^22 entries or with feature_cost. On a
    CPU one table of up to 512 MiB exists besides while the plan is searched.

    Each step draws pairs of points (anchors) from the current plan and takes the mean of (Cx[i, k] − Cy[j, l])² over them for
    the cost of (i, j). That is a squared distance of points with n_anchors coordinates, the distances to the anchors. So the
    new plan is one of :func:`warpalign.transport.sinkhorn` between points. The start compares points by their eccentricities.

    Source: Kerdoncuff, Emonet & Sebban, "Sampled Gromov Wasserstein", Machine Learning 2021, with all terms of the cost
    from the same anchors.

    Args:
        x: (N, D) points. One problem, no batch, no gradient.
        y: (M, E) points.
        epsilon: the factor of KL in the objective, in units of the divided squared distances.
        features: a pair of (N, F) and (M, F), for fused transport: F[i, j] is their squared distance.
        feature_cost: F (N, M) itself, in the place of features. Both are taken in the dtype of the points or distances.
        feature_weight: from 0 to below 1; None: no features.
        cost_normalization: as in :func:`warpalign.transport.gromov_wasserstein`, by the largest or the mean distance from at most
            500 drawn points of each side.
        init: "eccentricity"; "multiscale", for the plan of 200 drawn points of each set, found as by
            :func:`warpalign.transport.gromov_wasserstein`; or a plan (N, M). The first anchors are drawn from the plan.
        restarts: starts of the problem of drawn points, of which the best result is kept; 1 without "multiscale".
        n_anchors: pairs of a step. The cost's standard deviation falls with their root.
        step: how much of the plan from which anchors are drawn is new in each step.
        patience: steps at the last epsilon end when the mean of so many linearised costs is not below that of as many
            before them, by more than the standard error of the difference.
        min_iter: steps before that, at least.
        generator: a torch.Generator on the CPU, which advances, or an int, the seed of a new one. None: torch's default
            generator. A seed gives the same result on one device.
        callback: called after each step with its number, from 1 on, its epsilon, and its entry of history, 0-d.
        progress: True: show a progress bar (needs tqdm), whose last steps are the iterations after the descent. None: on a
            CPU, beyond 2^22 pairs of points, a bar where stderr is a terminal or a notebook runs, and one warning elsewhere.
            False: neither.
        all others: a, b, geometry, distances, graphs, rho_a, rho_b, mass, annealing, max_iter,
            sinkhorn_iters and polish_iters are as in :func:`warpalign.transport.gromov_wasserstein`. The geometry "geodesic"
            searches paths from the anchors alone.

    Returns:
        SampledGromovResult(plan, estimate, estimate_std, converged, iterations, history, error).

    Warns:
        ConvergenceWarning, UserWarning: as :func:`warpalign.transport.gromov_wasserstein`.

    Raises:
        TypeError, ValueError: as :func:`warpalign.transport.gromov_wasserstein`.
        ImportError: progress=True without tqdm.

    Examples:
        >>> x = torch.randn(300, 2)
        >>> result = gromov_wasserstein_sampled(x, x.flip(0), epsilon=1e-3)
        >>> result.plan.shape
        torch.Size([300, 300])
    """
    settings = check_settings(
        annealing=annealing,
        factor=GROMOV_FACTOR,
        rho_a=rho_a,
        rho_b=rho_b,
        mass=mass,
        max_iter=max_iter,
        tol=1e-6,
    )
    last, start = check_number(epsilon, "epsilon", None), settings.epsilon_start
    inner = settings._replace(epsilon_start=0.0, max_iterations=check_count(sinkhorn_iters, "sinkhorn_iters"))
    polish, waits = check_count(polish_iters, "polish_iters"), check_count(patience, "patience")
    new_share, count = check_step(step), check_count(n_anchors, "n_anchors")
    draws = check_generator(generator)
    found = of_sides(
        (x, y),
        distances,
        graphs,
        geometry=geometry,
    )
    normalization = check_distance_normalization(cost_normalization)
    # The kernels round coordinates to binary16, which has room for distances of at most 1.
    has_kernels = normalization in ("max", "common")
    sides = _point_set(found[0], has_kernels), _point_set(found[1], has_kernels)
    if sides[1].like.dtype != sides[0].like.dtype or sides[1].like.device != sides[0].like.device:
        raise TypeError(
            f"{found[1].name}: expected {sides[0].like.dtype} on {sides[0].like.device}, as {found[0].name}, got "
            f"{sides[1].like.dtype} on {sides[1].like.device}"
        )
    weights = tuple(
        check_rows(given, name, side.like.view(1, 1), found[0].name, side.size)
        for name, given, side in zip(("a", "b"), (a, b), sides, strict=True)
    )
    if inner.is_balanced:
        weights = with_equal_sums((a, b), (weights[0], weights[1]), (None, None))
        check_sums(weights)
    weight, extra = _features(features, feature_cost is not None, feature_weight, sides)
    table = _feature_table(feature_cost, sides)
    first = _start(init, sides)
    is_coarse, starts = isinstance(init, str) and init == "multiscale", check_count(restarts, "restarts")
    if starts > 1 and not is_coarse:
        raise ValueError(f'restarts: expected 1 without init = "multiscale", got {starts}')
    least = check_count(min_iter, "min_iter")
    check_callback(callback)
    sizes, device = (sides[0].size, sides[1].size), sides[0].like.device
    shown = steps_shown(progress, sizes, device, settings.max_iterations)
    with torch.no_grad(), naming_arguments(), shown as show:
        descent = Descent(
            sides, (weights[0], weights[1]), extra, table, weight, inner, new_share, draws, normalization
        )
        now = max(last, start)
        if is_coarse:
            first = coarse_anchors(descent, _course(descent, last, start, starts))
        descent.begin(now, first)
        history: list[Tensor] = []
        stop = Patience(waits)
        while len(history) < settings.max_iterations and not (stop.is_over() and len(history) >= least):
            history.append(descent.advance(count, now))
            if callback is not None:
                callback(len(history), now, history[-1])
            show("descent", now)
            if now > last:
                now = max(last, now * settings.epsilon_factor)
            else:
                stop.add(history[-1])
        final = descent.finish(last, polish, lambda: show("last iterations", last))
        estimate, deviation = descent.estimate(final, _LAST_PAIRS)
    f, g = final.of.f0, final.of.g0
    assert f is not None and g is not None
    plan = TransportPlan(
        Problem(final.of, final.settings._replace(mass=0.0, precision=0), True, None, None), f, g
    )
    error = descent.error if stop.is_finite() else math.nan
    converged = stop.is_over() and error <= _LARGEST_ERROR
    if not converged and estimate.device.type == "cpu":
        _warn(settings.max_iterations, stop.is_over(), error)
    steps = torch.stack(history)
    return SampledGromovResult(plan, estimate, deviation, converged, len(history), steps, error)


def _warn(max_iter: int, is_over: bool, error: float) -> None:
    if not math.isfinite(error):
        expected, got = "finite costs of steps", "NaN or infinity"
        remedy = "points, distances or features contain NaN or infinity, or epsilon is too small: write a larger epsilon"
    elif is_over:
        expected, got = f"a plan of error <= {_LARGEST_ERROR}", f"{error:.3g}"
        remedy = "write a larger epsilon or polish_iters"
    else:
        expected, got = "costs of steps that fall no more", f"falling ones after max_iter = {max_iter} steps"
        remedy = "write a larger max_iter or epsilon, or a smaller patience"
    warn_of_convergence(f"gromov_wasserstein_sampled: expected {expected}, got {got}: {remedy}")


def _course(of: Descent, epsilon: float, epsilon_start: float, starts: int) -> Course:
    """What gromov_wasserstein does by default, from and to the epsilons of this solve."""
    settings = of.settings._replace(max_iterations=_COARSE_ITERATIONS)
    schedule = Schedule(
        of.sides[0].like.new_full((1,), epsilon),
        epsilon_start,
        settings.epsilon_factor,
        1.0,
        False,
        _COARSE_STEPS,
        _COARSE_TOLERANCE,
    )
    return Course(schedule, settings, settings._replace(max_iterations=_COARSE_LAST), starts, of.generator)


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


def _start(init: object, sides: tuple[PointSet, PointSet]) -> Start | None:
    if isinstance(init, TransportPlan):
        plan, shape = init, (sides[0].size, sides[1].size)
        if tuple(plan.shape) != shape:
            raise ValueError(f"init: expected a plan {shape}, got one of shape {tuple(plan.shape)}")
        return Start(_drawn_from(plan), plan.mass)
    if isinstance(init, Tensor):
        table = _table_of_pairs(init, "init", sides)
        return Start(partial(pairs_of_table, table), table.sum)
    if init not in ("eccentricity", "multiscale"):
        raise ValueError(f'init: expected "eccentricity", "multiscale" or a plan (N, M), got {init!r}')
    return None


def _drawn_from(plan: TransportPlan) -> Callable[[int, torch.Generator], Tensor]:
    def drawn(count: int, generator: torch.Generator) -> Tensor:
        return plan.sample(count, generator=generator)

    return drawn


def _feature_table(feature_cost: object, sides: tuple[PointSet, PointSet]) -> Tensor | None:
    return None if feature_cost is None else _table_of_pairs(feature_cost, "feature_cost", sides)


def _table_of_pairs(given: object, name: str, sides: tuple[PointSet, PointSet]) -> Tensor:
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


def _features(
    features: object, is_table: bool, feature_weight: object, sides: tuple[PointSet, PointSet]
) -> tuple[float, tuple[Tensor, Tensor] | None]:
    """The features' weight, and both sets' features."""
    names = {"feature_cost": is_table, "features": features is not None}
    weight = weight_of_features(feature_weight, next((name for name, given in names.items() if given), None))
    if weight >= 1:
        raise ValueError(f"feature_weight: expected a number from 0 to below 1, got {feature_weight}")
    if features is not None and is_table:
        raise ValueError("features: expected None beside feature_cost, got both")
    if features is None:
        if weight > 0 and not is_table:
            raise ValueError(
                f"features: expected a pair (N, F) and (M, F) with feature_weight = {weight}, got None"
            )
        return weight, None
    if not isinstance(features, (tuple, list)) or len(features) != 2:
        raise TypeError(f"features: expected a pair, one for x and one for y, got {type(features).__name__}")
    found: list[Tensor] = []
    for place, (given, side) in enumerate(zip(features, sides, strict=True)):
        name = f"features[{place}]"
        table = widened(check_table(given, name, "N, F")).detach()
        if table.dim() != 2 or table.shape[0] != side.size or (found and table.shape[1] != found[0].shape[1]):
            width = found[0].shape[1] if found else "F"
            raise ValueError(f"{name}: expected shape ({side.size}, {width}), got {shape_of(table)}")
        found.append(_like(table, name, side.like))
    return weight, (found[0], found[1])
