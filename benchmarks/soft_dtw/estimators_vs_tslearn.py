#!/usr/bin/env python3
"""Barycenters, k-means and nearest neighbours on Trace, side by side with tslearn: results and wall-clock times.

Both start from the same centers and use all cores (tslearn: n_jobs). Everything is run once to warm up, on a few series. Losses
and inertias of both are computed in float64 by warpalign, so that they are the same quantity: sums of soft-DTW values.
Writes benchmarks/results/<cpu>/<date>-<commit>-estimators.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import warpalign
from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, stamp, write_rows
from benchmarks.harness.timing import wall_s

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    job: str
    quantity: str
    ours: float
    theirs: float
    our_seconds: float
    their_seconds: float


def sum_to_nearest(X: Array, centers: Array, gamma: float) -> float:
    return float(warpalign.cdist_soft_dtw(X, centers, gamma=gamma).amin(1).sum())


def compare_barycenters(X: Array, labels: Array, gamma: float, jobs: int) -> Comparison:
    """One barycenter per class; both with their default settings."""
    from tslearn.barycenters import softdtw_barycenter

    classes = np.unique(labels)

    def theirs() -> list[Array]:
        return [softdtw_barycenter(X[labels == label], gamma=gamma, n_jobs=jobs) for label in classes]

    groups = np.searchsorted(classes, labels)
    our_result, our_seconds = wall_s(lambda: warpalign.soft_dtw_barycenter(X, gamma=gamma, groups=groups))
    their_result, their_seconds = wall_s(theirs)
    return Comparison(
        f"{len(classes)} barycenters of {len(X)} series, gamma {gamma:g}",
        "loss",
        float(our_result.losses[:, -1].sum()),
        sum(
            sum_to_nearest(X[labels == k], c[None], gamma) for k, c in zip(classes, their_result, strict=True)
        ),
        our_seconds,
        their_seconds,
    )


def compare_k_means(
    X: Array, clusters: int, gamma: float, iterations: int, jobs: int, seed: int
) -> Comparison:
    from tslearn.clustering import TimeSeriesKMeans

    init = X[np.random.default_rng(seed).choice(len(X), clusters, replace=False)]
    ours = warpalign.SoftDTWKMeans(clusters, gamma=gamma, max_iter=iterations, init=init)
    theirs = TimeSeriesKMeans(
        clusters,
        metric="softdtw",
        metric_params={"gamma": gamma},
        max_iter=iterations,
        init=init,
        n_jobs=jobs,
    )
    our_seconds = wall_s(lambda: ours.fit(X))[1]
    their_seconds = wall_s(lambda: theirs.fit(X))[1]
    return Comparison(
        f"k-means, {clusters} of {len(X)} series, gamma {gamma:g}, start {seed}",
        "inertia",
        ours.inertia_,
        sum_to_nearest(X, theirs.cluster_centers_, gamma),
        our_seconds,
        their_seconds,
    )


def compare_neighbors(
    X: Array, labels: Array, queries: Array, query_labels: Array, gamma: float, jobs: int
) -> Comparison:
    from tslearn.neighbors import KNeighborsTimeSeriesClassifier

    ours = warpalign.SoftDTWKNeighborsClassifier(n_neighbors=3, gamma=gamma).fit(X, labels)
    theirs = KNeighborsTimeSeriesClassifier(
        n_neighbors=3, metric="softdtw", metric_params={"gamma": gamma}, n_jobs=jobs
    ).fit(X, labels)
    our_score, our_seconds = wall_s(lambda: ours.score(queries, query_labels))
    their_score, their_seconds = wall_s(lambda: theirs.score(queries, query_labels))
    job = f"3 neighbours of {len(queries)} in {len(X)} series, gamma {gamma:g}"
    return Comparison(job, "accuracy", our_score, their_score, our_seconds, their_seconds)


def print_table(comparisons: list[Comparison]) -> None:
    header = ("job", "", "warpalign", "tslearn", "warpalign, s", "tslearn, s", "ratio")
    rows = [
        (
            c.job,
            c.quantity,
            f"{c.ours:.6g}",
            f"{c.theirs:.6g}",
            f"{c.our_seconds:.3f}",
            f"{c.their_seconds:.2f}",
            f"{c.their_seconds / c.our_seconds:.0f} x",
        )
        for c in comparisons
    ]
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * 2 + " ---: |" * 5)
    for row in rows:
        print("| " + " | ".join(row) + " |")


def as_row(comparison: Comparison, jobs: int) -> Row:
    row: Row = {"op": "estimators", "device": cpu_name(), "threads": jobs, **asdict(comparison)}
    return row | {key: rounded(value, 6) for key, value in row.items() if isinstance(value, float)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="every fifth series and fewer starts")
    parser.add_argument(
        "--max-iter", type=int, default=10, help="iterations of k-means at most (default: 10)"
    )
    add_arguments(parser)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # tslearn: h5py, scikit-learn's new names

    from tslearn.datasets import CachedDatasets

    jobs = os.cpu_count() or 1
    step = 5 if arguments.quick else 1
    train, train_labels, test, test_labels = CachedDatasets().load_dataset("Trace")
    train, train_labels, test, test_labels = (
        part[::step] for part in (train, train_labels, test, test_labels)
    )

    def comparisons(
        X: Array, labels: Array, queries: Array, query_labels: Array, seeds: int
    ) -> list[Comparison]:
        todo: list[Callable[[], Comparison]] = []
        for gamma in (1.0, 0.1):
            todo.append(lambda gamma=gamma: compare_barycenters(X, labels, gamma, jobs))  # type: ignore[misc]
            for seed in range(seeds):
                todo.append(
                    lambda gamma=gamma, seed=seed: compare_k_means(  # type: ignore[misc]
                        X, 4, gamma, arguments.max_iter, jobs, seed
                    )
                )
            todo.append(
                lambda gamma=gamma: compare_neighbors(X, labels, queries, query_labels, gamma, jobs)  # type: ignore[misc]
            )
        return [job() for job in tqdm(todo, leave=False)]

    comparisons(train[:12, ::9], train_labels[:12], test[:4, ::9], test_labels[:4], 1)
    found = comparisons(train, train_labels, test, test_labels, 1 if arguments.quick else 3)
    print_table(found)
    target, commit = result_path(arguments, cpu_name(), "-estimators")
    write_rows([{**as_row(comparison, jobs), **stamp(commit)} for comparison in found], target)
    print(f"{len(found)} rows, in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
