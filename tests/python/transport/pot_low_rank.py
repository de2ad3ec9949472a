"""POT's low-rank solvers as oracles: the problems, and the objectives that POT's plans have.

pot_low_rank_values.json holds them, because POT is too large a requirement for the tests. To record them again:
python -m tests.python.transport.pot_low_rank, with POT and scikit-learn installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.python.helpers import Array
from tests.python.transport.pot import squared_distances

RECORDED = Path(__file__).with_name("pot_low_rank_values.json")
SEEDS = 3


class Given(NamedTuple):
    """Points (N, D) and (M, E) with weights, and the rank."""

    x: Array
    y: Array
    a: Array
    b: Array
    rank: int


def problem(n: int, m: int, d: int, e: int, rank: int, seed: int) -> Given:
    state = np.random.RandomState(seed)
    x, y = state.randn(n, d), 0.7 * state.randn(m, e) + 0.5
    return Given(x, y, state.dirichlet(np.full(n, 5.0)), state.dirichlet(np.full(m, 5.0)), rank)


LINEAR = {
    "rank 1": (40, 30, 2, 2, 1, 0),
    "few components": (60, 50, 2, 2, 5, 1),
    "three features": (120, 90, 3, 3, 10, 2),
    "ten features": (100, 100, 10, 10, 8, 3),
    "full rank": (30, 25, 2, 2, 25, 4),
}
GROMOV = {
    "rank 1": (40, 30, 2, 3, 1, 0),
    "few components": (60, 50, 2, 3, 5, 1),
    "three features": (100, 80, 3, 2, 10, 2),
    "full rank": (30, 25, 2, 3, 25, 4),
}


def linear(plan: Array, of: Given) -> float:
    return float((plan * squared_distances(of.x, of.y)).sum())


def distortion(plan: Array, of: Given) -> float:
    cx, cy = squared_distances(of.x, of.x), squared_distances(of.y, of.y)
    p, q = plan.sum(1), plan.sum(0)
    return float(p @ cx**2 @ p + q @ cy**2 @ q - 2 * (cx @ plan @ cy * plan).sum())


def record() -> None:
    """The best objective of several seeds, and of random and k-means starts where POT has both."""
    import ot

    answers: dict[str, object] = {"version": ot.__version__, "linear": {}, "gromov": {}}
    for name, arguments in LINEAR.items():
        of, found = problem(*arguments), []
        for seed in range(SEEDS):
            for init in ("random", "kmeans"):
                q, r, g = ot.lowrank.lowrank_sinkhorn(
                    of.x, of.y, of.a, of.b, rank=of.rank, init=init, seed_init=seed, warn=False
                )
                found.append(linear(q / g @ r.T, of))
        answers["linear"][name] = min(found)  # type: ignore[index]
    for name, arguments in GROMOV.items():
        of, found = problem(*arguments), []
        for seed in range(SEEDS):
            q, r, g = ot.gromov.lowrank_gromov_wasserstein_samples(
                of.x, of.y, of.a, of.b, rank=of.rank, seed_init=seed, stopThr_dykstra=1e-7, warn=False
            )
            found.append(distortion(q / g @ r.T, of))
        answers["gromov"][name] = min(found)  # type: ignore[index]
    RECORDED.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    record()
