"""Products with matrices of distances by factors of binary16. A CPU multiplies the same factors in float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from warpalign._transport.gromov_products import Factors, factors_of, narrowed
from warpalign._transport.gromov_solver import Objective

_HALF_DIGITS = 2.0**-11  # the relative rounding of a binary16 number
# What sums lose besides. The matrix units of a GPU cut off what does not fit a sum (2e-6 on an H200).
_LOST_IN_SUMS = {"cpu": 1e-6, "cuda": 3e-6}


def _tables(batch: int, n: int, m: int, scale: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Distances of both sets, not symmetric, and a plan with entries of many sizes."""
    draw = torch.Generator().manual_seed(n)
    cx, cy = (torch.rand(batch, size, size, generator=draw) * scale for size in (n, m))
    plan = torch.rand(batch, n, m, generator=draw) ** 8
    plan[:, ::3] *= 1e-6
    return cx.to(device), cy.to(device), (plan / plan.sum((1, 2), keepdim=True)).to(device)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def _product(factors: Factors, plan: Tensor, transposed: bool = False) -> Tensor:
    """Of distances less their means."""
    return factors.add_product(torch.zeros_like(plan), plan, 1.0, transposed)


@pytest.mark.parametrize("scale", [1.0, 1e12, 1e-12])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (8, 7), (33, 130), (300, 260)])
def test_errors_are_those_of_the_digits(n: int, m: int, scale: float, device: torch.device) -> None:
    cx, cy, plan = _tables(3, n, m, scale, device)
    factors = narrowed(cx, cy)
    for transposed in (False, True):
        x, y = (cx.mT, cy) if transposed else (cx, cy.mT)
        expected = x.double() @ plan.double() @ y.double()
        p, q = (mean.double() for mean in factors.means)
        of_means = expected - (x.double() - p) @ plan.double() @ (y.double() - q)
        # Three factors, and the product of the first two, are rounded.
        assert _error(_product(factors, plan, transposed) + of_means, expected) <= 4 * _HALF_DIGITS
        precise = _product(narrowed(cx, cy, precise=True), plan, transposed) + of_means
        assert _error(precise, expected) <= 2 * _error(x @ plan @ y, expected) + _LOST_IN_SUMS[device.type]
    found = factors.add_product(torch.ones_like(plan), plan, -3.0)
    torch.testing.assert_close(found, 1 - 3 * _product(factors, plan), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_costs_by_factors_are_those_of_the_distances(symmetric: bool, device: torch.device) -> None:
    cx, cy, plan = _tables(2, 40, 33, 1.0, device)
    if symmetric:
        cx, cy = cx + cx.mT, cy + cy.mT
    expected = Objective(cx.double(), cy.double(), symmetric, None, 0.0).cost(plan.double())
    for precise, tolerance in ((True, 1e-6), (False, _HALF_DIGITS)):
        factors = narrowed(cx, cy, precise)
        of = Objective(cx, cy, symmetric, None, 0.0, factors, factors.squares(cx, cy))
        assert _error(of.cost(plan), expected) <= tolerance


def test_distances_that_differ_little_from_their_mean(device: torch.device) -> None:
    cx, cy, plan = _tables(1, 40, 33, 0.01, device)
    cx, cy = 10 + cx + cx.mT, 9 + cy + cy.mT
    expected = Objective(cx.double(), cy.double(), True, None, 0.0).cost(plan.double())
    factors = narrowed(cx, cy, precise=True)
    found = Objective(cx, cy, True, None, 0.0, factors, factors.squares(cx, cy)).cost(plan)
    # A constant that is added to all costs changes no plan.
    spread = expected - expected.mean()
    assert float((found.double() - found.double().mean() - spread).abs().max()) <= 1e-4 * float(
        spread.abs().max()
    )


def test_a_problem_of_a_batch_is_on_its_own(device: torch.device) -> None:
    cx, cy, plan = _tables(2, 20, 30, 1.0, device)
    cx[1] *= 1e10
    plan[1] = torch.nan
    both, first = _product(narrowed(cx, cy), plan), _product(narrowed(cx[:1], cy[:1]), plan[:1])
    assert _error(both[:1], first.double()) <= 1e-6
    assert both[1].isnan().all()


def test_one_table_of_a_batch_is_stored_once() -> None:
    cx, cy, plan = _tables(1, 20, 30, 1.0, torch.device("cpu"))
    factors = narrowed(cx.expand(4, -1, -1), cy.expand(4, -1, -1))
    assert factors.x.large.stride(0) == factors.y.large.stride(0) == 0
    found = _product(factors, plan.expand(4, -1, -1).contiguous())
    torch.testing.assert_close(found[3:], _product(narrowed(cx, cy), plan), rtol=1e-6, atol=0.0)


def test_zeros_and_signs(device: torch.device) -> None:
    nothing = torch.zeros(1, 16, 16, device=device)
    assert not _product(narrowed(nothing, nothing), nothing).any()
    cx, cy, plan = _tables(1, 8, 16, 1.0, device)
    torch.testing.assert_close(_product(narrowed(-cx, cy), plan), -_product(narrowed(cx, cy), plan))


def test_small_problems_have_no_factors() -> None:
    small = torch.zeros(1, 4, 4)
    assert factors_of(small, small) is None


@pytest.mark.gpu
def test_large_problems_on_a_gpu_get_factors(cuda: torch.device) -> None:
    cx, cy = (torch.rand(1, 1030, 1030, device=cuda) for _ in range(2))
    assert factors_of(cx, cy) is not None
    assert factors_of(cx, cy, precise=True) is None  # float32's own products take less time
    assert factors_of(cx.double(), cy.double()) is None
    assert factors_of(cx[:, :90, :90], cy[:, :90, :90]) is None
    large = torch.rand(1, 1460, 1460, device=cuda)
    precise = factors_of(large, large, precise=True)
    assert precise is not None and precise.x.rest is not None
