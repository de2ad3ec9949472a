#!/usr/bin/env python3
"""What a faster loss does for a training: two models trained end to end, with warpalign's soft-DTW and with pysdtw's.

forecast: a GRU forecasts 512 steps of a pulse train whose tempo drifts. Metric: hard DTW to the truth per time step, on
unseen series. represent: a convolutional encoder learns embeddings (128 features) of "videos" (64 features per frame) that show one
action at various speeds in front of other motions, so that two videos align and a video and a reversed one do not. Metric: difference of
the action's phase along the hard DTW path between unseen videos.

Both losses start from the same weights and see the same batches. `seconds_per_epoch` is the median of wall-clock times; `loss_ms` is
one forward and backward of the loss by itself at the shape of the training; `mib` is the peak of the whole training. Writes
<device>/<date>-<commit>-training.json into the results folder.

pysdtw is taken from --peer-path (a folder that holds it, or its wheel) or from where Python finds it; without it warpalign is trained
alone, and benchmarks/report.py puts the recorded step times of published packages beside it.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import warpalign
from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import median_ms, wall_s
from benchmarks.soft_dtw.measure import inputs
from benchmarks.soft_dtw.peers import supply_row_stack
from benchmarks.soft_dtw.sizes import Size
from warpalign import dtw, dtw_path

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

    @property
    def steps(self) -> int:
        return self.pairs // self.batch


TASKS = [
    Task("forecast", 32, 512, 1, 0.1, 1024, 10, 1, "DTW per step"),
    Task("represent", 32, 256, 128, 0.1, 512, 8, 2, "phase error"),
]
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
    context, future = series[:, :CONTEXT], series[:, CONTEXT:, None]

    def step_loss(model: nn.Module, index: Tensor, loss: Loss) -> Tensor:
        return loss(model(context[index]), future[index]).mean() / task.length

    def score(model: nn.Module) -> float:
        # Hard DTW runs on the CPU.
        return float(dtw(model(context[task.pairs :]).cpu(), future[task.pairs :].cpu()).mean() / task.length)

    return Job(Forecaster(task.length), step_loss, score)


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


JOBS = {"forecast": forecasting, "represent": representation}


def quick(task: Task) -> Task:
    return task._replace(length=48, pairs=64, epochs=2)


def warpalign_loss(gamma: float, device: torch.device) -> Loss:
    return lambda x, y: warpalign.soft_dtw(x, y, gamma=gamma)


def pysdtw_loss(gamma: float, device: torch.device) -> Loss:
    supply_row_stack()
    import pysdtw

    loss: Loss = pysdtw.SoftDTW(gamma=gamma, use_cuda=device.type == "cuda")
    return loss


LOSSES = {"warpalign": warpalign_loss, "pysdtw": pysdtw_loss}


def loss_ms(task: Task, loss: Loss, device: torch.device) -> float:
    """One forward and backward of the loss by itself; to both series, as far as the training needs it."""
    x, y = inputs(Size(task.batch, task.length, task.length, task.D), device)
    wanted = (x, y) if task.name == "represent" else (x,)
    if len(wanted) == 1:
        y = y.detach()
    return median_ms(lambda: torch.autograd.grad(loss(x, y).sum(), wanted), device, 0.3)


def train(task: Task, loss: Loss, device: torch.device) -> Row:
    torch.manual_seed(0)
    job = JOBS[task.name](task, device)
    model = job.model.to(device)
    batches = torch.Generator().manual_seed(2)

    @torch.no_grad()
    def score() -> float:
        return job.score(model)

    def epoch(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        total = torch.zeros((), device=device)
        for index in torch.randperm(task.pairs, generator=batches).to(device).split(task.batch):
            optimizer.zero_grad()
            value = job.step_loss(model, index, loss)
            value.backward()
            optimizer.step()
            total += value.detach()
        return total / task.steps

    # Compilers and libraries start in an epoch of a copy, which is thrown away.
    state = batches.get_state()
    spare = copy.deepcopy(model)
    epoch(spare, torch.optim.Adam(spare.parameters()))
    del spare
    batches.set_state(state)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    before = score()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    seconds, mean = [], 0.0
    for _ in range(task.epochs):
        mean, taken = wall_s(lambda: float(epoch(model, optimizer)))  # float() waits for the device
        seconds.append(taken)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    return {
        "seconds_per_epoch": rounded(statistics.median(seconds)),
        "loss_ms": rounded(loss_ms(task, loss, device)),
        "mib": rounded(peak),
        "final_loss": rounded(mean),
        "metric": task.metric,
        "metric_before": rounded(before, 3),
        "metric_after": rounded(score(), 3),
    }


def told(row: Row) -> str:
    start = f"{row['task']:10} {row['impl']:10}"
    if "error" in row:
        return f"{start} {row['error']}"
    memory = "-" if row["mib"] is None else f"{row['mib']:.0f} MiB"
    return (
        f"{start} {row['seconds_per_epoch']:>8} s/epoch  loss {row['loss_ms']:>7} ms  {memory:>9}  "
        f"{row['metric']} {row['metric_before']} -> {row['metric_after']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--quick", action="store_true", help="few and short series")
    parser.add_argument("--tasks", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--peer-path", default=None, help="folder that holds pysdtw, or its wheel")
    add_arguments(parser)
    arguments = parser.parse_args()
    sys.path[:0] = filter(None, [arguments.peer_path])
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-training")
    rows: list[Row] = []
    for task in TASKS:
        if task.name not in arguments.tasks:
            continue
        task = quick(task) if arguments.quick else task
        for impl in arguments.losses:
            row: Row = {"op": "training", "task": task.name, "impl": impl, "device": name, "B": task.batch}
            row |= {"N": task.length, "M": task.length, "D": task.D, "gamma": task.gamma, "dtype": "float32"}
            row |= {"steps": task.steps, "epochs": task.epochs, "calls": task.calls}
            try:
                row |= train(task, LOSSES[impl](task.gamma, device), device)
            except Exception as error:  # a peer may fail in any way; the other rows still count
                row["error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            rows.append({**row, **stamp(commit)})
            print(told(row), flush=True)
            write_rows(rows, target)
    failed = sum("error" in row for row in rows)
    print(f"{len(rows)} rows, {failed} with a failure, in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
