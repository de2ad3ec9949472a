"""Soft-DTW in float64 with plain PyTorch operations: the yardstick of the benchmarks, on CPUs and GPUs.

In base e, with L = -R / gamma (Cuturi & Blondel 2017, eq. 2):

    S[i, j] = log(exp L[i-1, j] + exp L[i, j-1] + exp L[i-1, j-1]),   L[i, j] = S[i, j] - C[i, j] / gamma

and backwards, with the transition weights p_up[i, j] = exp(L[i-1, j] - S[i, j]) and so on, which sum to 1:

    E[i, j] = E[i+1, j] p_up[i+1, j] + E[i, j+1] p_left[i, j+1] + E[i+1, j+1] p_diag[i+1, j+1].

Every table is stored skewed, one anti-diagonal k = i + j per row with one column of padding on the left, so
that a step of the recursion is a few operations on contiguous slices. Memory is about 7 tables of
(N + M - 1) (N + 1) doubles per pair: meant for a few pairs, not for a whole batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Reference(NamedTuple):
    """Value (B,), gradients (B, N, D) and (B, M, D), and expected alignment (B, N, M), all float64."""

    value: Tensor
    grad_x: Tensor
    grad_y: Tensor
    alignment: Tensor


def _skewed(batch: int, n: int, m: int, fill: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """A table (B, N+M-1, N+1) and its view as a (B, N, M) matrix: cell (i, j) is at [i + j, i + 1]."""
    width = n + 1
    table = torch.full((batch, n + m - 1, width), fill, dtype=torch.float64, device=like.device)
    view = table.as_strided((batch, n, m), ((n + m - 1) * width, width + 1, width), storage_offset=1)
    return table, view


def _weights(earlier: Tensor, log_sum: Tensor) -> Tensor:
    """exp(L of the cell before - S): the weight of a transition, 0 where there is no such cell."""
    return torch.nan_to_num(torch.exp(earlier - log_sum), nan=0.0, posinf=0.0)


@torch.no_grad()
def soft_dtw_float64(x: Tensor, y: Tensor, gamma: float = 1.0) -> Reference:
    """Value, gradients and expected alignment of x (B, N, D) against y (B, M, D), computed in float64."""
    x, y = x.detach().double(), y.detach().double()
    (batch, n, _), m = x.shape, y.shape[1]
    neg_inf = float("-inf")

    cost, cost_matrix = _skewed(batch, n, m, float("inf"), x)
    cost_matrix.copy_(torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square() / gamma)

    # log_sum is S, table is L; row 0 of each is cell (0, 0), whose S is log 1.
    table, _ = _skewed(batch, n, m, neg_inf, x)
    log_sum, _ = _skewed(batch, n, m, neg_inf, x)
    log_sum[:, 0, 1] = 0.0
    table[:, 0, 1] = -cost[:, 0, 1]
    for k in range(1, n + m - 1):
        best = torch.logaddexp(table[:, k - 1, :-1], table[:, k - 1, 1:])
        if k > 1:
            best = torch.logaddexp(best, table[:, k - 2, :-1])
        log_sum[:, k, 1:] = best
        torch.sub(best, cost[:, k, 1:], out=best)
        table[:, k, 1:] = best
    value = -gamma * table[:, -1, n]

    up = _weights(table[:, :-1, :-1], log_sum[:, 1:, 1:])
    left = _weights(table[:, :-1, 1:], log_sum[:, 1:, 1:])
    diagonal = _weights(table[:, :-2, :-1], log_sum[:, 2:, 1:])
    del cost, cost_matrix, log_sum

    table, alignment = _skewed(batch, n, m, 0.0, x)
    table[:, -1, n] = 1.0
    for k in range(n + m - 3, -1, -1):
        row = table[:, k, 1:]
        torch.mul(table[:, k + 1, 1:], left[:, k], out=row)
        row[:, :-1].addcmul_(table[:, k + 1, 2:], up[:, k, 1:])
        if k + 2 <= n + m - 2:
            row[:, :-1].addcmul_(table[:, k + 2, 2:], diagonal[:, k, 1:])

    e = alignment.contiguous()
    grad_x = 2.0 * (e.sum(2, keepdim=True) * x - e @ y)
    grad_y = 2.0 * (e.sum(1).unsqueeze(2) * y - e.transpose(1, 2) @ x)
    return Reference(value, grad_x, grad_y, e)
