#!/usr/bin/env python3
"""A learned Mahalanobis distance: accuracy of nearest neighbours of scikit-learn's digits with a drift that all features share.

    python -m benchmarks.soft_dtw.linear_metric [--out DIR]

An image is a series of 8 columns with 8 features. Each time step of each series has an offset ~ N(0, drift^2), the same for all
features. 200 series are the neighbours and learn the metric (30 steps of Adam on the log-likelihood of the class under a softmax of
minus the distances, each series left out in turn); 500 others are classified by one neighbour. Three seeds. Writes
<cpu>/<date>-<commit>-linear-metric.json.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import warpalign
from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows

TRAIN, TEST, STEPS, SEEDS = 200, 500, 30, 3
DRIFTS = (0.0, 0.3, 1.0)
GAMMA = 0.1


def learn(x: Tensor, labels: Tensor, cost: warpalign.Mahalanobis) -> None:
    same = labels[:, None] == labels
    optimizer = torch.optim.Adam(cost.parameters(), lr=0.05)
    for _ in range(STEPS):
        scores = (-warpalign.cdist_soft_dtw(x, gamma=GAMMA, cost=cost)).fill_diagonal_(-torch.inf)
        of_class = scores.masked_fill(~same, -torch.inf)
        loss = (scores.logsumexp(1) - of_class.logsumexp(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(
    x: Tensor, labels: Tensor, known: Tensor, known_labels: Tensor, cost: warpalign.Mahalanobis
) -> float:
    nearest = warpalign.cdist_soft_dtw(x, known, gamma=GAMMA, cost=cost).argmin(1)
    return float((known_labels[nearest] == labels).double().mean())


def measured(drift: float) -> Row:
    pixels, targets = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 8, 8).mT / 16
    labels = torch.tensor(targets)
    before, after = [], []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        x = images + drift * torch.randn(len(images), 8, 1, generator=generator)
        order = torch.randperm(len(x), generator=generator)
        train, test = order[:TRAIN], order[TRAIN : TRAIN + TEST]
        cost = warpalign.Mahalanobis(nn.Parameter(torch.eye(8)))
        sets = x[test], labels[test], x[train], labels[train]
        before.append(accuracy(*sets, cost))
        learn(x[train], labels[train], cost)
        after.append(accuracy(*sets, cost))
    row: Row = {"drift": drift, "seeds": SEEDS, "train": TRAIN, "test": TEST, "steps": STEPS, "gamma": GAMMA}
    for name, values in (("squared", before), ("learned", after)):
        row[f"accuracy_{name}"] = rounded(statistics.mean(values), 3)
        row[f"deviation_{name}"] = rounded(statistics.stdev(values), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add_arguments(parser)
    path, commit = result_path(parser.parse_args(), cpu_name(), "-linear-metric")
    torch.set_num_threads(1)
    rows: list[Row] = []
    for drift in DRIFTS:
        row = measured(drift)
        print(row, flush=True)
        rows.append({"op": "soft_dtw_linear_metric", "device": cpu_name()} | row | stamp(commit))
    write_rows(rows, path)
    print(path)


if __name__ == "__main__":
    main()
