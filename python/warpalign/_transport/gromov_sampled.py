"""Gromov-Wasserstein transport of sets whose matrices of distances are too large to be stored."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_number, naming_arguments
from warpalign._core.convergence import warn_of_convergence
from warpalign._core.randomness import cpu_generator
from warpalign._core.transforms import no_autocast, not_compiled
from warpalign._transport.checks import (
    check_callback,
    check_distance_normalization,
    check_settings,
    check_step,
)
from warpalign._transport.costs import DistanceNormalization
from warpalign._transport.graphs import Graph
from warpalign._transport.gromov_anchors import Descent
from warpalign._transport.gromov_coarse import Course, coarse_anchors
from warpalign._transport.gromov_features import check_feature_weight
from warpalign._transport.gromov_geometry import (
    Geometries,
    of_sides,
)
from warpalign._transport.gromov_patience import Patience
from warpalign._transport.gromov_plans import Start
from warpalign._transport.gromov_progress import Step, steps_shown
from warpalign._transport.gromov_result import GromovResult, SampledMeasures
from warpalign._transport.gromov_sides import (
    point_sets,
    side_features,
    side_weights,
    start_of,
    table_of_pairs,
)
from warpalign._transport.gromov_solver import Callback, Schedule
from warpalign._transport.gromov_start import Initial
from warpalign._transport.options import GROMOV_ERROR, GROMOV_FACTOR, Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem
from warpalign._transport.settings import Settings

_LAST_PAIRS = 1000
_COARSE_STEPS = 200
_COARSE_ITERATIONS = 20
_COARSE_LAST = 500
_COARSE_TOLERANCE = 1e-3


@not_compiled
@no_autocast()
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
    init: Initial | Tensor | TransportPlan = "eccentricity",
    restarts: int = 1,
    n_anchors: int = 80,
    generator: torch.Generator | int | None = None,
    annealing: Annealing | float | None = 1e-2,
    step: float = 0.9,
    max_iter: int = 200,
    sinkhorn_iters: int = 2,
    polish_iters: int = 500,
    patience: int = 6,
    min_iter: int = 1,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> GromovResult:
    """Entropic Gromov-Wasserstein transport with sampled gradients, for sets whose matrices of distances are too large to be stored.

    It minimises the objective of :func:`warpalign.transport.gromov_wasserstein`. No N × N or M × M table is stored. A plan has an N × M
    table of costs only up to 2^22 entries or with feature_cost. On a CPU one table of up to 512 MiB exists besides while the plan is
    searched.

    Each step draws pairs of points (anchors) from the current plan and takes the mean of (Cx[i, k] − Cy[j, l])² over them for
    the cost of (i, j). That is a squared distance of points with n_anchors coordinates, the distances to the anchors. So the
    new plan is one of :func:`warpalign.transport.sinkhorn` between points.

    Source: Kerdoncuff, Emonet & Sebban, "Sampled Gromov Wasserstein", Machine Learning 2021, with all terms of the cost
    from the same anchors.

    Args:
        x: (N, D) points, float64, float32, float16 or bfloat16: one set, without a batch and a gradient. Half types are converted to
            float32. None where distances or graphs give the set.
        y: (M, E) points; E need not be D.
        epsilon: the regularisation strength, a number > 0 in units of the normalised squared distances.
        a: (N,) weights >= 0 of x; None: 1 / N each. Weights are not normalised.
        b: (M,) weights >= 0 of y; None: 1 / M each.
        geometry: the intra-domain distances of points or graphs: "euclidean" or "sqeuclidean" between points, "geodesic" for the
            shortest paths on graphs, or on the knn_graph of points, or a :class:`Geodesic` with its options. A pair where the sides
            differ. "auto": "euclidean" for points, "geodesic" for graphs, and the given distances. Exact geodesics are searched from the
            anchors of each step alone.
        distances: a pair (Cx, Cy) of given intra-domain distances (N, N) and (M, M), or None for a side with points or a graph.
        graphs: a pair of connected graphs, as :func:`warpalign.transport.shortest_paths` takes them, or None for a side without one.
        cost_normalization: "max" or "mean" divides each side's distances by the largest or the mean of the distances from at most 500
            points drawn from it. "common" divides both sides' distances by the larger of both maxima. None: distances are used as they
            are. With "mean" and None, steps on a GPU take longer: their kernels need distances of at most 1.
        features: a pair of (N, F) and (M, F), for fused transport with feature_weight: F[i, j] is their squared Euclidean distance.
            They are converted to the dtype of the points or distances.
        feature_cost: F (N, M) itself, in place of features; inf forbids a pair.
        feature_weight: w, from 0 (intra-domain distances alone) to below 1. None: no features.
        rho_a: the strength of the KL penalty on the row marginals, >= 0, in the units of epsilon. None: they equal a; 0: they are free
            (semi-relaxed).
        rho_b: the strength of the KL penalty on the column marginals, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b.
        init: the plan that the first anchors are drawn from. "eccentricity" compares points by their root mean squared distance to all
            others; "product" is a bᵀ; "multiscale" is the plan of 200 points drawn from each set, which have the weights of the points
            around them; or a plan, a tensor (N, M) or a TransportPlan.
        restarts: with "multiscale" the number of starts of the problem of drawn points, at least 1, of which the result with the least
            value is kept. Otherwise 1.
        n_anchors: the number of pairs drawn in a step, at least 1. The cost's standard deviation falls with its root.
        generator: a torch.Generator on the CPU, which advances, or an int, the seed of a new one. None: torch's default
            generator. A seed gives the same result on one device.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): steps begin with this larger epsilon,
            in the units of epsilon, which shrinks to epsilon. None: all steps have epsilon.
        step: the share of the newest plan in the mixture of plans that anchors are drawn from, above 0 and at most 1.
        max_iter: the maximum number of steps, at least 1.
        sinkhorn_iters: the number of Sinkhorn iterations of a step, at least 1, which start from the potentials of the step before.
        polish_iters: the maximum number of Sinkhorn iterations of the last transport problem, which gives the result; at least 1.
        patience: steps at the final epsilon end when the mean of so many linearised costs, at least 1, is not below that of as many
            before them, by more than the standard error of the difference.
        min_iter: the minimum number of steps, at least 1.
        callback: called after each step with its number, from 1 on, its epsilon, and its entry of the result's history, here the linearised
            cost of the step's plan. Both are 0-d tensors.
        progress: True: a progress bar, which needs tqdm and whose last steps are the iterations of the last transport problem. False:
            none. None: on a CPU, beyond 2^22 pairs of points, a bar where stderr is a terminal or a notebook runs, and one warning
            elsewhere.

    Returns:
        A GromovResult without gradients, whose value and distortion are unbiased estimates from 1000 independent pairs; distortion_std is
        their standard deviation. float64 for float64 input, else float32.

    Warns:
        ConvergenceWarning: on a CPU, where costs still fall after max_iter steps, the error is above 0.1, or costs are not finite; once per
            line that calls. On a GPU look at ``converged``.
        UserWarning: x and y look like matrices of distances, which other packages take in their place; or progress is None and the
            problem is large.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit; distances are infinite; sums of balanced weights
            differ. Messages name the argument, what was expected and what came.
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
    inner = settings._replace(max_iterations=check_count(sinkhorn_iters, "sinkhorn_iters"), epsilon_start=0.0)
    is_coarse, starts = isinstance(init, str) and init == "multiscale", check_count(restarts, "restarts")
    steps = _Steps(
        check_number(epsilon, "epsilon", None),
        settings,
        check_count(n_anchors, "n_anchors"),
        check_count(polish_iters, "polish_iters"),
        check_count(patience, "patience"),
        check_count(min_iter, "min_iter"),
        starts if is_coarse else 0,
    )
    new_share, draws = check_step(step), cpu_generator(generator)
    check_callback(callback)
    normalization = check_distance_normalization(cost_normalization)
    found = of_sides((x, y), distances, graphs, geometry=geometry)
    sides = point_sets(found, normalization)
    weights = side_weights((a, b), found[0].name, sides, inner)
    weight = check_feature_weight(features, feature_cost, feature_weight, "below ")
    extra = None if features is None else side_features(features, sides)
    table = None if feature_cost is None else table_of_pairs(feature_cost, "feature_cost", sides)
    first = start_of(init, sides, weights, inner)
    if starts > 1 and not is_coarse:
        raise ValueError(f'restarts: expected 1 without init = "multiscale", got {starts}')
    sizes, device = (sides[0].size, sides[1].size), sides[0].like.device
    shown = steps_shown("gromov_wasserstein_sampled", progress, sizes, device, settings.max_iterations)
    with torch.no_grad(), naming_arguments(), shown as show:
        descent = Descent(sides, weights, extra, table, weight, inner, new_share, draws, normalization)
        return _descended(descent, steps, first, callback, show)


