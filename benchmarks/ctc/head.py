"""Measures CTC's loss with the last layer within it on a GPU, beside logits that are in memory as a whole.

A step is forward, mean and backward to the encoder's outputs, the weight and the bias. `fused` is ctc_loss_from_encoder
with a limit of so many MiB, `logits` is ctc_loss of a linear layer with its gradient in the logits' memory, `torch` is
log_softmax and torch.nn.functional.ctc_loss of a linear layer. `mib` is the peak of the allocator during a step, less the
gradients. Numbers are N(0, 1), the weight is divided by √H. Writes
benchmarks/results/<gpu>/<date>-<commit>-ctc-head.json.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
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
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib

LIMITS = (32, 64, 128)  # MiB


class Size(NamedTuple):
    B: int
    T: int
    C: int
    L: int
    H: int


SIZES = [Size(32, 400, 32000, 100, 512), Size(64, 200, 5000, 40, 512), Size(8, 1500, 1024, 100, 512)]


class Problem:
    """One size's tensors, and the steps that are measured."""

    def __init__(self, size: Size, dtype: torch.dtype, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)
        options = {"generator": generator, "device": device}
        self.size = size
        encoder = torch.randn(size.B, size.T, size.H, **options).to(dtype)  # type: ignore[call-overload]
        weight = (torch.randn(size.C, size.H, **options) / size.H**0.5).to(dtype)  # type: ignore[call-overload]
        bias = torch.zeros(size.C, device=device, dtype=dtype)
        self.leaves = tuple(t.requires_grad_() for t in (encoder, weight, bias))
        self.targets = torch.randint(1, size.C, (size.B, size.L), **options)  # type: ignore[call-overload]

    def fused(self, limit: int) -> Tensor:
        encoder, weight, bias = self.leaves
        return warpalign.ctc_loss_from_encoder(
            encoder, weight, bias, self.targets, workspace_limit=limit << 20
        )

    def logits(self) -> Tensor:
        return warpalign.ctc_loss(F.linear(*self.leaves), self.targets, inplace_grad=True)

    def torch(self) -> Tensor:
        size = self.size
        log_probs = F.log_softmax(F.linear(*self.leaves), -1, dtype=torch.float32)
        frames = torch.full((size.B,), size.T, dtype=torch.int32)
        labels = torch.full((size.B,), size.L, dtype=torch.int32)
        losses = F.ctc_loss(log_probs.transpose(0, 1), self.targets, frames, labels, reduction="none")
        return losses.mean()

    def step(self, loss: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        value = loss()
        return value.detach(), *torch.autograd.grad(value, self.leaves)


def measure(size: Size, dtype: torch.dtype, device: torch.device, budget_s: float) -> list[Row]:
    problem = Problem(size, dtype, device)
    losses: dict[str, Callable[[], Tensor]] = {
        f"fused {limit}": functools.partial(problem.fused, limit) for limit in LIMITS
    }
    losses |= {"logits": problem.logits, "torch": problem.torch}
    rows: list[Row] = []
    reference = [t.double() for t in problem.step(problem.logits)]
    for name, loss in losses.items():
        step = functools.partial(problem.step, loss)
        row: Row = {
            "size": "x".join(map(str, size)),
            "dtype": str(dtype).removeprefix("torch."),
            "loss": name,
            "step_ms": rounded(eager_ms(step, device, budget_s)),
            "graph_step_ms": None if name == "torch" else rounded(graph_ms(step, device, budget_s)),
            "mib": rounded(peak_mib(step, device)),
        }
        # The relative difference from `logits`, of the loss and of each gradient.
        pairs = zip(step(), reference, strict=True)
        row["differs"] = [rounded(float((a.double() - b).norm() / b.norm()), 2) for a, b in pairs]
        print(row, flush=True)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--budget", type=float, default=0.3, help="seconds for each number")
    arguments = parser.parse_args()
    device = torch.device("cuda")
    path, commit = result_path(arguments, device_name(device), "-ctc-head")
    place: Row = {"op": "ctc_head", "device": device_name(device)}
    rows = [
        place | row | stamp(commit)
        for size in SIZES
        for dtype in (torch.float32, torch.bfloat16)
        for row in measure(size, dtype, device, arguments.budget)
    ]
    write_rows(rows, path)


if __name__ == "__main__":
    main()
