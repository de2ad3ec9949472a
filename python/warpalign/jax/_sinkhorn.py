"""Entropic optimal transport of arrays: settings and meanings are those of warpalign.sinkhorn().

The value's gradients come from the call that gives the value, by the envelope theorem. Those of potentials and of the linear
part are one call of sinkhorn_jvp, because second derivatives are symmetric (warpalign/_transport/autograd.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from warpalign._core.scalars import COSTS, Cost, Precision, check_number, precision_number
from warpalign._transport.options import Annealing
from warpalign._transport.settings import Reference, Settings, Updates, settings_of
from warpalign.jax._arrays import check_lengths, check_numbers, check_pair, check_rows, check_table, widened
from warpalign.jax._call import call
from warpalign.jax._plan import TransportPlan
from warpalign.jax._scaling import dense, has_gradient, scaled, values_of
from warpalign.jax._transport import Inputs, keywords

_ROUNDING = 64  # units in the last place: what rounding may add to an error
_ROUNDED_SUMS = 2**-6  # the relative difference of sums of half weights that is taken for rounding
_DIFFERENTIABLE = Inputs._fields[:6]


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


class _Solution(NamedTuple):
    """The operator's results. The first four are differentiable."""

    value: Array
    linear: Array
    f: Array
    g: Array
    shift: Array
    iterations: Array
    error: Array


def _run(
    settings: Settings, needs: tuple[bool, bool, bool], of: Inputs
) -> tuple[_Solution, tuple[Array, ...]]:
    """The solution, and the value's gradients with respect to _DIFFERENTIABLE."""
    results = call(
        "sinkhorn",
        **of._asdict(),
        **keywords(settings),
        needs_grad_x=needs[0],
        needs_grad_y=needs[1],
        needs_grad_cost=needs[2],
    )
    return _Solution(*results[:7]), results[7:]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solve(settings: Settings, of: Inputs) -> _Solution:
    return _run(settings, (False, False, False), of)[0]


def _forward(settings: Settings, primals: Inputs) -> tuple[_Solution, Any]:
    of = values_of(primals)
    wanted = tuple(has_gradient(getattr(primals, name)) for name in _DIFFERENTIABLE)
    solution, gradients = _run(settings, (wanted[0], wanted[1], wanted[2]), of)
    kept = tuple(g if need else None for g, need in zip(gradients, wanted, strict=True))
    return solution, (kept, of._replace(f0=solution.f, g0=solution.g), solution.shift)


def _backward(settings: Settings, kept: Any, grads: _Solution) -> tuple[Inputs]:
    gradients, solved, shift = kept
    wanted = tuple(gradient is not None for gradient in gradients)
    found = scaled(grads.value, gradients)
    forces = {
        "log_scale_tangent": dense(grads.linear),
        "f_tangent": dense(grads.f),
        "g_tangent": dense(grads.g),
    }
    if any(wanted) and any(force is not None for force in forces.values()):
        moved = call(
            "sinkhorn_jvp",
            **solved._asdict(),
            **keywords(settings),
            **forces,
            shift0=shift,
            needs_grad_x=wanted[0],
            needs_grad_y=wanted[1],
            needs_grad_cost=wanted[2],
        )[4:]
        both = zip(found, moved, wanted, strict=True)
        found = tuple(None if not need else new if old is None else old + new for old, new, need in both)
    x, y, cost, a, b, epsilons = found
    return (Inputs(x, y, cost, a, b, epsilons, None, None, None, None),)


_solve.defvjp(_forward, _backward, symbolic_zeros=True)


def _with_equal_sums(of: Inputs, given: tuple[object, object]) -> Inputs:
    """Weights of balanced transport, of which those that came as a half type sum to what the other side's do."""

    def masked(weights: Array, lengths: Array | None) -> Array:
        if lengths is None:
            return weights
        return jnp.where(jnp.arange(weights.shape[1]) < lengths[:, None], weights, 0)

    found, lengths = [of.a, of.b], (of.x_lengths, of.y_lengths)
    for side in (1, 0):
        own, other = found[side], found[1 - side]
        dtype = getattr(given[side], "dtype", None)
        if own is None or dtype is None or dtype.itemsize != 2:
            continue
        wanted = 1.0 if other is None else masked(other, lengths[1 - side]).sum(1)
        ratio = wanted / masked(own, lengths[side]).sum(1)
        found[side] = own * jnp.where(jnp.abs(ratio - 1) < _ROUNDED_SUMS, ratio, 1)[:, None]
    return of._replace(a=found[0], b=found[1])


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


