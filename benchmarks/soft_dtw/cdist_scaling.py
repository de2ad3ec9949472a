#!/usr/bin/env python3
"""Seconds of cdist_soft_dtw on 1, 2 and 4 GPUs: in one process (devices=[...]) and under torchrun with NCCL.

All pairs of two sets of series of length 512, x and y ~ N(0, 1). The best of a few runs after a warm-up, all devices synchronised
around each. `efficiency` is the time on one device over (number of devices times the time); `same_bits` compares the whole result
with one device's. `mib` is the largest peak of any device during a run, the inputs and the result included. Writes
<gpu>/<date>-<commit>-scaling.json into the results folder. On a CPU "devices" are threads, and the processes use gloo.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import warpalign
from benchmarks.harness.results import (
    ROOT,
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.timing import wall_s


class Case(NamedTuple):
    """n x m pairs of series of `length` time steps with D features."""

    n: int
    m: int
    length: int
    D: int

    @property
    def name(self) -> str:
        return f"{self.n}x{self.m} of {self.length}, D {self.D}"


CASES = [Case(2000, 2000, 512, 1), Case(1000, 1000, 512, 16)]
QUICK_CASES = [Case(40, 30, 32, 1), Case(20, 20, 32, 16)]
COUNTS = (1, 2, 4, 8)
TORCHRUN_LIMIT_S = 180


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="few and short series")
    parser.add_argument(
        "--repeats", type=int, default=3, help="timed runs, the best of which counts (default: 3)"
    )
    parser.add_argument("--block-size", type=int, default=None, help="of cdist_soft_dtw (default: its own)")
    parser.add_argument("--skip-torchrun", action="store_true")
    add_arguments(parser)
    parser.add_argument("--as-rank", type=Path, default=None, help=argparse.SUPPRESS)  # what torchrun starts
    return parser.parse_args()


def device_count(kind: str) -> int:
    return torch.cuda.device_count() if kind == "cuda" else 2


def devices_of(kind: str, count: int) -> list[str]:
    return [f"cuda:{index}" for index in range(count)] if kind == "cuda" else ["cpu"] * count


def inputs(case: Case, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(case.n, case.length, case.D, generator=generator)
    y = torch.randn(case.m, case.length, case.D, generator=generator)
    return x.to(device), y.to(device)


def digest(result: Tensor) -> str:
    return hashlib.sha256(result.cpu().contiguous().numpy().tobytes()).hexdigest()


def synchronize(devices: list[str]) -> None:
    for device in devices:
        if device != "cpu":
            torch.cuda.synchronize(device)


def measure(case: Case, home: str, devices: list[str], repeats: int, **options: Any) -> tuple[Row, str]:
    """Seconds and peak memory of the best run, and the digest of the result."""
    x, y = inputs(case, home)

    def run() -> Tensor:
        return warpalign.cdist_soft_dtw(x, y, devices=devices, **options)

    result = run()
    seconds = []
    for device in devices:
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats(device)
    for _ in range(repeats):
        if dist.is_initialized():
            dist.barrier()
        result, taken = wall_s(run, lambda: synchronize(devices))
        seconds.append(taken)
    peaks = [torch.cuda.max_memory_allocated(device) / 2**20 for device in devices if device != "cpu"]
    return {"seconds": min(seconds), "mib": max(peaks, default=None)}, digest(result)


def rank_main(arguments: argparse.Namespace) -> int:
    """One process of torchrun: the first one writes seconds (of the slowest), MiB and digest of each case to a file."""
    rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{rank}" if arguments.device == "cuda" else "cpu"
    if arguments.device == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=torch.device(device))
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    found: list[Row] = []
    for case in QUICK_CASES if arguments.quick else CASES:
        row, bits = measure(
            case, device, [device], arguments.repeats, distributed=True, block_size=arguments.block_size
        )
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, {**row, "digest": bits})
        same = len({one["digest"] for one in rows}) == 1
        slowest = max(rows, key=lambda one: float(one["seconds"]))
        peak = max((one["mib"] for one in rows if one["mib"] is not None), default=None)
        found.append({**slowest, "mib": peak, "digest": bits if same else "processes differ"})
    if rank == 0:
        arguments.as_rank.write_text(json.dumps(found))
    dist.destroy_process_group()
    return 0


def under_torchrun(arguments: argparse.Namespace, count: int) -> list[Row]:
    """Seconds, MiB and digest of each case with `count` processes."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={count}",
        ]
        options = [
            "--device",
            arguments.device,
            "--repeats",
            str(arguments.repeats),
            "--as-rank",
            str(answer),
        ]
        if arguments.quick:
            options.append("--quick")
        if arguments.block_size is not None:
            options += ["--block-size", str(arguments.block_size)]
        with subprocess.Popen(
            [*torchrun, "-m", "benchmarks.soft_dtw.cdist_scaling", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                output, _ = process.communicate(timeout=TORCHRUN_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.terminate()  # torchrun ends its processes then; killed, it would leave them behind
                output, _ = process.communicate(timeout=60)
                raise RuntimeError(f"torchrun: not done after {TORCHRUN_LIMIT_S} s") from None
        if process.returncode != 0 or not answer.exists():
            print(output[-3000:], file=sys.stderr, flush=True)
            raise RuntimeError(f"torchrun: exit status {process.returncode}, its output is above")
        rows: list[Row] = json.loads(answer.read_text())
        return rows


def told(row: Row) -> str:
    if "error" in row:
        return f"{row['case']:24} {row['how']:9} {row['devices']:>2}  {row['error']}"
    memory = "-" if row["mib"] is None else f"{row['mib']:.0f} MiB"
    efficiency = "-" if row["efficiency"] is None else f"{100 * row['efficiency']:.1f} %"
    bits = "same bits" if row["same_bits"] else "OTHER BITS"
    return (
        f"{row['case']:24} {row['how']:9} {row['devices']:>2}  {row['seconds']:>8.4g} s  {efficiency:>8}  "
        f"{row['cells_per_s']:.3g} cells/s  {memory}  {bits}"
    )


def main() -> int:
    arguments = parse_arguments()
    if arguments.as_rank is not None:
        return rank_main(arguments)
    cases = QUICK_CASES if arguments.quick else CASES
    counts = [count for count in COUNTS if count <= device_count(arguments.device)]
    if not counts:
        print("cdist_scaling: no GPU (--device cpu runs without)", file=sys.stderr)
        return 2
    name = device_name(torch.device(arguments.device))
    target, commit = result_path(arguments, name, "-scaling")
    single: dict[Case, tuple[float, str]] = {}  # what one device took and gave
    rows: list[Row] = []

    def record(case: Case, how: str, count: int, found: Row, bits: str) -> None:
        row: Row = {
            "op": "cdist_scaling",
            "case": case.name,
            **case._asdict(),
            "gamma": 1.0,
            "dtype": "float32",
        }
        row |= {"device": name, "how": how, "devices": count, "block_size": arguments.block_size, **found}
        if "seconds" in found:
            if how == "devices" and count == 1:
                single[case] = (found["seconds"], bits)
            seconds, expected = single.get(case, (None, None))
            row["efficiency"] = None if seconds is None else rounded(seconds / (count * found["seconds"]))
            row["same_bits"] = bits == expected
            row["cells_per_s"] = rounded(case.n * case.m * case.length**2 / found["seconds"])
            row |= {key: rounded(found[key]) for key in ("seconds", "mib")}
        rows.append({**row, **stamp(commit)})
        print(told(row), flush=True)
        write_rows(rows, target)

    def failure(error: BaseException) -> Row:
        return {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}

    for case in cases:
        for count in counts:
            devices = devices_of(arguments.device, count)
            try:
                found, bits = measure(
                    case, devices[0], devices, arguments.repeats, block_size=arguments.block_size
                )
            except (RuntimeError, ValueError) as error:
                found, bits = failure(error), ""
            record(case, "devices", count, found, bits)
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
    for count in counts[1:] if not arguments.skip_torchrun else []:
        try:
            answers = under_torchrun(arguments, count)
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            answers = [failure(error)] * len(cases)
        for case, answer in zip(cases, answers, strict=True):
            record(case, "torchrun", count, answer, answer.pop("digest", ""))
    bad = [row for row in rows if "error" in row or not row["same_bits"]]
    print(f"{len(rows)} rows, {len(bad)} with a failure, in {target}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
