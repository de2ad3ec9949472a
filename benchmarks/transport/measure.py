"""Measures one row of the transport table: times, memory and the value's error.

Costs are squared distances of N(0, 1) points, divided by their mean where they are given. `solve_ms` is the call of
`sinkhorn` with so many iterations, with the backward pass to the points or costs where the size asks for gradients. `mib` is the
peak of the allocator above the inputs, less the results. `read_ms` is one read of the given costs (a copy's time, halved).
`err_value` is relative and `err_gradient` in L2, against the same iterations in float64 on dense tables; only where those are small.
Peers get the same problem and number of iterations in the same run, where they are installed: a loop of torch.logsumexp on given costs
(`loop_ms`), POT's `sinkhorn_log` on torch tensors (`pot_ms`), geomloss' tensorized loss (`geomloss_ms`, with its own list of epsilons),
flash-sinkhorn's loss (`flash_ms`; `flash_setting` says whether it was tuned, and its precision) and OTT-JAX, compiled (`ott_ms`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.results import Row, rounded
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib, times_ms
from benchmarks.transport.jax_peer import ott
from benchmarks.transport.reference import of_points, solution
from benchmarks.transport.sizes import Size

EPSILON = 0.05
# A value's error above this is recorded as a failure, not as a result.
WRONG = {"float32": 1e-5, "float64": 1e-10}
WRONG_OF_MEDIUM = 1e-3
MOST_ELEMENTS = {
    "cuda": 15 * 10**7,
    "cpu": 10**6,
}  # that the float64 tables of the reference and the peers may have
MOST_OF_GEOMLOSS = 4 * 10**6  # its graph keeps several tables of every iteration
POINTS_OF_FLASH = 5000  # flash-sinkhorn tunes itself at every new size, for some 45 s
FEATURE_EPSILON = 0.09  # per problem of points: a blur of 0.3


class Problem:
    """One size's tensors, and the calls that are measured."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        self.size = size

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=device, dtype=size.torch_dtype)

        self.x: Tensor | None = None
        self.y: Tensor | None = None
        self.cost: Tensor | None = None
        self.epsilon = EPSILON
        if size.D:
            self.x, self.y = normal(size.B, size.N, size.D), normal(size.B, size.M, size.D)
            if size.gradient:
                self.x.requires_grad_()
            self.epsilon = FEATURE_EPSILON * size.D
        else:
            cost = torch.cdist(normal(size.B, size.N, 2), normal(size.B, size.M, 2)).square_()
            self.cost = cost.div_(cost.mean())
            if size.half:
                self.cost = self.cost.half()
            self.cost.requires_grad_(size.gradient)
        self.options: dict[str, Any] = {"updates": size.updates, "precision": size.precision}
        if size.half:
            self.options["storage"] = "half"
        if size.stored:
            self.options["storage"] = "full"
        if size.kind == "unbalanced":
            self.options |= {"rho_a": 1.0, "rho_b": 1.0}
        if size.kind == "partial":
            self.options["mass"] = 0.5
        if size.epsilon_start:
            self.options["annealing"] = size.epsilon_start

    def result(self) -> warpalign.transport.SinkhornResult:
        return warpalign.transport.sinkhorn(
            self.x,
            self.y,
            cost_matrix=self.cost,
            epsilon=self.epsilon,
            max_iter=self.size.iterations,
            tol=0.0,
            **self.options,
        )

    def divergence(self) -> Tensor:
        assert self.x is not None and self.y is not None
        value: Tensor = warpalign.transport.sinkhorn_divergence(
            self.x, self.y, epsilon=self.epsilon, max_iter=self.size.iterations, tol=0.0, **self.options
        )
        return value

    def of_gradient(self) -> Tensor:
        """The tensor that gradients are of: the costs, or the first points."""
        leaf = self.x if self.cost is None else self.cost
        assert leaf is not None
        return leaf

    def run(self) -> tuple[Tensor, ...]:
        found = None if self.size.divergence else self.result()
        value = self.divergence() if found is None else found.value
        if self.size.gradient:
            return value, *torch.autograd.grad(value.sum(), self.of_gradient())
        return (value,) if found is None else (value, found.f, found.g)

    def reference(self) -> tuple[float, Tensor | None]:
        """Of the first problem: the value, and its gradient where the size asks for it."""
        if self.cost is not None:
            value, plan = solution(self.cost[0].detach().double(), self.epsilon, self.size)
            return value, plan
        assert self.x is not None and self.y is not None
        return of_points(self.x[0].detach().double(), self.y[0].double(), self.epsilon, self.size)

    def errors(self) -> tuple[float | None, float | None]:
        """Of the value, relative, and of the gradient, relative L2."""
        size, (value, *rest) = self.size, self.run()
        if MOST_ELEMENTS[value.device.type] < size.N * size.M or size.epsilon_start:
            return None, None
        expected, exact = self.reference()
        error = abs(float(value.flatten()[0].detach()) - expected) / max(abs(expected), self.epsilon)
        if not size.gradient or exact is None:
            return error, None
        return error, float((rest[0][0].double() - exact).norm() / exact.norm())


