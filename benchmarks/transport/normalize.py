"""Measures Sinkhorn normalisation of many small matrices of logits, beside the loop that it replaces.

`solve_ms` and `graph_solve_ms` are the plan, or the plan and its gradient where the size asks for it, eagerly and as a replay of a
CUDA graph. The loop is `logits - logits.logsumexp(axis, keepdim=True)` for both axes of every iteration, with autograd: eagerly
(`loop_ms`), compiled by torch.compile (`compiled_ms`), and in a CUDA graph (`graph_loop_ms`). `err_value` is the relative
L2 error of the plan, or of the gradient, against the loop in float64; `err_loop` that of the loop in the size's dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.results import Row, rounded
from benchmarks.harness.sanitizer_cases import Case
from benchmarks.harness.timing import eager_ms, graph_ms, peak_mib
from warpalign.transport import sinkhorn_normalize

# A relative error above this is recorded as a failure.
_WRONG = {"float32": 2e-6, "bfloat16": 8e-3, "float16": 1e-3, "float64": 1e-13}
_COMPILES = (4, 16)  # whose loops are compiled, which takes some ten seconds each


class NormalizeSize(NamedTuple):
    """B matrices of N rows and M columns."""

    B: int
    N: int
    M: int
    iterations: int = 20
    dtype: str = "float32"
    gradient: bool = False

    @property
    def name(self) -> str:
        how = " gradient" if self.gradient else ""
        return f"normalize {self.B}x{self.N}x{self.M} {self.dtype} {self.iterations}it{how}"


_SIZES = [
    NormalizeSize(32768, 4, 4),
    NormalizeSize(4096, 8, 8),
    NormalizeSize(1024, 16, 16),
    NormalizeSize(256, 64, 64),
]
NORMALIZE_SIZES = [size._replace(gradient=gradient) for size in _SIZES for gradient in (False, True)]
NORMALIZE_SIZES.append(NormalizeSize(32768, 4, 4, dtype="bfloat16", gradient=True))
QUICK_NORMALIZE_SIZES = [NormalizeSize(20, 4, 4, 5, gradient=True), NormalizeSize(5, 3, 7, 5)]

Step = Callable[[Tensor], Tensor]


def loop(logits: Tensor, iterations: int) -> Tensor:
    """What people write."""
    for _ in range(iterations):
        logits = logits - logits.logsumexp(-1, keepdim=True)
        logits = logits - logits.logsumexp(-2, keepdim=True)
    return logits.exp()


class Problem:
    """One size's tensors."""

    def __init__(self, size: NormalizeSize, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        self.size = size
        shape = (size.B, size.N, size.M)
        dtype: torch.dtype = getattr(torch, size.dtype)
        self.logits, self.factor = (
            torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(2)
        )
        if size.gradient:
            self.logits.requires_grad_()

    def step(self, plan_of: Step, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """The plan, and its gradient where the size asks for it, of the logits in this dtype."""
        if dtype is None:
            logits = self.logits
        else:
            logits = self.logits.detach().to(dtype).requires_grad_(self.size.gradient)
        plan = plan_of(logits)
        if not self.size.gradient:
            return (plan,)
        return plan, *torch.autograd.grad(plan, logits, self.factor.to(plan.dtype))

    def run(self) -> tuple[Tensor, ...]:
        return self.step(lambda logits: sinkhorn_normalize(logits, self.size.iterations))

    def run_loop(self, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        return self.step(lambda logits: loop(logits, self.size.iterations), dtype)


def _relative(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> float:
    one, other = found[-1].detach().double(), exact[-1].detach()
    return float((one - other).norm() / other.norm())


def _loops(problem: Problem, device: torch.device, budget_s: float) -> Row:
    """The loop's times."""
    size, row = problem.size, Row()
    row["loop_ms"] = rounded(eager_ms(problem.run_loop, device, budget_s))
    row["graph_loop_ms"] = row["compiled_ms"] = None
    if device.type != "cuda":
        return row
    row["graph_loop_ms"] = rounded(graph_ms(problem.run_loop, device, budget_s))
    if size.N in _COMPILES:
        compiled: Step = torch.compile(lambda logits: loop(logits, size.iterations), fullgraph=True)
        row["compiled_ms"] = rounded(eager_ms(lambda: problem.step(compiled), device, budget_s))
    return row


def measure_normalize(size: NormalizeSize, device: torch.device, budget_s: float) -> Row:
    """All columns of one row; a column that does not exist on this device is None."""
    problem = Problem(size, device)
    exact = problem.run_loop(torch.float64)
    error = _relative(problem.run(), exact)
    row: Row = {
        "solve_ms": rounded(eager_ms(problem.run, device, budget_s)),
        "graph_solve_ms": None,
        "mib": rounded(peak_mib(problem.run, device)),
        "err_value": rounded(error, 3),
        "err_loop": rounded(_relative(problem.run_loop(), exact), 3),
        "pot_ms": None,
    }
    if not error <= _WRONG[size.dtype]:  # NaN is not <= either
        row["err_value"] = None
        row["error"] = f"err_value is {error:.2g}, above {_WRONG[size.dtype]:g}"
    if device.type == "cuda":
        row["graph_solve_ms"] = rounded(graph_ms(problem.run, device, budget_s))
    return row | _loops(problem, device, budget_s)


# Matrices of four lanes, of 16, of two warps and of eight; a gradient whose exchanges are in global memory.
_CASES = [
    *(NormalizeSize(37, 4, 3, 2, dtype, True) for dtype in ("float32", "float64", "float16", "bfloat16")),
    NormalizeSize(9, 16, 13, 2, gradient=True),
    NormalizeSize(3, 20, 33, 2, gradient=True),
    NormalizeSize(3, 31, 18, 2, "float64", True),
    NormalizeSize(5, 8, 7, 60, gradient=True),
]


def wrong(size: NormalizeSize, device: torch.device) -> str | None:
    """What is wrong with a batch's plans and gradients, if anything is: for the sanitizer."""
    problem = Problem(size, device)
    for name, one, exact in zip(
        ("plan", "gradient"), problem.run(), problem.run_loop(torch.float64), strict=True
    ):
        if not _relative((one,), (exact,)) <= 2 * _WRONG[size.dtype]:
            return name
    return None


def cases(device: torch.device) -> list[Case]:
    """The cases of benchmarks/transport/sanitize.py."""
    return [(size.name, partial(wrong, size, device)) for size in _CASES]
