"""Measures a row of Gromov-Wasserstein transport: a spiral against a Swiss roll, as in tests/python/transport/clouds.py.

`solve_ms` is the whole call. With the method "landmark" points are on the device, and graphs of 5 neighbours, landmarks and
the sampled solve are all part of it. "exact" has given matrices of Euclidean distances and so many steps, each with
so many iterations of Sinkhorn. "precomputed" is `compat.torchgw.sampled_gw` with its defaults on given matrices of Euclidean distances
between N(0, 1) points of 3 and 5 coordinates, in float64 on the device; `recorded_ms` is what torchgw's published log says of these
sizes, measured elsewhere. `mib` is the peak of the allocator above the inputs. `steps` is how many there were. `rho` is the signed
correlation of the points' ranks along both curves, and `estimate` the distortion by sampled pairs. `err_value` is the relative error of
the exact solver's distortion, against the same steps in float64. `pot_ms` is POT's `entropic_gromov_wasserstein` on the same matrices with
as many steps and iterations of Sinkhorn in each, where it is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, peak_mib
from benchmarks.transport.graphs import spiral, swiss_roll
from warpalign.compat.torchgw import sampled_gw
from warpalign.transport import Geodesic, GromovResult, gromov_wasserstein, gromov_wasserstein_sampled

_MOST_OF_POT = 3500
_RECORDED_MS = {2000: 2560.0, 5000: 11060.0}
_NEVER_ENDED = 1e-30  # a tolerance at which no solve ends early
_LEAST_RHO = (
    0.99  # a row of 400 points with less is recorded as a failure: a matching of the wrong way round has −1
)


class GromovSize(NamedTuple):
    """One problem of N and M points."""

    N: int
    M: int
    method: str
    """"landmark", "exact" or "precomputed"."""
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
    GromovSize(1100, 1300, "exact", 20, 20),
    GromovSize(2000, 2400, "exact", 20, 20),
    GromovSize(3000, 3500, "exact", 20, 20),
    GromovSize(1100, 1300, "landmark"),
    GromovSize(2000, 2500, "precomputed"),
    GromovSize(5000, 6000, "precomputed"),
]
QUICK_GROMOV_SIZES = [
    GromovSize(60, 70, "landmark"),
    GromovSize(40, 50, "exact", 20, 5),
    GromovSize(40, 50, "precomputed"),
]


class _Problem:
    def __init__(self, size: GromovSize, device: torch.device) -> None:
        self.size = size
        self.x, self.y = spiral(size.N, 0).to(device), swiss_roll(size.M, 1).to(device)
        self.found: Any = None
        self.steps = 0
        if size.method == "precomputed":
            generator = torch.Generator().manual_seed(0)
            x, y = (
                torch.randn(n, d, generator=generator, dtype=torch.float64).to(device)
                for n, d in ((size.N, 3), (size.M, 5))
            )
            self.distances = (torch.cdist(x, x), torch.cdist(y, y))
        if size.method == "exact":
            of_x, of_y = torch.cdist(self.x, self.x), torch.cdist(self.y, self.y)
            self.distances = (of_x / of_x.max(), of_y / of_y.max())

    def run(self) -> tuple[Tensor, ...]:
        size = self.size
        if size.method == "precomputed":
            of_x, of_y = self.distances
            plan, log = sampled_gw(
                distance_mode="precomputed", dist_source=of_x, dist_target=of_y, log=True, generator=0
            )
            self.steps = log["n_iter"]
            return (plan,)
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
            self.found = self.exact(self.distances)
        self.steps = int(self.found.iterations)
        return self.found.plan.f, self.found.plan.g

    def exact(self, distances: tuple[Tensor, Tensor]) -> GromovResult:
        size = self.size
        return gromov_wasserstein(
            distances=distances,
            cost_normalization=None,
            epsilon=1e-2,
            annealing=None,
            max_iter=size.steps,
            tol=_NEVER_ENDED,
            sinkhorn_iters=size.iterations,
            polish_iters=size.iterations,
            precision=size.precision,
        )

    def value_error(self) -> float | None:
        """Of the exact solver's distortion, relative."""
        if self.size.method != "exact":
            return None
        x, y = (t.double() for t in self.distances)
        expected = float(self.exact((x, y)).distortion)
        return abs(float(self.found.distortion) - expected) / expected

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
                *self.distances,
                loss_fun="square_loss",
                epsilon=1e-2,
                max_iter=self.size.steps,
                tol=0,
                numItermax=self.size.iterations,
                stopThr=0,
                warn=False,
            )

        return {"pot_ms": rounded(eager_ms(run, device, budget_s)), "pot": str(ot.__version__)}


def measure_gromov(size: GromovSize, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist for it is None."""
    problem = _Problem(size, device)
    row: Row = {
        "solve_ms": rounded(eager_ms(problem.run, device, budget_s)),
        "mib": rounded(peak_mib(problem.run, device)),
        "steps": problem.steps,
        "rho": None,
        "err_value": rounded(problem.value_error(), 3),
        "estimate": None,
        "pot_ms": None,
    }
    if size.method == "precomputed":
        row["recorded_ms"] = _RECORDED_MS.get(size.N)
        return row
    row["rho"] = round(problem.rho(), 6)
    if size.method == "landmark":
        row["estimate"] = rounded(float(problem.found.distortion), 3)
        if size.N >= 400 and not problem.rho() >= _LEAST_RHO:
            row["error"] = f"rho is {problem.rho():.3g}, below {_LEAST_RHO}"
    return row | problem.pot_ms(device, budget_s)
