"""Sinkhorn of points, as ot.bregman has it; handed on by bregman.py."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign._core.costs import Cost
from warpalign.compat.pot._common import (
    Kind,
    Solved,
    balanced,
    check_reg,
    costs_of,
    in_kind,
    kind_of,
    metric_of,
    weights_of,
)
from warpalign.compat.pot._matrix import sinkhorn, sinkhorn2


def empirical_sinkhorn(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    isLazy: bool = False,
    batchSize: Any = 100,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """The plan (n, m) between points; with isLazy logarithms of scaling vectors (f, g), and no matrix is stored.

    Args:
        X_s: (n, d) points.
        X_t: (m, d) points.
        reg: the regularisation strength, > 0.
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        metric: "sqeuclidean", "euclidean", "cityblock" or "cosine"; others raise NotImplementedError.
        numIterMax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        isLazy: whether the plan is not stored: two vectors of logarithms of scaling vectors, (n,) and (m,), are
            returned in its place.
        batchSize: has no effect: no batch of the matrix is stored.
        verbose: has no effect.
        log: whether a dict follows. With isLazy its "lazy_plan" is a :class:`warpalign.transport.TransportPlan`.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from: log u is used, with isLazy log v.
        kwargs: have no effect.
    """
    kind = kind_of(X_s, X_t)
    x, y = kind.tensor(X_s), kind.tensor(X_t)
    row, column = weights_of(a, len(x), kind), weights_of(b, len(y), kind)
    if not isLazy:
        M = costs_of(metric, x, y)
        found = sinkhorn(
            row,
            column,
            M,
            reg,
            numItermax=numIterMax,
            stopThr=stopThr,
            log=True,
            warn=warn,
            warmstart=warmstart,
            **kwargs,
        )
        plan, record = kind.out(found[0]), in_kind(kind, found[1])
        return (plan, record) if log else plan
    solved = _lazy(x, y, row, column, reg, metric, kind, numIterMax, stopThr, warn, warmstart)
    f, g = kind.out(solved.log_u), kind.out(solved.log_v)
    if not log:
        return f, g
    record = {
        "err": [kind.out((solved.result.plan.marginal(1) - row).detach().abs().sum())],
        "u": f,
        "v": g,
        "niter": int(solved.result.iterations) - 1,
        "lazy_plan": solved.result.plan,
    }
    return f, g, record


def empirical_sinkhorn2(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    isLazy: bool = False,
    batchSize: Any = 100,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """The loss ⟨M, P⟩ of :func:`empirical_sinkhorn`; neither a table nor a plan is made.

    Args:
        X_s: (n, d) points.
        X_t: (m, d) points.
        reg: the regularisation strength, > 0.
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        metric: "sqeuclidean", "euclidean", "cityblock" or "cosine"; others raise NotImplementedError.
        numIterMax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        isLazy: whether costs are computed from the points in each iteration, and no matrix of costs is stored either.
        batchSize: has no effect: no batch of the matrix is stored.
        verbose: has no effect.
        log: whether a dict follows. With isLazy its "lazy_plan" is a :class:`warpalign.transport.TransportPlan`.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from: log u is used, with isLazy log v.
        kwargs: have no effect.
    """
    kind = kind_of(X_s, X_t)
    x, y = kind.tensor(X_s), kind.tensor(X_t)
    row, column = weights_of(a, len(x), kind), weights_of(b, len(y), kind)
    if not isLazy:
        M = costs_of(metric, x, y)
        found = sinkhorn2(
            row,
            column,
            M,
            reg,
            numItermax=numIterMax,
            stopThr=stopThr,
            log=True,
            warn=warn,
            warmstart=warmstart,
            **kwargs,
        )
        loss, record = kind.out(found[0]), in_kind(kind, found[1])
        return (loss, record) if log else loss
    solved = _lazy(x, y, row, column, reg, metric, kind, numIterMax, stopThr, warn, warmstart)
    loss = kind.out(solved.result.linear)
    if not log:
        return loss
    f, g = kind.out(solved.log_u), kind.out(solved.log_v)
    niter = int(solved.result.iterations) - 1
    error = kind.out((solved.result.plan.marginal(1) - row).detach().abs().sum())
    return loss, {"err": [error], "u": f, "v": g, "niter": niter, "lazy_plan": solved.result.plan}


def empirical_sinkhorn_divergence(
    X_s: Any,
    X_t: Any,
    reg: float,
    a: Any = None,
    b: Any = None,
    metric: str = "sqeuclidean",
    numIterMax: int = 10000,
    stopThr: float = 1e-9,
    verbose: bool = False,
    log: bool = False,
    warn: bool = True,
    warmstart: Any = None,
    **kwargs: Any,
) -> Any:
    """POT's divergence: of the losses ⟨M, P⟩ alone, and at least 0. :func:`warpalign.transport.sinkhorn_divergence` is of values.

    Args:
        X_s: (n, d) points.
        X_t: (m, d) points.
        reg: the regularisation strength, > 0.
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        metric: "sqeuclidean", "euclidean", "cityblock" or "cosine"; others raise NotImplementedError.
        numIterMax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more.
        verbose: has no effect.
        log: whether a dict follows, with the three losses and their dicts.
        warn: whether a solve that has not converged warns, which waits for a GPU.
        warmstart: logarithms (log u, log v) of scaling vectors to start from: log u between the sets and of X_s with
            itself, log v of X_t with itself.
        kwargs: have no effect.
    """
    kind = kind_of(X_s, X_t)
    x, y = kind.tensor(X_s), kind.tensor(X_t)
    row, column = weights_of(a, len(x), kind), weights_of(b, len(y), kind)
    own: tuple[Any, Any] = (None, None) if warmstart is None else tuple((one, one) for one in warmstart)  # type: ignore[assignment]
    losses, records = [], []
    for one, other, p, q, first in (
        (x, y, row, column, warmstart),
        (x, x, row, row, own[0]),
        (y, y, column, column, own[1]),
    ):
        loss, record = empirical_sinkhorn2(
            one, other, reg, p, q, metric, numIterMax, stopThr, log=True, warn=warn, warmstart=first, **kwargs
        )
        losses.append(loss)
        records.append(in_kind(kind, record))
    value = kind.out((losses[0] - 0.5 * (losses[1] + losses[2])).clamp(min=0))
    if not log:
        return value
    names = ("ab", "a", "b")
    record = {f"sinkhorn_loss_{name}": kind.out(loss) for name, loss in zip(names, losses, strict=True)}
    record |= {f"log_sinkhorn_{name}": one for name, one in zip(names, records, strict=True)}
    return value, record


def _lazy(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    reg: float,
    metric: str,
    kind: Kind,
    max_iter: int,
    threshold: float,
    warn: bool,
    warmstart: Any,
) -> Solved:
    """POT's loop over points begins with the rows, from log v = 0: so the sides are exchanged."""
    cost: Cost = metric_of(metric)
    start = 0.0 if warmstart is None else kind.tensor(warmstart[1])
    solved = balanced(
        b,
        a,
        check_reg(reg),
        kind,
        costs={"x": y, "y": x, "cost": cost},
        start=start,
        max_iter=max_iter,
        threshold=threshold,
        warn=warn,
    )
    result = solved.result
    return Solved(result._replace(f=result.g, g=result.f, plan=result.plan.T), solved.log_v, solved.log_u)