def torch_loop(problem: Problem) -> Callable[[], Tensor]:
    """Balanced alternating iterations on given costs, as one would write them in torch; with the gradient if the size asks."""
    size, cost = problem.size, problem.cost
    assert cost is not None

    def run() -> Tensor:
        scaled = cost / -problem.epsilon
        w = scaled.new_zeros(size.B, size.N)
        z = scaled.new_zeros(size.B, size.M)
        for _ in range(size.iterations):
            z = -(scaled + (w - math.log(size.N))[:, :, None]).logsumexp(1)
            w = -(scaled + (z - math.log(size.M))[:, None, :]).logsumexp(2)
        value = problem.epsilon * (w.mean(1) + z.mean(1))
        return torch.autograd.grad(value.sum(), cost)[0] if size.gradient else value

    return run


def peer_ms(run: Callable[[], object], device: torch.device, budget_s: float) -> float:
    """As eager_ms. A run of over 0.1 s, where other work on the host does not show, is measured twice after a first one."""
    (first,) = times_ms(run, device, 1)
    if first > 100.0:
        return min(times_ms(run, device, 2))
    return eager_ms(run, device, budget_s)


def peers(problem: Problem, device: torch.device, budget_s: float) -> Row:
    size = problem.size
    row: Row = {"loop_ms": None, "pot_ms": None, "geomloss_ms": None, "flash_ms": None, "ott_ms": None}
    small = 2 * MOST_ELEMENTS[device.type] >= size.N * size.M
    plain = size.kind == "balanced" and size.updates == "alternating" and not size.half
    if problem.cost is not None and plain and small:
        row["loop_ms"] = rounded(peer_ms(torch_loop(problem), device, budget_s))
        if size.B == 1:
            row |= pot(problem, device, budget_s)
    if (
        size.gradient
        and problem.x is not None
        and not size.divergence
        and size.N * size.M <= MOST_OF_GEOMLOSS
    ):
        row |= geomloss(problem, device, budget_s)
    if device.type != "cuda":
        return row
    if size.gradient and size.precision == "medium" and size.N == POINTS_OF_FLASH:
        row |= flash_sinkhorn(problem, device, budget_s)
    if size.divergence:
        row |= flash_divergence(problem, device, budget_s)
    if size.gradient and (size.B > 1 or size.divergence) and size.precision == "highest":
        row |= ott(problem.x, problem.y, problem.cost, problem.epsilon, size)
    return row


def pot(problem: Problem, device: torch.device, budget_s: float) -> Row:
    try:
        ot: Any = import_module("ot")
    except ImportError:
        return {}
    assert problem.cost is not None
    cost = problem.cost[0]
    a, b = (cost.new_full((count,), 1 / count) for count in cost.shape)

    def run() -> object:
        return ot.sinkhorn(
            a,
            b,
            cost,
            problem.epsilon,
            method="sinkhorn_log",
            numItermax=problem.size.iterations,
            stopThr=0,
            warn=False,
        )

    return {"pot_ms": rounded(peer_ms(run, device, budget_s)), "pot": str(ot.__version__)}


def geomloss(problem: Problem, device: torch.device, budget_s: float) -> Row:
    try:
        package: Any = import_module("geomloss")
    except ImportError:
        return {}
    x, y = problem.x, problem.y
    assert x is not None and y is not None
    # Its cost is half the squared distance, and its epsilon blur ** 2.
    loss = package.SamplesLoss(
        "sinkhorn",
        p=2,
        blur=math.sqrt(problem.epsilon / 2),
        debias=False,
        backend="tensorized",
        scaling=0.5**0.5,
    )

    def run() -> object:
        return torch.autograd.grad(loss(x, y).sum(), x)

    try:
        return {"geomloss_ms": rounded(peer_ms(run, device, budget_s))}
    except torch.OutOfMemoryError:
        return {"geomloss_error": "out of memory"}