def _tables(x: object, y: object, cost_matrix: object, cost: object) -> tuple[Inputs, bool]:
    """Points or costs, and whether they came without a batch axis."""
    if cost not in COSTS:
        names = ", ".join(f'"{name}"' for name in COSTS)
        raise ValueError(f"cost: expected one of {names}, got {cost!r}: give other costs as cost_matrix")
    if cost_matrix is None:
        for name, given in (("x", x), ("y", y)):
            if given is None:
                raise ValueError(
                    f"{name}: expected points, or a cost_matrix in the place of x and y, got None"
                )
        left, right, unbatched = check_pair(x, y)
        return Inputs(left, right, None, None, None, None, None, None, None, None), unbatched
    for name, given in (("x", x), ("y", y)):
        if given is not None:
            raise ValueError(f"{name}: expected None with a cost_matrix, got {type(given).__name__}")
    if cost != "sqeuclidean":
        raise ValueError(f"cost: expected none with a cost_matrix, got {cost!r}")
    costs = check_table(cost_matrix, "cost_matrix", "N, M")
    unbatched = costs.ndim == 2
    costs = widened(costs[None] if unbatched else costs)
    return Inputs(None, None, costs, None, None, None, None, None, None, None), unbatched


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
            with the old ones.
        init: a SinkhornResult, or potentials (f, g), to start from. They have no gradient. None: 0.
        max_iter: the maximum number of iterations at the final epsilon, at least 1.
        tol: iterations end when no potential moves by more than tol · epsilon; >= 0. 0: they end at max_iter.
        precision: how a GPU may multiply float32: "highest", "high" or "medium", as in :func:`warpalign.sinkhorn`.
        batch_invariant: True: a problem's results are bitwise identical whatever else is in the batch. On a CPU they always are.

    Returns:
        SinkhornResult(value, linear, f, g, plan, converged, error, iterations); float64 for float64 input, else float32.
        value, linear, f and g are differentiable with respect to points, costs, weights and epsilon, by implicit differentiation:
        the value's gradient comes with it; the others solve a linear system. Look at ``converged``: there is no warning.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it, what was expected and what came. Invalid values of arrays
            are an error of XLA on a CPU. Second derivatives raise an error of JAX.

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
    of, unbatched = _tables(x, y, cost_matrix, cost)
    table, (n, m) = of.first, of.sizes
    batch = table.shape[0]
    of = of._replace(
        x_lengths=check_lengths(
            x_lengths, "x_lengths", batch, n, "N", least=1, unbatched=unbatched, unit="pair"
        ),
        y_lengths=check_lengths(
            y_lengths, "y_lengths", batch, m, "M", least=1, unbatched=unbatched, unit="pair"
        ),
        a=check_rows(a, "a", table, n),
        b=check_rows(b, "b", table, m),
    )
    if settings.is_balanced:
        of = _with_equal_sums(of, (a, b))
    if isinstance(epsilon, (jax.Array, np.ndarray)):
        of = of._replace(epsilons=check_numbers(epsilon, "epsilon", batch, table.dtype))
    else:
        settings = settings._replace(epsilon=check_number(epsilon, "epsilon", None))
    f0, g0 = _check_init(init, table, n, m)
    settings = settings._replace(cost_kind=COSTS.index(cost))
    s = _solve(settings, of._replace(f0=f0, g0=g0))
    converged = s.error <= settings.tolerance + _ROUNDING * float(np.finfo(s.error.dtype).eps)
    plan = TransportPlan(of._replace(f0=s.f, g0=s.g), settings, unbatched)
    results = (s.value, s.linear, s.f, s.g, converged, s.error, s.iterations)
    value, linear, f, g, converged, error, iterations = (one[0] if unbatched else one for one in results)
    return SinkhornResult(value, linear, f, g, plan, converged, error, iterations)
