"""Measures one row of the soft-DTW table: times, memory and errors of a training step.

A step is forward, sum and backward to both inputs, x and y ~ N(0, 1). On a GPU, times are medians of CUDA
events around single runs; in eager mode the least of three. `mib` is the peak of the allocator above the inputs
during a step, less the two gradients. Published packages that are installed are measured in the same run (peers.py).
Errors are relative L2 errors against float64 on a few pairs of the batch, first and last included.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from benchmarks.soft_dtw.peers import peer_steps
from benchmarks.soft_dtw.sizes import Size
from tests.python.soft_dtw.reference import Reference64, soft_dtw_float64

# A gradient error above this is recorded as a failure, not as a result.
WRONG = {"highest": 1e-3, "high": 1e-3, "medium": 0.1}
GRAPH_LIMIT_MS = 500.0  # above this a CUDA graph changes nothing that can be measured
FEWEST_PEER_FEATURES = 128  # from which on published packages are measured in the same run
ERROR_CELLS = {"cuda": 8192 * 8192, "cpu": 1024 * 1024}  # the longest pair that is compared with float64


def inputs(size: Size, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size.B, size.N, size.D, generator=generator)
    y = torch.randn(size.B, size.M, size.D, generator=generator)
    return x.to(device).requires_grad_(), y.to(device).requires_grad_()


def training_step(x: Tensor, y: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Gradients of the summed loss with respect to x and y."""
    return torch.autograd.grad(warpalign.soft_dtw(x, y, **options).sum(), (x, y))  # type: ignore[return-value]


def relative_error(ours: Tensor, reference: Tensor) -> float:
    return float((ours.double() - reference).norm() / reference.norm())


@cache
def expected(size: Size, device: torch.device) -> tuple[Tensor, Reference64]:
    """Some pairs of the batch, and what they give in float64. A size of another precision has the same."""
    x, y = inputs(size, device)
    cells = size.N * size.M
    count = max(1, min(size.B, 4, ERROR_CELLS[device.type] // (4 * cells)))
    picked = torch.linspace(0, size.B - 1, count).round().long().unique().to(device)
    return picked, soft_dtw_float64(x[picked], y[picked], size.gamma)


def errors(size: Size, x: Tensor, y: Tensor, **options: Any) -> dict[str, float | None]:
    """err_loss, err_gx and err_gy; None where a pair is too long for the reference."""
    if ERROR_CELLS[x.device.type] < size.N * size.M:
        return {"err_loss": None, "err_gx": None, "err_gy": None}
    value = warpalign.soft_dtw(x, y, **options)
    gradients = torch.autograd.grad(value.sum(), (x, y))
    picked, reference = expected(size._replace(precision="highest"), x.device)
    return {
        "err_loss": relative_error(value[picked].detach(), reference.value),
        "err_gx": relative_error(gradients[0][picked], reference.grad_x),
        "err_gy": relative_error(gradients[1][picked], reference.grad_y),
    }


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    x, y = inputs(size, device)
    options: dict[str, Any] = {"gamma": size.gamma, "precision": size.precision}

    @torch.no_grad()
    def forward() -> Tensor:
        return warpalign.soft_dtw(x, y, **options)

    def step() -> tuple[Tensor, Tensor]:
        return training_step(x, y, **options)

    forward_ms, step_ms = (eager_ms(run, device, budget_s) for run in (forward, step))
    row: Row = {
        "forward_ms": rounded(forward_ms),
        "step_ms": rounded(step_ms),
        "graph_forward_ms": None,
        "graph_step_ms": None,
        "mib": rounded(peak_mib(step, device)),
        "cells_per_s": rounded(1e3 * size.cells / forward_ms),
    }
    found = errors(size, x, y, **options)
    row.update({key: rounded(value, 3) for key, value in found.items()})
    for key, value in found.items():
        most = WRONG[size.precision]
        if value is not None and not value <= most:  # NaN is not <= either
            row[key] = None
            row["error"] = f"{key} is {value:.2g}, above {most:g}"
    if device.type == "cuda" and step_ms < GRAPH_LIMIT_MS:
        try:
            row["graph_forward_ms"] = rounded(graph_ms(forward, device, budget_s))
            row["graph_step_ms"] = rounded(graph_ms(step, device, budget_s))
        except RuntimeError as error:
            row.setdefault("error", f"CUDA graph: {str(error).splitlines()[0][:200]}")
    if device.type == "cuda" and size.precision == "highest" and size.D >= FEWEST_PEER_FEATURES:
        row |= peer_steps(x, y, size.gamma, budget_s)
    return row


def not_reproducible(device: torch.device, runs: int) -> list[str]:
    """Names of the sizes at which any of `runs` runs differs from the first in a single bit."""
    different = []
    sizes = [Size(7, 33, 97, 3), Size(16, 255, 257, 1, 0.1), Size(3, 300, 64, 65)]
    for size in (*sizes, Size(5, 150, 170, 64, precision="high")):
        x, y = inputs(size, device, seed=1)

        def results(x: Tensor = x, y: Tensor = y, size: Size = size) -> list[Tensor]:
            value = warpalign.soft_dtw(x, y, gamma=size.gamma, precision=size.precision)  # type: ignore[arg-type]
            return [value.detach(), *torch.autograd.grad(value.sum(), (x, y))]

        first = results()
        if not all(all(map(torch.equal, first, results())) for _ in range(runs - 1)):
            different.append(size.name)
    return different
