"""Sinkhorn of cost matrices, as ot.bregman has it; handed on by bregman.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from warpalign.compat.pot._common import (
    Kind,
    Solved,
    balanced,
    check_reg,
    error_of,
    in_kind,
    kind_of,
    of_columns,
    weights_of,
)
from warpalign.transport import Annealing

_METHODS = ("sinkhorn", "sinkhorn_log", "greenkhorn", "sinkhorn_stabilized", "sinkhorn_epsilon_scaling")
_OF_LOSSES = ("sinkhorn", "sinkhorn_log", "sinkhorn_stabilized")


def sinkhorn(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) between weights a and b at costs M; for b (m, k) the k losses ⟨M, P⟩.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        method: "sinkhorn", "sinkhorn_log", "greenkhorn", "sinkhorn_stabilized" or "sinkhorn_epsilon_scaling". All are
            computed in the log domain and find the same plan; the name decides the keys of the dict.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from, of which log u is used; of k problems a
            list of k pairs. With "sinkhorn_stabilized" and "sinkhorn_epsilon_scaling": potentials in the unit of M.
        kwargs: epsilon0 and numInnerItermax of "sinkhorn_epsilon_scaling"; others have no effect.
    """
    return _solve(
        a, b, M, reg, _checked(method, _METHODS), numItermax, stopThr, log, warn, warmstart, kwargs, plan=True
    )


