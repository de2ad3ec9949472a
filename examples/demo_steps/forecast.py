"""A small forecaster trained twice from the same start: with soft-DTW and with the mean squared error.

The task, after Cuturi & Blondel 2017, section 4.4: from the first 30 % of a series predict the rest. Most of
the transients have not begun by then. The mean squared error punishes a jump that comes a little early twice,
and so learns a smeared average; soft-DTW lets the jump slide in time and keeps its shape.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm import tqdm

import warpalign

OBSERVED = 0.3  # the part of a series that the forecaster sees
HARD = 1e-4  # a gamma so small that soft-DTW of these series is within 0.04 of squared DTW


@dataclass(frozen=True)
class Scores:
    """Means over the held-out series."""

    dtw: float  # squared DTW (soft-DTW at a tiny gamma)
    soft_dtw: float  # at the training gamma
    mse: float


@dataclass(frozen=True)
class Forecaster:
    name: str
    before: Scores
    after: Scores
    predictions: Tensor  # (tests, horizon, 1) on the CPU
    step_ms: float  # median time of a training step


class Network(nn.Module):
    """One hidden layer from `seen` samples to `horizon` samples."""

    def __init__(self, seen: int, horizon: int, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(seen, hidden), nn.Tanh(), nn.Linear(hidden, horizon))

    def forward(self, past: Tensor) -> Tensor:
        future: Tensor = self.layers(past.squeeze(-1))
        return future.unsqueeze(-1)


def split(series: Tensor) -> tuple[Tensor, Tensor]:
    """What is seen and what is to be predicted of (count, N, 1)."""
    seen = round(OBSERVED * series.shape[1])
    return series[:, :seen], series[:, seen:]


@torch.no_grad()
def score(network: nn.Module, past: Tensor, future: Tensor, gamma: float) -> Scores:
    predicted = network(past)
    return Scores(
        dtw=warpalign.soft_dtw(predicted, future, gamma=HARD, reduction="mean").item(),
        soft_dtw=warpalign.soft_dtw(predicted, future, gamma=gamma, reduction="mean").item(),
        mse=nn.functional.mse_loss(predicted, future).item(),
    )


def train_forecaster(
    name: str, loss: nn.Module, train: Tensor, test: Tensor, gamma: float, epochs: int, seed: int
) -> Forecaster:
    """Full-batch Adam for `epochs` steps; `gamma` is that of the reported score."""
    past, future = split(train)
    test_past, test_future = split(test)
    torch.manual_seed(seed)
    network = Network(past.shape[1], future.shape[1]).to(train.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    before = score(network, test_past, test_future, gamma)
    times = []
    for _ in tqdm(range(epochs), desc=f"training, {name}", unit="step", delay=1.0, leave=False, disable=None):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(network(past), future).backward()
        optimizer.step()
        if train.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    after = score(network, test_past, test_future, gamma)
    with torch.no_grad():
        predictions = network(test_past).cpu()
    return Forecaster(name, before, after, predictions, 1e3 * sorted(times)[len(times) // 2])
