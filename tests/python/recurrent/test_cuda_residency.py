"""Sweeps in one launch wait between blocks: they end on a GPU that others use, and give the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from warpalign.recurrent import LSTM

pytestmark = pytest.mark.gpu

WAIT_S = 30.0
SPIN = """
extern "C" __global__ void spin(int ns) {
  long long now, end;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
  end += ns;
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now < end);
}
"""
# Units and layers. More than 128 units run on clusters, more than 512 on the whole grid, two layers at a time.
SHAPES = [(136, 1), (512, 1), (1024, 1), (1024, 2)]


def training_step(hidden: int, device: torch.device, layers: int = 1) -> Callable[[], list[Tensor]]:
    """A training step: its outputs and gradients."""
    torch.manual_seed(hidden)
    steps = 5 if layers == 1 else 64
    module = LSTM(16, hidden, layers, device=device, dtype=torch.bfloat16)
    x = torch.randn(steps, 30, 16, device=device, dtype=torch.bfloat16, requires_grad=True)
    factor = torch.randn(steps, 30, hidden, device=device, dtype=torch.bfloat16)

    def step() -> list[Tensor]:
        y = module(x)[0]
        return [y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], factor)]

    return step


def wait_for_device() -> None:
    """Waits for all work; fails where a kernel hangs, as the process would without end."""
    done = torch.cuda.Event()
    for stream in {torch.cuda.current_stream(), torch.cuda.default_stream()}:
        stream.record_event(done)
        end = time.monotonic() + WAIT_S
        while not done.query():
            if time.monotonic() > end:
                pytest.exit(f"a kernel of the LSTM has not ended within {WAIT_S:g} s", returncode=3)
            time.sleep(1e-3)


def check_equal(results: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(results, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("hidden", "layers"), SHAPES)
def test_another_streams_kernel_holds_half_of_the_gpu(cuda: torch.device, hidden: int, layers: int) -> None:
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        pytest.skip("needs torch.cuda._compile_kernel for a kernel that spins")
    step = training_step(hidden, cuda, layers)
    expected = step()
    step()  # the allocator then has memory for one more, and does not ask the driver, which may wait
    wait_for_device()
    spin, side = compile_kernel(SPIN, "spin"), torch.cuda.Stream()
    held = torch.cuda.get_device_properties(cuda).multi_processor_count // 2
    spun = torch.cuda.Event()
    with torch.cuda.stream(side):
        spin(grid=(held, 1, 1), block=(1024, 1, 1), args=[200_000_000])
        spun.record()
    time.sleep(0.01)
    results = step()
    assert not spun.query(), "the other kernel ended before the sweeps were enqueued"
    wait_for_device()
    side.synchronize()
    check_equal(results, expected)


def test_ten_thousand_sweeps(cuda: torch.device) -> None:
    for hidden, layers, replays in ((136, 1, 3000), (1024, 1, 1500), (1024, 2, 100)):  # sweeps: 2, 2 and 6
        step = training_step(hidden, cuda, layers)
        expected = step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step()
        for _ in range(replays):
            graph.replay()
        wait_for_device()
        check_equal(results, expected)


def test_two_streams_at_once(cuda: torch.device) -> None:
    steps = [training_step(1024, cuda), training_step(512, cuda), training_step(1024, cuda, layers=2)]
    expected = [step() for step in steps]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in steps]
    results: list[list[Tensor]] = [[] for _ in steps]
    for _ in range(50):
        for n, (stream, step) in enumerate(zip(streams, steps, strict=True)):
            with torch.cuda.stream(stream):
                results[n] = step()
    for stream in streams:
        with torch.cuda.stream(stream):
            wait_for_device()
    for one, of_one in zip(results, expected, strict=True):
        check_equal(one, of_one)
