#!/usr/bin/env python3
"""All pairs on a cluster: soft-DTW divergences of the Trace series as a Dask array, one task per tile.

Without --scheduler the tasks run on a cluster of processes on this machine. Needs dask and distributed, tslearn for the data.
"""

from __future__ import annotations

import argparse
import sys
import time

import dask.array as da
import numpy as np
from dask.distributed import Client
from numpy.typing import NDArray

import warpalign

Array = NDArray[np.float64]


def tile(x: Array, y: Array, gamma: float) -> Array:
    """Soft-DTW divergences of two chunks (a, N, D) and (b, M, D): (a, b). What a worker computes."""
    divergences: Array = warpalign.cdist_soft_dtw(x, y, gamma=gamma, normalize=True).numpy()
    return divergences


def cdist_dask(x: da.Array, y: da.Array, gamma: float) -> da.Array:
    """Soft-DTW divergences of x (n, N, D) and y (m, M, D), chunked along the first axis alone: (n, m), lazily."""
    if x.numblocks[1:] != (1, 1) or y.numblocks[1:] != (1, 1):
        raise ValueError("x, y: expected chunks of whole series, got chunks along time or features")
    table: da.Array = da.blockwise(
        tile, "ij", x, "ind", y, "jme", gamma=gamma, dtype=x.dtype, concatenate=True
    )
    return table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--scheduler", help="address of a running Dask scheduler, tcp://HOST:PORT")
    parser.add_argument("--workers", type=int, default=2, help="processes on this machine (default: 2)")
    parser.add_argument("--chunk", type=int, default=25, help="series per chunk (default: 25)")
    parser.add_argument("--gamma", type=float, default=0.1)
    return parser.parse_args()


def main() -> int:
    from tslearn.datasets import CachedDatasets

    arguments = parse_arguments()
    train, train_class, test, test_class = CachedDatasets().load_dataset("Trace")
    x, y = (da.from_array(series, chunks=(arguments.chunk, -1, -1)) for series in (test, train))
    with Client(
        arguments.scheduler, **({} if arguments.scheduler else {"n_workers": arguments.workers})
    ) as client:
        start = time.perf_counter()
        table = cdist_dask(x, y, arguments.gamma)
        nearest = table.argmin(axis=1).compute()
        workers = len(client.scheduler_info()["workers"])
        seconds = time.perf_counter() - start
    accuracy = float((train_class[nearest] == test_class).mean())
    print(
        f"{table.shape[0]} x {table.shape[1]} divergences in {table.npartitions} tiles on {workers} workers: {seconds:.1f} s"
    )
    print(f"nearest neighbour: {accuracy:.0%} right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
