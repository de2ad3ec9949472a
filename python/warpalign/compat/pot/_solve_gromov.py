"""ot.solve_gromov and ot.batch.solve_gromov_batch; handed on by the package and by batch.py."""

from __future__ import annotations

from typing import Any

import torch

from warpalign.compat.pot._common import check_reg, kind_of
from warpalign.compat.pot._gromov_problem import Problem, descend, objective, problem
from warpalign.compat.pot._gromov_unbalanced import fused_unbalanced_gromov_wasserstein
from warpalign.compat.pot._result import OTResult
from warpalign.compat.pot.partial import mass_of
from warpalign.compat.pot.solvers import solve

_LOSSES = {"l2": "square_loss", "kl": "kl_loss"}
_BATCH_LOSSES = {"sqeuclidean": "square_loss", "kl": "kl_loss"}
_GRADIENTS = ("envelope", "detach", None)
_NAMES = ("Ca", "Cb", "M", "a", "b")


def solve_gromov(
    Ca: Any,
    Cb: Any,
    M: Any = None,
    a: Any = None,
    b: Any = None,
    loss: str = "L2",
    symmetric: bool | None = None,
    alpha: float = 0.5,
    reg: float | None = None,
    reg_type: str = "entropy",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    n_threads: int = 1,
    method: str | None = None,
    max_iter: int | None = None,
    plan_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
) -> OTResult:
    """Entropic (fused) Gromov-Wasserstein transport between matrices Ca (n, n) and Cb (m, m), with costs M (n, m).

    Args:
        Ca: (n, n) matrix.
        Cb: (m, m) matrix.
        M: (n, m) costs; None: none.
        a: (n,) weights of the rows; None: uniform.
        b: (m,) weights of the columns; None: uniform. Semi-relaxed problems do not look at it.
        loss: "L2" or "KL".
        symmetric: whether both matrices are symmetric; None: it is found out.
        alpha: the factor of the loss between matrices; 1 − alpha is that of M.
        reg: > 0. POT 0.9.7 takes 0.1 in its place for semi-relaxed problems with M.
        reg_type: "entropy".
        unbalanced: the strength or mass that unbalanced_type names; None: balanced, but for "semirelaxed".
        unbalanced_type: "KL" (strength `unbalanced`), "partial" (mass `unbalanced`) or "semirelaxed" (of the columns).
        n_threads: changes nothing.
        method: "PGD" or "PPA", of balanced problems.
        max_iter: the maximum number of steps; None: 1000.
        plan_init: the plan to start from; None: the product of the weights.
        tol: steps end when less than this share of the mass moves; None: 1e-9, partial 1e-7.
        verbose: changes nothing.
    """
    if loss.lower() not in _LOSSES:
        raise NotImplementedError(f'Not implemented GW loss="{loss}"')
    if reg_type.lower() != "entropy":
        raise NotImplementedError(f'Not implemented reg_type="{reg_type}"')
    strength, kind_of_relaxation = check_reg(reg), unbalanced_type.lower()
    if kind_of_relaxation not in ("kl", "partial", "semirelaxed"):
        raise NotImplementedError(f'Unknown unbalanced_type="{unbalanced_type}"')
    if alpha == 0 and kind_of_relaxation != "partial":
        return solve(
            M,
            a,
            b,
            reg,
            None,
            "entropy" if unbalanced is None else "KL",
            unbalanced,
            max_iter=max_iter,
            tol=tol,
        )
    iterations = 1000 if max_iter is None else max_iter
    if kind_of_relaxation == "kl" and unbalanced is not None:
        return _unbalanced(Ca, Cb, M, a, b, strength, float(unbalanced), alpha, loss, max_iter, tol)
    share = 1.0 if M is None else float(alpha)
    column = None if kind_of_relaxation == "semirelaxed" else b
    given = problem(Ca, Cb, a, column, _LOSSES[loss.lower()], symmetric, M, share)._replace(names=_NAMES)
    threshold = (
        (1e-7 if kind_of_relaxation == "partial" and unbalanced is not None else 1e-9) if tol is None else tol
    )
    if kind_of_relaxation == "semirelaxed":
        state = descend(given, strength, plan_init, iterations, threshold, proximal=True, rho_b=0.0)
    elif kind_of_relaxation == "partial" and unbalanced is not None:
        mass = mass_of(unbalanced, given.p, given.q)
        state = descend(given, strength, plan_init, iterations, threshold, mass=mass, inner_tolerance=0.0)
    else:
        if method not in (None, "PGD", "PPA"):
            raise ValueError(f"Unknown solver '{method}'. Pick one in ['PGD', 'PPA'].")
        state = descend(given, strength, plan_init, iterations, threshold, proximal=method == "PPA")
    return _result(given, state.plan, strength)


