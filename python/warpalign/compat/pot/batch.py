"""Drop-in for ot.batch: many balanced problems, or many Gromov-Wasserstein problems, at once."""

from __future__ import annotations

from typing import Any

import torch

from warpalign.compat.pot._common import check_reg, kind_of, tolerance_of
from warpalign.compat.pot._result import OTResult
from warpalign.compat.pot._solve_gromov import solve_gromov_batch
from warpalign.transport import sinkhorn

__all__ = ["solve_batch", "solve_gromov_batch"]

_METHODS = ("auto", "sinkhorn", "log_sinkhorn")
_GRADIENTS = ("envelope", "autodiff", "last_step", "detach")


def solve_batch(
    M: Any,
    reg: float | None = None,
    a: Any = None,
    b: Any = None,
    max_iter: int = 1000,
    tol: float = 1e-5,
    method: str = "auto",
    inner_iter: int = 1,
    inner_reg: float = 0.001,
    reg_type: str = "entropy",
    grad: str | None = "envelope",
) -> OTResult:
    """Entropic transport at costs M (B, n, m).

    Args:
        M: (B, n, m) costs.
        reg: > 0.
        a: (B, n) weights of the rows; None: uniform.
        b: (B, m) weights of the columns; None: uniform.
        max_iter: the maximum number of iterations.
        tol: iterations end when no logarithm of a scaling vector moves by more.
        method: "auto", "sinkhorn" or "log_sinkhorn", which are one here.
        inner_iter: changes nothing.
        inner_reg: changes nothing.
        reg_type: "entropy": the value has reg times the sum of P log P; "kl": relative to a bᵀ.
        grad: "envelope": of the value, with the plan as a constant. "detach" or None: none. "autodiff", "last_step": the
            converged solution's.
    """
    if method not in _METHODS:
        raise NotImplementedError(f"method: expected one of {', '.join(_METHODS)}, got {method!r}")
    if reg_type not in ("entropy", "kl"):
        raise ValueError(f"Unknown reg_type: {reg_type}. Must be one of ['kl', 'entropy'].")
    if grad is not None and grad not in _GRADIENTS:
        raise ValueError(f"Unknown grad: {grad}. Must be one of {list(_GRADIENTS)}.")
    strength = check_reg(reg)
    kind = kind_of(M, a, b)
    costs = kind.tensor(M)
    row, column = (
        torch.full(costs.shape[:2], 1 / costs.shape[1], dtype=kind.dtype, device=kind.device)
        if a is None
        else kind.tensor(a),
        torch.full((costs.shape[0], costs.shape[2]), 1 / costs.shape[2], dtype=kind.dtype, device=kind.device)
        if b is None
        else kind.tensor(b),
    )
    if grad in (None, "detach"):
        costs, row, column = (one.detach() for one in (costs, row, column))
    result = sinkhorn(
        cost_matrix=costs.detach() if grad == "envelope" else costs,
        a=row.detach() if grad == "envelope" else row,
        b=column.detach() if grad == "envelope" else column,
        epsilon=strength,
        max_iter=max(int(max_iter), 1),
        tol=tolerance_of(tol, kind),
    )
    plan = result.plan.to_dense()
    linear = (plan * costs).sum((1, 2))
    reference = row[:, :, None] * column[:, None, :] if reg_type == "kl" else torch.ones_like(plan)
    value = linear + strength * (plan * (plan / reference.detach() + 1e-16).log()).sum((1, 2))
    log_u, log_v = (pot / strength + w.log() for pot, w in ((result.f, row), (result.g, column)))
    return OTResult(
        kind,
        value=value,
        value_linear=linear,
        potentials=(log_u, log_v),
        lazy_plan=result.plan,
        plan=plan,
        log={"n_iter": int(result.iterations.max())},
    )
