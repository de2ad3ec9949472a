"""Gromov-Wasserstein transport: soft matchings of sets by their inner distances."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, get_args

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
from warpalign._core.random import check_generator
from warpalign._core.series import widened
from warpalign._core.torch_internals import matmul_precision, matmul_precision_of
from warpalign._core.transforms import apply, no_derivative, not_compiled
from warpalign._transport import autograd, plan_ops
from warpalign._transport.checks import (
    check_callback,
    check_distance_normalization,
    check_epsilon,
    check_rows,
    check_settings,
    check_step,
    weight_of_features,
    with_equal_sums,
)
from warpalign._transport.convergence import is_known, of_problems
from warpalign._transport.costs import DistanceNormalization
from warpalign._transport.graphs import Graph
from warpalign._transport.gromov_coarse import Course, coarse_start
from warpalign._transport.gromov_geometry import Distances, Geometries, inner_distances
from warpalign._transport.gromov_products import factors_of
from warpalign._transport.gromov_restarts import best_state, objective_value
from warpalign._transport.gromov_solver import Callback, Objective, Schedule, State
from warpalign._transport.gromov_start import eccentricity_cost, plan_of_cost, product_plan
from warpalign._transport.options import GROMOV_FACTOR, Annealing
from warpalign._transport.plan import TransportPlan
from warpalign._transport.problem import Problem
from warpalign._transport.settings import Inputs, Settings, as_keywords

Start = Literal["eccentricity", "product", "multiscale"]
STARTS: tuple[str, ...] = get_args(Start)


class GromovResult:
    """What :func:`gromov_wasserstein` returns; without the batch axis for unbatched input."""

    plan: TransportPlan
    """T, by its potentials and the last linearised cost. Differentiable in features through that cost alone."""
    converged: Tensor
    """(B,) bool: whether the share of the mass that moves has come below tol, and the plan is finite."""
    error: Tensor
    """(B,): that of the transport problem of the plan, as in :class:`SinkhornResult`; inf or NaN where the plan is not finite."""
    iterations: Tensor
    """(B,) int32: steps."""
    history: Tensor
    """(steps, B), of the first start: the share of the mass that each step's plan has elsewhere than the plan before."""

    def __init__(self, of: Objective, problem: Problem, solution: autograd.Solution, state: State) -> None:
        self._of, self._problem, self._solution = of, problem, solution
        self.plan = TransportPlan(problem, solution.f, solution.g)
        self.converged, self.error, self.iterations = map(
            problem.squeezed,
            (state.converged & solution.error.isfinite(), solution.error, state.iterations),
        )
        history = torch.stack(state.moved)
        self.history = history[:, 0] if problem.unbatched else history

    def __repr__(self) -> str:
        return f"GromovResult(shape={tuple(self.plan.shape)}, epsilon={self.plan.epsilon})"

    @property
    def value(self) -> Tensor:
        """(B,): the whole objective at the plan, computed when it is asked for. Once differentiable (envelope theorem)."""
        return self._value

    @property
    def distortion(self) -> Tensor:
        """(B,): Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] without weight, entropy and gradient."""
        return self._distortion

    @cached_property
    def _value(self) -> Tensor:
        of, given = self._of, self._problem.of
        value = objective_value(of, self._solution, self._dense)
        inputs = (of.cx, of.cy, of.features, given.a, given.b, given.epsilons)
        return self._problem.squeezed(_once_differentiable(value, inputs))

    @cached_property
    def _distortion(self) -> Tensor:
        return self._problem.squeezed(self._of.detached().distortion(self._dense))

    @cached_property
    def _dense(self) -> Tensor:
        of = self._problem.of._replace(f0=self._solution.f, g0=self._solution.g)
        tensors = (None if t is None else t.detach() for t in of)
        plan: Tensor = plan_ops.dense(*tensors, **as_keywords(self._problem.settings._replace(mass=0.0)))
        return plan


