"""What holds for every solution, whatever the numbers: exchanges of sides and points, constants, scales, derivatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from warpalign.transport import SinkhornResult, sinkhorn

N, M, EPSILON = 9, 7, 0.4
OPTIONS: dict[str, Any] = {"epsilon": EPSILON, "max_iter": 3000, "tol": 1e-13}
SIDES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "unbalanced": {"rho_a": 0.7, "rho_b": 2.0},
    "semi-relaxed": {"rho_b": 0.0},
    "partial": {"mass": 0.6},
}


class Given(NamedTuple):
    cost: Tensor
    a: Tensor
    b: Tensor


@pytest.fixture
def given(device: torch.device) -> Given:
    a, b = (torch.softmax(randn(n, seed=n, dtype=torch.float64), 0).to(device) for n in (N, M))
    return Given(randn(N, M, seed=1, dtype=torch.float64).square().to(device), a, b)


def solve(cost: Tensor, a: Tensor, b: Tensor, **options: Any) -> SinkhornResult:
    return sinkhorn(cost_matrix=cost, a=a, b=b, **(OPTIONS | options))


def assert_close(one: Tensor, other: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=atol)


@pytest.mark.parametrize("name", SIDES)
def test_transposition_exchanges_the_potentials(name: str, given: Given) -> None:
    options = SIDES[name]
    exchanged = {{"rho_a": "rho_b", "rho_b": "rho_a"}.get(key, key): v for key, v in options.items()}
    one = solve(*given, **options)
    other = solve(given.cost.T, given.b, given.a, **exchanged)
    assert_close(other.value, one.value)
    assert_close(other.linear, one.linear)
    assert_close(other.plan.to_dense(), one.plan.to_dense().T)
    if name == "unbalanced":  # else potentials have an open constant
        assert_close(other.f, one.g)
        assert_close(other.g, one.f)


@pytest.mark.parametrize("name", SIDES)
def test_points_may_come_in_any_order(name: str, given: Given) -> None:
    options = SIDES[name]
    generator = torch.Generator().manual_seed(5)
    rows, columns = (torch.randperm(n, generator=generator).to(given.cost.device) for n in given.cost.shape)
    one = solve(*given, **options)
    other = solve(given.cost[rows][:, columns], given.a[rows], given.b[columns], **options)
    assert_close(other.value, one.value)
    assert_close(other.f, one.f[rows])
    assert_close(other.g, one.g[columns])
    assert_close(other.plan.to_dense(), one.plan.to_dense()[rows][:, columns])


def test_constants_of_rows_move_their_potentials_alone(given: Given) -> None:
    """Of balanced problems: the constants cost the same whatever the plan."""
    constants = randn(N, seed=8, dtype=torch.float64).to(given.cost.device)
    one, other = solve(*given), solve(given.cost + constants[:, None], given.a, given.b)
    assert_close(other.plan.to_dense(), one.plan.to_dense())
    assert_close(other.value, one.value + given.a @ constants)
    moved = other.f - one.f - constants
    assert_close(moved, moved.mean().expand(N))  # the open constant
    assert_close(other.g - one.g, (-moved.mean()).expand(M))


@pytest.mark.parametrize("name", SIDES)
def test_scales_of_costs_and_epsilon_scale_the_value(name: str, given: Given) -> None:
    options = SIDES[name]
    for factor in (1e-6, 1e6):
        scaled = {key: factor * v if key.startswith("rho") else v for key, v in options.items()}
        one = solve(*given, **options)
        other = solve(factor * given.cost, given.a, given.b, **scaled, epsilon=factor * EPSILON, tol=1e-13)
        assert_close(other.value / factor, one.value)
        assert_close(other.f / factor, one.f)
        assert_close(other.plan.to_dense(), one.plan.to_dense())


@pytest.mark.parametrize("reference", ["product", "counting"])
def test_the_slope_by_epsilon_is_the_divergence_from_the_reference(reference: str, given: Given) -> None:
    epsilon = torch.tensor(EPSILON, dtype=torch.float64, device=given.cost.device, requires_grad=True)
    found = solve(*given, epsilon=epsilon, rho_a=0.7, reference=reference)
    (slope,) = torch.autograd.grad(found.value, epsilon)
    plan = found.plan.to_dense().detach()
    measure = given.a[:, None] * given.b if reference == "product" else torch.ones_like(plan)
    assert_close(slope, (torch.special.xlogy(plan, plan / measure) - plan + measure).sum())
    assert slope >= 0


@pytest.mark.parametrize("name", ["balanced", "unbalanced", "semi-relaxed"])
@pytest.mark.parametrize("updates", ["alternating", "symmetric"])
def test_moves_never_grow(name: str, updates: str, given: Given) -> None:
    """Soft-min is non-expansive in the largest norm."""
    before, move = None, torch.inf
    for iterations in range(1, 12):
        f = solve(*given, max_iter=iterations, tol=0.0, updates=updates, **SIDES[name]).f
        if before is not None:
            now = float((f - before).abs().max())
            assert now <= move * (1 + 1e-9) + 1e-13
            move = now
        before = f
    assert move < 0.5


def test_strong_sides_are_balanced_and_weak_ones_are_not(given: Given) -> None:
    balanced = solve(*given).plan.to_dense()
    assert_close(solve(*given, rho_a=1e9, rho_b=1e9).plan.to_dense(), balanced, atol=1e-8)
    relaxed = solve(*given, rho_a=0.1, rho_b=0.1).plan
    assert float((relaxed.marginal(1) - given.a).abs().max()) > 5e-3


@pytest.mark.gpu
def test_more_pairs_than_int32_counts(cuda: torch.device) -> None:
    """47 000 x 47 000: points, and given costs of float16. Rows read off the plan are those of the potentials."""
    n = 47000
    assert n * n > 2**31
    rows = torch.tensor([0, 1, n - 1], device=cuda)
    x, y = randn(n, 2, seed=1, device=cuda), randn(n, 2, seed=2, device=cuda)
    options: dict[str, Any] = {"epsilon": 0.1, "max_iter": 2, "tol": 0.0}
    of_points = sinkhorn(x, y, **options)
    costs = torch.cdist(x[rows].double(), y.double()).square()
    assert_last_rows(of_points, rows, costs, 0.1)
    if torch.cuda.get_device_properties(cuda).total_memory < 24e9:
        pytest.skip("the costs take 4.4 GB, and making them as much again")
    table = torch.empty(n, n, dtype=torch.float16, device=cuda)
    for begin in range(0, n, 1000):
        table[begin : begin + 1000] = torch.cdist(x[begin : begin + 1000], y).square()
    found = sinkhorn(cost_matrix=table, storage="half", **options)
    assert_last_rows(found, rows, table[rows].double(), 0.1)


def assert_last_rows(found: SinkhornResult, rows: Tensor, costs: Tensor, epsilon: float) -> None:
    n = costs.shape[1]
    logits = (found.f[rows].double()[:, None] + found.g.double() - costs) / epsilon
    expected = torch.exp(logits) / (n * n)
    plan = found.plan.rows(rows).double()
    torch.testing.assert_close(plan, expected, rtol=1e-4, atol=1e-6 * float(expected.max()))
    # The rows were updated last.
    torch.testing.assert_close(expected.sum(1), torch.full_like(expected[:, 0], 1 / n), rtol=1e-4, atol=0)
    chosen = expected.gather(1, found.plan.argmax(1)[rows][:, None].long())[:, 0]
    assert bool((chosen >= (1 - 1e-4) * expected.amax(1)).all())
