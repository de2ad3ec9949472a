"""Soft-DTW barycenter: the series with the least mean soft-DTW to a set of series, found with L-BFGS."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

import warpalign


@dataclass(frozen=True)
class Barycenter:
    mean: Tensor  # (N, D), the Euclidean mean, where the descent starts
    series: Tensor  # (N, D)
    losses: list[float]  # mean soft-DTW to the set: of the start, then after every iteration


def barycenter(series: Tensor, gamma: float, iterations: int, label: str = "barycenter") -> Barycenter:
    """Barycenter of the set `series` (count, N, D), of the same length N."""
    mean = series.mean(0)
    center = mean.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [center], lr=1.0, max_iter=1, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = warpalign.soft_dtw(center[None], series, gamma=gamma, reduction="mean")
        value.backward()
        return value

    losses = []
    for _ in tqdm(range(iterations), desc=label, unit="step", delay=1.0, leave=False, disable=None):
        losses.append(optimizer.step(loss).item())  # step() returns the loss before it
        if len(losses) > 1 and losses[-2] - losses[-1] < 1e-5 * abs(losses[-1]):
            break
    with torch.no_grad():
        losses.append(warpalign.soft_dtw(center[None], series, gamma=gamma, reduction="mean").item())
    return Barycenter(mean, center.detach(), losses)
