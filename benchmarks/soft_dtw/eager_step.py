"""Host time of one eager step of soft-DTW, next to an autograd.Function that computes nothing.

    python -m benchmarks.soft_dtw.eager_step [--device cuda]

A step is forward, sum and backward with gradients of both series. Its time is the thread's own CPU time, so that other
programs beside it count little; the kernels of a GPU run meanwhile, and are not waited for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import least_thread_s

ROUNDS, STEPS = 40, 50


class Nothing(torch.autograd.Function):
    """As torch's documentation writes a function: the context is set up after forward."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x.new_empty(x.shape[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(y)


def least_us(runs: dict[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """The least mean of 50 runs, of 40 rounds in which every candidate has its turn."""

    def several(run: Callable[[], object]) -> None:
        for _ in range(STEPS):
            run()

    least = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            least[name] = min(least[name], least_thread_s(partial(several, run), 1) / STEPS * 1e6)
    return least


def measured(device: torch.device) -> dict[str, float]:
    """Times of one pair of two steps: all that is left is the host's work."""
    x, y = (torch.randn(1, 2, 1, device=device, requires_grad=True) for _ in range(2))

    def step_of(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
        def step() -> None:
            x.grad = y.grad = None
            function(x, y).sum().backward()

        return step

    def forward_alone() -> None:
        with torch.no_grad():
            warpalign.soft_dtw(x, y)

    return least_us(
        {
            "product": step_of(torch.mul),
            "nothing": step_of(Nothing.apply),
            "soft_dtw": step_of(warpalign.soft_dtw),
            "no_grad": forward_alone,
        },
        device,
    )


def row(device: torch.device) -> Row:
    """The same as columns of a result: with tensors on the device, and in the same run with tensors on its CPU."""
    places = {"": device, "cpu_": torch.device("cpu")}
    return {
        f"{prefix}{name}_us": rounded(us)
        for prefix, place in places.items()
        for name, us in measured(place).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    print("| x * y, us | nothing, us | soft_dtw, us | ratio | no_grad, us | ratio |")
    print("| --- " * 6 + "|")
    us = measured(device)
    empty, ours, forward = us["nothing"], us["soft_dtw"], us["no_grad"]
    print(
        f"| {us['product']:.0f} | {empty:.0f} | {ours:.0f} | {ours / empty:.2f} "
        f"| {forward:.0f} | {forward / empty:.2f} |"
    )


if __name__ == "__main__":
    main()