def solve_gromov_batch(
    Ca: Any,
    Cb: Any,
    reg: float = 0.01,
    a: Any = None,
    b: Any = None,
    loss: str = "sqeuclidean",
    symmetric: bool | None = None,
    M: Any = None,
    alpha: float | None = None,
    T_init: Any = None,
    max_iter: int = 50,
    tol: float = 1e-5,
    max_iter_inner: int = 50,
    tol_inner: float = 1e-5,
    grad: str | None = "envelope",
    logits: bool | None = None,
) -> OTResult:
    """Many (fused) problems between matrices Ca (B, n, n) and Cb (B, m, m), by proximal steps.

    Args:
        Ca: (B, n, n) matrices.
        Cb: (B, m, m) matrices.
        reg: > 0, of KL to the last plan.
        a: (B, n) weights of the rows; None: uniform.
        b: (B, m) weights of the columns; None: uniform.
        loss: "sqeuclidean" or "kl".
        symmetric: whether both matrices are symmetric; None: it is found out.
        M: (B, n, m) costs, with alpha; None: none.
        alpha: the factor of the loss between matrices, with M; 1 − alpha is that of M.
        T_init: the plans to start from; None: products of the weights.
        max_iter: the maximum number of steps.
        tol: steps end for a problem when less than this share of its mass moves.
        max_iter_inner: the maximum number of iterations of a step's problem.
        tol_inner: a step's iterations end when no logarithm of a scaling vector moves by more.
        grad: "envelope": of the value at the plan. "detach" or None: none.
        logits: None or False, of the loss "kl".
    """
    if loss not in _BATCH_LOSSES:
        raise ValueError(f"Unknown loss function: {loss}")
    if (M is None) != (alpha is None):
        first, second = ("alpha", "M") if M is None else ("M", "alpha")
        raise ValueError(
            f"If {first} is provided, {second} must also be provided for Fused Gromov-Wasserstein problem"
        )
    if grad not in _GRADIENTS:
        raise NotImplementedError(f'grad: expected "envelope", "detach" or None, got {grad!r}')
    if logits:
        raise NotImplementedError(f"logits: expected None or False, got {logits!r}")
    kind = kind_of(*(one for one in (Ca, Cb, M, a, b) if one is not None))
    first_matrix, second_matrix = kind.tensor(Ca), kind.tensor(Cb)
    costs = None if M is None else kind.tensor(M)
    of = objective(
        first_matrix,
        second_matrix,
        costs,
        _BATCH_LOSSES[loss],
        symmetric,
        1.0 if alpha is None else float(alpha),
    )
    weights = [
        torch.full(c.shape[:2], 1 / c.shape[1], dtype=kind.dtype, device=kind.device)
        if w is None
        else kind.tensor(w)
        for w, c in ((a, first_matrix), (b, second_matrix))
    ]
    if grad != "envelope":
        of = of.detached()
    given = Problem(kind, of, weights[0], weights[1], _NAMES)
    state = descend(
        given,
        check_reg(reg),
        T_init,
        max_iter,
        tol,
        proximal=True,
        inner_iterations=max_iter_inner,
        inner_tolerance=tol_inner,
    )
    linear, quadratic = (1 - of.alpha) * of.linear(state.plan), of.alpha * of.quadratic(state.plan)
    return OTResult(
        kind,
        value=linear + quadratic,
        value_linear=linear,
        value_quad=quadratic,
        plan=state.plan,
        log={"n_iter": int(state.iterations.max())},
    )


def _unbalanced(
    Ca: Any, Cb: Any, M: Any, a: Any, b: Any, reg: float, unbalanced: float, alpha: float, loss: str,
    max_iter: int | None, tol: float | None,
) -> OTResult:  # fmt: skip
    if loss.lower() != "l2":
        raise NotImplementedError(f'loss: expected "L2" with unbalanced, got {loss!r}')
    plan, _, log = fused_unbalanced_gromov_wasserstein(
        Ca, Cb, a, b, unbalanced / (2 * alpha), reg / (2 * alpha), alpha=(1 - alpha) / alpha, M=M,
        max_iter=100 if max_iter is None else max_iter, tol=1e-7 if tol is None else tol, log=True,
    )  # fmt: skip
    kind = kind_of(*(one for one in (Ca, Cb, M, a, b) if one is not None))
    return OTResult(
        kind,
        value=kind.tensor(log["fugw_cost"]) * alpha,
        value_linear=kind.tensor(log["linear_cost"]) * alpha,
        plan=kind.tensor(plan),
        log=log,
    )


def _result(given: Problem, plan: torch.Tensor, reg: float) -> OTResult:
    of = given.of
    linear, quadratic = ((1 - of.alpha) * of.linear(plan))[0], (of.alpha * of.quadratic(plan))[0]
    entropy = (plan * (plan + 1e-16).log()).sum()
    return OTResult(
        given.kind,
        value=linear + quadratic + reg * entropy,
        value_linear=linear,
        value_quad=quadratic,
        plan=plan[0],
    )
