#!/usr/bin/env python3
"""Elastic distances of pairs: ms of a call, of a call with gradients, and of aeon on one thread where it is installed.

    python -m benchmarks.soft_dtw.elastic [--device cuda] [--out DIR]

x, y ~ N(0, 1), float32 (float64 for aeon, which has no other), the metrics' default parameters. On a CPU, the least CPU time of one thread.
`mib` is the peak above the series of a call with gradients.
Writes <device>/<date>-<commit>-elastic.json.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, get_args

import torch

import warpalign
from benchmarks.harness.program import write_table
from benchmarks.harness.results import Row, rounded
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


def rows(device: torch.device, quick: bool) -> Iterator[Row]:
    if device.type == "cpu":
        torch.set_num_threads(1)
    for batch, steps, features in ((2, 20, 2),) if quick else SIZES:
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

            row: Row = {"metric": metric, "B": batch, "N": steps, "D": features}
            row |= {"forward_ms": rounded(milliseconds(call, device))}
            row |= {"step_ms": rounded(milliseconds(step, device)), "mib": rounded(peak_mib(step, device))}
            yield row | {"aeon_ms": rounded(aeon_ms(metric, x, y, device)) if device.type == "cpu" else None}


def main() -> None:
    write_table(__doc__, "elastic_distance", "-elastic", rows)


if __name__ == "__main__":
    main()
