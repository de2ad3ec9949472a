#!/usr/bin/env python3
"""Throughput of a training with DistributedDataParallel: the forecaster of training_tasks.py, one process for each GPU.

    NCCL_NVLS_ENABLE=0 torchrun --standalone --nproc-per-node=2 -m benchmarks.soft_dtw.ddp_training

runs one number of processes. Without torchrun the program starts itself with each of `--processes` (default: 1 2). Every process trains
with batches of its own (weak scaling). `pairs_per_s` is that of all processes together, by the slowest one's median of five rounds of
`steps` steps. `efficiency` is `pairs_per_s` divided by the number of processes, and by that of one process. `step_alone_ms` is a step of the
same process without DistributedDataParallel, while the others take theirs. After the training all processes have the same weights,
which `same_weights` says. Writes <device>/<date>-<commit>-ddp.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import warpalign
from benchmarks.harness.results import (
    ROOT,
    Row,
    add_arguments,
    device_name,
    read_rows,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import wall_s
from benchmarks.soft_dtw.training_tasks import CONTEXT, Forecaster, pulse_trains

ROUNDS = 5
LIMIT_S = 120


class Case(NamedTuple):
    """Batches of `batch` pairs for each process, whose loss sees `length` steps."""

    batch: int
    length: int
    steps: int


CASES = (Case(32, 512, 50), Case(256, 512, 30), Case(32, 2048, 20))
QUICK_CASES = (Case(4, 48, 2),)


def train(case: Case, device: torch.device) -> Row:
    """Medians of seconds of a step without and with DistributedDataParallel, and whether all processes have the same weights."""
    torch.manual_seed(0)
    model = Forecaster(case.length).to(device)
    generator = torch.Generator().manual_seed(dist.get_rank())
    series = pulse_trains(4 * case.batch, CONTEXT + case.length, generator).to(device)
    batches = [(part[:, :CONTEXT], part[:, CONTEXT:, None]) for part in series.split(case.batch)]
    seconds_alone = seconds_of(model, batches, case, device)
    together = DistributedDataParallel(model)
    seconds = seconds_of(together, batches, case, device)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    extremes = torch.stack([weights, -weights])
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    same = bool((extremes[0] == -extremes[1]).all()) and bool(weights.isfinite().all())
    return {"seconds": seconds, "seconds_alone": seconds_alone, "same_weights": same}


def seconds_of(
    model: nn.Module, batches: list[tuple[Tensor, Tensor]], case: Case, device: torch.device
) -> float:
    """The median of the rounds' seconds, divided by the steps of a round."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def steps() -> None:
        for step in range(case.steps):
            context, future = batches[step % len(batches)]
            optimizer.zero_grad()
            value = warpalign.soft_dtw(model(context), future, gamma=0.1, reduction="mean")
            (value / case.length).backward()
            optimizer.step()

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    steps()
    synchronize()
    found = []
    for _ in range(ROUNDS):
        dist.barrier()
        found.append(wall_s(steps, synchronize)[1])
    return sorted(found)[ROUNDS // 2] / case.steps


def one_process(arguments: argparse.Namespace) -> int:
    """What torchrun starts. The first process has the rows, of the slowest one's times."""
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank) if arguments.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    name, world = device_name(device), dist.get_world_size()
    target, commit = result_path(arguments, name, "-ddp")
    rows: list[Row] = []
    for case in QUICK_CASES if arguments.quick else CASES:
        mine = train(case, device)
        of_all: list[Row] = [{}] * world
        dist.all_gather_object(of_all, mine)
        seconds, alone = (max(one[key] for one in of_all) for key in ("seconds", "seconds_alone"))
        row: Row = {
            "op": "ddp_training",
            "device": name,
            "processes": world,
            "B": case.batch,
            "N": case.length,
        }
        row |= {"M": case.length, "D": 1, "gamma": 0.1, "dtype": "float32", "step_ms": rounded(1e3 * seconds)}
        row |= {"step_alone_ms": rounded(1e3 * alone), "pairs_per_s": rounded(world * case.batch / seconds)}
        row |= {"same_weights": all(one["same_weights"] for one in of_all)}
        rows.append({**row, **stamp(commit)})
    if rank == 0:
        if arguments.answer:
            arguments.answer.write_text(json.dumps(rows))
        else:
            write_rows(rows, target)
            tell(rows)
    dist.destroy_process_group()
    return 0


def under_torchrun(arguments: argparse.Namespace, processes: int) -> list[Row]:
    """The rows of `processes` processes; raises if they fail."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={processes}",
        ]
        command += ["-m", "benchmarks.soft_dtw.ddp_training", "--device", arguments.device]
        command += ["--answer", str(answer)] + (["--quick"] if arguments.quick else [])
        command += ["--commit", arguments.commit] if arguments.commit else []
        environment = {"NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1", **os.environ}
        subprocess.run(command, cwd=ROOT, env=environment, timeout=LIMIT_S, check=True)
        return read_rows(answer)


def tell(rows: list[Row]) -> None:
    for row in rows:
        efficiency = "" if row.get("efficiency") is None else f"  efficiency {row['efficiency']}"
        print(
            f"{row['processes']} x {row['B']} x {row['N']}: step {row['step_ms']} ms (without DDP {row['step_alone_ms']}), "
            f"{row['pairs_per_s']} pairs/s, same weights {row['same_weights']}{efficiency}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="few and short series")
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[1, 2], help="without torchrun (default: 1 2)"
    )
    add_arguments(parser)
    parser.add_argument("--answer", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        return one_process(arguments)
    rows: list[Row] = []
    for processes in arguments.processes:
        rows += under_torchrun(arguments, processes)
    alone = {(row["B"], row["N"]): row["pairs_per_s"] for row in rows if row["processes"] == 1}
    for row in rows:
        one = alone.get((row["B"], row["N"]))
        row["efficiency"] = rounded(row["pairs_per_s"] / (one * row["processes"]), 3) if one else None
    target, _ = result_path(arguments, rows[0]["device"], "-ddp")
    write_rows(rows, target)
    tell(rows)
    return 0 if all(row["same_weights"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
