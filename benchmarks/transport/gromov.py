"""Measures a row of Gromov-Wasserstein transport: a spiral against a Swiss roll, as in tests/python/transport/clouds.py.

`solve_ms` is the whole call. With the method "landmark" points are on the device, and graphs of 5 neighbours, landmarks and
the sampled solve are all part of it. "exact" has given matrices of Euclidean distances and so many steps, each with
so many iterations of Sinkhorn. `mib` is the peak of the allocator above the inputs. `steps` is how many there were. `rho` is the signed
correlation of the points' ranks along both curves, and `estimate` the distortion by sampled pairs. `pot_ms` is POT's
`entropic_gromov_wasserstein` on the same matrices with as many steps, each with its own 1000 iterations of Sinkhorn at most, where it is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, peak_mib
from benchmarks.transport.graphs import spiral, swiss_roll
from warpalign.transport import Geodesic, gromov_wasserstein, gromov_wasserstein_sampled

_MOST_OF_POT = 1200
_LEAST_RHO = (
    0.99  # a row of 400 points with less is recorded as a failure: a matching of the wrong way round has −1
)


class GromovSize(NamedTuple):
    """One problem of N and M points."""

    N: int
    M: int
    method: str
    """"landmark" or "exact"."""
    iterations: int = 2
    """Sinkhorn iterations per step."""
    steps: int = 200
    precision: Literal["highest", "medium"] = "highest"

    @property
    def name(self) -> str:
        how = "" if self.precision == "highest" else f" {self.precision}"
        most = f" {self.steps} steps" if self.method == "exact" else ""
        return f"gromov {self.N}x{self.M} {self.method}{most} {self.iterations}it{how}"


GROMOV_SIZES = [
    GromovSize(400, 500, "landmark"),
    GromovSize(4000, 5000, "landmark"),
    GromovSize(10000, 12000, "landmark"),
    GromovSize(20000, 25000, "landmark"),
    GromovSize(50000, 50000, "landmark"),
    GromovSize(1000, 1200, "exact", 20, 20),
    GromovSize(4000, 5000, "exact", 20, 20),
    GromovSize(4000, 5000, "exact", 20, 20, "medium"),
    GromovSize(4000, 5000, "exact", 5, 20, "medium"),
]
QUICK_GROMOV_SIZES = [GromovSize(60, 70, "landmark"), GromovSize(40, 50, "exact", 20, 5)]


class _Problem:
    def __init__(self, size: GromovSize, device: torch.device) -> None:
        self.size = size
        self.x, self.y = spiral(size.N, 0).to(device), swiss_roll(size.M, 1).to(device)
        self.found: Any = None
        if size.method == "exact":
            of_x, of_y = torch.cdist(self.x, self.x), torch.cdist(self.y, self.y)
            self.distances = (of_x / of_x.max(), of_y / of_y.max())

    def run(self) -> tuple[Tensor, Tensor]:
        size = self.size
        if size.method == "landmark":
            self.found = gromov_wasserstein_sampled(
                self.x,
                self.y,
                epsilon=1e-3,
                geometry=Geodesic(k=5, n_landmarks=50),
                sinkhorn_iters=size.iterations,
                max_iter=size.steps,
                generator=0,
            )
        else:
            self.found = gromov_wasserstein(
                distances=self.distances,
                cost_normalization=None,
                epsilon=1e-2,
                annealing=None,
                max_iter=size.steps,
                tol=1e-30,
                sinkhorn_iters=size.iterations,
                polish_iters=size.iterations,
                precision=size.precision,
            )
        return self.found.plan.f, self.found.plan.g

    def rho(self) -> float:
        """The correlation between the places of rows, and those that the plan maps them to."""
        places = torch.arange(float(self.size.M), device=self.x.device)[:, None]
        reached = self.found.plan.barycentric_map(places)[:, 0]
        both = torch.stack([reached.argsort().argsort().float(), torch.arange(reached.numel()).to(reached)])
        return float(torch.corrcoef(both)[0, 1])

    def pot_ms(self, device: torch.device, budget_s: float) -> Row:
        if self.size.method != "exact" or _MOST_OF_POT < self.size.M:
            return {}
        try:
            ot: Any = import_module("ot")
        except ImportError:
            return {}

        def run() -> object:
            return ot.gromov.entropic_gromov_wasserstein(
                *self.distances, loss_fun="square_loss", epsilon=1e-2, max_iter=self.size.steps, tol=0
            )

        return {"pot_ms": rounded(eager_ms(run, device, budget_s)), "pot": str(ot.__version__)}


def measure_gromov(size: GromovSize, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist for it is None."""
    problem = _Problem(size, device)
    row: Row = {
        "solve_ms": rounded(eager_ms(problem.run, device, budget_s)),
        "mib": rounded(peak_mib(problem.run, device)),
        "steps": int(problem.found.iterations),
        "rho": round(problem.rho(), 6),
        "estimate": None,
        "pot_ms": None,
    }
    if size.method == "landmark":
        row["estimate"] = rounded(float(problem.found.distortion), 3)
        if size.N >= 400 and not problem.rho() >= _LEAST_RHO:
            row["error"] = f"rho is {problem.rho():.3g}, below {_LEAST_RHO}"
    return row | problem.pot_ms(device, budget_s)
