"""Projected descent on the Gromov-Wasserstein objective: products of JAX, and entropic plans of the operator, in a loop of XLA.

Sources of the steps: warpalign/_transport/gromov_solver.py and gromov_start.py.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._transport.settings import Settings
from warpalign.jax._call import call
from warpalign.jax._transport import Inputs, keywords

_FIRST_ITERATIONS = 100


class Objective(NamedTuple):
    """(1 − w) Σ (Cx[i, k] − Cy[j, l])² T[i, j] T[k, l] + w Σ F[i, j] T[i, j]."""

    cx: Array
    """(B, N, N)"""
    cy: Array
    """(B, M, M)"""
    features: Array | None
    """F (B, N, M)"""


class Course(NamedTuple):
    """How a problem is solved; a constant for JAX."""

    weight: float
    """w"""
    symmetric: tuple[bool, bool]
    """Whether cx and cy are known to be."""
    precision: jax.lax.Precision
    inner: Settings
    """Of a step's transport problem."""
    last: Settings
    """Of the one that gives the result."""
    epsilon_start: float
    epsilon_factor: float
    step: float
    max_iter: int
    tol: float
    init: str | None
    """None: a plan is given."""

    def product(self, left: Array, right: Array) -> Array:
        return jnp.matmul(left, right, precision=self.precision)

    def cost(self, of: Objective, plan: Array) -> Array:
        """(B, N, M): the objective's derivative by the plan."""
        cx, cy, share = of.cx, of.cy, 1 - self.weight
        of_x, of_y = (
            _mean_product(matrix**2, sums, one)
            for matrix, sums, one in (
                (cx, plan.sum(2), self.symmetric[0]),
                (cy, plan.sum(1), self.symmetric[1]),
            )
        )
        cost = share * (of_x[:, :, None] + of_y[:, None])
        if of.features is not None and self.weight > 0:
            cost = cost + self.weight * of.features
        if share == 0:
            return cost
        if all(self.symmetric):
            return cost - 4 * share * self.product(self.product(cx, plan), cy.mT)
        both = self.product(self.product(cx, plan), cy.mT) + self.product(self.product(cx.mT, plan), cy)
        return cost - 2 * share * both

    def distortion(self, of: Objective, plan: Array) -> Array:
        """(B,)"""
        squares = _form(of.cx**2, plan.sum(2)) + _form(of.cy**2, plan.sum(1))
        return squares - 2 * (self.product(self.product(of.cx, plan), of.cy.mT) * plan).sum((1, 2))


def _vector_product(matrix: Array, v: Array) -> Array:
    return jnp.matmul(matrix, v[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0]


def _form(matrix: Array, v: Array) -> Array:
    """(B,): vᵀ matrix v."""
    return (_vector_product(matrix, v) * v).sum(1)


def _mean_product(matrix: Array, v: Array, symmetric: bool) -> Array:
    """(B, N): (matrix + matrixᵀ) v."""
    return _vector_product(matrix, v) + _vector_product(matrix if symmetric else matrix.mT, v)


def _transported(
    cost: Array, weights: Inputs, epsilons: Array, settings: Settings
) -> tuple[Array, Array, Array]:
    """The entropic plan (B, N, M) of a cost, and its potentials; from those of `weights`."""
    of = weights._replace(cost=cost, epsilons=epsilons)
    flags = {"needs_grad_x": False, "needs_grad_y": False, "needs_grad_cost": True}
    results = call("sinkhorn", **of._asdict(), **keywords(settings), **flags)
    return results[9], results[2], results[3]  # the value's derivative by the cost is the plan


class _State(NamedTuple):
    step: Array
    """The number of steps, the same for all."""
    plan: Array
    f: Array
    g: Array
    epsilon: Array
    done: Array
    converged: Array
    iterations: Array


def _finite(potential: Array) -> Array:
    return jnp.nan_to_num(potential, nan=0.0, posinf=0.0, neginf=0.0)


def descend(course: Course, of: Objective, weights: Inputs, plan: Array) -> _State:
    """From a plan. Problems that have converged stay as they are, whatever others of the batch do."""
    batch, n, m = plan.shape
    final = weights.epsilons
    assert final is not None

    def goes_on(state: _State) -> Array:
        return (state.step < course.max_iter) & ~state.done.all()

    def step(state: _State) -> _State:
        given = weights._replace(f0=_finite(state.f), g0=_finite(state.g))
        new, f, g = _transported(course.cost(of, state.plan), given, state.epsilon, course.inner)
        share = jnp.abs(new - state.plan).sum((1, 2)) / new.sum((1, 2))
        keep, stands = state.done, (state.epsilon <= final) & (share <= course.tol)
        moved = new if course.step == 1 else state.plan + course.step * (new - state.plan)
        return _State(
            state.step + 1,
            jnp.where(keep[:, None, None], state.plan, moved),
            jnp.where(keep[:, None], state.f, f),
            jnp.where(keep[:, None], state.g, g),
            jnp.maximum(state.epsilon * course.epsilon_factor, final),
            keep | stands | jnp.isnan(share),
            state.converged | (stands & ~keep),
            state.iterations + ~keep,
        )

    no = jnp.zeros_like(plan[:, 0, 0], bool)
    zeros = jnp.zeros_like(plan[:, :, 0]), jnp.zeros_like(plan[:, 0])
    first = jnp.maximum(final, course.epsilon_start)
    start = _State(jnp.int32(0), plan, *zeros, first, no, no, no.astype(jnp.int32))
    ended: _State = jax.lax.while_loop(goes_on, step, start)
    return ended


def _eccentricities(matrix: Array, weights: Array) -> Array:
    """(B, N): the root of the mean squared distance from each point to all."""
    return jnp.sqrt(_vector_product(matrix**2, weights) / weights.sum(1, keepdims=True))


def start(course: Course, of: Objective, weights: Inputs) -> Array:
    a, b = weights.a, weights.b
    assert a is not None and b is not None and weights.epsilons is not None
    if course.init == "product":
        sums, mass = a.sum(1) * b.sum(1), course.inner.mass
        factor = mass / sums if mass > 0 else jax.lax.rsqrt(sums)
        return a[:, :, None] * b[:, None] * factor[:, None, None]
    x, y = _eccentricities(of.cx, a), _eccentricities(of.cy, b)
    cost = 2 * (1 - course.weight) * (x[:, :, None] - y[:, None]) ** 2
    if of.features is not None and course.weight > 0:
        cost = cost + course.weight * of.features
    early = jnp.maximum(weights.epsilons, course.epsilon_start)
    return _transported(cost, weights, early, course.inner._replace(max_iterations=_FIRST_ITERATIONS))[0]
