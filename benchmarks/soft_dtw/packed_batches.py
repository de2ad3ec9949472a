#!/usr/bin/env python3
"""A training step on packed series (jagged nested tensors) beside padded ones, at realistic distributions of lengths.

    python -m benchmarks.soft_dtw.packed_batches [--out DIR]

Lengths of x and y are drawn apart. "even": 50 to 100 % of the longest, "speech": log-normal around 40 % (sigma 0.5), "heavy tail":
log-normal around 10 % (sigma 1), cut at the longest, which occurs. Series ~ N(0, 1), float32, gamma 1. "padded" has padded series and
lengths before the step begins. "pads" has packed series and pads them in the step, as a model's packed output would be. `mib` is the
peak of a step, series and gradients included. Writes <device>/<date>-<commit>-packed.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import warpalign
from benchmarks.harness.program import write_table
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms

CASES = ((32, 512, 1), (32, 1024, 64), (64, 512, 256), (256, 512, 8))  # pairs, longest, features
QUICK_CASES = ((3, 24, 2),)
BUDGET_S = 0.3


def lengths_of(kind: str, count: int, longest: int, generator: torch.Generator) -> list[int]:
    if kind == "even":
        share = 0.5 + 0.5 * torch.rand(count, generator=generator)
    else:
        middle, sigma = (0.4, 0.5) if kind == "speech" else (0.1, 1.0)
        share = middle * torch.exp(sigma * torch.randn(count, generator=generator))
    lengths: list[int] = (share * longest).round().int().clamp(2, longest).tolist()
    lengths[0] = longest
    return lengths


def jagged(values: Tensor, lengths: list[int]) -> Tensor:
    offsets = torch.tensor([0, *lengths], device=values.device).cumsum(0)
    extremes: dict[str, Any] = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)}
    nested: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets, **extremes)
    return nested


def peak_mib(run: Callable[[], object], device: torch.device) -> float | None:
    """The peak of the allocator: the caller holds the series alone."""
    if device.type != "cuda":
        return None
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return rounded(torch.cuda.max_memory_allocated() / 2**20)


def measure(
    way: str, features: int, n: list[int], m: list[int], device: torch.device
) -> tuple[float, float | None]:
    """Median ms and MiB of a step."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(sum(of), features, generator=generator).to(device) for of in (n, m))
    own = [torch.tensor(lengths, dtype=torch.int32, device=device) for lengths in (n, m)]

    def padded(values: Tensor, lengths: list[int]) -> Tensor:
        return pad_sequence(list(values.split(lengths)), batch_first=True)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return warpalign.soft_dtw(a, b, x_lengths=own[0], y_lengths=own[1])

    if way == "padded":
        x, y = padded(x, n), padded(y, m)
    x, y = x.requires_grad_(), y.requires_grad_()
    values: dict[str, Callable[[], Tensor]] = {
        "padded": lambda: loss(x, y),
        "pads": lambda: loss(padded(x, n), padded(y, m)),
        "packed": lambda: warpalign.soft_dtw(jagged(x, n), jagged(y, m)),
    }
    value = values[way]

    def step() -> object:
        return torch.autograd.grad(value().sum(), (x, y))

    return eager_ms(step, device, BUDGET_S), peak_mib(step, device)


def rows(device: torch.device, quick: bool) -> Iterator[Row]:
    for batch, longest, features in QUICK_CASES if quick else CASES:
        for kind in ("even", "speech", "heavy tail"):
            generator = torch.Generator().manual_seed(0)
            n, m = (lengths_of(kind, batch, longest, generator) for _ in range(2))
            row: Row = {"B": batch, "longest": longest, "D": features, "lengths": kind}
            row["padding"] = rounded(1 - (sum(n) + sum(m)) / (batch * (max(n) + max(m))), 3)
            for way in ("padded", "pads", "packed"):
                ms, mib = measure(way, features, n, m, device)
                row |= {f"{way}_ms": rounded(ms), f"{way}_mib": mib}
            yield row


def main() -> None:
    write_table(__doc__, "packed", "-packed", rows)


if __name__ == "__main__":
    main()
