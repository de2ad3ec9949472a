"""The trainings of training_impact.py: data, models, and what a step and a score of each are."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from warpalign import dtw, dtw_path
from warpalign.io import read_dataset

Loss = Callable[[Tensor, Tensor], Tensor]
"""(B, N, D) and (B, M, D) to (B,) soft-DTW values."""


class Task(NamedTuple):
    """A training of `epochs` passes over `pairs` pairs in batches of `batch`; the loss sees series of `length`, D features."""

    name: str
    batch: int
    length: int
    D: int
    gamma: float
    pairs: int
    epochs: int
    calls: int  # of soft-DTW per step
    metric: str
    folder: Path | None = None  # of DATA_SETS' files; None: sktime's

    @property
    def steps(self) -> int:
        return self.pairs // self.batch


TASKS = [
    Task("forecast", 32, 512, 1, 0.1, 1024, 10, 1, "DTW per step"),
    Task("represent", 32, 256, 128, 0.1, 512, 8, 2, "phase error"),
]
SHIPPED_TASKS = [
    Task("leaves", 20, 171, 1, 0.1, 200, 30, 1, "DTW per step"),
    Task("power", 20, 584, 1, 0.1, 100, 30, 1, "DTW per step"),
]
DATA_SETS = {"leaves": "OSULeaf", "power": "ACSF1"}
CONTEXT = 128  # steps that a forecast sees
FRAME = 64  # features of a frame
TEST_PAIRS = 64


def pulse_trains(count: int, length: int, generator: torch.Generator) -> Tensor:
    """(count, length): pulses whose tempo is a random walk around a period of 24 to 48 steps."""
    period = 24 + 24 * torch.rand(count, 1, generator=generator)
    drift = 0.02 * torch.randn(count, length, generator=generator).cumsum(1).clamp(-0.5, 0.5)
    phase = torch.rand(count, 1, generator=generator) + (drift.exp() / period).cumsum(1)
    pulses = (-(((phase % 1 - 0.5) / 0.1) ** 2)).exp()
    return pulses + 0.05 * torch.randn(count, length, generator=generator)


def smooth(count: int, length: int, generator: torch.Generator) -> Tensor:
    """(count, length): sums of a few slow waves."""
    t = torch.linspace(0, 1, length)
    waves = torch.randn(count, 6, 1, generator=generator) / 6**0.5
    shift = torch.rand(count, 6, 1, generator=generator)
    return (waves * torch.sin(2 * torch.pi * (torch.arange(1, 7)[:, None] * t + shift))).sum(1)


def videos(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Frames (count, length, FRAME) and the phase 0 ... 1 of the action in each frame (count, length)."""
    speed = smooth(count, length, generator).mul(1.5).exp().cumsum(1)
    phase = (speed - speed[:, :1]) / (speed[:, -1:] - speed[:, :1])
    world = torch.Generator().manual_seed(7)  # the camera and the action: the same in all videos
    frequency = torch.arange(1, 5).repeat(2)
    offset = torch.rand(8, generator=world)
    action = torch.sin(torch.pi * frequency * phase[..., None] + 2 * torch.pi * offset)
    other = smooth(8 * count, length, generator).view(count, 8, length).transpose(1, 2)
    camera = torch.randn(16, FRAME, generator=world) / 4
    frames = torch.cat([action, 3 * other], -1) @ camera
    return frames + 0.3 * torch.randn(frames.shape, generator=generator), phase


class Forecaster(nn.Module):
    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.encoder = nn.GRU(1, 128, batch_first=True)
        self.head = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, horizon))

    def forward(self, context: Tensor) -> Tensor:
        """(B, CONTEXT) to (B, horizon, 1)."""
        states, _ = self.encoder(context.unsqueeze(-1))
        forecast: Tensor = self.head(states[:, -1])
        return forecast.unsqueeze(-1)


