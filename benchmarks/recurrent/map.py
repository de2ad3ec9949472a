"""Where the LSTM is faster than torch.nn.LSTM (cuDNN), and where slower: `python -m benchmarks.recurrent.map -o FILE`.

Each row is a training step (forward and backward pass) in a CUDA graph, a forward pass alone, or one step of a stream. In
float32 both sides are measured in float32 and with torch's TF32 allowed: torch allows it to cuDNN, and not to other
products, unless told.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.harness.results import Row, current_commit, device_name, rounded, stamp, write_rows
from benchmarks.harness.timing import graph_ms
from benchmarks.recurrent.measure import Problem
from benchmarks.recurrent.sizes import FORWARD, STREAM, Size
from warpalign.recurrent import LSTM

BUDGET_S = 0.01  # The replays of a row take so many seconds.
STEPS = 128  # of most rows: both sides' time is nearly proportional to it


def _sizes() -> Iterator[Size]:
    """The grid."""
    cross = itertools.product
    for hidden, batch in cross((64, 128, 256, 512, 1024, 2048), (1, 8, 32, 64, 256)):
        yield Size(STEPS // 2, batch, hidden, hidden, dtype="float32")
    for (hidden, width), batch in cross(((512, 128), (1024, 256), (2048, 640)), (1, 8, 16, 32, 64, 128)):
        yield Size(STEPS // 2, batch, width, hidden, P=width)
    for (hidden, layers), batch in cross(
        ((256, 1), (512, 2), (1024, 8), (2048, 2)), (1, 2, 4, 8, 16, 32, 64)
    ):
        yield Size(1, batch, hidden, hidden, layers, dtype="float16", options=STREAM)
    for (hidden, layers), batch in cross(((512, 2), (1024, 4)), (1, 8, 32)):
        yield Size(1, batch, hidden, hidden, layers, dtype="float32", options=STREAM)
    for hidden, batch in cross((128, 256, 512, 768, 1024, 2048), (1, 8, 64, 128, 256)):
        yield Size(STEPS, batch, hidden, hidden)
    for hidden, batch in cross((512, 1024, 2048), (1, 8, 16, 64)):
        yield Size(STEPS, batch, hidden, hidden, dtype="float16")
    for hidden, layers, batch in cross((512, 1024), (2, 8), (1, 8, 64)):
        yield Size(STEPS, batch, hidden, hidden, layers)
    for hidden, batch in cross((256, 512, 1024), (1, 8, 64)):
        yield Size(STEPS, batch, hidden, hidden, dirs=2)
    for steps, batch in cross((16, 512), (1, 8, 64)):
        yield Size(steps, batch, 512, 512)
    yield from _corners()


def _corners() -> Iterator[Size]:
    """Small layers, stacks and directions in float32, one feature, float64, and the forward pass alone."""
    cross = itertools.product
    for hidden, batch in cross((16, 64), (1, 64, 256)):
        yield Size(STEPS, batch, hidden, hidden)
    for batch in (8, 256):
        yield Size(STEPS, batch, 64, 64, dtype="float16")
    for hidden, batch in cross((16, 32, 96), (1, 32, 256)):
        yield Size(STEPS // 2, batch, hidden, hidden, dtype="float32")
    for (hidden, layers), batch in cross(((64, 2), (64, 4), (256, 4), (512, 2), (512, 4)), (8, 64)):
        yield Size(STEPS // 2, batch, hidden, hidden, layers, dtype="float32")
    for hidden, batch in cross((64, 256, 512), (8, 64)):
        yield Size(STEPS // 2, batch, hidden, hidden, dirs=2, dtype="float32")
    for batch in (1, 32):
        yield Size(512, batch, 1, 64, dtype="float32")
    for hidden, batch in cross((64, 256, 1024), (1, 32)):
        yield Size(STEPS // 2, batch, hidden, hidden, dtype="float64")
    for (hidden, layers), batch in cross(((64, 1), (64, 2), (128, 1), (512, 1), (1024, 1)), (1, 8, 256)):
        yield Size(STEPS // 2, batch, hidden, hidden, layers, dtype="float32", options=FORWARD)
    for hidden in (256, 512, 1024):
        yield Size(STEPS // 2, 256, hidden, hidden, 2, dtype="float32", options=FORWARD)
    for hidden, layers, batch in cross((64, 512, 1024), (1, 2), (1, 8, 256)):
        yield Size(STEPS, batch, hidden, hidden, layers, dtype="float16", options=FORWARD)


SIZES = list(_sizes())


def measure_stream(size: Size, device: torch.device) -> Row:
    """Milliseconds of one step of a stream, and of a call of torch's module."""
    shape: dict[str, Any] = {"num_layers": size.layers, "dtype": size.torch_dtype, "device": device}
    ours = LSTM(size.I, size.H, **shape).eval()
    theirs = nn.LSTM(size.I, size.H, **shape).eval()
    stream = ours.stream(size.B)
    x = torch.randn(size.B, size.I, device=device).to(size.torch_dtype)
    states = stream.h.clone(), stream.c.to(size.torch_dtype)
    with torch.no_grad():
        return {
            "ms": graph_ms(lambda: stream.step(x), device, BUDGET_S),
            "cudnn_ms": graph_ms(lambda: theirs(x[None], states)[0], device, BUDGET_S),
        }