def sinkhorn2(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = False,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """The loss ⟨M, P⟩ of :func:`sinkhorn`, or those of all columns of b; no plan is stored.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        method: "sinkhorn", "sinkhorn_log" or "sinkhorn_stabilized": the keys of the dict.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from, of which log u is used; of k problems a
            list of k pairs. With "sinkhorn_stabilized": potentials in the unit of M.
        kwargs: have no effect.
    """
    return _solve(
        a,
        b,
        M,
        reg,
        _checked(method, _OF_LOSSES),
        numItermax,
        stopThr,
        log,
        warn,
        warmstart,
        kwargs,
        plan=False,
    )


def sinkhorn_knopp(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn` with method="sinkhorn".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from, of which log u is used; of k problems a
            list of k pairs.
        kwargs: have no effect.
    """
    return _solve(a, b, M, reg, "sinkhorn", numItermax, stopThr, log, warn, warmstart, kwargs, plan=True)


def sinkhorn_log(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    numItermax: int = 1000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn` with method="sinkhorn_log".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from, of which log u is used; of k problems a
            list of k pairs.
        kwargs: have no effect.
    """
    return _solve(a, b, M, reg, "sinkhorn_log", numItermax, stopThr, log, warn, warmstart, kwargs, plan=True)


def greenkhorn(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    numItermax: int = 10000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
) -> Any:
    """:func:`sinkhorn` with method="greenkhorn", whose updates of single entries are whole sweeps here.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        numItermax: the maximum number of sweeps.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with "u", "v" and "n_iter".
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from, of which log u is used; of k problems a
            list of k pairs.
    """
    return _solve(a, b, M, reg, "greenkhorn", numItermax, stopThr, log, warn, warmstart, {}, plan=True)


def sinkhorn_stabilized(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    numItermax: int = 1000,
    tau: float = 1e3,
    stopThr: float = 1e-9,
    warmstart: Any = None,
    verbose: bool = False,
    print_period: int = 20,
    log: bool = False,
    warn: bool = True,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn` with method="sinkhorn_stabilized".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        numItermax: the maximum number of iterations.
        tau: has no effect: nothing overflows in the log domain.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        warmstart: potentials (alpha, beta) in the unit of M to start from, of which alpha is used; of k problems a list
            of k pairs.
        verbose: has no effect.
        print_period: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        kwargs: have no effect.
    """
    return _solve(
        a, b, M, reg, "sinkhorn_stabilized", numItermax, stopThr, log, warn, warmstart, kwargs, plan=True
    )


def sinkhorn_epsilon_scaling(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    numItermax: int = 100,
    epsilon0: float = 1e4,
    numInnerItermax: int = 100,
    tau: float = 1e3,
    stopThr: float = 1e-9,
    warmstart: Any = None,
    verbose: bool = False,
    print_period: int = 10,
    log: bool = False,
    warn: bool = True,
    **kwargs: Any,
) -> Any:
    """:func:`sinkhorn` with annealing from epsilon0, and at most numItermax · numInnerItermax iterations at reg.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns, or (m, k) for k problems; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        numItermax: with numInnerItermax, the maximum number of iterations: their product.
        epsilon0: the regularisation strength of the first iterations, in the unit of M; it shrinks by exp(−1) until it
            is reg.
        numInnerItermax: the other factor of the maximum number of iterations.
        tau: has no effect: nothing overflows in the log domain.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        warmstart: potentials (alpha, beta) in the unit of M to start from, of which alpha is used; of k problems a list
            of k pairs.
        verbose: has no effect.
        print_period: has no effect.
        log: whether a dict follows, with POT's keys of the method. Its list "err" has the last error alone.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        kwargs: have no effect.
    """
    kwargs = {"epsilon0": epsilon0, "numInnerItermax": numInnerItermax} | kwargs
    return _solve(
        a, b, M, reg, "sinkhorn_epsilon_scaling", numItermax, stopThr, log, warn, warmstart, kwargs, plan=True
    )


def _checked(method: str, known: tuple[str, ...]) -> str:
    name = method.lower()
    if name not in known:
        raise ValueError(f"Unknown method '{method}'.")
    return name


def _solve(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    method: str,
    max_iter: int,
    threshold: float,
    log: bool,
    warn: bool,
    warmstart: Any,
    extra: dict[str, Any],
    *,
    plan: bool,
) -> Any:
    kind = kind_of(M, a, b)
    costs = kind.tensor(M)
    row, column = weights_of(a, costs.shape[0], kind), weights_of(b, costs.shape[1], kind)
    reg = check_reg(reg)
    if column.dim() == 1:
        solved = _one(row, column, costs, reg, kind, method, max_iter, threshold, warn, warmstart, extra)
        main = solved.result.plan.to_dense() if plan else solved.result.linear
        return (kind.out(main), _record(solved, column, reg, kind, method)) if log else kind.out(main)
    starts = [None] * column.shape[1] if warmstart is None else list(warmstart)
    several = of_columns(column, lambda one: one)
    found = [
        _one(row, one, costs, reg, kind, method, max_iter, threshold, warn, start, extra)
        for one, start in zip(several, starts, strict=True)
    ]
    losses = kind.out(torch.stack([one.result.linear for one in found]))
    if not log:
        return losses
    log_u = torch.stack([one.log_u for one in found], 1)
    log_v = torch.stack([one.log_v for one in found], 1)
    record = {"log_u": log_u, "log_v": log_v, "u": log_u.exp(), "v": log_v.exp()}
    if method != "sinkhorn_log":
        record = {"u": record["u"], "v": record["v"]}
        record["err"] = [error_of(one.result, each) for one, each in zip(found, several, strict=True)]  # type: ignore[assignment]
        record["niter"] = max(int(one.result.iterations) for one in found) - 1  # type: ignore[assignment]
    return losses, in_kind(kind, record)


def _one(
    a: Tensor,
    b: Tensor,
    costs: Tensor,
    reg: float,
    kind: Kind,
    method: str,
    max_iter: int,
    threshold: float,
    warn: bool,
    warmstart: Any,
    extra: dict[str, Any],
) -> Solved:
    # The kernel's scaling vectors begin at 1 / n, the logarithms at 0.
    start: Tensor | float = 0.0 if method == "sinkhorn_log" else -math.log(len(a))
    options: dict[str, Any] = {}
    if warmstart is not None:
        start = kind.tensor(warmstart[0])
        if method in ("sinkhorn_stabilized", "sinkhorn_epsilon_scaling"):
            start = start / reg
    if method == "sinkhorn_epsilon_scaling":
        options = {
            "annealing": Annealing(start=max(float(extra.get("epsilon0", 1e4)), reg), factor=math.exp(-1)),
        }
        max_iter = max_iter * int(extra.get("numInnerItermax", 100))
    return balanced(
        a,
        b,
        reg,
        kind,
        costs={"cost_matrix": costs},
        start=start,
        max_iter=max_iter,
        threshold=threshold,
        warn=warn,
        **options,
    )


def _record(solved: Solved, b: Tensor, reg: float, kind: Kind, method: str) -> dict[str, Any]:
    log_u, log_v = solved.log_u, solved.log_v
    niter = int(solved.result.iterations) - 1
    dual = {"alpha": reg * log_u, "beta": reg * log_v, "warmstart": (reg * log_u, reg * log_v)}
    scaling = {"u": log_u.exp(), "v": log_v.exp()}
    records: dict[str, dict[str, Any]] = {
        "sinkhorn": {"niter": niter} | scaling,
        "sinkhorn_log": {"niter": niter, "log_u": log_u, "log_v": log_v} | scaling,
        "greenkhorn": {"n_iter": niter} | scaling,
        "sinkhorn_stabilized": {"n_iter": niter, "logu": log_u, "logv": log_v} | dual,
        "sinkhorn_epsilon_scaling": {"niter": niter} | dual,
    }
    record = records[method]
    if method != "greenkhorn":
        record = {"err": [error_of(solved.result, b)]} | record
    return in_kind(kind, record)
