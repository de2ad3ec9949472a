"""A recurrent forecaster trained with soft-DTW from one start: with torch.nn.LSTM, and with warpalign's LSTM and HardLSTM.

An encoder reads the beginning of a series. A decoder starts from its state, reads the time, and predicts the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median, stdev

import torch
from torch import Tensor, nn
from tqdm import tqdm

import warpalign
from warpalign.recurrent import LSTM, HardLSTM

from .forecast import HARD, split

EVERY = 5  # Every fifth sample is used, so that several seeds take seconds.
KINDS: dict[str, Callable[..., nn.Module]] = {"torch.nn.LSTM": nn.LSTM, "LSTM": LSTM, "HardLSTM": HardLSTM}


@dataclass(frozen=True)
class Trained:
    """One kind of LSTM, over all seeds."""

    name: str
    losses: Tensor  # (seeds, steps) of training
    scores: tuple[float, ...]  # mean squared DTW on the held-out series, by seed
    step_ms: float  # median time of a training step

    @property
    def score(self) -> str:
        spread = f" ± {stdev(self.scores):.2f}" if len(self.scores) > 1 else ""
        return f"{mean(self.scores):.2f}{spread}"


class Network(nn.Module):
    """Series (B, seen, 1) -> forecasts (B, horizon, 1)."""

    def __init__(self, lstm: Callable[..., nn.Module], horizon: int, hidden: int = 32) -> None:
        super().__init__()
        self.encoder = lstm(1, hidden, batch_first=True)
        self.decoder = lstm(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)
        self.horizon = horizon

    def forward(self, past: Tensor) -> Tensor:
        _, state = self.encoder(past)
        clock = torch.linspace(-1, 1, self.horizon, device=past.device)[None, :, None]
        hidden, _ = self.decoder(clock.expand(len(past), -1, -1), state)
        forecast: Tensor = self.head(hidden)
        return forecast


def train_kinds(train: Tensor, test: Tensor, gamma: float, steps: int, seeds: int) -> list[Trained]:
    """Every kind from the same weights, `seeds` times, with full-batch Adam."""
    past, future = split(train[::2, ::EVERY])  # sorted by class: half of each
    test_past, test_future = split(test[:, ::EVERY])
    criterion = warpalign.SoftDTW(gamma=gamma, reduction="mean")
    results = []
    for name, kind in KINDS.items():
        curves, scores, times = [], [], []
        for seed in tqdm(
            range(seeds), desc=f"training, {name}", unit="seed", delay=1.0, leave=False, disable=None
        ):
            torch.manual_seed(seed)
            start = Network(nn.LSTM, future.shape[1])
            network = Network(kind, future.shape[1])
            network.load_state_dict(start.state_dict())
            network.to(train.device)
            optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
            curve = []
            for _ in range(steps):
                begin = time.perf_counter()
                optimizer.zero_grad()
                loss = criterion(network(past), future)
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 10.0)
                optimizer.step()
                curve.append(loss.item())
                times.append(time.perf_counter() - begin)
            curves.append(curve)
            with torch.no_grad():
                forecast = network(test_past)
            scores.append(warpalign.soft_dtw(forecast, test_future, gamma=HARD, reduction="mean").item())
        results.append(Trained(name, torch.tensor(curves), tuple(scores), 1e3 * median(times)))
    return results
