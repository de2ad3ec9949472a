#!/usr/bin/env python3
"""Barycenters of thousands of series: soft-DTW at several gammas beside DBA (hard DTW), with outliers, from two starts.

    python -m benchmarks.soft_dtw.barycenter_study [--out DIR]

Series are one template of a few waves, each at its own pace and with noise of N(0, 0.1²); outliers are random walks. `error` is hard DTW between the
barycenter and the template, per time step (squared distances): what the noise alone would leave is near 0. `start` is the Euclidean mean, or the
first series. gamma is a multiple of the median cost of aligning two series, per step. Means of the seeds; `seconds` is the median.
Writes <device>/<date>-<commit>-barycenters.json.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
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
from benchmarks.harness.timing import wall_s

STEPS = 128
OUTLIERS = (0.0, 0.1, 0.3)
METHODS: tuple[tuple[str, float | None], ...] = (
    ("dba", None),
    ("lbfgs", 0.01),
    ("lbfgs", 0.1),
    ("lbfgs", 1.0),
)


def template(place: Tensor) -> Tensor:
    """Of a place from 0 to 1."""
    waves = torch.tensor([1.0, 2.0, 3.5])
    return (torch.sin(2 * torch.pi * waves * place[..., None]) / torch.tensor([1.0, 1.5, 2.0])).sum(-1)


def series_of(count: int, outliers: float, seed: int) -> Tensor:
    """(count, STEPS, 1)"""
    generator = torch.Generator().manual_seed(seed)
    pace = torch.exp(0.6 * torch.randn(count, 8, generator=generator))
    pace = torch.nn.functional.interpolate(pace[:, None], STEPS, mode="linear")[:, 0].cumsum(1)
    place = (pace - pace[:, :1]) / (pace[:, -1:] - pace[:, :1])
    series = template(place) + 0.1 * torch.randn(count, STEPS, generator=generator)
    wild = 0.2 * torch.randn(count, STEPS, generator=generator).cumsum(1)
    is_wild = torch.arange(count) >= round(count * (1 - outliers))
    return torch.where(is_wild[:, None], wild, series)[..., None]


def run(series: Tensor, method: str, fraction: float | None, start: str) -> tuple[float, float, int]:
    """The error, seconds, and the iterations."""
    options: dict[str, Any] = {"method": method, "max_iter": 50}
    if fraction is not None:
        half = len(series) // 2
        options["gamma"] = fraction * float(
            warpalign.dtw(series[:half], series[half : 2 * half]).median() / STEPS
        )
    init: Any = "euclidean" if start == "mean" else series[0]

    def fit() -> warpalign.BarycenterResult:
        found = warpalign.soft_dtw_barycenter(series, init=init, **options)
        float(found.barycenter.sum())  # waits for the device
        return found

    found, seconds = wall_s(fit)
    truth = template(torch.linspace(0, 1, STEPS))[:, None].to(found.barycenter)
    error = float(warpalign.dtw(found.barycenter, truth, unbatched=True) / STEPS)
    return error, seconds, found.losses.shape[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--series", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=3)
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, "-barycenters")
    rows: list[Row] = []
    run(series_of(arguments.series, 0.0, 0).to(device), "dba", None, "mean")  # loads what all need
    for outliers in OUTLIERS:
        for method, fraction in METHODS:
            for start in ("mean", "a series"):
                found = [
                    run(series_of(arguments.series, outliers, seed).to(device), method, fraction, start)
                    for seed in range(arguments.seeds)
                ]
                errors, seconds, iterations = zip(*found, strict=True)
                row: Row = {
                    "op": "barycenter",
                    "series": arguments.series,
                    "N": STEPS,
                    "outliers": outliers,
                    "device": name,
                }
                row |= {"method": method, "gamma": fraction, "start": start, "seeds": arguments.seeds}
                row |= {"error": rounded(statistics.fmean(errors), 3), "worst": rounded(max(errors), 3)}
                row |= {
                    "seconds": rounded(statistics.median(seconds), 3),
                    "iterations": statistics.median(iterations),
                }
                rows.append({**row, **stamp(commit)})
                print({key: value for key, value in row.items() if key not in ("op", "device")}, flush=True)
                write_rows(rows, target)


if __name__ == "__main__":
    main()
