"""Entropic transport in float64 on dense tables, straight from the equations of warpalign/sinkhorn.h."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Answer(NamedTuple):
    value: Tensor
    """The primal objective at the plan."""
    linear: Tensor
    plan: Tensor


def costs(x: Tensor, y: Tensor, cost: str) -> Tensor:
    """(N, M) of points (N, D) and (M, D)."""
    difference = x[:, None] - y[None]
    if cost == "sqeuclidean":
        return difference.square().sum(-1)
    if cost == "euclidean":
        return difference.square().sum(-1).sqrt()
    if cost == "l1":
        return difference.abs().sum(-1)
    if cost == "huber":
        size = difference.abs()
        return torch.where(size <= 1, size.square() / 2, size - 0.5).sum(-1)
    u, v = (t / t.norm(dim=-1, keepdim=True) for t in (x, y))
    return 1 - u @ v.T


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (torch.special.xlogy(p, p / q.where(q > 0, 1.0)) - p + q).sum()


def solve(
    cost: Tensor,
    a: Tensor,
    b: Tensor,
    epsilon: float,
    *,
    rho_a: float | None = None,
    rho_b: float | None = None,
    mass: float | None = None,
    reference: str = "product",
    iterations: int = 2000,
) -> Answer:
    """One problem: costs (N, M), positive weights (N,) and (M,)."""
    log_r = (a.log()[:, None] + b.log()[None]) if reference == "product" else torch.zeros_like(cost)

    def updated(weight: Tensor, log_sum: Tensor, rho: float | None) -> Tensor:
        free = weight.log() - log_sum
        if mass is not None:
            return free.clamp(max=0.0)
        if rho is None:
            return free
        return rho / (rho + epsilon) * free

    w, z, shift = torch.zeros_like(a), torch.zeros_like(b), 0.0

    def log_plan() -> Tensor:
        return log_r + w[:, None] + z[None] + shift - cost / epsilon

    for _ in range(iterations):
        z = updated(b, torch.logsumexp(log_plan() - z[None], 0), rho_b)
        if mass is not None:
            shift += math.log(mass) - float(torch.logsumexp(log_plan().flatten(), 0))
        w = updated(a, torch.logsumexp(log_plan() - w[:, None], 1), rho_a)
        if mass is not None:
            shift += math.log(mass) - float(torch.logsumexp(log_plan().flatten(), 0))
    plan = log_plan().exp()
    linear = (plan * cost.where(plan > 0, 0.0)).sum()
    value = linear + epsilon * kl(plan, log_r.exp())
    for sums, weight, rho in ((plan.sum(1), a, rho_a), (plan.sum(0), b, rho_b)):
        if rho is not None and mass is None:
            value = value + rho * kl(sums, weight)
    return Answer(value, linear, plan)
