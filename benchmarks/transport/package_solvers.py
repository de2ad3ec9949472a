"""Ways to compute the gradient of entropic transport between two point sets, one family of settings per way of each package.

A family goes from cheap to exact settings. Every way computes the gradient of min ⟨C, P⟩ + epsilon KL(P | a bᵀ) with respect
to x, for C = |x - y|² and uniform weights, in float32 unless its name says otherwise. A way ends when its gradient is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from benchmarks.transport.keops_nvcc import use_nvcc
from warpalign.transport import sinkhorn

TOLERANCES = (0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


class Problem(NamedTuple):
    x: Tensor
    """(N, D) float32."""
    y: Tensor
    """(M, D) float32."""
    epsilon: float
    """In units of the squared distance."""
    mean_cost: float


class Way(NamedTuple):
    setting: str
    gradient: Callable[[], Tensor]


class Family(NamedTuple):
    package: str
    name: str
    ways: Iterator[Way]


def of_warpalign(of: Problem) -> Iterator[Family]:
    """Tolerances, with and without annealing; on a GPU every precision that changes something."""

    def gradient(**settings: Any) -> Tensor:
        x = of.x.detach().requires_grad_()
        value = sinkhorn(x, of.y, epsilon=of.epsilon, max_iter=20_000, **settings).value
        return torch.autograd.grad(value, x)[0]

    precisions = ("highest", "high", "medium") if of.x.is_cuda and of.x.shape[1] >= 5 else ("highest",)
    for precision in precisions:
        for name, start in ((precision, None), (f"{precision}, annealed", of.mean_cost)):
            ways = (
                Way(
                    f"tol {tol:g}",
                    lambda tol=tol, start=start, precision=precision: gradient(  # type: ignore[misc]
                        tol=tol, annealing=start, precision=precision
                    ),
                )
                for tol in TOLERANCES
            )
            yield Family("warpalign", name, ways)


def of_geomloss(of: Problem, keops: bool) -> Iterator[Family]:
    """Ratios of its list of epsilons; with a table, or with KeOps without one and by clusters."""
    geomloss = import_module("geomloss")
    if keops and of.x.is_cuda:
        use_nvcc()

    def gradient(backend: str, scaling: float) -> Tensor:
        x = of.x.detach().requires_grad_()
        # Its cost is half the squared distance.
        loss = geomloss.SamplesLoss(
            p=2, blur=math.sqrt(of.epsilon / 2), scaling=scaling, debias=False, backend=backend
        )
        return 2 * torch.autograd.grad(loss(x, of.y), x)[0]

    clusters = ["multiscale"] if of.x.shape[1] <= 3 else []
    for backend in ["online", *clusters] if keops else ["tensorized"]:
        ways = (
            Way(f"scaling {scaling:g}", lambda scaling=scaling, backend=backend: gradient(backend, scaling))  # type: ignore[misc]
            for scaling in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.995)
        )
        yield Family("geomloss" if backend == "tensorized" else "geomloss, KeOps", backend, ways)


def of_ott(of: Problem) -> Iterator[Family]:
    """Thresholds; scaling and log domain, with a table and without, with and without a schedule of epsilons."""
    jax = import_module("jax")
    pointcloud = import_module("ott.geometry.pointcloud")
    schedule = import_module("ott.geometry.epsilon_scheduler").Epsilon
    linear_problem = import_module("ott.problems.linear.linear_problem")
    solvers = import_module("ott.solvers.linear.sinkhorn")
    if of.x.is_cuda != (jax.default_backend() == "gpu"):
        print(f"OTT-JAX: JAX runs on {jax.default_backend()}, the points are on {of.x.device}", flush=True)
        return
    x, y = (jax.dlpack.from_dlpack(points.contiguous()) for points in (of.x, of.y))

    def family(name: str, lse_mode: bool, batch_size: int | None, init: float) -> Family:
        def value(x: Any, y: Any, threshold: float) -> Any:
            epsilon = schedule(target=of.epsilon, init=init, decay=0.5)
            geometry = pointcloud.PointCloud(x, y, epsilon=epsilon, batch_size=batch_size)
            solver = solvers.Sinkhorn(
                lse_mode=lse_mode, threshold=threshold, max_iterations=20_000, use_danskin=True
            )
            return solver(linear_problem.LinearProblem(geometry)).reg_ot_cost

        compiled = jax.jit(jax.grad(value))  # once for all thresholds

        def gradient(threshold: float) -> Tensor:
            return from_dlpack(jax.block_until_ready(compiled(x, y, threshold)))

        ways = (
            Way(f"threshold {threshold:g}", lambda threshold=threshold: gradient(threshold))  # type: ignore[misc]
            for threshold in (0.1, 0.03, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
        )
        return Family("OTT-JAX", name, ways)

    for name, lse_mode, batch_size in (
        ("scaling", False, None),
        ("log domain", True, None),
        ("log domain, online", True, 1024),
    ):
        yield family(name, lse_mode, batch_size, 1.0)
        yield family(f"{name}, annealed", lse_mode, batch_size, of.mean_cost / of.epsilon)


def of_pot(of: Problem) -> Iterator[Family]:
    """Thresholds; scaling in both precisions and the log domain, on torch. The gradient is that of the plan's linear problem."""
    ot = import_module("ot")
    count = len(of.x)
    for name, dtype in (
        ("sinkhorn", torch.float64),
        ("sinkhorn", torch.float32),
        ("sinkhorn_log", torch.float32),
    ):
        x, y = of.x.to(dtype), of.y.to(dtype)
        a, b = (
            torch.full((len(points),), 1 / len(points), dtype=dtype, device=x.device) for points in (x, y)
        )

        def gradient(threshold: float, method: str, x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
            plan = ot.sinkhorn(
                a,
                b,
                ot.dist(x, y),
                of.epsilon,
                method=method,
                stopThr=threshold,
                numItermax=20_000,
                warn=False,
            )
            found: Tensor = 2 * (plan.sum(1)[:, None] * x - plan @ y)
            return found

        ways = (
            # Its threshold is an L2 norm of marginals, which are 1 / N each.
            Way(
                f"stopThr {threshold:g} / sqrt(N)",
                lambda threshold=threshold, name=name, x=x, y=y, a=a, b=b: gradient(  # type: ignore[misc]
                    threshold / math.sqrt(count), name, x, y, a, b
                ),
            )
            for threshold in TOLERANCES
        )
        yield Family("POT", f"{name}, {str(dtype).removeprefix('torch.')}", ways)


PACKAGES: dict[str, tuple[str, Callable[[Problem], Iterator[Family]]]] = {
    "warpalign": ("warpalign", of_warpalign),
    "POT": ("ot", of_pot),
    "OTT-JAX": ("ott", of_ott),
    "geomloss": ("geomloss", lambda of: of_geomloss(of, keops=False)),
    "KeOps": ("pykeops", lambda of: of_geomloss(of, keops=True)),
}
"""By name: the module that has to be installed, and the package's families."""


def families(of: Problem, packages: Sequence[str]) -> Iterator[Family]:
    """Those of the packages that are installed."""
    for package in packages:
        module, found = PACKAGES[package]
        if find_spec(module) is None:
            print(f"{package} is not installed", flush=True)
        else:
            yield from found(of)
