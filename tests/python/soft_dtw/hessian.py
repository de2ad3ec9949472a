"""Hessians of soft-DTW by torch's own autograd, through the plain recursion."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.autograd import grad


def cost_table(x: Tensor, y: Tensor, cost: str) -> Tensor:
    difference = x[:, None] - y[None]
    if cost == "sqeuclidean":
        return difference.square().sum(-1)
    if cost == "euclidean":
        return difference.norm(dim=-1)
    if cost == "l1":
        return difference.abs().sum(-1)
    if cost == "huber":
        return torch.nn.functional.huber_loss(difference, torch.zeros_like(difference), reduction="none").sum(
            -1
        )
    return 1 - torch.nn.functional.cosine_similarity(x[:, None], y[None], dim=-1)


def plain_value(costs: Tensor, gamma: float, penalty: float = 0.0, allowed: Tensor | None = None) -> Tensor:
    """The value of one pair's costs (N, M), cell by cell, so that autograd can differentiate it any number of times."""
    n, m = costs.shape
    table: dict[tuple[int, int], Tensor] = {}
    for i, j in itertools.product(range(n), range(m)):
        steps = [((i - 1, j), penalty), ((i, j - 1), penalty), ((i - 1, j - 1), 0.0)]
        before = [table[cell] + more for cell, more in steps if cell in table]
        if allowed is not None and not allowed[i, j] or not (before or i == j == 0):
            continue
        softmin = -gamma * torch.logsumexp(-torch.stack(before) / gamma, 0) if before else costs.new_zeros(())
        table[i, j] = costs[i, j] + softmin
    return table[n - 1, m - 1]


def products(value: Tensor, inputs: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """<gradient, tangent> per pair, summed, and the Hessian times the tangent."""
    gradients = grad(value.sum(), inputs, create_graph=True)
    along = torch.stack([(g * t).sum() for g, t in zip(gradients, tangents, strict=True)]).sum()
    bent = grad(along, inputs, allow_unused=True) if along.requires_grad else (None,) * len(inputs)
    filled = (torch.zeros_like(t) if b is None else b for b, t in zip(bent, inputs, strict=True))
    return along.detach(), *filled
