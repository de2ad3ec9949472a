"""Drop-in for ot.unbalanced: Sinkhorn with KL on the sums of rows and columns."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign.compat.pot._common import (
    Kind,
    check_equal_sums,
    check_reg,
    in_kind,
    kind_of,
    of_columns,
    tolerance_of,
    warn_of_numbers,
    weights_of,
)
from warpalign.transport import SinkhornResult
from warpalign.transport import sinkhorn as solve_transport

__all__ = [
    "sinkhorn_knopp_unbalanced",
    "sinkhorn_stabilized_unbalanced",
    "sinkhorn_unbalanced",
    "sinkhorn_unbalanced2",
    "sinkhorn_unbalanced_translation_invariant",
]

_METHODS = ("sinkhorn", "sinkhorn_stabilized", "sinkhorn_translation_invariant", "sinkhorn_reg_scaling")


def sinkhorn_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    method: str = "sinkhorn",
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) that minimises ⟨M, P⟩ + reg KL(P | c) + reg_m KL(P 1 | a) + reg_m KL(Pᵀ 1 | b).

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        reg_m: a number, or one for each side; inf: the sums are exact.
        method: one of POT's names. All methods find the same plan; "sinkhorn_reg_scaling" warns.
        reg_type: "kl": c is a bᵀ unless it is given; "entropy": c is 1 everywhere.
        c: (n, m), the reference measure; None: by reg_type.
        warmstart: logarithms of the scaling vectors.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: changes nothing.
        log: a dict follows, with "logu", "logv", "cost" and "total_cost" (whose KL leave masses out, as POT's); its list "err"
            has the last error alone.
        kwargs: changes nothing.
    """
    _check_method(method, f"Unknown method '{method}'.")
    return _solve(a, b, M, reg, reg_m, reg_type, c, warmstart, numItermax, stopThr, log)


def sinkhorn_unbalanced2(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    method: str = "sinkhorn",
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    returnCost: str = "linear",
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """The loss of :func:`sinkhorn_unbalanced`; for b (m, k) the k linear losses.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        reg_m: the strength of KL of the marginals: a number, or one for each side; inf: the marginal is exact.
        method: "sinkhorn", "sinkhorn_stabilized", "sinkhorn_translation_invariant" or "sinkhorn_reg_scaling", which
            warns. All find the same plan.
        reg_type: "kl": c is a bᵀ unless it is given; "entropy": c is 1 everywhere.
        c: (n, m) reference measure; None: by reg_type.
        warmstart: logarithms (log u, log v) of scaling vectors to start from.
        returnCost: "linear": ⟨M, P⟩; "total": the whole objective, whose KL leave masses out, as POT's.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, as that of :func:`sinkhorn_unbalanced`.
        kwargs: have no effect.
    """
    _check_method(method, f"Unknown method {method}.")
    found = _solve(a, b, M, reg, reg_m, reg_type, c, warmstart, numItermax, stopThr, True)
    if len(getattr(b, "shape", ())) > 1:
        return found if log else found[0]
    if returnCost not in ("linear", "total"):
        raise ValueError(f"Unknown returnCost = {returnCost}")
    cost = found[1]["cost" if returnCost == "linear" else "total_cost"]
    return (cost, found[1]) if log else cost


def sinkhorn_knopp_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn_unbalanced` with method="sinkhorn".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        reg_m: the strength of KL of the marginals: a number, or one for each side; inf: the marginal is exact.
        reg_type: "kl": c is a bᵀ unless it is given; "entropy": c is 1 everywhere.
        c: (n, m) reference measure; None: by reg_type.
        warmstart: logarithms (log u, log v) of scaling vectors to start from.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, as that of :func:`sinkhorn_unbalanced`.
        kwargs: have no effect.
    """
    return _solve(a, b, M, reg, reg_m, reg_type, c, warmstart, numItermax, stopThr, log)


def sinkhorn_stabilized_unbalanced(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    tau: float = 1e5,
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn_unbalanced` with method="sinkhorn_stabilized".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        reg_m: the strength of KL of the marginals: a number, or one for each side; inf: the marginal is exact.
        reg_type: "kl": c is a bᵀ unless it is given; "entropy": c is 1 everywhere.
        c: (n, m) reference measure; None: by reg_type.
        warmstart: logarithms (log u, log v) of scaling vectors to start from.
        tau: has no effect: nothing overflows in the log domain.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, as that of :func:`sinkhorn_unbalanced`.
        kwargs: have no effect.
    """
    return _solve(a, b, M, reg, reg_m, reg_type, c, warmstart, numItermax, stopThr, log)


def sinkhorn_unbalanced_translation_invariant(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    reg_type: str = "kl",
    c: Any = None,
    warmstart: Any = None,
    numItermax: int = 1000,
    stopThr: float = 1e-6,
    verbose: bool = False,
    log: bool = False,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn_unbalanced` with method="sinkhorn_translation_invariant".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        reg_m: the strength of KL of the marginals: a number, or one for each side; inf: the marginal is exact.
        reg_type: "kl": c is a bᵀ unless it is given; "entropy": c is 1 everywhere.
        c: (n, m) reference measure; None: by reg_type.
        warmstart: logarithms (log u, log v) of scaling vectors to start from.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, as that of :func:`sinkhorn_unbalanced`.
        kwargs: have no effect.
    """
    return _solve(a, b, M, reg, reg_m, reg_type, c, warmstart, numItermax, stopThr, log)


class Strengths(NamedTuple):
    """reg_m of rows and columns, inf where the sums are exact."""

    rows: float
    columns: float


def strengths_of(reg_m: Any) -> Strengths:
    values = torch.as_tensor(reg_m, dtype=torch.float64).flatten().tolist()
    if len(values) not in (1, 2):
        raise ValueError(f"reg_m: expected a number or two, got {len(values)}")
    return Strengths(values[0], values[-1])


def unbalanced_result(
    row: Tensor,
    column: Tensor,
    costs: Tensor,
    reg: float,
    strengths: Strengths,
    kind: Kind,
    *,
    counting: bool,
    c: Tensor | None,
    warmstart: Any,
    max_iter: int,
    threshold: float,
) -> SinkhornResult:
    """POT updates rows first, from log v = 0: so the sides are exchanged."""
    if all(map(math.isinf, strengths)):
        check_equal_sums(row, column, "give a finite reg_m")
    shifted = costs if c is None else costs - reg * c.log()
    start = None
    if warmstart is not None:
        start = (reg * kind.tensor(warmstart[1]), reg * kind.tensor(warmstart[0]))
    rho_b, rho_a = (None if math.isinf(one) else one for one in strengths)
    result = solve_transport(
        cost_matrix=shifted.T,
        a=column,
        b=row,
        epsilon=reg,
        rho_a=rho_a,
        rho_b=rho_b,
        reference="counting" if counting else "product",
        init=start,
        max_iter=max(int(max_iter), 1),
        tol=tolerance_of(threshold, kind),
    )
    return result._replace(f=result.g, g=result.f, plan=result.plan.T)


def total_cost(
    plan: Tensor, costs: Tensor, c: Tensor, a: Tensor, b: Tensor, reg: float, strengths: Strengths
) -> Tensor:
    """POT's objective, whose KL(p | q) is the sum of p log(p / q) alone."""
    total = (plan * costs).sum() + reg * _kl(plan, c)
    for strength, sums, weights in ((strengths.rows, plan.sum(1), a), (strengths.columns, plan.sum(0), b)):
        if not math.isinf(strength):
            total = total + strength * _kl(sums, weights)
    return total


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p / q + 1e-16).log()).sum()


