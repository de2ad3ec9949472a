"""Entropic optimal transport of arrays: settings and meanings are those of warpalign.sinkhorn()."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.scalars import Cost, Precision, precision_number
from warpalign._transport.options import Annealing
from warpalign._transport.settings import Reference, Updates, settings_of
from warpalign.jax._arrays import check_rows
from warpalign.jax._derivatives import solved
from warpalign.jax._plan import TransportPlan
from warpalign.jax._transport import POTENTIALS, SINKHORN, has_converged, problem


class SinkhornResult(NamedTuple):
    """What :func:`sinkhorn` returns; without the batch axis for unbatched input."""

    value: Array
    """(B,): the whole objective, in units of the cost."""
    linear: Array
    """(B,): the transport cost ⟨C, P⟩."""
    f: Array
    """(B, N): potentials of the rows, in units of the cost."""
    g: Array
    """(B, M): potentials of the columns."""
    plan: TransportPlan
    """P (B, N, M), which is not stored."""
    converged: Array
    """(B,) bool: whether the error is at most tol, up to rounding."""
    error: Array
    """(B,): how far another update would move a potential, over epsilon. inf or NaN where the value is not finite."""
    iterations: Array
    """(B,) int32: iterations at the final epsilon."""


def sinkhorn(
    x: Array | None = None,
    y: Array | None = None,
    *,
    epsilon: float | Array,
    cost: Cost = "sqeuclidean",
    cost_matrix: Array | None = None,
    cost_scale: float = 1.0,
    a: Any = None,
    b: Any = None,
    x_lengths: Any = None,
    y_lengths: Any = None,
    annealing: Annealing | float | None = None,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    reference: Reference = "product",
    updates: Updates = "alternating",
    init: SinkhornResult | tuple[Array, Array] | None = None,
    max_iter: int = 1000,
    tol: float = 1e-5,
    precision: Precision = "highest",
    batch_invariant: bool = False,
) -> SinkhornResult:
    """Entropic optimal transport between weighted point sets, or from costs; :func:`warpalign.sinkhorn` for arrays of JAX.

    Args:
        x: (B, N, D) or (N, D) points, float64, float32, float16 or bfloat16. Half types are converted to float32. A batch of 1 is
            repeated. None with a cost_matrix.
        y: (B, M, D) or (M, D) points of the dtype of x.
        epsilon: the regularisation strength, in units of the cost: a number > 0, or an array () or (B,), which has a gradient.
        cost: C[i, j] of two points: "sqeuclidean", "euclidean", "l1", "cosine" or "huber".
        cost_matrix: (B, N, M) or (N, M) costs, in place of x and y. inf forbids a pair.
        cost_scale: a factor > 0 of the cost.
        a: (N,) or (B, N) weights >= 0 of the rows; None: 1 / N each. With rho_a, rho_b and mass None (balanced transport) the
            sums of a and b must agree within 1e-4 of the larger one. float16 and bfloat16 weights, whose rounding is larger, are
            divided by the ratio of their sums. On a GPU a problem with other sums becomes NaN, with ``converged`` False.
        b: (M,) or (B, M) weights >= 0 of the columns; None: 1 / M each.
        x_lengths: (B,) true numbers of points in x, from 1 to N; None: all N. Padding is ignored.
        y_lengths: (B,) true numbers of points in y, from 1 to M; None: all M.
        annealing: an :class:`warpalign.transport.Annealing`, or a number > 0 as short for Annealing(start=number): iterations begin
            with this larger epsilon, which shrinks to epsilon. None: all iterations have epsilon.
        rho_a: the strength of the KL penalty on the row marginals, >= 0, in units of the cost. None: they equal a; 0: they are free.
        rho_b: the strength of the KL penalty on the column marginals, as rho_a.
        mass: partial transport of this mass, above 0 and at most the smaller sum of weights; without rho_a and rho_b.
        reference: the measure R of the entropy: "product" of the weights, or "counting", 1 everywhere.
        updates: "alternating" updates the columns' potentials, then the rows'. "symmetric" updates both at once and averages them
            with the old ones. "mixed" is "symmetric" for the first iterations, then "alternating".
        init: a SinkhornResult, or potentials (f, g), to start from. They have no gradient. None: 0.
        max_iter: the maximum number of iterations at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        precision: how a GPU may multiply float32: "highest", "high" or "medium", as in :func:`warpalign.sinkhorn`.
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.

    Returns:
        SinkhornResult(value, linear, f, g, plan, converged, error, iterations); float64 for float64 input, else float32.
        value, linear, f and g are differentiable with respect to points, costs, weights and epsilon, by implicit differentiation:
        the value's gradient comes with it; its second derivatives, and the others' first ones, solve a linear system. Look at
        ``converged``: there is no warning.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it, what was expected and what came. Invalid values of arrays
            are an error of XLA on a CPU.
        NotImplementedError: for second derivatives of potentials, linear and plan, and third ones of value. jax.hessian, and jax.jvp of
            jax.grad, have those of value; jax.grad of jax.jvp computes tangents of potentials, too, and raises.

    Examples:
        >>> x, y = jnp.zeros((8, 100, 3)), jnp.ones((8, 120, 3))
        >>> jax.grad(lambda x: sinkhorn(x, y, epsilon=0.1).value.mean())(x).shape
        (8, 100, 3)
    """
    settings = settings_of(
        cost_scale=cost_scale,
        annealing=annealing,
        rho_a=rho_a,
        rho_b=rho_b,
        mass=mass,
        reference=reference,
        updates=updates,
        max_iter=max_iter,
        tol=tol,
        precision=precision_number(precision),
        batch_invariant=batch_invariant,
    )
    of, settings, unbatched = problem(
        settings,
        x,
        y,
        cost_matrix,
        cost=cost,
        epsilon=epsilon,
        a=a,
        b=b,
        x_lengths=x_lengths,
        y_lengths=y_lengths,
    )
    f0, g0 = _check_init(init, of.first, *of.sizes)
    found = solved(SINKHORN, settings, POTENTIALS, of._replace(f0=f0, g0=g0))
    linear, f, g = (found.gradients[name] for name in POTENTIALS)
    error = found.others["error"]
    plan = TransportPlan(of._replace(f0=f, g0=g), settings._replace(mass=0.0), unbatched)
    results = (found.value, linear, f, g, has_converged(error, settings), error, found.others["iterations"])
    value, linear, f, g, converged, error, iterations = (one[0] if unbatched else one for one in results)
    return SinkhornResult(value, linear, f, g, plan, converged, error, iterations)


def _check_init(init: object, table: Array, n: int, m: int) -> tuple[Array | None, Array | None]:
    if init is None:
        return None, None
    if not (isinstance(init, SinkhornResult) or (isinstance(init, (tuple, list)) and len(init) == 2)):
        raise TypeError(
            f"init: expected a SinkhornResult, potentials (f, g) or None, got {type(init).__name__}"
        )
    pair = (init.f, init.g) if isinstance(init, SinkhornResult) else init
    f, g = check_rows(pair[0], "init: f", table, n), check_rows(pair[1], "init: g", table, m)
    if f is None or g is None:
        raise TypeError("init: expected both potentials (f, g), got None as one of them")
    start = (jnp.where(jnp.isfinite(one), one, 0) for one in (f, g))
    return tuple(jax.lax.stop_gradient(one) for one in start)  # type: ignore[return-value]
