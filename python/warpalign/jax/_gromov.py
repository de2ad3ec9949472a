"""Gromov-Wasserstein transport of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from warpalign._core.scalars import Precision, check_count, check_number, precision_number
from warpalign._transport.options import GROMOV_ERROR, GROMOV_FACTOR, Annealing
from warpalign._transport.settings import (
    DistanceNormalization,
    check_distance_normalization,
    check_step,
    settings_of,
    weight_of_features,
)
from warpalign.jax._arrays import check_floats, check_numbers, check_rows, check_table, unwrapped, widened
from warpalign.jax._call import call
from warpalign.jax._derivatives import once_differentiable, solved
from warpalign.jax._gromov_solver import Course, Objective, descend, start
from warpalign.jax._plan import TransportPlan
from warpalign.jax._transport import POTENTIALS, SINKHORN, Inputs, keywords, with_equal_sums

Initial = Literal["eccentricity", "product"]
_INITIALS = ("eccentricity", "product")
_GEOMETRIES = ("euclidean", "sqeuclidean")
_PRECISIONS = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGH, jax.lax.Precision.DEFAULT)


class GromovResult(NamedTuple):
    """What :func:`gromov_wasserstein` returns; without the batch axis for unbatched input."""

    value: Array
    """(B,): the whole objective at the plan. Once differentiable (envelope theorem)."""
    distortion: Array
    """(B,): Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] of the normalised distances, without feature_weight, entropy and gradient."""
    plan: TransportPlan
    """T (B, N, M), by its potentials and the last linearised cost. Differentiable in the feature costs, through that cost alone."""
    converged: Array
    """(B,) bool: whether the share of the mass that moves in a step has come below tol, and the error is at most 0.1."""
    error: Array
    """(B,): the error of the transport problem of the plan, as in :class:`SinkhornResult`."""
    iterations: Array
    """(B,) int32: steps."""


def _solution(
    course: Course, of: Objective, weights: Inputs, plan: Array | None, unbatched: bool
) -> GromovResult:
    """The value has its derivatives by the envelope theorem: the plan is a constant."""
    fixed, still = jax.tree.map(jax.lax.stop_gradient, (of, weights))
    first = start(course, fixed, still) if plan is None else jax.lax.stop_gradient(plan)
    state = descend(course, fixed, still, first)
    slope = course.cost(fixed._replace(features=None), state.plan)
    cost = slope if of.features is None else slope + _weighted(of.features, course.weight)
    given = weights._replace(cost=cost, f0=state.f, g0=state.g)
    found = solved(SINKHORN, course.last, POTENTIALS, given)
    linear, f, g = (found.gradients[name] for name in POTENTIALS)
    at = jax.tree.map(jax.lax.stop_gradient, given._replace(f0=f, g0=g))
    of_plan = course.last._replace(mass=0.0)
    (dense,) = call("transport_dense", **at._asdict(), **keywords(of_plan))
    constant = jax.lax.stop_gradient(linear)
    if fixed.features is not None and course.weight > 0:
        constant -= course.weight * jnp.where(dense == 0, 0.0, fixed.features * dense).sum((1, 2))
    value = found.value - constant
    if course.weight < 1:
        value = value + (1 - course.weight) * course.distortion(of, dense)
    value = once_differentiable("second derivatives of gromov_wasserstein's value", value, (of, weights))
    error, distortion = found.others["error"], course.distortion(fixed, dense)
    stands = state.converged & (error <= GROMOV_ERROR) & jnp.isfinite(jax.lax.stop_gradient(value))
    results = (value, distortion, stands, error, state.iterations)
    value, distortion, converged, error, steps = (one[0] if unbatched else one for one in results)
    of_result = TransportPlan(given._replace(f0=f, g0=g), of_plan, unbatched)
    return GromovResult(value, distortion, of_result, converged, error, steps)


def _weighted(features: Array, weight: float) -> Array:
    """Forbidden pairs are none where the weight is 0."""
    return weight * (features if weight > 0 else jnp.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0))


def gromov_wasserstein(
    x: Array | None = None,
    y: Array | None = None,
    *,
    epsilon: float | Array,
    a: Any = None,
    b: Any = None,
    geometry: Literal["euclidean", "sqeuclidean"] = "euclidean",
    distances: tuple[Array | None, Array | None] | None = None,
    cost_normalization: DistanceNormalization | None = "max",
    feature_cost: Array | None = None,
    feature_weight: float | None = None,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    init: Initial | Array = "eccentricity",
    annealing: Annealing | float | None = 1e-2,
    step: float = 1.0,
    max_iter: int = 200,
    sinkhorn_iters: int = 20,
    polish_iters: int = 500,
    tol: float = 1e-3,
    precision: Precision = "highest",
) -> GromovResult:
    """Entropic Gromov-Wasserstein transport between two sets, which need not have a feature in common;
    :func:`warpalign.transport.gromov_wasserstein` for arrays of JAX, from one start.

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. None where distances
            give the set.
        y: (B, M, E) or (M, E) points; E need not be D. Where dtypes differ, everything is computed in the wider one.
        epsilon: the regularisation strength, in units of the normalised squared distances: a number > 0, or an array () or (B,), which
            has a gradient.
        a: (N,) or (B, N) weights >= 0 of x; None: 1 / N each. Points of weight 0 are ignored: they pad smaller sets.
        b: (M,) or (B, M) weights >= 0 of y; None: 1 / M each.
        geometry: the intra-domain distances of points: "euclidean" or "sqeuclidean".
        distances: a pair (Cx, Cy) of given intra-domain distances, (B, N, N) or (N, N) and (B, M, M) or (M, M), or None for a side with
            points. They need not be symmetric; given ones take twice the products of points.
        cost_normalization: "max" or "mean" divides each side's distances by their largest or their mean, "common" both sides' by the
            largest of both. The divisors are constants for gradients. None: distances are used as they are.
        feature_cost: F (B, N, M) or (N, M), for fused transport with feature_weight; inf forbids a pair.
        feature_weight: w, from 0 (intra-domain distances alone) to 1 (features alone). None: no features.
        rho_a: the strength of the KL penalty on the row marginals, >= 0, in the units of epsilon. None: they equal a; 0: they are free.
        rho_b: the strength of the KL penalty on the column marginals, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b.
        init: the first plan. "eccentricity" compares points by their root mean squared distance to all others; "product" is a bᵀ; or an
            array (N, M) or (B, N, M).
        annealing: an :class:`warpalign.transport.Annealing`, or a number > 0 as short for Annealing(start=number): steps begin with
            this larger epsilon, which shrinks to epsilon. None: all steps have epsilon.
        step: how far each step moves to its new plan, above 0 and at most 1.
        max_iter: the maximum number of steps, at least 1. XLA asks the device after each step whether to go on.
        sinkhorn_iters: the number of Sinkhorn iterations of a step, at least 1.
        polish_iters: the maximum number of Sinkhorn iterations of the last transport problem, which gives the result; at least 1.
        tol: steps end when less than this share of the mass moves at the final epsilon; >= 0.
        precision: how a GPU multiplies float32 in the products with distances: "highest", "high" or "medium", JAX's Precision.HIGHEST,
            HIGH and DEFAULT.

    Returns:
        GromovResult(value, distortion, plan, converged, error, iterations); float64 for float64 input, else float32. The value is
        differentiable in points, distances, feature_cost, weights and epsilon, once. Look at ``converged``: there is no warning.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it, what was expected and what came.
        NotImplementedError: for second derivatives of the value.

    Examples:
        >>> x = jax.random.normal(jax.random.key(0), (60, 2))
        >>> y = jnp.pad(x, ((0, 0), (0, 1)))[::-1]
        >>> plan = gromov_wasserstein(x, y, epsilon=1e-3).plan.to_dense()
        >>> bool((plan.argmax(1) == jnp.arange(59, -1, -1)).mean() > 0.9)
        True
    """
    settings = settings_of(
        annealing=annealing,
        factor=GROMOV_FACTOR,
        rho_a=rho_a,
        rho_b=rho_b,
        mass=mass,
        max_iter=max_iter,
        tol=tol,
        precision=precision_number(precision),
        batch_invariant=True,
    )
    inner = settings._replace(
        max_iterations=check_count(sinkhorn_iters, "sinkhorn_iters"), tolerance=1e-6, epsilon_start=0.0
    )
    whole_step = check_step(step)
    weight = _check_weight(feature_cost, feature_weight)
    cx, cy, symmetric, unbatched = _distances(x, y, distances, geometry, cost_normalization)
    of = Objective(cx, cy, _check_table_of(feature_cost, "feature_cost", cx, cy))
    epsilon = unwrapped(epsilon)
    if isinstance(epsilon, (jax.Array, np.ndarray)):
        epsilons = check_numbers(epsilon, "epsilon", cx.shape[0], cx.dtype)
    else:
        epsilons = jnp.full(cx.shape[0], check_number(epsilon, "epsilon", None), cx.dtype)
    weights = Inputs(*(None,) * 10)._replace(
        a=_check_weights(a, "a", cx), b=_check_weights(b, "b", cy), epsilons=epsilons
    )
    if settings.is_balanced:
        weights = with_equal_sums(weights, (a, b))
    if isinstance(init, str) and init not in _INITIALS:
        raise ValueError(f'init: expected "eccentricity", "product" or a plan (N, M), got {init!r}')
    plan = None if isinstance(init, str) else _check_table_of(init, "init", cx, cy)
    course = Course(
        weight,
        symmetric,
        _PRECISIONS[settings.precision],
        inner,
        inner._replace(max_iterations=check_count(polish_iters, "polish_iters")),
        settings.epsilon_start,
        settings.epsilon_factor,
        whole_step,
        settings.max_iterations,
        settings.tolerance,
        init if isinstance(init, str) else None,
    )
    return _solution(course, of, weights, plan, unbatched)


def _check_weight(feature_cost: object, feature_weight: object) -> float:
    weight = weight_of_features(feature_weight, None if feature_cost is None else "feature_cost")
    if weight > 1:
        raise ValueError(f"feature_weight: expected a number from 0 to 1, got {feature_weight}")
    if weight > 0 and feature_cost is None:
        raise ValueError(f"feature_cost: expected costs (N, M) with feature_weight = {weight}, got None")
    return weight


def _check_table_of(given: object, name: str, cx: Array, cy: Array) -> Array | None:
    """(B, N, M) of the dtype of the distances."""
    if given is None:
        return None
    batch, n, m = cx.shape[0], cx.shape[1], cy.shape[1]
    table = check_table(given, name, "N, M")
    if table.shape not in ((n, m), (1, n, m), (batch, n, m)):
        raise ValueError(f"{name}: expected shape ({n}, {m}) or ({batch}, {n}, {m}), got {table.shape}")
    return jnp.broadcast_to(table.astype(cx.dtype), (batch, n, m))


def _check_weights(given: object, name: str, matrix: Array) -> Array:
    """(B, N)"""
    batch, size, _ = matrix.shape
    weights = check_rows(given, name, matrix, size)
    return jnp.full((batch, size), 1 / size, matrix.dtype) if weights is None else weights


def _distances(
    x: object, y: object, distances: object, geometry: object, normalization: object
) -> tuple[Array, Array, tuple[bool, bool], bool]:
    """Cx (B, N, N) and Cy (B, M, M), which of them are symmetric, and whether they came without a batch axis."""
    pair = (None, None) if distances is None else distances
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"distances: expected a pair, one for x and one for y, got {type(pair).__name__}")
    if geometry not in _GEOMETRIES:
        raise ValueError(f'geometry: expected "euclidean" or "sqeuclidean", got {geometry!r}')
    tables = [
        _side(points, name, matrix, f"distances[{place}]", str(geometry))
        for place, (points, name, matrix) in enumerate(zip((x, y), ("x", "y"), pair, strict=True))
    ]
    left, right = tables
    dtype = jnp.promote_types(left.dtype, right.dtype)
    left, right = left.astype(dtype), right.astype(dtype)
    if left.ndim != right.ndim:
        raise ValueError(
            f"y: expected a batch axis as x has, or none, got distances of shapes {left.shape} and {right.shape}"
        )
    unbatched = left.ndim == 2
    if unbatched:
        left, right = left[None], right[None]
    batch = right.shape[0] if left.shape[0] == 1 else left.shape[0]
    if right.shape[0] not in (1, batch):
        raise ValueError(f"y: expected a batch of {batch} as in x, or of 1, got {right.shape[0]}")
    left, right = (jnp.broadcast_to(one, (batch, *one.shape[1:])) for one in (left, right))
    left, right = _normalized(left, right, check_distance_normalization(normalization))
    return left, right, (pair[0] is None, pair[1] is None), unbatched


def _side(points: object, name: str, matrix: object, name_of_matrix: str, geometry: str) -> Array:
    if matrix is None:
        if points is None:
            raise ValueError(f"{name}: expected points, or {name_of_matrix}, got None")
        table = widened(check_table(points, name, "N, D"))
        squares = ((table[..., :, None, :] - table[..., None, :, :]) ** 2).sum(-1)
        if geometry == "sqeuclidean":
            return squares
        # Comparisons with NaN are false: NaN stays.
        return jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    if points is not None:
        raise ValueError(f"{name}: expected None beside {name_of_matrix}, got {type(points).__name__}")
    given = widened(check_floats(matrix, name_of_matrix, "N, N"))
    if given.shape[-1] != given.shape[-2] or given.shape[-1] == 0:
        raise ValueError(f"{name_of_matrix}: expected a square matrix (N, N), got shape {given.shape}")
    return given


def _normalized(x: Array, y: Array, normalization: DistanceNormalization | None) -> tuple[Array, Array]:
    if normalization is None:
        return x, y
    measure: Callable[..., Array] = jnp.mean if normalization == "mean" else jnp.max
    sizes = [measure(jax.lax.stop_gradient(one), axis=(1, 2)) for one in (x, y)]
    if normalization == "common":
        sizes = [jnp.maximum(*sizes)] * 2
    divisors = (jnp.where(size <= 0, 1, size)[:, None, None] for size in sizes)
    left, right = (one / divisor for one, divisor in zip((x, y), divisors, strict=True))
    return left, right
