"""Runs every transport kernel on small odd shapes: meant to be run under compute-sanitizer, and so kept short.

Results are compared with the same iterations in float64 on the CPU.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.harness.sanitizer_cases import Case, main
from benchmarks.transport import normalize, sanitize_graphs, sanitize_gromov
from benchmarks.transport.measure import WRONG, WRONG_OF_MEDIUM, Problem
from benchmarks.transport.sizes import Size

# Few and many short rows, rows of blocks of 128 and 384 threads, in two segments; teams of one and of several
# blocks; points of few and of many features; half costs.
SHAPES = [
    Size(2, 70, 33),
    Size(2, 65, 70, 3),
    Size(1, 3, 7),
    Size(1, 230, 250),
    Size(1, 230, 300),
    Size(1, 70, 530),
    Size(1, 30, 1030),
    Size(1, 8, 6200),
    Size(1, 2, 12289),
    Size(1, 66, 64, 17),
    Size(1, 66, 530, 3),
    Size(1, 66, 530, 17),
    Size(1, 130, 70, 37, gradient=True),
    Size(1, 130, 70, 37, gradient=True, precision="medium"),
    Size(1, 130, 70, 37, gradient=True, precision="high"),
    Size(1, 66, 70, 70, gradient=True),
    Size(1, 66, 70, 70, gradient=True, precision="medium"),
    Size(1, 66, 70, 70, gradient=True, precision="high"),
    Size(2, 50, 71, half=True),
    Size(1, 8, 1030, half=True),
    Size(1, 6, 6210),
]
# So many iterations that exponentials stay in shared memory: of one block, of a cluster, and of longer rows.
LONG = [
    Size(3, 21, 37, iterations=20),
    Size(1, 150, 398, iterations=20),
    Size(2, 70, 530, iterations=20),
    Size(1, 66, 531, 3, iterations=20),
    Size(1, 50, 300, dtype="float64", iterations=20),
    Size(1, 40, 530, half=True, iterations=20),
]
KINDS = ["balanced", "unbalanced", "partial"]


def wrong(size: Size, device: torch.device) -> str | None:
    """What is wrong with one batch's results, if anything is."""
    problem = Problem(size, device)
    found = problem.result()
    expected = Problem(size._replace(dtype="float64", half=False), torch.device("cpu"))
    for name in ("x", "y", "cost"):
        source = getattr(problem, name)
        setattr(expected, name, None if source is None else source.detach().cpu().double())
    reference = expected.result()
    scale = float(reference.f.abs().max()) + problem.epsilon
    for name in ("value", "linear", "f", "g"):
        ours, theirs = getattr(found, name).detach().cpu().double(), getattr(reference, name).detach()
        limit = WRONG_OF_MEDIUM if size.precision == "medium" else 10 * WRONG[size.dtype]
        if not bool(((ours - theirs).abs() <= limit * scale).all()):
            return name
    return None


def read_off(problem: Problem) -> dict[str, Tensor]:
    """What is read off the plan, and derivatives by what the costs are made of."""
    problem.size = problem.size._replace(iterations=20)
    leaves = [t.detach().requires_grad_() for t in (problem.x, problem.y, problem.cost) if t is not None]
    if problem.cost is None:
        problem.x, problem.y = leaves
    else:
        (problem.cost,) = leaves
    found = problem.result()
    plan = found.plan
    b, n, m = plan.shape
    count = min(n, m, 5)

    def wave(*shape: int) -> Tensor:
        """The same numbers everywhere."""
        return torch.arange(math.prod(shape), device=found.f.device).reshape(shape).cos().to(found.f)

    loss = (found.f * wave(n)).sum() + found.linear.sum() + plan.apply(wave(b, m, 67)).square().sum()
    gradients = torch.autograd.grad(loss, leaves)
    with torch.no_grad():
        return {
            "dense": plan.to_dense(),
            "apply": plan.apply(wave(b, n, 3), transpose=True),
            "topk": plan.topk(count)[0],
            "sample": plan.sample(70, generator=1).sum().to(found.f),
            **{f"gradient {k}": gradient for k, gradient in enumerate(gradients)},
        }


def plan_wrong(size: Size, device: torch.device) -> str | None:
    """What is wrong with what is read off one batch's plans, if anything is."""
    problem = Problem(size, device)
    expected = Problem(size._replace(dtype="float64", half=False), torch.device("cpu"))
    for name in ("x", "y", "cost"):
        source = getattr(problem, name)
        setattr(expected, name, None if source is None else source.detach().cpu().double())
    ours, theirs = read_off(problem), read_off(expected)
    limit = 2000 * WRONG[size.dtype]
    for name, reference in theirs.items():
        scale = float(reference.abs().max())
        if not bool(((ours[name].detach().cpu().double() - reference).abs() <= limit * scale).all()):
            return name
    return None


def cases(device: torch.device) -> Iterator[Case]:
    """Solves, plans, Gromov–Wasserstein's steps, graphs and normalisations."""
    solves = [
        size._replace(
            kind=KINDS[(number + turn) % 3],
            updates=("alternating", "symmetric")[(number // 3 + turn) % 2],
            dtype=dtype,
            iterations=3,
        )
        for number, size in enumerate(SHAPES)
        for turn, dtype in enumerate(("float32", "float64"))
        if (size.precision == "highest" and not size.half) or dtype == "float32"
    ]
    solves += [size._replace(kind=kind) for size in LONG for kind in KINDS[:2]]
    plans = [
        case._replace(kind="unbalanced", updates="alternating")
        for case in solves
        if 2000 < case.N * case.M < 5000 and case.precision == "highest"
    ]
    for case in solves:
        yield f"solve of {case.name}", partial(wrong, case, device)
    for case in plans:
        yield f"plan of {case.name}", partial(plan_wrong, case, device)
    yield from sanitize_gromov.cases(device)
    yield from sanitize_graphs.cases(device)
    yield from normalize.cases(device)


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
