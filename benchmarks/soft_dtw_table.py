"""Measures one row of the soft-DTW table: times, memory and errors of a training step.

A step is forward, sum and backward to both inputs, x and y ~ N(0, 1). On a GPU, times are medians of CUDA
events around single runs; in eager mode the least of three. `mib` is the peak of the allocator above the inputs during a step, less the two
gradients. Errors are relative L2 errors against float64 on a few pairs of the batch, first and last included.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import warpalign
from reference64 import soft_dtw_float64
from results import Row, rounded
from soft_dtw_rows import Size

# A gradient error above this is recorded as a failure, not as a result.
WRONG = {"highest": 1e-3, "high": 1e-3, "medium": 0.1}
GRAPH_LIMIT_MS = 500.0  # above this a CUDA graph changes nothing that can be measured
ERROR_CELLS = {"cuda": 8192 * 8192, "cpu": 1024 * 1024}  # the longest pair that is compared with float64


def _cuda_times(run: Callable[[], Any], count: int) -> list[float]:
    """Times between events around each of `count` runs, which are enqueued without a wait between them."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for begin, end in events:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def _cpu_times(run: Callable[[], Any], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def median_ms(run: Callable[[], Any], device: torch.device, budget_s: float) -> float:
    """Median time of `run` after a warm-up; as many runs as fit the budget, from 1 of a second to 200."""
    timed = _cuda_times if device.type == "cuda" else _cpu_times
    timed(run, 1)
    (first,) = timed(run, 1)
    if first > 1e3:
        return first
    count = max(3, min(200, int(1e3 * budget_s / max(first, 1e-3))))
    timed(run, min(count, 10))
    return statistics.median(timed(run, count))


def inputs(size: Size, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size.B, size.N, size.D, generator=generator)
    y = torch.randn(size.B, size.M, size.D, generator=generator)
    return x.to(device).requires_grad_(), y.to(device).requires_grad_()


def training_step(x: Tensor, y: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """Gradients of the summed loss with respect to x and y."""
    return torch.autograd.grad(warpalign.soft_dtw(x, y, **options).sum(), (x, y))  # type: ignore[return-value]


def peak_mib(x: Tensor, y: Tensor, **options: Any) -> float | None:
    """Peak of a step above the inputs and the gradients; None on a CPU."""
    if not x.is_cuda:
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    gradients = training_step(x, y, **options)
    torch.cuda.synchronize()
    own = torch.cuda.max_memory_allocated() - before
    own -= sum(gradient.numel() * gradient.element_size() for gradient in gradients)
    return max(own, 0) / 2**20


def graph_ms(run: Callable[[], Any], device: torch.device, budget_s: float) -> float:
    """Median time of one replay of `run`, captured in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = run()
    try:
        return median_ms(graph.replay, device, budget_s)
    finally:
        del kept
        graph.reset()


def relative_error(ours: Tensor, reference: Tensor) -> float:
    return float((ours.double() - reference).norm() / reference.norm())


def errors(x: Tensor, y: Tensor, gamma: float, **options: Any) -> dict[str, float | None]:
    """err_loss, err_gx and err_gy; None where a pair is too long for the reference."""
    cells = x.shape[1] * y.shape[1]
    limit = ERROR_CELLS[x.device.type]
    if cells > limit:
        return {"err_loss": None, "err_gx": None, "err_gy": None}
    value = warpalign.soft_dtw(x, y, gamma=gamma, **options)
    gradients = torch.autograd.grad(value.sum(), (x, y))
    count = max(1, min(len(x), 4, limit // (4 * cells)))
    picked = torch.linspace(0, len(x) - 1, count).round().long().unique().to(x.device)
    reference = soft_dtw_float64(x[picked], y[picked], gamma)
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

    # Other work on the host only adds to what eager mode takes: the least of three medians.
    forward_ms = min(median_ms(forward, device, budget_s / 3) for _ in range(3))
    step_ms = min(median_ms(step, device, budget_s / 3) for _ in range(3))
    row: Row = {
        "forward_ms": rounded(forward_ms),
        "step_ms": rounded(step_ms),
        "graph_forward_ms": None,
        "graph_step_ms": None,
        "mib": rounded(peak_mib(x, y, **options)),
        "cells_per_s": rounded(1e3 * size.cells / forward_ms),
    }
    found = errors(x, y, **options)
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
    return row


class _Trivial(torch.autograd.Function):
    """What any autograd.Function of this shape costs: two small results, scaled in backward."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x[:, 0, 0].clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        scale = grad_output[:, None, None]
        return x * scale, y * scale


def framework_step_ms(device: torch.device, budget_s: float) -> float:
    """PyTorch's own time for a training step through an autograd.Function that computes nothing."""
    x, y = inputs(Size(32, 128, 128, 1), device)
    apply: Callable[[Tensor, Tensor], Tensor] = _Trivial.apply
    return min(
        median_ms(lambda: torch.autograd.grad(apply(x, y).sum(), (x, y)), device, budget_s / 3)
        for _ in range(3)
    )


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