def flash_sinkhorn(problem: Problem, device: torch.device, budget_s: float) -> Row:
    """The package's loss and gradient with the same epsilons; TF32 as "medium" is."""
    size = problem.size
    epsilons = [size.epsilon_start]
    while epsilons[-1] > problem.epsilon:
        epsilons.append(max(epsilons[-1] / 2, problem.epsilon))
    epsilons += [problem.epsilon] * (size.iterations - 1)
    options = {"allow_tf32": True, "debias": False, "eps_list": epsilons, "backend": size.updates}
    return _flash(problem, device, budget_s, "tuned, TF32", options)


def flash_divergence(problem: Problem, device: torch.device, budget_s: float) -> Row:
    """The package's debiased loss and gradient, untuned: its tuning takes some 45 s at every size. TF32 but for "highest"."""
    tf32 = problem.size.precision != "highest"
    epsilons = [problem.epsilon] * problem.size.iterations
    options = {"allow_tf32": tf32, "debias": True, "eps_list": epsilons, "backend": "symmetric"}
    setting = f"untuned, {'TF32' if tf32 else 'float32'}"
    return _flash(problem, device, budget_s, setting, options | {"autotune": False})


def _flash(
    problem: Problem, device: torch.device, budget_s: float, setting: str, options: dict[str, Any]
) -> Row:
    """Of flash-sinkhorn's loss and gradient; nothing where it is not installed."""
    try:
        package: Any = import_module("flash_sinkhorn")
    except ImportError:
        return {}
    x, y = problem.x, problem.y
    assert x is not None and y is not None
    loss = package.SamplesLoss("sinkhorn", **options)

    def run() -> object:
        return torch.autograd.grad(loss(x[0], y[0]).sum(), x)

    row: Row = {"flash_setting": setting}
    try:
        return row | {"flash_ms": rounded(peer_ms(run, device, budget_s))}
    except (torch.OutOfMemoryError, RuntimeError, ValueError, TypeError) as failure:
        return row | {"flash_error": str(failure).splitlines()[0][:200]}


def measure(size: Size, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    problem = Problem(size, device)
    row: Row = {
        "solve_ms": rounded(eager_ms(problem.run, device, budget_s)),
        "graph_solve_ms": None,
        "mib": rounded(peak_mib(problem.run, device)),
        "read_ms": None,
    }
    if problem.cost is not None:
        source = problem.cost.detach()
        target = torch.empty_like(source)
        row["read_ms"] = rounded(eager_ms(lambda: target.copy_(source), device, budget_s) / 2)
        del target
    error, of_gradient = problem.errors()
    row["err_value"], row["err_gradient"] = rounded(error, 3), rounded(of_gradient, 3)
    limit = WRONG_OF_MEDIUM if size.precision == "medium" else WRONG[size.dtype]
    if error is not None and not error <= limit:  # NaN is not <= either
        row["err_value"] = None
        row["error"] = f"err_value is {error:.2g}, above {limit:g}"
    if device.type == "cuda":
        try:
            row["graph_solve_ms"] = rounded(graph_ms(problem.run, device, budget_s))
        except RuntimeError as failure:
            row.setdefault("error", f"CUDA graph: {str(failure).splitlines()[0][:200]}")
    row.update(peers(problem, device, budget_s))
    return row


def not_reproducible(device: torch.device, runs: int) -> list[str]:
    """Names of the sizes at which any of `runs` runs differs from the first in a single bit."""
    different = []
    for size in (
        Size(3, 130, 257, iterations=20),
        Size(1, 700, 1300, kind="partial", iterations=10),
        Size(2, 300, 333, 5, "float64", iterations=10, gradient=True),
        Size(1, 40, 13000, kind="unbalanced", iterations=5),
    ):
        problem = Problem(size, device, seed=1)
        first = [t.detach() for t in problem.run()]
        again = ([t.detach() for t in problem.run()] for _ in range(runs - 1))
        if not all(all(map(torch.equal, first, results)) for results in again):
            different.append(size.name)
    return different