class Perceptron(nn.Module):
    def __init__(self, context: int, horizon: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(context, 512), nn.GELU(), nn.Linear(512, horizon))

    def forward(self, context: Tensor) -> Tensor:
        """(B, context) to (B, horizon, 1)."""
        forecast: Tensor = self.layers(context)
        return forecast.unsqueeze(-1)


class Encoder(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(FRAME, 128, 5, padding=2), nn.GELU(), nn.Conv1d(128, features, 5, padding=2)
        )

    def forward(self, frames: Tensor) -> Tensor:
        """(B, N, FRAME) to (B, N, features) of length 1."""
        return nn.functional.normalize(self.layers(frames.transpose(1, 2)).transpose(1, 2), dim=-1)


class Job(NamedTuple):
    """A task with its data on the device, from seeds."""

    model: nn.Module
    step_loss: Callable[[nn.Module, Tensor, Loss], Tensor]
    """Mean loss of the pairs of an index."""
    score: Callable[[nn.Module], float]
    """The metric, on unseen pairs."""


def forecasting(task: Task, device: torch.device) -> Job:
    generator = torch.Generator().manual_seed(1)
    series = pulse_trains(task.pairs + TEST_PAIRS, CONTEXT + task.length, generator).to(device)
    return forecasts_of(Forecaster(task.length), series, CONTEXT, task)


def shipped(task: Task, device: torch.device) -> Job:
    """The data set's training series, then its test series, each to mean 0 and standard deviation 1."""
    name = DATA_SETS[task.name]
    folder = task.folder or folder_in_sktime(name)
    parts = [read_dataset(folder / f"{name}_{part}.ts").series for part in ("TRAIN", "TEST")]
    series = torch.stack([torch.from_numpy(one[:, 0]) for part in parts for one in part])
    series = ((series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)).float().to(device)
    context = series.shape[1] - task.length
    return forecasts_of(Perceptron(context, task.length), series, context, task)


def folder_in_sktime(name: str) -> Path:
    spec = find_spec("sktime")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"{name} comes with sktime, which is not installed: name its folder by --data"
        )
    return Path(spec.origin).parent / "datasets" / "data" / name


def forecasts_of(model: nn.Module, series: Tensor, length: int, task: Task) -> Job:
    """A model that forecasts what comes after the first `length` steps of series; those after task.pairs are unseen."""
    context, future = series[:, :length], series[:, length:, None]

    def step_loss(model: nn.Module, index: Tensor, loss: Loss) -> Tensor:
        return loss(model(context[index]), future[index]).mean() / task.length

    def score(model: nn.Module) -> float:
        # Hard DTW runs on the CPU.
        return float(dtw(model(context[task.pairs :]).cpu(), future[task.pairs :].cpu()).mean() / task.length)

    return Job(model, step_loss, score)


def representation(task: Task, device: torch.device) -> Job:
    generator = torch.Generator().manual_seed(1)
    count = task.pairs + TEST_PAIRS
    (left, phase), (right, other_phase) = (videos(count, task.length, generator) for _ in range(2))
    left, right = left.to(device), right.to(device)

    def step_loss(model: nn.Module, index: Tensor, loss: Loss) -> Tensor:
        x, y = model(left[index]), model(right[index])
        difference = loss(x, y) - loss(x, y.flip(1))
        return nn.functional.softplus(4 * difference / task.length + 1).mean()

    def score(model: nn.Module) -> float:
        unseen = slice(task.pairs, count)
        paths = dtw_path(model(left[unseen]).cpu(), model(right[unseen]).cpu()).paths
        found = zip(paths, phase[unseen], other_phase[unseen], strict=True)
        return statistics.fmean(float((p[path[:, 0]] - q[path[:, 1]]).abs().mean()) for path, p, q in found)

    return Job(Encoder(task.D), step_loss, score)


JOBS = {"leaves": shipped, "power": shipped, "forecast": forecasting, "represent": representation}


def quick(task: Task) -> Task:
    return task._replace(length=48, pairs=64, epochs=2)
