#!/usr/bin/env python3
"""Elastic distances of pairs: ms of a call, of a call with gradients, and of aeon on one thread where it is installed.

    python -m benchmarks.soft_dtw.elastic [--device cuda] [--out DIR]

x, y ~ N(0, 1), float32 (float64 for aeon, which has no other), the metrics' default parameters. On a CPU, the least CPU time of one thread.
`mib` is the peak above the series of a call with gradients.
Writes <device>/<date>-<commit>-elastic.json.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, get_args

import torch

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
from benchmarks.harness.timing import least_thread_s, median_ms, peak_mib
from warpalign._soft_dtw.elastic import ElasticMetric

SIZES = ((32, 128, 1), (32, 512, 1), (256, 256, 3))  # pairs, steps, features
BUDGET_S = 0.3


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        return median_ms(run, device, BUDGET_S)
    run()
    return 1e3 * least_thread_s(run, 3)


def aeon_ms(metric: str, x: torch.Tensor, y: torch.Tensor, device: torch.device) -> float | None:
    """None where aeon is not installed; on a CPU alone."""
    try:
        of: Any = importlib.import_module("aeon.distances")
    except ImportError:
        return None
    distance = getattr(of, f"{metric}_distance")
    pairs = [
        (a.detach().double().numpy().T.copy(), b.detach().double().numpy().T.copy())
        for a, b in zip(x, y, strict=True)
    ]
    return milliseconds(lambda: [distance(a, b) for a, b in pairs], device)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="few and short series")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-elastic")
    rows: list[Row] = []
    for batch, steps, features in ((2, 20, 2),) if arguments.quick else SIZES:
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(batch, steps, features, generator=generator) for _ in range(2))
        for metric in get_args(ElasticMetric):
            a, b = x.to(device).requires_grad_(), y.to(device).requires_grad_()

            def step(
                a: torch.Tensor = a, b: torch.Tensor = b, metric: Any = metric
            ) -> tuple[torch.Tensor, ...]:
                return torch.autograd.grad(warpalign.elastic_distance(a, b, metric=metric).sum(), (a, b))

            @torch.no_grad()
            def call(a: torch.Tensor = a, b: torch.Tensor = b, metric: Any = metric) -> object:
                return warpalign.elastic_distance(a, b, metric=metric)

            row: Row = {
                "op": "elastic_distance",
                "metric": metric,
                "B": batch,
                "N": steps,
                "D": features,
                "device": name,
            }
            row |= {"forward_ms": rounded(milliseconds(call, device))}
            row |= {"step_ms": rounded(milliseconds(step, device)), "mib": rounded(peak_mib(step, device))}
            row["aeon_ms"] = rounded(aeon_ms(metric, x, y, device)) if device.type == "cpu" else None
            rows.append({**row, **stamp(commit)})
            print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
            write_rows(rows, target)


if __name__ == "__main__":
    main()
