"""A spiral onto a Swiss roll, from hundreds of points to tens of thousands, beside POT where it is installed."""

from __future__ import annotations

import resource
import sys
import time
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign.transport import Geodesic, gromov_wasserstein_sampled, knn_graph, shortest_paths

from .data import load_curve

NEIGHBORS = 5
POTS_LARGEST = 1000
EPSILON = 1e-3


class Row(NamedTuple):
    name: str
    n: int
    m: int
    seconds: float
    mebibytes: float
    """Peak growth of memory: the process's on the CPU, torch's on a GPU."""
    distortion: float
    correlation: float
    """Correlation of places along both curves. A mirrored match has about −1."""


def ours(n: int, m: int, device: torch.device, seed: int) -> Row:
    curve = load_curve(n, m)
    before, start = _peak(device), time.perf_counter()
    result = gromov_wasserstein_sampled(
        curve.spiral.to(device),
        curve.roll.to(device),
        geometry=Geodesic(k=NEIGHBORS),
        epsilon=EPSILON,
        generator=seed,
    )
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - start
    used = (_peak(device) - before) / 2**20
    # The correlation is that of every so many points.
    shares = result.plan.rows(torch.arange(0, n, max(n // 500, 1))).cpu()
    places = shares @ torch.arange(float(m))[:, None] / shares.sum(1, keepdim=True)
    return Row("sampled", n, m, seconds, used, float(result.distortion), _correlation(places))


def pots(n: int, m: int) -> Row | None:
    """POT's entropic solver between all shortest paths."""
    if find_spec("ot") is None or max(n, m) > POTS_LARGEST:
        return None
    import ot

    curve = load_curve(n, m)
    before, start = _peak(None), time.perf_counter()
    tables = [shortest_paths(knn_graph(x, NEIGHBORS)).double() for x in (curve.spiral, curve.roll)]
    first, second = ((table / table.max()).numpy() for table in tables)
    plan, log = ot.gromov.entropic_gromov_wasserstein(first, second, epsilon=EPSILON, max_iter=20, log=True)
    seconds = time.perf_counter() - start
    used = (_peak(None) - before) / 2**20
    table = torch.from_numpy(plan)
    places = table @ torch.arange(m, dtype=torch.float64)[:, None] / table.sum(1, keepdim=True)
    return Row("POT", n, m, seconds, used, float(log["gw_dist"]), _correlation(places))


def _correlation(places: Tensor) -> float:
    ranks = places[:, 0].argsort().argsort().double()
    return float(torch.corrcoef(torch.stack([ranks, torch.arange(len(ranks)).double()]))[0, 1])


def _peak(device: torch.device | None) -> int:
    """Bytes: of torch on a GPU, else of the process."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
