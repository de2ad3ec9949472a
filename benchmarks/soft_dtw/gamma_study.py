#!/usr/bin/env python3
"""Which gamma for which task, and what normalize=True and a schedule do for a training, on scikit-learn's digits.

    python -m benchmarks.soft_dtw.gamma_study [--out DIR]

A digit is a series of 8 columns with 8 features, which is moved by -2 to 2 columns. gamma is given in units of the median
squared distance between time steps. Tasks: "neighbours": accuracy of one nearest neighbour, 300 known and 500 new series;
"barycenters": accuracy of the nearest of 10 barycenters of 30 series each; "training": a network sees the upper 4 rows of an unmoved
digit and forecasts the lower 4, with the columns of both as time steps; 1000 series, 40 epochs of Adam; hard DTW and squared error to
500 unseen digits, per time step. Three seeds. Writes <cpu>/<date>-<commit>-gamma.json.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import warpalign
from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows

FRACTIONS = (0.001, 0.01, 0.1, 1.0, 10.0)
SEEDS = 3
EPOCHS, BATCH = 40, 100


def digits(seed: int, moved: bool) -> tuple[Tensor, Tensor]:
    """(1797, 8, 8) columns and (1797,) classes, in random order."""
    pixels, targets = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(pixels), generator=generator)
    x = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 8, 8).mT[order] / 16
    if moved:
        by = torch.randint(-2, 3, (len(x), 1), generator=generator)
        place = (torch.arange(8) + by).clamp(0, 7)
        x = x.take_along_dim(place[..., None], dim=1)
    return x, torch.tensor(targets)[order]


def unit_of(x: Tensor) -> float:
    return float(torch.pdist(x[:20].flatten(0, 1)).square().median())


def neighbours(seed: int, fraction: float, normalize: bool) -> float:
    x, labels = digits(seed, True)
    gamma = fraction * unit_of(x)
    nearest = warpalign.cdist_soft_dtw(x[300:800], x[:300], gamma=gamma, normalize=normalize).argmin(1)
    return float((labels[:300][nearest] == labels[300:800]).double().mean())


def barycenters(seed: int, fraction: float, normalize: bool) -> float:
    x, labels = digits(seed, True)
    gamma = fraction * unit_of(x)
    known = torch.cat([(labels == digit).nonzero()[:30, 0] for digit in range(10)])
    new = torch.ones(len(x), dtype=torch.bool)
    new[known] = False
    centers = warpalign.soft_dtw_barycenter(
        x[known], gamma=gamma, groups=labels[known], normalize=normalize, max_iter=30
    ).barycenter
    test, classes = x[new][:500], labels[new][:500]
    nearest = warpalign.cdist_soft_dtw(test, centers.to(x.dtype), gamma=gamma, normalize=normalize).argmin(1)
    return float((nearest == classes).double().mean())


def training(seed: int, fraction: float, normalize: bool, scheduled: bool) -> tuple[float, float]:
    """Hard DTW and squared error of forecasts, per time step."""
    x, _ = digits(seed, False)
    unit = unit_of(x[..., 4:])
    seen, target = x[..., :4].flatten(1), x[..., 4:]
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32), nn.Unflatten(1, (8, 4)))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    loss = warpalign.SoftDTW(gamma=fraction * unit, normalize=normalize, reduction="mean")
    scheduler = None
    if scheduled:
        scheduler = warpalign.GammaScheduler(loss, start=unit, end=fraction * unit, steps=EPOCHS // 2)
    for _ in range(EPOCHS):
        for part in torch.randperm(1000).split(BATCH):
            optimizer.zero_grad()
            loss(network(seen[part]), target[part]).backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()
    with torch.no_grad():
        forecast, truth = network(seen[1000:1500]), target[1000:1500]
        hard = warpalign.dtw(forecast, truth).mean() / 8
    return float(hard), float((forecast - truth).square().sum(-1).mean())


def mean_and_deviation(row: Row, name: str, values: list[float]) -> None:
    row[name] = rounded(statistics.mean(values), 3)
    row[f"{name}_deviation"] = rounded(statistics.stdev(values), 2)


def rows_of(fraction: float, normalized: tuple[bool, ...] = (False, True)) -> list[Row]:
    rows: list[Row] = []
    for normalize in normalized:
        given: dict[str, Any] = {"fraction": fraction, "normalize": normalize}
        for task in (neighbours, barycenters):
            row: Row = {"task": task.__name__} | given
            mean_and_deviation(row, "accuracy", [task(seed, fraction, normalize) for seed in range(SEEDS)])
            rows.append(row)
        for scheduled in (False, True) if fraction < 1 else (False,):
            row = {"task": "training", "scheduled": scheduled} | given
            found = [training(seed, fraction, normalize, scheduled) for seed in range(SEEDS)]
            mean_and_deviation(row, "dtw", [hard for hard, _ in found])
            mean_and_deviation(row, "squared_error", [error for _, error in found])
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_arguments(parser)
    path, commit = result_path(parser.parse_args(), cpu_name(), "-gamma")
    torch.set_num_threads(1)
    rows: list[Row] = []
    for fraction in FRACTIONS:
        for row in rows_of(fraction):
            print(row, flush=True)
            rows.append({"op": "soft_dtw_gamma", "device": cpu_name()} | row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
