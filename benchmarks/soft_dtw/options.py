#!/usr/bin/env python3
"""What the options of soft-DTW cost on a GPU: ms of a forward pass and of a training step, and of a Hessian-vector product.

    python -m benchmarks.soft_dtw.options --commit C [--out DIR]

x, y ~ N(0, 1), float32, eager, medians of events around the calls. Writes <device>/<date>-<commit>-options.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

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
from benchmarks.harness.timing import median_ms

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "bandwidth 512": {"bandwidth": 512},
    "bandwidth 64": {"bandwidth": 64},
    "bandwidth 8": {"bandwidth": 8},
    "step_penalty": {"step_penalty": 0.1},
    "l1": {"cost": "l1"},
    "euclidean": {"cost": "euclidean"},
    "cosine": {"cost": "cosine"},
    "gamma 0": {"gamma": 0.0},
    "missing steps": {"x_mask": torch.arange(2048) % 10 == 0},
}

MANY_PAIRS: dict[str, dict[str, Any]] = {
    "none": {},
    **{f"bandwidth {radius}": {"bandwidth": radius} for radius in (128, 32, 8)},
    "step_penalty": {"step_penalty": 0.1},
}


DEVICE = torch.device("cuda")
BUDGET_S = 0.1  # for each time


def median(run: Callable[[], object]) -> float | None:
    return rounded(median_ms(run, DEVICE, BUDGET_S))


def measure(pairs: int, d: int, n: int, options: dict[str, Any]) -> Row:
    x, y = (torch.randn(pairs, n, d, device="cuda").requires_grad_() for _ in range(2))
    options = {k: v.cuda() if isinstance(v, Tensor) else v for k, v in options.items()}

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(warpalign.soft_dtw(x, y, **options).sum(), (x, y))

    with torch.no_grad():
        forward = median(lambda: warpalign.soft_dtw(x, y, **options))
    return {"forward_ms": forward, "step_ms": median(step)}


def measure_product(d: int, n: int) -> Row:
    x, y, v = (torch.randn(32, n, d, device="cuda") for _ in range(3))
    x.requires_grad_()
    y.requires_grad_()
    (first,) = torch.autograd.grad(warpalign.soft_dtw(x, y).sum(), x, create_graph=True)
    return {"product_ms": median(lambda: torch.autograd.grad(first, (x, y), v, retain_graph=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_arguments(parser)
    device = device_name(DEVICE)
    target, commit = result_path(parser.parse_args(), device, "-options")
    rows: list[Row] = []
    for d in (1, 64):
        cases = [(name, 32, 2048, measure(32, d, 2048, options)) for name, options in OPTIONS.items()]
        cases += [("Hessian-vector product", 32, n, measure_product(d, n)) for n in (512, 2048)]
        # Enough pairs for the cells to count, and not how long one pair takes.
        cases += [(name, 1024, 512, measure(1024, d, 512, options)) for name, options in MANY_PAIRS.items()]
        for name, pairs, n, found in cases:
            rows.append(
                {"op": "soft_dtw_options", "case": name, "B": pairs, "n": n, "D": d, "device": device}
                | found
                | stamp(commit)
            )
            print(f"D {d:3} {name:24} {pairs:5} {n:5}  {found}", flush=True)
    write_rows(rows, target)


if __name__ == "__main__":
    main()