class _Steps(NamedTuple):
    """The course of a solve."""

    epsilon: float
    settings: Settings
    """Of the descent: its annealing and max_iterations."""
    anchors: int
    polish: int
    patience: int
    least: int
    coarse_starts: int
    """0: no coarse problem."""


def _descended(
    descent: Descent, steps: _Steps, first: Start | None, callback: Callback | None, show: Step
) -> GromovResult:
    last, settings = steps.epsilon, steps.settings
    now = max(last, settings.epsilon_start)
    if steps.coarse_starts > 0:
        first = coarse_anchors(descent, _course(descent, last, settings.epsilon_start, steps.coarse_starts))
    descent.begin(now, first)
    history: list[Tensor] = []
    stop = Patience(steps.patience)
    while len(history) < settings.max_iterations and not (stop.is_over() and len(history) >= steps.least):
        history.append(descent.advance(steps.anchors, now))
        if callback is not None:
            callback(len(history), torch.tensor(now, dtype=torch.float64), history[-1])
        show("descent", now)
        if now > last:
            now = max(last, now * settings.epsilon_factor)
        else:
            stop.add(history[-1])
    final = descent.finish(last, steps.polish, lambda: show("last iterations", last))
    estimate = descent.estimate(final, _LAST_PAIRS)
    f, g = final.of.f0, final.of.g0
    assert f is not None and g is not None
    plan = TransportPlan(
        Problem(final.of, final.settings._replace(mass=0.0, precision=0), True, None, None), f, g
    )
    measures = SampledMeasures(
        plan,
        estimate,
        descent.regularisation,
        descent.feature_weight,
        descent.features,
        descent.feature_cost,
        descent.sizes,
    )
    error = descent.error if stop.is_finite() else math.nan
    converged = stop.is_over() and error <= GROMOV_ERROR
    if not converged and f.device.type == "cpu":
        _warn(settings.max_iterations, stop.is_over(), error)
    return GromovResult(
        measures,
        plan,
        torch.tensor(converged, device=f.device),
        torch.tensor(error, dtype=f.dtype, device=f.device),
        torch.tensor(len(history), dtype=torch.int32, device=f.device),
        torch.stack(history),
    )


def _warn(max_iter: int, is_over: bool, error: float) -> None:
    if not math.isfinite(error):
        expected, got = "finite costs of steps", "NaN or infinity"
        remedy = "points, distances or features contain NaN or infinity, or epsilon is too small: write a larger epsilon"
    elif is_over:
        expected, got = f"a plan with an error of at most {GROMOV_ERROR}", f"{error:.3g}"
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
