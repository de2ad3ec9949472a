#!/usr/bin/env python3
"""A training step on float16 and bfloat16 series beside float32: ms, MiB and errors, for each precision.

    python -m benchmarks.soft_dtw.half_types [--out DIR]

x, y ~ N(0, 1), gamma 1, rounded to the type. `step_ms` is eager and `graph_step_ms` inside a CUDA graph, `mib` the peak of a step above
the series and less the gradients. `times` is float32's `graph_step_ms` at the same precision, divided by this one. Errors are relative L2 errors
of the value and of both gradients together against float64 on the rounded series; a gradient comes in the series' type, which rounds it once.
Writes <device>/<date>-<commit>-half-types.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.program import write_table
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from benchmarks.soft_dtw.measure import inputs, relative_error
from benchmarks.soft_dtw.sizes import Size
from tests.python.soft_dtw.reference import soft_dtw_float64

SIZES = (
    Size(32, 512, 512, 1),
    Size(512, 256, 256, 2),
    Size(32, 512, 512, 13),
    Size(32, 512, 512, 64),
    Size(32, 256, 256, 256),
    Size(64, 128, 128, 768),
    Size(32, 256, 256, 1024),
)
TYPES = (torch.float32, torch.float16, torch.bfloat16)
BUDGET_S = 0.15


def measure(size: Size, dtype: torch.dtype, precision: str, device: torch.device) -> Row:
    x, y = (t.detach().to(dtype).requires_grad_() for t in inputs(size, device))
    options: dict[str, Any] = {"gamma": size.gamma, "precision": precision}

    def step() -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = torch.autograd.grad(warpalign.soft_dtw(x, y, **options).sum(), (x, y))  # type: ignore[assignment]
        return found

    on_gpu = device.type == "cuda"
    return {
        "step_ms": rounded(eager_ms(step, device, BUDGET_S)),
        "graph_step_ms": rounded(graph_ms(step, device, BUDGET_S)) if on_gpu else None,
        "mib": rounded(peak_mib(step, device)),
        **errors(x.detach()[:2], y.detach()[:2], size.gamma, options),
    }


def errors(x: Tensor, y: Tensor, gamma: float, options: dict[str, Any]) -> Row:
    """Of leaves of its own: a graph that is kept alive would break the capture of another one."""
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    value = warpalign.soft_dtw(x, y, **options)
    both = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(value.sum(), (x, y))])
    expected = soft_dtw_float64(x.detach(), y.detach(), gamma)
    in_float64 = torch.cat([expected.grad_x.flatten(), expected.grad_y.flatten()])
    return {
        "err_loss": rounded(relative_error(value.detach(), expected.value), 3),
        "err_gradient": rounded(relative_error(both, in_float64), 3),
    }


def rows(device: torch.device, quick: bool) -> Iterator[Row]:
    for size in (Size(2, 20, 17, 3), Size(2, 20, 17, 24)) if quick else SIZES:
        for precision in ("highest", "high", "medium") if size.D >= 17 else ("highest",):
            of_float32 = None
            for dtype in TYPES:
                row: Row = {"B": size.B, "N": size.N, "M": size.M, "D": size.D, "gamma": size.gamma}
                row |= {"dtype": str(dtype).removeprefix("torch."), "precision": precision}
                row |= measure(size, dtype, precision, device)
                ms = row["graph_step_ms"] or row["step_ms"]
                of_float32 = ms if dtype == torch.float32 else of_float32
                yield row | {"times": rounded(of_float32 / ms, 3)}


def main() -> None:
    write_table(__doc__, "half_types", "-half-types", rows)


if __name__ == "__main__":
    main()
