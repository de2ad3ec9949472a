#!/usr/bin/env python3
"""Sampled alignments beside the same in torch: ms, and MiB above the inputs and the paths.

    python -m benchmarks.soft_dtw.sampling [--device cpu] [--out DIR]

x, y ~ N(0, 1), float32, gamma 1. "torch": the table in float64 by anti-diagonals, then one step of all paths at a time, each
from the shares of its cell's predecessors. Writes <device>/<date>-<commit>-sampling.json.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
from torch import Tensor

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
from benchmarks.harness.timing import median_ms, times_ms

SIZES = ((32, 128, 3, 100), (32, 512, 3, 100), (32, 512, 64, 100), (1, 512, 3, 1000), (4, 2048, 3, 100))
ON_CPU = ((8, 128, 3, 100), (8, 512, 3, 100), (8, 512, 64, 100))  # B, N = M, D, paths
BUDGET_S = 0.5


def table_of(costs: Tensor, gamma: float) -> Tensor:
    """(B, N + 1, M + 1) float64: R, with the border in row and column 0."""
    batch, n, m = costs.shape
    table = costs.new_full((batch, n + 1, m + 1), math.inf)
    table[:, 0, 0] = 0
    for diagonal in range(n + m - 1):
        i = torch.arange(max(0, diagonal - m + 1), min(n, diagonal + 1), device=costs.device)
        j = diagonal - i
        before = torch.stack([table[:, i, j], table[:, i, j + 1], table[:, i + 1, j]])
        table[:, i + 1, j + 1] = costs[:, i, j] - gamma * torch.logsumexp(before / -gamma, dim=0)
    return table


def sample_in_torch(x: Tensor, y: Tensor, count: int, gamma: float = 1.0) -> Tensor:
    """(B, S, N + M - 1, 2) cells from the end to the start, which repeats."""
    costs = torch.cdist(x.double(), y.double()).square()
    table = table_of(costs, gamma)
    batch, n, m = costs.shape
    pair = torch.arange(batch, device=x.device)[:, None]
    place = torch.tensor([n - 1, m - 1], device=x.device).expand(batch, count, 2)
    moves = torch.tensor([[1, 1], [1, 0], [0, 1]], device=x.device)
    path = [place]
    for _ in range(n + m - 2):
        i, j = place.unbind(-1)
        before = torch.stack([table[pair, i, j], table[pair, i, j + 1], table[pair, i + 1, j]], dim=-1)
        shares = torch.softmax(before / -gamma, dim=-1).nan_to_num(1.0)
        step = torch.multinomial(shares.reshape(-1, 3), 1).reshape(batch, count)
        place = torch.where((i + j > 0)[..., None], place - moves[step], place)
        path.append(place)
    return torch.stack(path, dim=2)


def peak_mib(run: Callable[[], object], device: torch.device) -> float | None:
    if device.type != "cuda":
        return None
    kept = run()
    del kept
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return rounded((torch.cuda.max_memory_allocated() - before) / 2**20)


def measured(batch: int, n: int, d: int, count: int, device: torch.device) -> Row:
    x, y = torch.randn(2, batch, n, d, device=device)
    runs: dict[str, Callable[[], object]] = {
        "warpalign": lambda: warpalign.soft_dtw_sample(x, y, count, generator=0),
        "torch": lambda: sample_in_torch(x, y, count),
    }
    paths = batch * count * (2 * n - 1) * 16 / 2**20
    row: Row = {"B": batch, "N": n, "D": d, "paths": count, "paths_mib": rounded(paths)}
    for name, run in runs.items():
        # A run of torch takes up to seconds: the second one is enough.
        slow = name == "torch"
        row[f"{name}_ms"] = rounded(times_ms(run, device, 2)[1] if slow else median_ms(run, device, BUDGET_S))
        row[f"{name}_mib"] = peak_mib(run, device)
    row["times"] = rounded(row["torch_ms"] / row["warpalign_ms"], 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_arguments(parser)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    path, commit = result_path(arguments, device_name(device), "-sampling")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[Row] = []
    for size in SIZES if device.type == "cuda" else ON_CPU:
        row = measured(*size, device)
        print(row, flush=True)
        rows.append({"op": "soft_dtw_sample", "device": device_name(device)} | row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
