"""Soft-DTW barycenter: the series with the least mean soft-DTW to a set of series, found with L-BFGS.

Soft-DTW is not convex in the barycenter, and the smaller gamma is, the more local minima there are. The
descent therefore begins at a large gamma, whose minimum is easy to find, and ends at the one asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

import warpalign

ANNEALING = (100.0, 10.0, 1.0)  # times the final gamma


@dataclass(frozen=True)
class Barycenter:
    mean: Tensor  # (N, D), the Euclidean mean, where the descent starts
    series: Tensor  # (N, D)
    loss_of_mean: float  # mean soft-DTW to the set, at the final gamma
    loss: float
    evaluations: int  # of the loss and its gradient


def barycenter(series: Tensor, gamma: float, iterations: int, label: str = "barycenter") -> Barycenter:
    """Barycenter of the set `series` (count, N, D); at most `iterations` steps at each gamma."""
    mean = series.mean(0)
    center = mean.clone().requires_grad_()
    evaluations = 0
    with tqdm(desc=label, unit="step", delay=1.0, leave=False, disable=None) as progress:
        for smoothing in (gamma * factor for factor in ANNEALING):
            optimizer = torch.optim.LBFGS([center], max_iter=iterations, line_search_fn="strong_wolfe")

            def loss(optimizer: torch.optim.Optimizer = optimizer, smoothing: float = smoothing) -> Tensor:
                nonlocal evaluations
                evaluations += 1
                optimizer.zero_grad()
                value = warpalign.soft_dtw(center[None], series, gamma=smoothing, reduction="mean")
                value.backward()
                progress.update()
                return value

            optimizer.step(loss)

    def loss_of(candidate: Tensor) -> float:
        with torch.no_grad():
            return warpalign.soft_dtw(candidate[None], series, gamma=gamma, reduction="mean").item()

    center = center.detach()
    return Barycenter(mean, center, loss_of(mean), loss_of(center), evaluations)
