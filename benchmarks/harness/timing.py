"""How the benchmarks measure time and memory: the only timing loops that they have."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def times_ms(run: Callable[[], object], device: torch.device, count: int) -> list[float]:
    """Times of `count` runs: on a GPU between events, without a wait between the runs; on a CPU by the clock."""
    if device.type != "cuda":
        return [1e3 * wall_s(run)[1] for _ in range(count)]
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for begin, end in events:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def median_ms(run: Callable[[], object], device: torch.device, budget_s: float, most: int = 200) -> float:
    """Median time of `run` after a warm-up; 3 to `most` runs, as many as fit the budget; 1 if a run takes over a second."""
    times_ms(run, device, 1)
    (first,) = times_ms(run, device, 1)
    if first > 1e3:
        return first
    count = max(3, min(most, int(1e3 * budget_s / max(first, 1e-3))))
    times_ms(run, device, min(count, 10))
    return statistics.median(times_ms(run, device, count))


def eager_ms(run: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """The least of three medians. Other work on the host only adds to what eager mode takes."""
    return min(median_ms(run, device, budget_s / 3) for _ in range(3))


def of_three_ms(run: Callable[[], object], device: torch.device) -> float:
    """The median of three runs after one: for what takes long."""
    times_ms(run, device, 1)
    return statistics.median(times_ms(run, device, 3))


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


def least_thread_s(run: Callable[[], object], count: int) -> float:
    """The least CPU time of this thread in `count` runs. Other programs may run beside it."""
    times = []
    for _ in range(count):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def wall_s(run: Callable[[], Result], wait: Callable[[], object] = lambda: None) -> tuple[Result, float]:
    """The result of one run and its seconds by the clock; `wait` is called before the start and before the end."""
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return result, time.perf_counter() - start


def peak_mib(run: Callable[[], Iterable[Tensor]], device: torch.device) -> float | None:
    """Peak of the allocator during `run`, less what was allocated before and what `run` returns; None on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = list(run())
    torch.cuda.synchronize()
    own = torch.cuda.max_memory_allocated() - before
    own -= sum(tensor.numel() * tensor.element_size() for tensor in kept)
    return max(own, 0) / 2**20


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
    x, y = (torch.randn(32, 128, 1, device=device, requires_grad=True) for _ in range(2))
    apply: Callable[[Tensor, Tensor], Tensor] = _Trivial.apply
    return eager_ms(lambda: torch.autograd.grad(apply(x, y).sum(), (x, y)), device, budget_s)
