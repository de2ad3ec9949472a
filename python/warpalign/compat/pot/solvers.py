"""Drop-in for ot.solve and ot.solve_sample, as far as they are entropic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign.compat.pot._common import (
    Kind,
    balanced,
    check_reg,
    costs_of,
    kind_of,
    metric_of,
    weights_of,
)
from warpalign.compat.pot._result import OTResult
from warpalign.compat.pot.unbalanced import strengths_of, total_cost, unbalanced_result

__all__ = ["solve", "solve_sample"]

_DETACHED = "detach"


def solve(
    M: Any,
    a: Any = None,
    b: Any = None,
    reg: float | None = None,
    c: Any = None,
    reg_type: str = "KL",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    method: str | None = None,
    n_threads: int = 1,
    max_iter: int | None = None,
    plan_init: Any = None,
    potentials_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
) -> OTResult:
    """Entropic transport at costs M (n, m), balanced or with KL on the sums.

    Args:
        M: (n, m) costs.
        a: (n,) weights of the rows; None: uniform.
        b: (m,) weights of the columns; None: uniform.
        reg: > 0.
        c: the reference measure of unbalanced problems; None: a bᵀ.
        reg_type: "KL", relative to a bᵀ, or "entropy", of balanced problems.
        unbalanced: strengths of KL on the sums, a number or two; None: the sums are exact.
        unbalanced_type: "KL".
        method: changes nothing.
        n_threads: changes nothing.
        max_iter: the maximum number of iterations; None: 1000.
        plan_init: changes nothing.
        potentials_init: logarithms of the scaling vectors of an unbalanced problem.
        tol: iterations end when no logarithm of a scaling vector moves by more; None: 1e-9.
        verbose: changes nothing.
        grad: "detach": without gradients. All other modes have the converged solution's; "last_step" needs max_iter > 0.
    """
    kind = kind_of(M, a, b)
    costs = kind.tensor(M)
    row, column = weights_of(a, costs.shape[0], kind), weights_of(b, costs.shape[1], kind)
    strength = check_reg(reg)
    name, relaxed = _checked_types(reg_type, unbalanced, unbalanced_type)
    if grad == "last_step" and max_iter == 0 and not relaxed:
        raise ValueError('max_iter: expected at least 1 with grad="last_step", which is a step, got 0')
    if grad == _DETACHED:
        costs, row, column = (one.detach() for one in (costs, row, column))
    if not relaxed:
        return _balanced(row, column, strength, kind, {"cost_matrix": costs}, name, max_iter, tol)
    given = None if c is None else kind.tensor(c)
    strengths = strengths_of(unbalanced)
    result = unbalanced_result(
        row,
        column,
        costs,
        strength,
        strengths,
        kind,
        counting=given is not None,
        c=given,
        warmstart=potentials_init,
        max_iter=1000 if max_iter is None else max_iter,
        threshold=1e-9 if tol is None else tol,
    )
    plan = result.plan.to_dense()
    reference = row[:, None] * column if given is None else given
    return OTResult(
        kind,
        value=total_cost(plan, costs, reference, row, column, strength, strengths),
        value_linear=(plan * costs).sum(),
        potentials=(result.f / strength, result.g / strength),
        lazy_plan=result.plan,
        plan=plan,
    )


def solve_sample(
    X_a: Any,
    X_b: Any,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    reg: float | None = None,
    c: Any = None,
    reg_type: str = "KL",
    unbalanced: Any = None,
    unbalanced_type: str = "KL",
    lazy: bool = False,
    batch_size: int | None = None,
    method: str | None = None,
    n_threads: int = 1,
    max_iter: int | None = None,
    plan_init: Any = None,
    rank: int = 100,
    scaling: float = 0.95,
    potentials_init: Any = None,
    X_init: Any = None,
    tol: float | None = None,
    verbose: bool = False,
    grad: str = "autodiff",
    random_state: Any = None,
    debias: bool = False,
    n_projections: int = 50,
    projections: Any = None,
    scaler: Any = None,
) -> OTResult:
    """:func:`solve` for points (n, d) and (m, d). No table is made for balanced problems.

    Args:
        X_a: (n, d) points.
        X_b: (m, d) points.
        a: (n,) weights of the rows; None: uniform.
        b: (m,) weights of the columns; None: uniform.
        metric: "sqeuclidean", "euclidean", "cityblock" or "cosine".
        reg: the regularisation strength, > 0.
        c: the reference measure of unbalanced problems; None: a bᵀ.
        reg_type: "KL", relative to a bᵀ, or "entropy", of balanced problems.
        unbalanced: strengths of KL on the marginals, a number or two; None: balanced.
        unbalanced_type: "KL".
        lazy: changes nothing: the plan is made when it is asked for.
        batch_size: changes nothing.
        method: None; the other algorithms of the original are not here.
        n_threads: changes nothing.
        max_iter: the maximum number of iterations, as in :func:`solve`.
        plan_init: changes nothing.
        rank: changes nothing. It belongs to an algorithm that is not available.
        scaling: changes nothing.
        potentials_init: logarithms of the scaling vectors of an unbalanced problem.
        X_init: changes nothing.
        tol: as in :func:`solve`.
        verbose: changes nothing.
        grad: as in :func:`solve`.
        random_state: changes nothing.
        debias: True: the value less half of the values of both sets with themselves, without a plan.
        n_projections: changes nothing.
        projections: changes nothing.
        scaler: changes nothing.
    """
    if method is not None:
        raise NotImplementedError(f"method: expected None, got {method!r}")
    if isinstance(debias, str):
        raise NotImplementedError(f"debias: expected a bool, got {debias!r}")
    kind = kind_of(X_a, X_b)
    x, y = kind.tensor(X_a), kind.tensor(X_b)
    row, column = weights_of(a, len(x), kind), weights_of(b, len(y), kind)
    strength = check_reg(reg)
    name, relaxed = _checked_types(reg_type, unbalanced, unbalanced_type)
    if grad == _DETACHED:
        x, y, row, column = (one.detach() for one in (x, y, row, column))

    def between(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> OTResult:
        if relaxed:
            costs = costs_of(metric, x, y)
            return solve(
                costs, a, b, reg, c, reg_type, unbalanced, unbalanced_type, max_iter=max_iter, tol=tol,
                potentials_init=potentials_init,
            )  # fmt: skip
        points = {"x": x, "y": y, "cost": metric_of(metric)}
        return _balanced(a, b, strength, as_tensors, points, name, max_iter, tol)

    as_tensors = kind._replace(is_torch=True)
    found = between(x, y, row, column)
    if debias:
        own = between(x, x, row, row), between(y, y, column, column)
        value, linear = (
            getattr(found, which) - (getattr(own[0], which) + getattr(own[1], which)) / 2
            for which in ("value", "value_linear")
        )
        return OTResult(kind, value=value, value_linear=linear)
    return OTResult(
        kind,
        value=found.value,
        value_linear=found.value_linear,
        potentials=found.potentials,
        lazy_plan=found.lazy_plan,
    )


def _checked_types(reg_type: Any, unbalanced: Any, unbalanced_type: str) -> tuple[str, bool]:
    """reg_type in small letters, and whether the sums are relaxed."""
    name = reg_type.lower() if isinstance(reg_type, str) else reg_type
    relaxed = unbalanced is not None
    known = ("kl",) if relaxed else ("kl", "entropy")
    if name not in known:
        raise NotImplementedError(f"reg_type: expected {' or '.join(known)}, got {reg_type!r}")
    if relaxed and unbalanced_type.lower() != "kl":
        raise NotImplementedError(f"unbalanced_type: expected KL, got {unbalanced_type!r}")
    return name, relaxed


def _balanced(
    row: Tensor,
    column: Tensor,
    reg: float,
    kind: Kind,
    costs: dict[str, Any],
    reg_type: str,
    max_iter: int | None,
    tol: float | None,
) -> OTResult:
    solved = balanced(
        row,
        column,
        reg,
        kind,
        costs=costs,
        max_iter=1000 if max_iter is None else max_iter,
        threshold=1e-9 if tol is None else tol,
        warn=True,
    )
    value = solved.result.value
    if reg_type == "entropy":  # relative to 1 in the place of a bᵀ; the sums are the weights
        value = value + reg * (torch.special.entr(row).sum() + torch.special.entr(column).sum()).neg()
    return OTResult(
        kind,
        value=value,
        value_linear=solved.result.linear,
        potentials=(solved.log_u, solved.log_v),
        lazy_plan=solved.result.plan,
    )
