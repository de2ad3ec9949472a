#!/usr/bin/env python3
"""The trainings of training_impact.py under torch.autocast beside float32: loss curve, final quality, time and memory.

    python -m benchmarks.soft_dtw.mixed_precision [--out DIR]

"bfloat16" and "float16" run the model and the loss under torch.autocast; the latter with a GradScaler. All start from the same weights and see
the same batches, for each of `--seeds` seeds. `losses` has the mean loss of each epoch, `metric_after` the metric of training_impact.py on
unseen series, in float32. Writes <device>/<date>-<commit>-mixed-precision.json.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from torch.amp.grad_scaler import GradScaler

from benchmarks.harness.results import (
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import wall_s
from benchmarks.soft_dtw.training_impact import warpalign_loss
from benchmarks.soft_dtw.training_tasks import JOBS, TASKS, Task, quick

MODES = ("float32", "bfloat16", "float16")


def train(task: Task, mode: str, seed: int, device: torch.device) -> Row:
    torch.manual_seed(seed)
    job = JOBS[task.name](task, device)
    model = job.model.to(device)
    loss = warpalign_loss(task.gamma, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = GradScaler(device.type, enabled=mode == "float16")
    batches = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, mode)

    def epoch() -> float:
        total = torch.zeros((), device=device)
        for index in torch.randperm(task.pairs, generator=batches).to(device).split(task.batch):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=dtype, enabled=mode != "float32"):
                value = job.step_loss(model, index, loss)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            total += value.detach()
        return float(total / task.steps)

    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    losses, seconds = zip(*(wall_s(epoch) for _ in range(task.epochs)), strict=True)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    with torch.no_grad():
        after = job.score(model)
    return {
        "seconds_per_epoch": rounded(statistics.median(seconds)),
        "mib": rounded(peak),
        "losses": [rounded(value) for value in losses],
        "metric": task.metric,
        "metric_after": rounded(after, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="few and short series")
    parser.add_argument("--seeds", type=int, default=3)
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-mixed-precision")
    rows: list[Row] = []
    for task in map(quick, TASKS) if arguments.quick else TASKS:
        for seed in range(arguments.seeds):
            for mode in MODES:
                row: Row = {
                    "op": "mixed_precision",
                    "task": task.name,
                    "mode": mode,
                    "seed": seed,
                    "device": name,
                }
                row |= {"B": task.batch, "N": task.length, "D": task.D, **train(task, mode, seed, device)}
                rows.append({**row, **stamp(commit)})
                shown = ("task", "mode", "seed", "seconds_per_epoch", "mib", "metric_after", "losses")
                print(*(row[key] for key in shown), flush=True)
                write_rows(rows, target)


if __name__ == "__main__":
    main()
