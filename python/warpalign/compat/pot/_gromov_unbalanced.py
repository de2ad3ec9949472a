"""Fused unbalanced Gromov-Wasserstein transport, as ot.gromov has it; handed on by gromov.py."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import no_autocast
from warpalign.compat.pot._common import Kind, kind_of, weights_of
from warpalign.compat.pot.unbalanced import Strengths, strengths_of, unbalanced_result

_SOLVERS = ("sinkhorn", "sinkhorn_log", "mm", "lbfgsb")


class _Problem(NamedTuple):
    Cx: Tensor
    Cy: Tensor
    wx: Tensor
    wy: Tensor
    M: Tensor | None
    """alpha / 2 times the costs"""
    rho: Strengths
    epsilon: float

    def detached(self) -> _Problem:
        costs = None if self.M is None else self.M.detach()
        Cx, Cy, wx, wy = (t.detach() for t in (self.Cx, self.Cy, self.wx, self.wy))
        return _Problem(Cx, Cy, wx, wy, costs, self.rho, self.epsilon)

    @no_autocast()
    def cost(self, plan: Tensor, *, transposed: bool) -> Tensor:
        """(n, m): of one plan's problem, given the other plan."""
        Cx, Cy = (self.Cx.T, self.Cy.T) if transposed else (self.Cx, self.Cy)
        rows, columns = plan.sum(1), plan.sum(0)
        cost = (Cx.square() @ rows)[:, None] + Cy.square() @ columns - 2 * Cx @ plan @ Cy.T
        for strength, sums, weights in ((self.rho.rows, rows, self.wx), (self.rho.columns, columns, self.wy)):
            if 0 < strength < math.inf:
                cost = cost + strength * _relative(sums, weights)
        cost = cost + self.epsilon * _relative(plan, self.wx[:, None] * self.wy)
        return cost if self.M is None else cost + self.M

    @no_autocast()
    def losses(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of (Cx − Cy)² over both plans, and the whole objective."""
        rows, columns = (first.sum(1), second.sum(1)), (first.sum(0), second.sum(0))
        linear = rows[0] @ self.Cx.square() @ rows[1] + columns[0] @ self.Cy.square() @ columns[1]
        linear = linear - 2 * (self.Cx @ second @ self.Cy.T * first).sum()
        total = linear if self.M is None else linear + (self.M * (first + second)).sum()
        for strength, sums, weights in (
            (self.rho.rows, rows, self.wx),
            (self.rho.columns, columns, self.wy),
            (self.epsilon, (first, second), self.wx[:, None] * self.wy),
        ):
            if 0 < strength < math.inf:
                total = total + strength * _between_products(*sums, weights)
        return linear, total


def fused_unbalanced_gromov_wasserstein(
    Cx: Any,
    Cy: Any,
    wx: Any = None,
    wy: Any = None,
    reg_marginals: Any = 10,
    epsilon: float = 0,
    divergence: str = "kl",
    unbalanced_solver: str = "mm",
    alpha: float = 0,
    M: Any = None,
    init_duals: Any = None,
    init_pi: Any = None,
    max_iter: int = 100,
    tol: float = 1e-7,
    max_iter_ot: int = 500,
    tol_ot: float = 1e-7,
    log: bool = False,
    verbose: bool = False,
    **kwargs_solve: Any,
) -> Any:
    """Two plans (n, m) whose product is relaxed: KL of products of sums to products of weights, and of the plans' product.

    Each plan is an unbalanced Sinkhorn problem given the other one, in turns, until the first moves by less than tol.
    Source: Séjourné, Vialard & Peyré, "The unbalanced Gromov Wasserstein distance", NeurIPS 2021; Thual et al., "Aligning
    individual brains with fused unbalanced Gromov Wasserstein", NeurIPS 2022 (costs).

    Args:
        Cx: (n, n) matrix.
        Cy: (m, m) matrix.
        wx: (n,) weights of the rows; None: uniform.
        wy: (m,) weights of the columns; None: uniform.
        reg_marginals: strengths of KL, a number or two; inf: sums are exact.
        epsilon: > 0; other solvers than Sinkhorn's are not here.
        divergence: "kl". "l2" with a solver of Sinkhorn's is "kl" with a warning, as in POT.
        unbalanced_solver: changes nothing.
        alpha: the factor of costs M (n, m).
        M: (n, m) costs; None: none.
        init_duals: logarithms of the scaling vectors to start from.
        init_pi: the plan (n, m) to start from; None: wx wyᵀ.
        max_iter: the maximum number of turns.
        tol: turns end when the first plan moves by less, in L1.
        max_iter_ot: the maximum number of Sinkhorn iterations of a plan's problem.
        tol_ot: these iterations end when no logarithm of a scaling vector moves by more.
        log: a dict follows, with "error", "duals", "linear_cost" and "fugw_cost", but without POT's "backend".
        verbose: changes nothing.
        kwargs_solve: changes nothing.
    """
    kind = kind_of(*(one for one in (Cx, Cy, M, wx, wy) if one is not None))
    given = _problem(kind, Cx, Cy, wx, wy, reg_marginals, epsilon, divergence, unbalanced_solver, alpha, M)
    detached = given.detached()
    product = detached.wx[:, None] * detached.wy
    start = product if init_pi is None else kind.tensor(init_pi).detach()
    plans = [start, start]
    duals = [init_duals, init_duals]
    moved: list[Any] = []
    for _ in range(max(int(max_iter), 1)):
        before = plans[0]
        for which in (1, 0):
            other = plans[1 - which]
            mass = float(other.sum())
            result = unbalanced_result(
                detached.wx,
                detached.wy,
                detached.cost(other, transposed=which == 1),
                detached.epsilon * mass,
                Strengths(*(strength * mass for strength in detached.rho)),
                kind,
                counting=True,
                c=product,
                warmstart=duals[which],
                max_iter=max_iter_ot,
                threshold=tol_ot,
            )
            duals[which] = (result.f / (detached.epsilon * mass), result.g / (detached.epsilon * mass))
            plan = result.plan.to_dense()
            if not bool(plan.isfinite().all()):
                raise ValueError(
                    "There is NaN in coupling. Adjust the relaxation or regularization parameters."
                )
            plans[which] = plan * (mass / plan.sum()).sqrt()
        moved.append((plans[0] - before).abs().sum())
        if float(moved[-1]) < tol:
            break
    first, second = plans
    found = (kind.out(first), kind.out(second))
    if not log:
        return found
    linear, total = given.losses(first, second)
    record = {
        "error": [kind.out(one) for one in moved],
        "duals": None if duals[0] is None else tuple(kind.out(one) for one in duals[0]),
        "linear_cost": kind.out(linear),
        "fugw_cost": kind.out(total),
    }
    return *found, record


def fused_unbalanced_gromov_wasserstein2(
    Cx: Any,
    Cy: Any,
    wx: Any = None,
    wy: Any = None,
    reg_marginals: Any = 10,
    epsilon: float = 0,
    divergence: str = "kl",
    unbalanced_solver: str = "mm",
    alpha: float = 0,
    M: Any = None,
    init_duals: Any = None,
    init_pi: Any = None,
    max_iter: int = 100,
    tol: float = 1e-7,
    max_iter_ot: int = 500,
    tol_ot: float = 1e-7,
    log: bool = False,
    verbose: bool = False,
    **kwargs_solve: Any,
) -> Any:
    """The objective of :func:`fused_unbalanced_gromov_wasserstein`, with gradients at the plans that were found.

    Args:
        Cx: (n, n) matrix.
        Cy: (m, m) matrix.
        wx: (n,) weights of the rows; None: uniform.
        wy: (m,) weights of the columns; None: uniform.
        reg_marginals: strengths of KL of the marginals, a number or two; inf: the marginal is exact.
        epsilon: the regularisation strength, > 0: Sinkhorn's is the only solver.
        divergence: "kl". "l2" with a Sinkhorn solver is "kl" with a warning, as in POT.
        unbalanced_solver: has no effect.
        alpha: the factor of costs M.
        M: (n, m) costs; None: none.
        init_duals: logarithms of the scaling vectors to start from.
        init_pi: (n, m) plan to start from; None: wx wyᵀ.
        max_iter: the maximum number of turns.
        tol: turns end when the first plan moves by less, in L1.
        max_iter_ot: the maximum number of Sinkhorn iterations of a plan's problem.
        tol_ot: these iterations end when no logarithm of a scaling vector moves by more.
        log: whether a dict follows, as that of :func:`fused_unbalanced_gromov_wasserstein`.
        verbose: has no effect.
        kwargs_solve: have no effect.
    """
    _, _, record = fused_unbalanced_gromov_wasserstein(
        Cx, Cy, wx, wy, reg_marginals, epsilon, divergence, unbalanced_solver, alpha, M, init_duals, init_pi, max_iter,
        tol, max_iter_ot, tol_ot, True,
    )  # fmt: skip
    return (record["fugw_cost"], record) if log else record["fugw_cost"]


def _problem(
    kind: Kind,
    Cx: Any,
    Cy: Any,
    wx: Any,
    wy: Any,
    reg_marginals: Any,
    epsilon: float,
    divergence: str,
    unbalanced_solver: str,
    alpha: float,
    M: Any,
) -> _Problem:
    if unbalanced_solver not in _SOLVERS:
        raise NotImplementedError(f'Unknown method="{unbalanced_solver}"')
    if divergence == "l2" and unbalanced_solver in ("sinkhorn", "sinkhorn_log"):
        warnings.warn(
            'divergence: expected "kl" with Sinkhorn\'s algorithm, got "l2": it is set to "kl", as in POT',
            stacklevel=3,
        )
    elif divergence != "kl":
        raise NotImplementedError(f'divergence: expected "kl", got {divergence!r}')
    if not epsilon > 0:
        raise NotImplementedError(
            f"epsilon: expected a number > 0, because Sinkhorn's is the only solver, got {epsilon}"
        )
    first, second = kind.tensor(Cx), kind.tensor(Cy)
    return _Problem(
        first,
        second,
        weights_of(wx, len(first), kind),
        weights_of(wy, len(second), kind),
        None if M is None else alpha / 2 * kind.tensor(M),
        strengths_of(reg_marginals),
        float(epsilon),
    )


def _relative(p: Tensor, q: Tensor) -> Tensor:
    """Σ p log(p / q)"""
    sums: Tensor = (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum()
    return sums


def _between_products(first: Tensor, second: Tensor, weights: Tensor) -> Tensor:
    """KL of the outer product of two measures to that of the weights with themselves."""
    masses, total = (first.sum(), second.sum()), weights.sum()
    relative: Tensor = masses[1] * _relative(first, weights) + masses[0] * _relative(second, weights)
    relative = relative - masses[0] * masses[1] + total**2
    return relative
