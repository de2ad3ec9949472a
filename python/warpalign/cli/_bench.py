"""`warpalign bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import torch

import warpalign
from warpalign.cli._common import DTYPES, computing, report
from warpalign.cli._progress import progress

POSITIVE = click.IntRange(min=1)


@click.command()
@click.option("--pairs", type=POSITIVE, default=32, show_default=True, help="Pairs of series in a batch.")
@click.option("--length", type=POSITIVE, default=512, show_default=True, help="Time steps of every series.")
@click.option("--features", type=POSITIVE, default=1, show_default=True, help="Features of a time step.")
@click.option(
    "--repeats", type=POSITIVE, default=20, show_default=True, help="Timed runs; the median counts."
)
@click.option("--threads", type=POSITIVE, help="CPU threads.  [default: torch's]")
@computing("float32", gamma=">= 0, 0 being hard DTW")
def bench(
    pairs: int,
    length: int,
    features: int,
    repeats: int,
    threads: int | None,
    gamma: float,
    dtype: str,
    device: torch.device,
    as_json: bool,
) -> None:
    """Time soft-DTW on normally distributed series: forward alone, and a training step (forward, sum, backward)."""
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape = (pairs, length, features)
    x, y = (torch.randn(shape, device=device, dtype=DTYPES[dtype]) for _ in range(2))
    xg, yg = x.clone().requires_grad_(), y.clone().requires_grad_()

    def forward() -> None:
        warpalign.soft_dtw(x, y, gamma=gamma)

    def step() -> None:
        xg.grad = yg.grad = None
        warpalign.soft_dtw(xg, yg, gamma=gamma).sum().backward()

    cells = pairs * length * length
    times = {
        name: median_s(run, repeats, device, name) for name, run in (("forward", forward), ("step", step))
    }
    report(
        {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            **({"threads": torch.get_num_threads()} if device.type == "cpu" else {}),
            "pairs": pairs,
            "length": length,
            "features": features,
            "gamma": gamma,
            "dtype": dtype,
            "forward_ms": 1e3 * times["forward"],
            "step_ms": 1e3 * times["step"],
            "forward_ns_per_cell": 1e9 * times["forward"] / cells,
            "step_ns_per_cell": 1e9 * times["step"] / cells,
        },
        as_json=as_json,
    )


def median_s(run: Callable[[], None], repeats: int, device: torch.device, label: str) -> float:
    """Median wall-clock time of a run, in seconds, after three runs that warm it up."""
    times = []
    for index in progress(range(repeats + 3), label):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if index >= 3:
            times.append(time.perf_counter() - start)
    return statistics.median(times)
