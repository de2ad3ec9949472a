"""Gromov-Wasserstein transport: soft matchings of sets by their intra-domain distances."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import (
    Precision,
    check_count,
    check_table,
    naming_arguments,
    shape_of,
)
from warpalign._core.convergence import warn_of_convergence
from warpalign._core.randomness import cpu_generator
from warpalign._core.series import widened
from warpalign._core.torch_internals import matmul_precision, matmul_precision_of
from warpalign._core.transforms import have_tangents, no_autocast, no_derivative, not_compiled
from warpalign._transport import autograd
from warpalign._transport.checks import (
    check_callback,
    check_distance_normalization,
    check_epsilon,
    check_plan,
    check_rows,
    check_settings,
    check_step,
    with_equal_sums,
)
from warpalign._transport.convergence import is_known, of_problems
from warpalign._transport.costs import DistanceNormalization
from warpalign._transport.graphs import Graph
from warpalign._transport.gromov_coarse import Course, coarse_start
from warpalign._transport.gromov_features import check_feature_weight, check_features, cost_of_features
from warpalign._transport.gromov_geometry import Distances, Geometries, inner_distances
from warpalign._transport.gromov_products import factors_of, narrowed
from warpalign._transport.gromov_progress import Step, steps_shown
from warpalign._transport.gromov_restarts import best_state
from warpalign._transport.gromov_result import ExactMeasures, GromovResult
from warpalign._transport.gromov_solver import Callback, Objective, Schedule, State
from warpalign._transport.gromov_start import INITIALS, Initial, eccentricity_cost, plan_of_cost, product_plan
from warpalign._transport.options import GROMOV_ERROR, GROMOV_FACTOR, Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem
from warpalign._transport.settings import Inputs, Settings


@not_compiled
@no_autocast()
def gromov_wasserstein(
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    epsilon: float | Tensor,
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
    generator: torch.Generator | int | None = None,
    annealing: Annealing | float | None = 1e-2,
    step: float = 1.0,
    max_iter: int = 200,
    sinkhorn_iters: int = 20,
    polish_iters: int = 500,
    tol: float = 1e-3,
    precision: Precision | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
) -> GromovResult:
    """Entropic Gromov-Wasserstein transport between two sets, which need not have a feature in common.

    The plan T (N, M) minimises (1 − w) Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] + w ⟨F, T⟩ + epsilon KL(T | a bᵀ), w being
    feature_weight, with the marginal terms of :func:`warpalign.transport.sinkhorn`. Supports balanced, unbalanced, semi-relaxed and
    partial transport. Each step takes the plan whose cost is the objective's gradient. The objective is not convex: the result depends
    on the start. N × N, M × M and N × M matrices are stored, on the tensors' device, where graphs are built and searched too;
    :func:`warpalign.transport.gromov_wasserstein_sampled` does without them.

    Sources: Peyré, Cuturi & Solomon, "Gromov-Wasserstein averaging of kernel and distance matrices", ICML 2016; Vayer et al.,
    "Optimal transport for structured data with application on graphs", ICML 2019 (features); Chapel et al., "Partial optimal
    transport with applications on positive-unlabeled learning", NeurIPS 2020 (mass); Vincent-Cuaz et al., "Semi-relaxed
    Gromov-Wasserstein divergence", ICLR 2022 (rho_b = 0).

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. A batch of
            1 is repeated. Points of weight 0 are ignored: they pad smaller sets. None where distances or graphs give the set.
        y: (B, M, E) or (M, E) points; E need not be D.
        epsilon: the regularisation strength, in units of the normalised squared distances: a number > 0, or a tensor ()
            or (B,), which may require a gradient. It equals POT's ``epsilon`` where cost_normalization is None.
        a: (N,) or (B, N) weights >= 0 of x; None: 1 / N each. Weights are not normalised.
        b: (M,) or (B, M) weights >= 0 of y; None: 1 / M each.
        geometry: the intra-domain distances of points or graphs: "euclidean" or "sqeuclidean" between points, "geodesic" for the
            shortest paths on graphs, or on the knn_graph of points, or a :class:`Geodesic` with its options. A pair where the sides
            differ. "auto": "euclidean" for points, "geodesic" for graphs, and the given distances.
        distances: a pair (Cx, Cy) of given intra-domain distances, (B, N, N) or (N, N) and (B, M, M) or (M, M), or None for a side with
            points or a graph. They need not be symmetric; asymmetric ones take twice the time.
        graphs: a pair of connected graphs, as :func:`warpalign.transport.shortest_paths` takes them, or None for a side without one.
        cost_normalization: "max" or "mean" divides each side's distances by their largest or their mean. "common" divides
            both sides' distances by the largest of both, where lengths of one side mean the same on the other. The divisors
            are constants for gradients. None: distances are used as they are.
        features: a pair of (B, N, F) or (N, F) and (B, M, F) or (M, F), for fused transport with feature_weight: F[i, j] is their squared
            Euclidean distance.
        feature_cost: F (B, N, M) or (N, M) itself, in place of features; inf forbids a pair. If features have more digits than the
            distances, everything is computed in the features' dtype.
        feature_weight: w, from 0 (intra-domain distances alone) to 1 (features alone). None: no features.
        rho_a: the strength of the KL penalty on the row marginals, >= 0, in the units of epsilon. None: they equal a; 0: they are free
            (semi-relaxed).
        rho_b: the strength of the KL penalty on the column marginals, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b.
        init: the first plan. "eccentricity" compares points by their root mean squared distance to all others; "product" is a bᵀ;
            "multiscale" first solves the problem of 200 points drawn from each set, which have the weights of the points
            around them; or a plan, a tensor (N, M) or (B, N, M) or a TransportPlan.
        restarts: how many starts are made, at least 1, of which the result with the least value is kept. All but the first assume that a
            pair of points, drawn from the first start, is matched. With "multiscale", they are starts of the problem of drawn points.
        generator: the random numbers of those draws: a torch.Generator on the CPU, which advances, or an int, the seed of a new one.
            None: torch's default generator. A single start other than "multiscale" draws nothing.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): steps begin with this larger epsilon,
            in the units of epsilon, which shrinks to epsilon. None: all steps have epsilon.
        step: how far each step moves to its new plan, above 0 and at most 1.
        max_iter: the maximum number of steps, at least 1.
        sinkhorn_iters: the number of Sinkhorn iterations of a step, at least 1, which start from the potentials of the step before.
        polish_iters: the maximum number of Sinkhorn iterations of the last transport problem, which gives the result; at least 1.
        tol: steps end when less than this share of the mass moves at the final epsilon; >= 0.
        precision: of the products with distances in float32 on a GPU: "medium" for factors of 11 bits (binary16, or TF32
            for small problems), "high" and "highest" for two such factors of each number (torch's products in float32 for
            fewer than 2^21 pairs of points); None: torch's own setting. The last plan has "high" at least, the value torch's
            products. It changes nothing on a CPU.
        callback: called after each step of the first start with its number, from 1 on, its epsilon, and its entry of the result's history,
            here the share of the mass that moves. Both are tensors (B,), or 0-d for unbatched input.
        progress: True: a progress bar, which needs tqdm. False: none. None: on a CPU, beyond 2^22 pairs of points, a bar where stderr is a
            terminal or a notebook runs, and one warning elsewhere.

    Returns:
        A GromovResult. Its value is differentiable in points, distances, features, weights and epsilon, once. Results are float64 for
        float64 input, else float32. A batch gives what its problems give alone.

    Warns:
        ConvergenceWarning: on a CPU, where mass still moves after max_iter steps, the error is above 0.1, or the plan is not finite; once
            per line that calls. On a GPU look at ``converged``.
        UserWarning: x and y look like matrices of distances, which other packages take in their place; or progress is None and the
            problem is large.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit; distances are infinite; sums of balanced weights
            differ. Messages name the argument, what was expected and what came.
        NotImplementedError: for second derivatives, and for tangents of forward mode.
        ImportError: progress=True without tqdm.

    Examples:
        >>> x = torch.randn(60, 2)
        >>> y = torch.cat([x, torch.zeros(60, 1)], 1).flip(0)
        >>> result = gromov_wasserstein(x, y, epsilon=1e-3)
        >>> bool((result.plan.argmax() == torch.arange(59, -1, -1)).float().mean() > 0.9)
        True
    """
    if have_tangents(x, y, a, b, epsilon, feature_cost, features, distances):
        raise no_derivative("forward-mode derivatives of gromov_wasserstein")
    settings = check_settings(
        annealing=annealing,
        factor=GROMOV_FACTOR,
        rho_a=rho_a,
        rho_b=rho_b,
        mass=mass,
        max_iter=max_iter,
        tol=tol,
        precision=precision,
        batch_invariant=True,
    )
    inner = settings._replace(
        max_iterations=check_count(sinkhorn_iters, "sinkhorn_iters"), tolerance=1e-6, epsilon_start=0.0
    )
    last = inner._replace(max_iterations=check_count(polish_iters, "polish_iters"))
    check_callback(callback)
    whole_step = check_step(step)
    starts, draws = check_count(restarts, "restarts"), cpu_generator(generator)
    normalization = check_distance_normalization(cost_normalization)
    table = inner_distances((x, y), distances, graphs, geometry=geometry, normalization=normalization)
    of = _objective_of(table, features, feature_cost, feature_weight)
    problem = _problem(of, table, a, b, epsilon, last)
    schedule = Schedule(
        _epsilons(problem).detach(),
        settings.epsilon_start,
        settings.epsilon_factor,
        whole_step,
        False,
        settings.max_iterations,
        settings.tolerance,
    )
    course = Course(schedule, inner, problem.settings, starts, draws)
    sizes = of.cx.shape[1], of.cy.shape[1]
    shown = steps_shown("gromov_wasserstein", progress, sizes, of.cx.device, starts * settings.max_iterations)
    with naming_arguments(), shown as show:
        state, cost = _descended(of, problem, course, init, precision, (callback, show))
        given = problem.of._replace(cost=cost, f0=state.f.contiguous(), g0=state.g.contiguous())
        problem = problem._replace(of=given)
        solution = autograd.sinkhorn(problem.of, problem.settings)
    result = _result(of, problem, solution, state)
    _warn_unless_converged(result, state.converged, settings)
    return result


def _descended(
    of: Objective,
    problem: Problem,
    course: Course,
    init: object,
    precision: Precision | None,
    watched: tuple[Callback | None, Step],
) -> tuple[State, Tensor]:
    """The state with the least objective, and the linearised cost (B, N, M) of its plan."""
    callback, show = watched

    def of_others(step: int, epsilon: Tensor, moved: Tensor) -> None:
        show("steps", epsilon)

    def of_first(step: int, epsilon: Tensor, moved: Tensor) -> None:
        if callback is not None:
            callback(step, problem.squeezed(epsilon), problem.squeezed(moved))
        show("steps", epsilon)

    with torch.no_grad(), matmul_precision_of(precision):
        fixed = of.detached()
        parts = _parts_of(precision)
        factors = factors_of(fixed.cx, fixed.cy, precise=parts == 2)
        squares = (
            (fixed.cx.square(), fixed.cy.square()) if factors is None else factors.squares(fixed.cx, fixed.cy)
        )
        fixed = fixed._replace(factors=factors, squares=squares)
        weights = Inputs(*(None if t is None else t.detach() for t in problem.of))
        start = _start(fixed, weights, course, init)
        # The coarse problem has had the other starts.
        starts = 1 if isinstance(init, str) and init == "multiscale" else course.starts
        state = best_state(
            fixed, weights, start, course.schedule, course.inner, course.last, starts, course.generator,
            of_first, of_others,
        )  # fmt: skip
        if parts == 1 and factors is not None:
            del factors
            fixed = fixed._replace(factors=narrowed(fixed.cx, fixed.cy, precise=True))
    with torch.no_grad():
        slope = fixed._replace(features=None).cost(state.plan)
    return state, slope if of.features is None else slope + _weighted(of.features, of.weight)


def _result(of: Objective, problem: Problem, solution: autograd.Solution, state: State) -> GromovResult:
    history = torch.stack(state.moved)
    return GromovResult(
        ExactMeasures(of, problem, solution),
        TransportPlan(problem, solution.f, solution.g),
        problem.squeezed(state.converged & (solution.error <= GROMOV_ERROR)),
        problem.squeezed(solution.error),
        problem.squeezed(state.iterations),
        history[:, 0] if problem.unbatched else history,
    )


def _warn_unless_converged(result: GromovResult, stands: Tensor, settings: Settings) -> None:
    """stands: (B,) bool, whether mass has ceased to move."""
    converged, error = result.converged.reshape(-1), result.error.detach().reshape(-1)
    if not is_known(converged) or bool(converged.all()):
        return
    counts = of_problems(~converged)
    if not bool(error.isfinite().all()):
        warn_of_convergence(
            f"gromov_wasserstein: expected a finite plan, got NaN or infinity{counts}: points, distances or features contain "
            f"NaN, or epsilon = {result.plan.epsilon} is too small beside the squared distances: write a larger epsilon, or "
            'cost_normalization="max"'
        )
        return
    if bool(stands.all()):
        warn_of_convergence(
            f"gromov_wasserstein: expected a plan with an error of at most {GROMOV_ERROR}, got {float(error.max()):.3g}{counts}: write a larger "
            "epsilon or polish_iters"
        )
        return
    warn_of_convergence(
        f"gromov_wasserstein: expected less than tol = {settings.tolerance:g} of the mass to move in a step, got more in the last "
        f"of max_iter = {settings.max_iterations} steps{counts}: write a larger max_iter, epsilon or tol, or a smaller "
        "annealing factor or step"
    )


def _parts_of(precision: Precision | None) -> int:
    """How many binary16 numbers stand for a factor of a large product."""
    if precision is None:
        return 2 if matmul_precision() == "highest" else 1
    return 1 if precision == "medium" else 2


def _objective_of(
    table: Distances, features: object, feature_cost: object, feature_weight: object
) -> Objective:
    weight = check_feature_weight(features, feature_cost, feature_weight)
    shape = (table.x.shape[0], table.x.shape[1], table.y.shape[1])
    if features is not None:
        costs = cost_of_features(check_features(features, shape[1:], table.x.device, shape[0]))
    elif feature_cost is not None:
        costs = _check_feature_cost(feature_cost, table, shape)
    else:
        return Objective(table.x, table.y, table.symmetric, None, weight)
    dtype = torch.promote_types(costs.dtype, table.x.dtype)
    x, y, costs = (t.to(dtype) for t in (table.x, table.y, costs))
    return Objective(x, y, table.symmetric, costs.expand(shape), weight)


def _check_feature_cost(given: object, table: Distances, shape: tuple[int, int, int]) -> Tensor:
    costs = widened(check_table(given, "feature_cost", "N, M"))
    if costs.device != table.x.device:
        raise ValueError(
            f"feature_cost: expected the device of {table.names[0]}, {table.x.device}, got {costs.device}"
        )
    if costs.shape[-2:] != shape[1:] or (costs.dim() == 3 and costs.shape[0] not in (1, shape[0])):
        raise ValueError(f"feature_cost: expected shape {shape} or {shape[1:]}, got {shape_of(costs)}")
    return costs


def _weighted(features: Tensor, weight: float) -> Tensor:
    """Forbidden pairs are none where the weight is 0."""
    return weight * (features if weight > 0 else torch.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0))


def _problem(
    of: Objective, table: Distances, a: object, b: object, epsilon: object, settings: Settings
) -> Problem:
    """The transport problem of a step, without its cost."""
    number, epsilons = check_epsilon(epsilon, of.cx, table.names[0])
    weights = []
    for name, given, matrix in (("a", a, of.cx), ("b", b, of.cy)):
        length = matrix.shape[1]
        rows = check_rows(given, name, of.cx, table.names[0], length)
        weights.append(of.cx.new_full((of.cx.shape[0], length), 1 / length) if rows is None else rows)
    inputs = Inputs(None, None, None, weights[0], weights[1], epsilons, None, None, None, None)
    if settings.is_balanced:
        sides = with_equal_sums((a, b), (weights[0], weights[1]), (None, None))
        inputs = inputs._replace(a=sides[0], b=sides[1])
    return Problem(inputs, settings._replace(epsilon=number), table.unbatched, None, None)


def _epsilons(problem: Problem) -> Tensor:
    """(B,)"""
    a = problem.of.a
    assert a is not None
    given = problem.of.epsilons
    return a.new_full(a.shape[:1], problem.settings.epsilon) if given is None else given


def _start(of: Objective, weights: Inputs, course: Course, init: object) -> Tensor:
    """(B, N, M)"""
    batch, n, m = of.cx.shape[0], of.cx.shape[1], of.cy.shape[1]
    if isinstance(init, (Tensor, TransportPlan)):
        plan = init.to_dense() if isinstance(init, TransportPlan) else init
        plan = widened(check_table(plan, "init", "N, M")).detach()
        if plan.shape not in ((n, m), (1, n, m), (batch, n, m)):
            raise ValueError(f"init: expected a plan ({n}, {m}) or ({batch}, {n}, {m}), got {shape_of(plan)}")
        if plan.dtype != of.cx.dtype or plan.device != of.cx.device:
            raise TypeError(
                f"init: expected {of.cx.dtype} on {of.cx.device}, got {plan.dtype} on {plan.device}"
            )
        check_plan(plan, "init")
        return plan.expand(batch, n, m)
    if init not in INITIALS:
        names = ", ".join(f'"{name}"' for name in INITIALS)
        raise ValueError(f"init: expected {names} or a plan (N, M), got {init!r}")
    if init == "product":
        return product_plan(weights, course.inner.mass)
    if init == "multiscale":
        return coarse_start(of, weights, course)
    early = course.schedule.epsilon.clamp(min=course.schedule.epsilon_start)
    return plan_of_cost(eccentricity_cost(of, weights), weights, early, course.inner)
