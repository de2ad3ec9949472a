"""What the transport table compares with: the same iterations in float64 on dense tables, for the value and its gradient."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.transport.sizes import Size


class Solution(NamedTuple):
    """Of one problem, after the size's iterations."""

    value: float
    """The objective's dual."""
    plan: Tensor
    """(N, M), in the cost's dtype."""


def solution(cost: Tensor, epsilon: float, size: Size) -> Solution:
    """In the cost's dtype; weights are uniform."""
    n, m = cost.shape
    w, z = cost.new_zeros(n), cost.new_zeros(m)
    log_n, log_m, shift = math.log(n), math.log(m), 0.0
    scaled = cost / -epsilon

    def updated(free: Tensor) -> Tensor:
        if size.kind == "partial":
            return free.clamp(max=0.0)
        return free / (1 + epsilon) if size.kind == "unbalanced" else free

    def mass_of(potential: Tensor, free: Tensor, log_count: float) -> float:
        """The logarithm of the plan's mass, from a side's new potentials."""
        return float((potential - free - log_count).logsumexp(0))

    for _ in range(size.iterations):
        free_z = -(scaled + (w - log_n)[:, None]).logsumexp(0) - shift
        free_w = -(scaled + (z - log_m)[None]).logsumexp(1) - shift
        if size.updates == "symmetric":
            w, z = (w + updated(free_w)) / 2, (z + updated(free_z)) / 2
            if size.kind == "partial":
                free_w = -(scaled + (z - log_m)[None]).logsumexp(1) - shift
                shift += math.log(0.5) - mass_of(w, free_w, log_n)
            continue
        z = updated(free_z)
        if size.kind == "partial":
            shift += math.log(0.5) - mass_of(z, free_z, log_m)
        free_w = -(scaled + (z - log_m)[None]).logsumexp(1) - shift
        w = updated(free_w)
        if size.kind == "partial":
            shift += math.log(0.5) - mass_of(w, free_w, log_n)
    log_plan = scaled + (w - log_n)[:, None] + (z - log_m)[None] + shift
    plan = log_plan.exp_()
    value = epsilon * (1 - float(plan.sum()))
    for potential in (w, z):
        f = epsilon * potential
        value += float(-torch.expm1(-f).mean()) if size.kind == "unbalanced" else float(f.mean())
    value += epsilon * shift * 0.5 if size.kind == "partial" else 0.0
    return Solution(value, plan)


def of_points(x: Tensor, y: Tensor, epsilon: float, size: Size) -> tuple[float, Tensor]:
    """The value between points (N, D) and (M, D), and its gradient with respect to x at the plan; debiased for a divergence."""

    def problem(x: Tensor, y: Tensor) -> tuple[float, Tensor]:
        value, plan = solution(squares(x, y), epsilon, size)
        gradient = 2 * (plan.sum(1, keepdim=True) * x - plan @ y)
        if y is x:
            gradient += 2 * (plan.sum(0)[:, None] * x - plan.T @ x)
        return value, gradient

    value, gradient = problem(x, y)
    if size.divergence:
        of_x, by_x = problem(x, x)
        value, gradient = value - of_x / 2 - problem(y, y)[0] / 2, gradient - by_x / 2
    return value, gradient


def squares(x: Tensor, y: Tensor) -> Tensor:
    """(N, M): squared distances."""
    return torch.cdist(x, y).square_()
