#!/usr/bin/env python3
"""What a faster loss does for a training: models trained end to end with warpalign's soft-DTW and with that of published packages.

leaves and power: a perceptron forecasts the last 40 % of a series from the first 60 %, as in Cuturi & Blondel (2017, section 4.4). The series
are OSULeaf (427 steps) and ACSF1 (1460 steps), which sktime ships; --data names a folder with OSULeaf_TRAIN.ts and so on where sktime is not
installed. forecast: a GRU forecasts 512 steps of a pulse train whose tempo drifts. Metric of the three: hard DTW to the truth per time step, on
unseen series. represent: a convolutional encoder learns embeddings (128 features) of "videos" (64 features per frame) that show one
action at various speeds in front of other motions, so that two videos align and a video and a reversed one do not. Metric: difference of
the action's phase along the hard DTW path between unseen videos.

All losses start from the same weights and see the same batches, for each of --seeds seeds. `seconds_per_epoch` is the median of wall-clock times;
`loss_ms` is one forward and backward of the loss by itself at the shape of the training; `mib` is the peak of the whole training;
`largest_batch` is the largest power of 2 with which the loss alone, forward and backward, fits in 8 GiB of GPU memory. tslearn's loss runs on the
CPU whatever the device, so it trains one epoch with one seed, on leaves and power alone, and has no metric. Writes
<device>/<date>-<commit>-training.json into the results folder.

The packages are taken from --peer-path (folders that hold them) or from where Python finds them: softdtw_cuda (softdtw-cuda-torch),
soft_dtw_cuda (Maghoumi), pysdtw, tslearn. One that is not there is left out.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
from benchmarks.soft_dtw.peers import PEERS, supply_row_stack
from benchmarks.soft_dtw.sizes import Size
from benchmarks.soft_dtw.training_tasks import (
    DATA_SETS,
    JOBS,
    SHIPPED_TASKS,
    TASKS,
    Loss,
    Task,
    quick,
)

BATCH_LIMIT_GIB = 8
MOST_PAIRS = 2**16  # largest_batch() looks no further


def warpalign_loss(gamma: float, device: torch.device) -> Loss:
    return lambda x, y: warpalign.soft_dtw(x, y, gamma=gamma)


def softdtw_cuda_torch_loss(gamma: float, device: torch.device) -> Loss:
    return PEERS["softdtw_cuda_torch"](gamma)


def soft_dtw_cuda_loss(gamma: float, device: torch.device) -> Loss:
    module: Any = import_module("soft_dtw_cuda")
    loss: Loss = module.SoftDTW(use_cuda=device.type == "cuda", gamma=gamma)
    return loss


def pysdtw_loss(gamma: float, device: torch.device) -> Loss:
    import pysdtw

    loss: Loss = pysdtw.SoftDTW(gamma=gamma, use_cuda=device.type == "cuda")
    return loss


def tslearn_loss(gamma: float, device: torch.device) -> Loss:
    module: Any = import_module("tslearn.metrics")
    loss: Loss = module.SoftDTWLossPyTorch(gamma=gamma)
    return loss


LOSSES = {
    "warpalign": warpalign_loss,
    "softdtw_cuda_torch": softdtw_cuda_torch_loss,
    "soft_dtw_cuda": soft_dtw_cuda_loss,
    "pysdtw": pysdtw_loss,
    "tslearn": tslearn_loss,
}
MODULES = {"softdtw_cuda_torch": "softdtw_cuda", "tslearn": "tslearn"}
ON_A_GPU_ALONE = ("softdtw_cuda_torch", "soft_dtw_cuda")


def is_there(impl: str, device: torch.device) -> bool:
    if impl in ON_A_GPU_ALONE and device.type != "cuda":
        return False
    return find_spec(MODULES.get(impl, impl)) is not None


def loss_ms(task: Task, loss: Loss, device: torch.device) -> float:
    """One forward and backward of the loss by itself; to both series, as far as the training needs it."""
    x, y = inputs(Size(task.batch, task.length, task.length, task.D), device)
    wanted = (x, y) if task.name == "represent" else (x,)
    if len(wanted) == 1:
        y = y.detach()
    return median_ms(lambda: torch.autograd.grad(loss(x, y).sum(), wanted), device, 0.3)


def largest_batch(task: Task, loss: Loss, device: torch.device) -> int | None:
    """The largest power of 2 pairs whose loss, forward and backward, fits in BATCH_LIMIT_GIB; None on a CPU, or if 1 does not."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(BATCH_LIMIT_GIB * 2**30 / whole)
    found, batch = None, 1
    try:
        while batch <= MOST_PAIRS:
            x, y = inputs(Size(batch, task.length, task.length, task.D), device)
            torch.autograd.grad(loss(x, y.detach()).sum(), x)
            found, batch = batch, 2 * batch
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError, or an operator's own with the same words
        if "out of memory" not in str(error):
            raise
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    return found