def _check_method(method: str, message: str) -> None:
    if method.lower() not in _METHODS:
        raise ValueError(message)
    if method.lower() == "sinkhorn_reg_scaling":
        warnings.warn(
            f'method: "{method}" is not implemented, nor is it in POT: the plan is that of "sinkhorn"',
            stacklevel=3,
        )


def _solve(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    reg_m: Any,
    reg_type: str,
    c: Any,
    warmstart: Any,
    max_iter: int,
    threshold: float,
    log: bool,
) -> Any:
    kind = kind_of(M, a, b)
    costs = kind.tensor(M)
    row, column = weights_of(a, costs.shape[0], kind), weights_of(b, costs.shape[1], kind)
    reg, strengths = check_reg(reg), strengths_of(reg_m)
    if reg_type.lower() not in ("kl", "entropy"):
        raise ValueError(f'reg_type: expected "kl" or "entropy", got {reg_type!r}')
    several = column.dim() > 1
    counting = reg_type.lower() == "entropy" or several
    given = None if c is None or counting else kind.tensor(c)

    def one(column: Tensor) -> SinkhornResult:
        return unbalanced_result(
            row,
            column,
            costs,
            reg,
            strengths,
            kind,
            counting=counting or given is not None,
            c=given,
            warmstart=warmstart,
            max_iter=max_iter,
            threshold=threshold,
        )

    if several:
        found = of_columns(column, one)
        losses = kind.out(torch.stack([each.linear for each in found]))
        sides = (torch.stack([(each.f, each.g)[side] for each in found], 1) / reg for side in (0, 1))
        errors = [each.error.detach() for each in found]
        warn_of_numbers(kind, *(each.linear for each in found))
        record: dict[str, Any] = {"err": errors} | dict(zip(("logu", "logv"), sides, strict=True))
        return (losses, in_kind(kind, record)) if log else losses
    result = one(column)
    plan = result.plan.to_dense()
    warn_of_numbers(kind, result.linear)
    if not log:
        return kind.out(plan)
    reference = torch.ones_like(costs) if counting else row[:, None] * column if given is None else given
    record = {
        "err": [result.error.detach()],
        "logu": result.f / reg,
        "logv": result.g / reg,
        "cost": (plan * costs).sum(),
        "total_cost": total_cost(plan, costs, reference, row, column, reg, strengths),
    }
    return kind.out(plan), in_kind(kind, record)
