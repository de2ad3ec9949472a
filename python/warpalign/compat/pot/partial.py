"""Drop-in for ot.partial: entropic partial transport."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign.compat.pot._common import check_reg, in_kind, kind_of, tolerance_of, weights_of
from warpalign.transport import sinkhorn

__all__ = ["entropic_partial_wasserstein", "entropic_partial_wasserstein_logscale"]


def entropic_partial_wasserstein(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    m: float | None = None,
    method: str = "sinkhorn",
    numItermax: int = 1000,
    stopThr: float = 1e-100,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """The plan (n, m) of entropic partial transport that moves the mass m; the entropy is relative to the counting measure.

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        method: "sinkhorn" or "sinkhorn_log", which are the same here.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more, at least by 4 ε of the dtype.
        verbose: has no effect.
        log: whether a dict follows: "partial_w_dist" is ⟨M, P⟩, and "err" has the last error alone.
    """
    if method.lower() not in ("sinkhorn", "sinkhorn_log"):
        raise ValueError(f"Unknown method '{method}'.")
    kind = kind_of(a, b, M)
    costs = kind.tensor(M)
    row, column = weights_of(a, costs.shape[0], kind), weights_of(b, costs.shape[1], kind)
    mass = mass_of(m, row, column)
    result = sinkhorn(
        cost_matrix=costs,
        a=row,
        b=column,
        epsilon=check_reg(reg),
        mass=mass,
        reference="counting",
        max_iter=max(int(numItermax), 1),
        tol=tolerance_of(stopThr, kind),
    )
    plan = result.plan.to_dense()
    if not log:
        return kind.out(plan)
    record = {"err": [result.error.detach()], "partial_w_dist": result.linear}
    return kind.out(plan), in_kind(kind, record)


def entropic_partial_wasserstein_logscale(
    a: Any,
    b: Any,
    M: Any,
    reg: float,
    m: float | None = None,
    numItermax: int = 1000,
    stopThr: float = 1e-100,
    verbose: bool = False,
    log: bool = False,
) -> Any:
    """:func:`entropic_partial_wasserstein` with method="sinkhorn_log".

    Args:
        a: (n,) weights of the rows; None or empty: uniform.
        b: (m,) weights of the columns; None or empty: uniform.
        M: (n, m) costs.
        reg: the regularisation strength, > 0.
        m: the mass that is moved; None: the smaller sum of weights.
        numItermax: the maximum number of iterations.
        stopThr: iterations end when no logarithm of a scaling vector moves by more, at least by 4 ε of the dtype.
        verbose: has no effect.
        log: whether a dict follows: "partial_w_dist" is ⟨M, P⟩, and "err" has the last error alone.
    """
    return entropic_partial_wasserstein(a, b, M, reg, m, "sinkhorn_log", numItermax, stopThr, verbose, log)


def mass_of(m: float | None, a: Tensor, b: Tensor) -> float:
    """m, by default the smaller sum of weights. Rounding of the sums is no reason to refuse m = 1."""
    most = min(float(a.sum()), float(b.sum()))
    mass = most if m is None else float(m)
    if mass < 0:
        raise ValueError("Problem infeasible. Parameter m should be greater than 0.")
    if mass > most * (1 + max(a.shape[-1], b.shape[-1]) * torch.finfo(a.dtype).eps):
        raise ValueError("Problem infeasible. Parameter m should lower or equal than min(|a|_1, |b|_1).")
    return min(mass, most)