def train(task: Task, loss: Loss, seed: int, device: torch.device) -> Row:
    torch.manual_seed(seed)
    job = JOBS[task.name](task, device)
    model = job.model.to(device)
    batches = torch.Generator().manual_seed(seed)

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
    start = f"{row['task']:10} {row['impl']:18} {row['seed']}"
    if "error" in row:
        return f"{start} {row['error']}"
    memory = "-" if row["mib"] is None else f"{row['mib']:.0f} MiB"
    return (
        f"{start} {row['seconds_per_epoch']:>8} s/epoch  loss {row['loss_ms']:>7} ms  {memory:>9}  "
        f"batch {row['largest_batch']}  {row['metric']} {row['metric_before']} -> {row['metric_after']}"
    )


def rows_of(task: Task, impl: str, seeds: int, start: Row, device: torch.device) -> list[Row]:
    """A row of each seed; one row with an error if the package fails."""
    on_cpu = impl == "tslearn"
    start = {**start, "task": task.name, "impl": impl, "B": task.batch, "N": task.length, "M": task.length}
    start |= {"D": task.D, "gamma": task.gamma, "dtype": "float32", "steps": task.steps, "calls": task.calls}
    rows: list[Row] = []
    try:
        loss = LOSSES[impl](task.gamma, device)
        for seed in range(1 if on_cpu else seeds):
            trained = task._replace(epochs=1) if on_cpu else task
            row = {**start, "seed": seed, "epochs": trained.epochs, "largest_batch": None}
            row |= train(trained, loss, seed, device)
            if on_cpu:
                row["metric_after"] = None
            elif seed == 0:
                row["largest_batch"] = largest_batch(task, loss, device)
            rows.append(row)
    except Exception as error:  # a package may fail in any way; the other rows still count
        text = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        rows.append({**start, "seed": len(rows), "error": text})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--quick", action="store_true", help="few and short series")
    parser.add_argument("--tasks", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=None, help="folder of the .ts files (default: sktime's)")
    parser.add_argument("--peer-path", nargs="+", default=[], help="folders that hold packages, or wheels")
    add_arguments(parser)
    arguments = parser.parse_args()
    sys.path[:0] = arguments.peer_path
    supply_row_stack()
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-training")
    rows: list[Row] = []
    for task in (*SHIPPED_TASKS, *TASKS):
        if task.name not in arguments.tasks:
            continue
        task = (quick(task) if arguments.quick else task)._replace(folder=arguments.data)
        for impl in arguments.losses:
            if not is_there(impl, device) or (impl == "tslearn" and task.name not in DATA_SETS):
                continue
            for row in rows_of(task, impl, arguments.seeds, {"op": "training", "device": name}, device):
                rows.append({**row, **stamp(commit)})
                print(told(row), flush=True)
            write_rows(rows, target)
    failed = sum("error" in row for row in rows)
    print(f"{len(rows)} rows, {failed} with a failure, in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