def measure_pass(size: Size, device: torch.device) -> Row:
    """Milliseconds of a training step, or of the forward pass alone, of ours and of torch's module."""
    problem = Problem(size, device)
    theirs = problem.theirs(size.torch_dtype)
    run = problem.forward if size.options == FORWARD else problem.step
    return {
        "ms": graph_ms(run, device, BUDGET_S),
        "cudnn_ms": graph_ms(lambda: run(theirs), device, BUDGET_S),
    }


def measure(size: Size, device: torch.device) -> Row:
    """A row: times of both sides, and in float32 the same with TF32."""
    run = measure_stream if size.options == STREAM else measure_pass
    row: Row = {}
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        for suffix, allows in (("", False), ("_tf32", True))[: 2 if size.dtype == "float32" else 1]:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allows
            row |= {name + suffix: rounded(value, 4) for name, value in run(size, device).items()}
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
    return row


def text(size: Size, row: Row) -> str:
    """A line of the table: our time and cuDNN's for a batch, both with TF32 behind them."""
    line = f"{row['ms']:.4g}/{row['cudnn_ms']:.4g}"
    if "ms_tf32" in row:
        line += f" tf32 {row['ms_tf32']:.4g}/{row['cudnn_ms_tf32']:.4g}"
    slower = [
        suffix for suffix in ("", "_tf32") if row.get("ms" + suffix, 0) > row.get("cudnn_ms" + suffix, 0)
    ]
    return f"B{size.B} {line}{' SLOWER' * bool(slower)}"


def run(sizes: Iterable[Size], device: torch.device, seconds: float) -> list[Row]:
    """The rows that are begun within `seconds`; prints those that differ by their batch in one line."""
    rows: list[Row] = []
    end = time.monotonic() + seconds
    for kind, group in itertools.groupby(sizes, lambda size: size._replace(B=0)):
        print(kind.name.replace("x0x", "x", 1), end=":", flush=True)
        for size in group:
            if time.monotonic() > end:
                print(" time is out")
                return rows
            torch.manual_seed(0)
            row = measure(size, device)
            print(f" {text(size, row)};", end="", flush=True)
            rows.append({"op": "lstm_map", "device": device_name(device), **size._asdict(), **row})
        print()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="sizes whose names have this in them")
    parser.add_argument("--seconds", type=float, default=60, help="no row is begun later (default: 60)")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file of the rows")
    options = parser.parse_args()
    sizes = [size for size in SIZES if options.only in size.name]
    rows = [row | stamp(current_commit()) for row in run(sizes, torch.device("cuda"), options.seconds)]
    if options.output:
        write_rows(rows, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
