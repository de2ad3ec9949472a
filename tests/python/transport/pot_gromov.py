"""POT (Python Optimal Transport, MIT) as an oracle of Gromov-Wasserstein transport: the problems, and what POT says of them.

pot_gromov_values.json holds POT's answers. To record them again, with POT installed: python -m tests.python.transport.pot_gromov
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.python.helpers import Array
from tests.python.transport.pot import squared_distances

RECORDED = Path(__file__).with_name("pot_gromov_values.json")


class Given(NamedTuple):
    """Inner distances, features or None, weight of features, epsilon and the number of steps."""

    cx: Array
    cy: Array
    features: Array | None
    weight: float
    epsilon: float
    steps: int


def gauss(n: int, seed: int) -> tuple[Array, Array]:
    """Inner distances of normal points, and of the same points in reverse order."""
    x = np.random.RandomState(seed).randn(n, 2)
    distances = squared_distances(x, x)
    distances /= distances.max()
    return distances, distances[::-1, ::-1].copy()


def asymmetric() -> tuple[Array, Array]:
    state = np.random.RandomState(0)
    cx = state.uniform(0, 10, (10, 10))
    order = np.arange(10)
    state.shuffle(order)
    return cx, cx[order][:, order]


def features_of_pot() -> Array:
    y = np.random.RandomState(42).randn(5, 2)
    return squared_distances(y, y[::-1])


PROBLEMS = {
    "gauss": Given(*gauss(10, 42), None, 0.0, 1e-2, 10),
    "gauss, large epsilon": Given(*gauss(10, 42), None, 0.0, 0.1, 30),
    "fused": Given(*gauss(5, 42), features_of_pot(), 0.5, 0.1, 10),
    "asymmetric": Given(*asymmetric(), None, 0.0, 5.0, 5),
    "asymmetric, small epsilon": Given(*asymmetric(), None, 0.0, 0.1, 5),
    "asymmetric, fused": Given(*asymmetric(), np.random.RandomState(1).rand(10, 10), 0.3, 5.0, 5),
}


def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(RECORDED.read_text())
    return answers


SPIRAL_ROWS = [0, 133, 266, 399]
"""Rows of the plan between the spiral and the roll that are recorded."""


def record_spiral(ot: Any) -> dict[str, Any]:
    """Table A1: geodesics of 400 and 500 points, epsilon 0.005."""
    from tests.python.transport.clouds import spiral, swiss_roll
    from tests.python.transport.test_gromov import geodesics

    cx, cy = geodesics(spiral(400, 0)).numpy(), geodesics(swiss_roll(500, 1)).numpy()
    weights = np.full(400, 1 / 400), np.full(500, 1 / 500)
    plan, log = ot.gromov.entropic_gromov_wasserstein(
        cx, cy, *weights, "square_loss", epsilon=0.005, max_iter=15, tol=1e-9, log=True, numItermax=1500, stopThr=1e-11,
    )  # fmt: skip
    rows = [[float(f"{entry:.9g}") for entry in plan[row]] for row in SPIRAL_ROWS]
    return {"rows": rows, "value": float(log["gw_dist"])}


def record() -> None:
    import ot

    # Kernels of small epsilons underflow: inner problems in the log domain, and until they have converged.
    ot.gromov._bregman.sinkhorn = lambda *arguments, method, **options: ot.sinkhorn(
        *arguments, method="sinkhorn_log", **options
    )
    answers: dict[str, Any] = {"version": ot.__version__}
    for name, of in PROBLEMS.items():
        weights = tuple(np.full(c.shape[0], 1 / c.shape[0]) for c in (of.cx, of.cy))
        options: dict[str, Any] = {
            "epsilon": of.epsilon,
            "max_iter": of.steps,
            "tol": 1e-14,
            "log": True,
            "numItermax": 2000,
            "stopThr": 1e-12,
        }
        if of.features is None:
            plan, log = ot.gromov.entropic_gromov_wasserstein(
                of.cx, of.cy, *weights, "square_loss", **options
            )
            value = log["gw_dist"]
        else:
            plan, log = ot.gromov.entropic_fused_gromov_wasserstein(
                of.features, of.cx, of.cy, *weights, "square_loss", alpha=1 - of.weight, **options
            )
            value = log["fgw_dist"]
        answers[name] = {"plan": plan.tolist(), "value": float(value)}
    answers["spiral"] = record_spiral(ot)
    RECORDED.write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    record()