class _Value(torch.autograd.Function):
    """A value (B,) whose gradients by some inputs are there already; they are not differentiated, as the plan would move."""

    @staticmethod
    def forward(value: Tensor, *gradients_and_inputs: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        count = len(saved) // 2
        return None, *(None,) * count, *apply(_Gradient, grad, *saved)


class _Gradient(torch.autograd.Function):
    """The gradients, times grad[b]. The inputs are here so that a second derivative is refused."""

    @staticmethod
    def forward(grad: Tensor, *gradients_and_inputs: Tensor) -> tuple[Tensor, ...]:
        gradients = gradients_and_inputs[: len(gradients_and_inputs) // 2]
        return tuple(grad.view(-1, *[1] * (t.dim() - 1)) * t for t in gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of gromov_wasserstein's value")


def _once_differentiable(value: Tensor, inputs: tuple[Tensor | None, ...]) -> Tensor:
    """The value (B,) with its first derivatives by the inputs (B, ...), computed now."""
    wanted = [t for t in inputs if t is not None and t.requires_grad and torch.is_grad_enabled()]
    if not wanted:
        return value.detach()
    found = torch.autograd.grad(value.sum(), wanted, retain_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
    return apply(_Value, value.detach(), *gradients, *wanted)  # type: ignore[no-any-return]


@not_compiled
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
    feature_cost: Tensor | None = None,
    feature_weight: float | None = None,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    init: Start | Tensor | TransportPlan = "eccentricity",
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
) -> GromovResult:
    """Entropic Gromov-Wasserstein transport between two sets, which need not have a feature in common.

    The plan T (N, M) minimises (1 − w) Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] + w ⟨F, T⟩ + epsilon KL(T | a bᵀ), w being
    feature_weight, with the terms of :func:`warpalign.transport.sinkhorn` for the sums of rows and columns. Each step takes
    the plan of the objective's gradient as cost. The objective is not convex: what is found depends on the start. N × N,
    M × M and N × M matrices are stored, on the tensors' device, where graphs are built and searched too.

    Sources: Peyré, Cuturi & Solomon, "Gromov-Wasserstein averaging of kernel and distance matrices", ICML 2016; Vayer et al.,
    "Optimal transport for structured data with application on graphs", ICML 2019 (features); Chapel et al., "Partial optimal
    transport with applications on positive-unlabeled learning", NeurIPS 2020 (mass); Vincent-Cuaz et al., "Semi-relaxed
    Gromov-Wasserstein divergence", ICLR 2022 (rho_b = 0).

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are widened to float32. A batch of
            1 is repeated. Points of weight 0 count for nothing: they pad smaller sets.
        y: (B, M, E) or (M, E); E need not be D.
        epsilon: the factor of KL in the objective, in units of the divided squared distances: a number > 0, or a tensor ()
            or (B,), which may require a gradient. POT's ``epsilon`` where cost_normalization is None.
        a: (N,) or (B, N) weights >= 0 of x; None: 1 / N each. Weights are not normalised.
        b: (M,) or (B, M) weights of y.
        geometry: the intra-domain distances of points or graphs: "euclidean" or "sqeuclidean" between points, "geodesic" for the
            shortest paths on graphs, or on the knn_graph of points, or a :class:`Geodesic` with its options. A pair where the sides
            differ. "auto": "euclidean" for points, "geodesic" for graphs, and the given distances.
        distances: a pair (Cx, Cy) of (B, N, N) and (B, M, M), or None for a side with points. They need not be symmetric;
            what is not takes twice the time.
        graphs: a pair of connected graphs, as :func:`warpalign.transport.shortest_paths` takes them, or None.
        cost_normalization: "max" or "mean" divides each side's distances by their largest or their mean. "common" divides
            both sides' distances by the largest of both, where lengths of one side mean the same on the other. The divisors
            are constants for gradients. None: distances are used as they are.
        feature_cost: F (B, N, M) or (N, M), for fused transport; with feature_weight. If its dtype has more digits than the
            distances have, all is computed in that dtype.
        feature_weight: w, from 0 (inner distances alone) to 1 (features alone). None: no features.
        rho_a: the strength of KL on the row sums. None: sums are exact; 0: sums are free (semi-relaxed).
        rho_b: the same for the column sums.
        mass: partial transport of so much mass, at most the smaller sum of weights; without rho_a and rho_b.
        init: "eccentricity" compares points by their root mean squared distance to all others; "product" is a bᵀ;
            "multiscale" solves the problem of 200 drawn points of each set first, which have the weights of the points
            around them, from their eccentricities; or a plan.
        restarts: how many starts are made, of which the best result is kept. All but the first take a pair of points, which
            is drawn from the first start, for matched. With "multiscale", starts of the problem of drawn points.
        generator: of those draws: a torch.Generator on the CPU, which advances, or an int, the seed of a new one. None: torch's
            default generator. One start other than "multiscale" draws nothing.
        annealing: an :class:`Annealing`, or a number > 0 as short for Annealing(start=number): steps begin with this larger epsilon,
            in the units of epsilon, which shrinks to epsilon. None: all steps have epsilon.
        step: how far each step moves to its new plan, above 0 and at most 1.
        max_iter: steps, at most.
        sinkhorn_iters: iterations of the transport problem of a step, which starts from the potentials of the one before.
        polish_iters: iterations of the last one, which gives the result.
        precision: of the products with distances in float32 on a GPU: "medium" for factors of 11 bits (binary16, or TF32
            for small problems), "high" for two such factors of each number, "highest" for torch's products in float32;
            None: what torch's own products have. The last plan has "high" at least, the value torch's products.
        tol: steps end when less than this share of the mass moves, at the last epsilon.
        callback: called after each step of the first start with its number, from 1 on, its epsilons (B,), and the share of
            the mass that moves (B,).

    Returns:
        GromovResult with plan, value, distortion, converged, error, iterations and history. The value is differentiable in points,
        distances, features, weights and epsilon, once. Results are float64 for float64 input, else float32. A batch gives
        what its problems give alone.

    Warns:
        ConvergenceWarning: on a CPU, where problems have not converged, or their plan is not finite; once per line that calls.
            On a GPU look at ``converged``.
        UserWarning: x and y look like matrices of distances, as POT's function takes them in their place.

    Raises:
        TypeError: an argument is of the wrong type, dtype or layout.
        ValueError: shapes, devices, values or combinations do not fit; distances are infinite; sums of balanced weights
            differ. Messages name the argument, what was expected and what came.
        NotImplementedError: for second derivatives.

    Examples:
        >>> x = torch.randn(60, 2)
        >>> y = torch.cat([x, torch.zeros(60, 1)], 1).flip(0)
        >>> result = gromov_wasserstein(x, y, epsilon=1e-3)
        >>> bool((result.plan.argmax() == torch.arange(59, -1, -1)).float().mean() > 0.9)
        True
    """
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
    starts, draws = check_count(restarts, "restarts"), check_generator(generator)
    table = inner_distances(
        (x, y),
        distances,
        graphs,
        geometry=geometry,
        normalization=check_distance_normalization(cost_normalization),
    )
    of = _objective_of(table, feature_cost, feature_weight)
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
    with naming_arguments():
        with torch.no_grad(), matmul_precision_of(precision):
            fixed = of.detached()
            squares, parts = (fixed.cx.square(), fixed.cy.square()), _parts_of(precision)
            factors = factors_of(fixed.cx, fixed.cy, precise=parts == 2) if parts > 0 else None
            fixed = fixed._replace(factors=factors, squares=squares)
            weights = Inputs(*(None if t is None else t.detach() for t in problem.of))
            course = Course(schedule, inner, problem.settings, starts, draws)
            start = _start(fixed, weights, course, init)
            # The coarse problem has had the other starts.
            fine = 1 if isinstance(init, str) and init == "multiscale" else starts
            state = best_state(
                fixed, weights, start, schedule, inner, problem.settings, fine, draws, callback
            )
            if parts == 1 and factors is not None:
                del factors
                fixed = fixed._replace(factors=factors_of(fixed.cx, fixed.cy, precise=True))
        with torch.no_grad():
            slope = fixed._replace(features=None).cost(state.plan)
        del fixed
        cost = slope if of.features is None else slope + _weighted(of.features, of.weight)
        problem = problem._replace(
            of=problem.of._replace(cost=cost, f0=state.f.contiguous(), g0=state.g.contiguous())
        )
        solution = autograd.sinkhorn(problem.of, problem.settings)
    result = GromovResult(of, problem, solution, state)
    _warn_unless_converged(result, settings)
    return result


def _warn_unless_converged(result: GromovResult, settings: Settings) -> None:
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
    warn_of_convergence(
        f"gromov_wasserstein: expected less than tol = {settings.tolerance:g} of the mass to move in a step, got more in the last "
        f"of max_iter = {settings.max_iterations} steps{counts}: write a larger max_iter, epsilon or tol, or a smaller "
        "annealing factor or step"
    )


def _parts_of(precision: Precision | None) -> int:
    """How many binary16 numbers stand for a factor of a large product; 0: the products are torch's."""
    if precision is None:
        return 0 if matmul_precision() == "highest" else 1
    return {"highest": 0, "high": 2, "medium": 1}[precision]


def _objective_of(table: Distances, feature_cost: object, feature_weight: object) -> Objective:
    weight = weight_of_features(feature_weight, None if feature_cost is None else "feature_cost")
    if weight > 1:
        raise ValueError(f"feature_weight: expected a number from 0 to 1, got {feature_weight}")
    if feature_cost is None:
        if weight > 0:
            raise ValueError(f"feature_cost: expected costs (N, M) with feature_weight = {weight}, got None")
        return Objective(table.x, table.y, table.symmetric, None, weight)
    shape = (table.x.shape[0], table.x.shape[1], table.y.shape[1])
    features = widened(check_table(feature_cost, "feature_cost", "N, M"))
    if features.device != table.x.device:
        raise ValueError(
            f"feature_cost: expected the device of {table.names[0]}, {table.x.device}, got {features.device}"
        )
    if features.shape[-2:] != shape[1:] or (features.dim() == 3 and features.shape[0] not in (1, shape[0])):
        raise ValueError(f"feature_cost: expected shape {shape} or {shape[1:]}, got {shape_of(features)}")
    dtype = torch.promote_types(features.dtype, table.x.dtype)
    x, y, features = (t.to(dtype) for t in (table.x, table.y, features))
    return Objective(x, y, table.symmetric, features.expand(shape), weight)


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
        return plan.expand(batch, n, m)
    if init not in STARTS:
        names = ", ".join(f'"{name}"' for name in STARTS)
        raise ValueError(f"init: expected {names} or a plan (N, M), got {init!r}")
    if init == "product":
        return product_plan(weights, course.inner.mass)
    if init == "multiscale":
        return coarse_start(of, weights, course)
    early = course.schedule.epsilon.clamp(min=course.schedule.epsilon_start)
    return plan_of_cost(eccentricity_cost(of, weights), weights, early, course.inner)
