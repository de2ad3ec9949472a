"""The public functions of soft-DTW in float64, differentiable twice, from reference.py's recursion and the definitions of the options."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.python.soft_dtw.reference import FORBIDDEN, band_mask, tables, values


def cost_table(x: Tensor, y: Tensor, cost: str = "sqeuclidean") -> Tensor:
    """(B, N, M) costs as warpalign.soft_dtw defines them, with gradient 0 where they have none."""
    difference = x[:, :, None] - y[:, None]
    if cost == "l1":
        return difference.abs().sum(-1)
    if cost == "huber":
        size = difference.abs()
        return torch.where(size <= 1, difference.square() / 2, size - 0.5).sum(-1)
    squares = difference.square().sum(-1)
    if cost == "euclidean":
        return torch.where(squares > 0, squares.where(squares > 0, 1.0).sqrt(), 0.0)
    if cost == "cosine":
        products, norms = x @ y.mT, x.square().sum(-1)[:, :, None] * y.square().sum(-1)[:, None]
        return torch.where(norms > 0, 1 - products / norms.where(norms > 0, 1.0).sqrt(), 1.0)
    return squares


def soft_dtw64(x: Tensor, y: Tensor, *, normalize: bool = False, **options: Any) -> Tensor:
    """(B,) values of warpalign.soft_dtw with these options, of finite x (B, N, D) and y (B, M, D)."""
    if not normalize:
        return _values(x, y, **options)
    n, m = options.pop("x_lengths", None), options.pop("y_lengths", None)
    both = _values(x, y, x_lengths=n, y_lengths=m, **options)
    of_x = _values(x, x, x_lengths=n, y_lengths=n, **options)
    of_y = _values(y, y, x_lengths=m, y_lengths=m, **options)
    return both - (of_x + of_y) / 2


def _values(
    x: Tensor,
    y: Tensor,
    *,
    gamma: float | Tensor = 1.0,
    cost: str = "sqeuclidean",
    x_lengths: Tensor | None = None,
    y_lengths: Tensor | None = None,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    step_penalty: float = 0.0,
    **band: Any,
) -> Tensor:
    table = cost_table(x, y, cost)
    if x_mask is not None:
        table = table.masked_fill(x_mask.expand(x.shape[:2])[:, :, None], 0.0)
    if y_mask is not None:
        table = table.masked_fill(y_mask.expand(y.shape[:2])[:, None, :], 0.0)
    return values_of_costs(table, gamma, x_lengths, y_lengths, step_penalty, **band)


def values_of_costs(
    table: Tensor,
    gamma: float | Tensor = 1.0,
    n: Tensor | None = None,
    m: Tensor | None = None,
    step_penalty: float = 0.0,
    **band: Any,
) -> Tensor:
    """(B,) values of warpalign.soft_dtw_cost; inf without a path."""
    if band:
        table = torch.where(allowed(table, n, m, **band), table, FORBIDDEN)
    smoothing = gamma.expand(len(table)) if isinstance(gamma, Tensor) else gamma
    found = values(table, smoothing, n, m, penalty=step_penalty)
    return torch.where(found < FORBIDDEN / 2, found, torch.inf)


def allowed(table: Tensor, n: Tensor | None, m: Tensor | None, **band: Any) -> Tensor:
    """(B, N, M): whether a band lets paths through a cell; cells beyond a pair's lengths do not matter."""
    batch, height, width = table.shape
    band = {"band": "sakoe_chiba", **band}
    mask = torch.zeros(batch, height, width, dtype=torch.bool)
    for b in range(batch):
        rows, columns = (int(k[b]) if k is not None else size for k, size in ((n, height), (m, width)))
        mask[b, :rows, :columns] = torch.from_numpy(band_mask(n=rows, m=columns, **band))
    return mask.to(table.device)


def subsequence64(
    query: Tensor,
    series: Tensor,
    *,
    gamma: float = 1.0,
    cost: str = "sqeuclidean",
    step_penalty: float = 0.0,
    series_lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(B,) values and (B, M) end values (inf behind a series' length) of warpalign.soft_dtw_subsequence."""
    n, m = query.shape[1], series.shape[1]
    found = tables(cost_table(query, series, cost), gamma, penalty=step_penalty, anywhere=True)
    ends = found[n - 1 :, :, n].T
    if series_lengths is not None:
        ends = torch.where(torch.arange(m) < series_lengths[:, None], ends, torch.inf)
    if gamma == 0:
        return ends.amin(1), ends
    return -gamma * torch.logsumexp(-ends / gamma, 1), ends
