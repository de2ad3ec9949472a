"""Sinkhorn divergences of arrays: entropic transport without its bias."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, NamedTuple, overload

import jax.numpy as jnp
from jax import Array

from warpalign._core.scalars import Cost, Precision, Reduction, check_flag, check_reduction, precision_number
from warpalign._transport.options import Annealing
from warpalign._transport.settings import Settings, Updates, check_strength, of_equal_sets, settings_of
from warpalign.jax._derivatives import solved
from warpalign.jax._reduction import reduced_values
from warpalign.jax._transport import SINKHORN, Inputs, has_converged, masked, problem


class SinkhornDivergenceResult(NamedTuple):
    """What :func:`sinkhorn_divergence` returns with ``return_result=True``; without the batch axis for unbatched input."""

    value: Array
    """(B,): the divergences, or their mean or sum."""
    converged: Array
    """(B,) bool: whether all transport problems of a divergence have converged."""
    error: Array
    """(B,): the largest error of these problems, as in :class:`SinkhornResult`."""
    iterations: Array
    """(B,) int32: the largest number of iterations of these problems."""


@overload
def sinkhorn_divergence(
    x: Array, y: Array, *, epsilon: float | Array, return_result: Literal[False] = ..., **options: Any
) -> Array: ...
@overload
def sinkhorn_divergence(
    x: Array, y: Array, *, epsilon: float | Array, return_result: Literal[True], **options: Any
) -> SinkhornDivergenceResult: ...
def sinkhorn_divergence(  # type: ignore[misc]  # what is in **options above stands here one by one
    x: Array,
    y: Array,
    *,
    epsilon: float | Array,
    rho: float | None = None,
    debias: bool = True,
    cost: Cost = "sqeuclidean",
    cost_scale: float = 1.0,
    a: Any = None,
    b: Any = None,
    x_lengths: Any = None,
    y_lengths: Any = None,
    annealing: Annealing | float | None = None,
    updates: Updates = "mixed",
    max_iter: int = 1000,
    tol: float = 1e-5,
    reduction: Reduction = "none",
    precision: Precision = "highest",
    batch_invariant: bool = False,
    return_result: bool = False,
) -> Array | SinkhornDivergenceResult:
    """Sinkhorn divergence between weighted point sets: OT(x, y) − OT(x, x)/2 − OT(y, y)/2, and ε/2 (Σa − Σb)² with rho;
    :func:`warpalign.transport.sinkhorn_divergence` for arrays of JAX.

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. A batch of 1 is
            repeated.
        y: (B, M, D) or (M, D) points of the dtype of x.
        epsilon: the regularisation strength, in units of the cost: a number > 0, or an array () or (B,), which has a gradient.
        rho: the strength of the KL penalty on the marginals of both sides, >= 0, in units of the cost. None: they equal the weights.
        debias: False: OT(x, y) alone.
        cost: C[i, j] of two points: "sqeuclidean", "euclidean", "l1", "cosine" or "huber".
        cost_scale: a factor > 0 of the cost. geomloss has 0.5.
        a: (N,) or (B, N) weights >= 0 of x; None: 1 / N each. Without rho the sums of a and b must agree, as in :func:`sinkhorn`.
        b: (M,) or (B, M) weights >= 0 of y; None: 1 / M each.
        x_lengths: (B,) true numbers of points in x, from 1 to N; None: all N. Padding is ignored.
        y_lengths: (B,) true numbers of points in y, from 1 to M; None: all M.
        annealing: an :class:`warpalign.transport.Annealing`, or a number > 0 as short for Annealing(start=number). None: all iterations
            have epsilon.
        updates: "mixed", which converges fast between different sets, and between a set and itself, "symmetric" or "alternating", as in
            :func:`sinkhorn`.
        max_iter: the maximum number of iterations of each problem at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        reduction: "none" for one value per problem, or their "mean" or "sum".
        precision: how a GPU may multiply float32: "highest", "high" or "medium".
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.
        return_result: True: a SinkhornDivergenceResult with errors and iterations.

    Returns:
        (B,) values; 0-d for unbatched input or with a reduction; float64 for float64 input, else float32. Differentiable
        twice with respect to points, weights and epsilon. With return_result SinkhornDivergenceResult(value, converged, error, iterations):
        look at ``converged``, there is no warning.

    Raises:
        TypeError, ValueError: as :func:`sinkhorn`.
        NotImplementedError: for third derivatives.

    Examples:
        >>> import jax
        >>> x, y = jnp.zeros((8, 100, 3)), jnp.ones((8, 120, 3))
        >>> jax.grad(lambda x: sinkhorn_divergence(x, y, epsilon=0.5).mean())(x).shape
        (8, 100, 3)
    """
    reduction = check_reduction(reduction)
    with_itself = check_flag(debias, "debias")
    check_strength(rho, "rho")
    settings = settings_of(
        cost_scale=cost_scale,
        annealing=annealing,
        rho_a=rho,
        rho_b=rho,
        updates=updates,
        max_iter=max_iter,
        tol=tol,
        precision=precision_number(precision),
        batch_invariant=batch_invariant,
    )
    of, settings, unbatched = problem(
        settings, x, y, None, cost=cost, epsilon=epsilon, a=a, b=b, x_lengths=x_lengths, y_lengths=y_lengths
    )
    full = check_flag(return_result, "return_result")
    solutions = [solved(SINKHORN, settings, (), of)]
    if with_itself:
        own = (
            of._replace(y=of.x, b=of.a, y_lengths=of.x_lengths),
            of._replace(x=of.y, a=of.b, x_lengths=of.y_lengths),
        )
        solutions += [solved(SINKHORN, of_equal_sets(settings), (), one) for one in own]
    value = solutions[0].value
    if with_itself:
        value = value - (solutions[1].value + solutions[2].value) / 2
    if with_itself and rho is not None:
        value = value + _of_masses(of, settings)
    value = reduced_values(value, reduction, unbatched)
    if not full:
        return value
    error, iterations = (
        reduce(jnp.maximum, (one.others[name] for one in solutions)) for name in ("error", "iterations")
    )
    rest = (has_converged(error, settings), error, iterations)
    return SinkhornDivergenceResult(value, *(one[0] if unbatched else one for one in rest))


def _of_masses(of: Inputs, settings: Settings) -> Array:
    """(B,): epsilon / 2 (sum a − sum b)²; uniform weights sum to 1."""
    first = of.first
    masses = [
        jnp.ones(first.shape[0], first.dtype) if weights is None else masked(weights, lengths).sum(1)
        for weights, lengths in ((of.a, of.x_lengths), (of.b, of.y_lengths))
    ]
    epsilon = settings.epsilon if of.epsilons is None else of.epsilons
    return epsilon / 2 * (masses[0] - masses[1]) ** 2
