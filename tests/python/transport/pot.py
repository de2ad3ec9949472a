"""POT (Python Optimal Transport, MIT) as an oracle: the problems, and what POT says of them.

pot_values.json holds POT's answers, because POT is too large a requirement for the tests. To record them again:
python -m tests.python.transport.pot, with POT installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.python.helpers import Array

RECORDED = Path(__file__).with_name("pot_values.json")
RHO_A, RHO_B, MASS = 0.5, 2.0, 0.6
# What POT is asked, and the same as arguments of sinkhorn. POT's partial transport has the counting measure.
PROBLEMS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "unbalanced, product": {"rho_a": RHO_A, "rho_b": RHO_B},
    "unbalanced, counting": {"rho_a": RHO_A, "rho_b": RHO_B, "reference": "counting"},
    "one side hard": {"rho_b": RHO_B},
    "partial": {"mass": MASS, "reference": "counting"},
}


class Given(NamedTuple):
    """Costs (N, M), weights and epsilon."""

    cost: Array
    a: Array
    b: Array
    epsilon: float


def squared_distances(x: Array, y: Array) -> Array:
    distances: Array = np.square(x[:, None] - y[None]).sum(-1)
    return distances


def random_problem(seed: int, n: int, m: int, epsilon: float) -> Given:
    state = np.random.RandomState(seed)
    cost = squared_distances(state.randn(n, 3), state.randn(m, 3))
    return Given(cost / cost.max(), state.dirichlet(np.ones(n)), state.dirichlet(np.ones(m)), epsilon)


RANDOM = [(1, 8, 6, 0.1), (2, 5, 9, 0.02), (3, 7, 7, 1.0)]


def points_of_pot() -> Given:
    """POT's test of all methods: 100 normal points against themselves."""
    x = np.random.RandomState(0).randn(100, 2)
    uniform = np.full(100, 0.01)
    return Given(squared_distances(x, x), uniform, uniform, 1.0)


def gaussians_of_pot() -> Given:
    """POT's test of stabilisation: two Gaussians on 100 places."""
    places = np.arange(100.0)
    a, b = (np.exp(-np.square(places - mean) / (2 * 10**2)) for mean in (30, 40))
    cost = squared_distances(places[:, None], places[:, None])
    return Given(cost / cost.max(), a / a.sum(), b / b.sum(), 1e-5)


def recorded() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(RECORDED.read_text())
    return answers


def answer_of_pot(of: Given, name: str) -> Array:
    import ot

    options: dict[str, Any] = {"numItermax": 200000, "stopThr": 1e-15}
    plan: Array
    if name == "balanced":
        plan = ot.sinkhorn(of.a, of.b, of.cost, of.epsilon, method="sinkhorn_log", **options)
    elif name == "partial":
        plan = ot.partial.entropic_partial_wasserstein(of.a, of.b, of.cost, of.epsilon, m=MASS, **options)
    else:
        strengths = (np.inf if name == "one side hard" else RHO_A, RHO_B)
        kind = "entropy" if "counting" in name else "kl"
        plan = ot.unbalanced.sinkhorn_unbalanced(
            of.a, of.b, of.cost, of.epsilon, strengths, reg_type=kind, **options
        )
    return plan


def record() -> None:
    import ot

    answers: dict[str, Any] = {"version": ot.__version__}
    for arguments in RANDOM:
        of = random_problem(*arguments)
        answers[f"random {arguments[0]}"] = {name: answer_of_pot(of, name).tolist() for name in PROBLEMS}
    points, gaussians = points_of_pot(), gaussians_of_pot()
    plan = answer_of_pot(points, "balanced")
    answers["points"] = {"linear": float((plan * points.cost).sum()), "first rows": plan[:3].tolist()}
    answers["gaussians"] = {
        "linear": float(
            ot.bregman.sinkhorn2(
                gaussians.a,
                gaussians.b,
                gaussians.cost,
                gaussians.epsilon,
                method="sinkhorn_log",
                numItermax=200000,
                stopThr=1e-12,
            )
        )
    }
    RECORDED.write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    record()
