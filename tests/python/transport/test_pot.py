"""sinkhorn next to POT: its plans of random problems, its own test problems, and the two references of A12."""

from __future__ import annotations

import math

import pytest
import torch

from tests.python.transport import pot
from warpalign.transport import Annealing, SinkhornResult, sinkhorn

ANSWERS = pot.recorded()


def solve(
    of: pot.Given, device: torch.device, *, max_iter: int = 20000, tol: float = 1e-14, **options: object
) -> SinkhornResult:
    cost, a, b = (torch.from_numpy(t).to(device) for t in of[:3])
    return sinkhorn(
        cost_matrix=cost,
        a=a,
        b=b,
        epsilon=of.epsilon,
        max_iter=max_iter,
        tol=tol,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", pot.PROBLEMS)
@pytest.mark.parametrize("arguments", pot.RANDOM, ids=str)
def test_plans_of_random_problems(
    arguments: tuple[int, int, int, float], name: str, device: torch.device
) -> None:
    of = pot.random_problem(*arguments)
    expected = torch.tensor(ANSWERS[f"random {arguments[0]}"][name], dtype=torch.float64)
    plan = solve(of, device, **pot.PROBLEMS[name]).plan.to_dense().cpu()
    # POT's scaling vectors stop at a change of 1e-15 of their sum, with sums in the kernel's range.
    torch.testing.assert_close(plan, expected, rtol=0, atol=1e-9 * float(expected.max()))
    if name == "partial":
        assert float(plan.sum()) == pytest.approx(pot.MASS, abs=1e-6)


@pytest.mark.parametrize("updates", ["alternating", "symmetric", "mixed"])
def test_pots_points(updates: str, device: torch.device) -> None:
    of = pot.points_of_pot()
    got = solve(of, device, updates=updates)
    assert float(got.linear) == pytest.approx(ANSWERS["points"]["linear"], rel=1e-9)
    rows = torch.tensor(ANSWERS["points"]["first rows"], dtype=torch.float64)
    torch.testing.assert_close(got.plan.rows([0, 1, 2]).cpu(), rows, rtol=1e-7, atol=0)
    for axis in (0, 1):
        assert float((got.plan.marginal(axis) - 0.01).abs().max()) <= 1e-5


def test_pots_gaussians_of_a_tiny_epsilon(device: torch.device) -> None:
    """At 1e-5 of the largest cost: some 1e5 iterations, of logits as large as their potentials."""
    got = solve(pot.gaussians_of_pot(), device, annealing=Annealing(start=1.0, factor=0.99), max_iter=150000)
    assert float(got.linear) == pytest.approx(ANSWERS["gaussians"]["linear"], abs=1e-6)


@pytest.mark.parametrize(
    ("reference", "diagonal", "other"),
    [("product", 0.3220536, 0.1184769), ("counting", 0.5112282, 0.1880703)],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_both_references_of_an_unbalanced_problem(
    reference: str, diagonal: float, other: float, dtype: torch.dtype, device: torch.device
) -> None:
    """a = b = (1/2, 1/2), C = ((0, 1), (1, 0)), epsilon = rho = 1: both values of POT#691, which follow from the equations."""
    cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=dtype, device=device)
    plan = sinkhorn(
        cost_matrix=cost,
        epsilon=1.0,
        rho_a=1.0,
        rho_b=1.0,
        reference=reference,  # type: ignore[arg-type]
        tol=1e-7,
    ).plan.to_dense()
    # Both potentials are u: u = -(1/2) ln(sum of the row without them / a), so P = c exp(2 u) with
    # c = 1/4 (product) or 1, and sum (1 + 1/e) c exp(u) = exp(-u)/2.
    share = 0.25 if reference == "product" else 1.0
    exact = share * (0.5 / (share * (1 + math.exp(-1)))) ** (2 / 3)
    expected = torch.tensor([[1.0, math.exp(-1)], [math.exp(-1), 1.0]], dtype=dtype, device=device) * exact
    torch.testing.assert_close(plan, expected, rtol=1e-5 if dtype == torch.float32 else 1e-6, atol=0)
    assert float(plan[0, 0]) == pytest.approx(diagonal, rel=1e-5)
    assert float(plan[0, 1]) == pytest.approx(other, rel=1e-5)
