"""Second derivatives against finite differences and against autograd through the plain recursion."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.hessian import cost_table, plain_value, products
from tests.python.soft_dtw.reference import band_mask, pair
from warpalign import soft_dtw, soft_dtw_cost
from warpalign._core.costs import COSTS

F64 = torch.float64
OPS = torch.ops.warpalign


def assert_products(
    got: Tensor, expected: Tensor, inputs: tuple[Tensor, ...], rtol: float = 1e-8, seed: int = 90
) -> None:
    tangents = tuple(randn(*t.shape, seed=seed + k, dtype=t.dtype) for k, t in enumerate(inputs))
    for a, b in zip(products(got, inputs, tangents), products(expected, inputs, tangents), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * float(b.abs().max().clamp(min=1)))


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (6, 1), (9, 12)])
def test_hessian_products(cost: str, gamma: float, n: int, m: int) -> None:
    x, y = pair(1, n, m, 3, dtype=F64, grad=True)
    expected = plain_value(cost_table(x[0], y[0], cost), gamma)
    assert_products(soft_dtw(x, y, gamma=gamma, cost=cost), expected, (x, y))  # type: ignore[arg-type]


@pytest.mark.parametrize(("band", "bandwidth"), [("sakoe_chiba", 2), ("abs", 4), ("slanted", 1)])
def test_hessian_products_with_band_and_penalty(band: Any, bandwidth: int) -> None:
    x, y = pair(1, 10, 13, 2, dtype=F64, grad=True)
    mask = torch.from_numpy(band_mask(band, 10, 13, bandwidth=bandwidth))
    options: dict[str, Any] = {"bandwidth": bandwidth, "band": band, "step_penalty": 0.4, "gamma": 0.5}
    costs = cost_table(x[0], y[0], "sqeuclidean")
    assert_products(soft_dtw(x, y, **options), plain_value(costs, 0.5, 0.4, mask), (x, y))
    table = randn(1, 10, 13, seed=4, dtype=F64, grad=True)
    assert_products(soft_dtw_cost(table, **options), plain_value(table[0], 0.5, 0.4, mask), (table,))


def test_hessian_products_of_each_pair() -> None:
    """Lengths, missing steps and gammas belong to pairs; padding may hold anything."""
    x, y = pair(3, 7, 8, 2, dtype=F64)
    n, m, gamma = torch.tensor([7, 1, 4]), torch.tensor([3, 8, 6]), torch.tensor([0.2, 1.0, 5.0], dtype=F64)
    missing = torch.zeros(3, 7, dtype=torch.bool)
    missing[0, 2] = missing[2, 3] = True
    for b in range(3):
        x[b, n[b] :] = y[b, m[b] :] = torch.nan
    x[missing] = torch.nan
    inputs = (x.requires_grad_(), y.requires_grad_())
    for cost in COSTS:
        values = []
        for b in range(3):
            gone = missing[b, : n[b], None]
            costs = cost_table(x[b, : n[b]].masked_fill(gone, 0.3), y[b, : m[b]], cost)
            values.append(plain_value(costs.masked_fill(gone, 0.0), float(gamma[b])))
        got = soft_dtw(x, y, gamma=gamma, cost=cost, x_lengths=n, y_lengths=m, x_mask=missing)  # type: ignore[arg-type]
        weights = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
        assert_products(got * weights, torch.stack(values) * weights, inputs)


# Around the tiles of the CPU path: the difference of gradients has no table of its own to be wrong in.


@pytest.mark.parametrize(
    ("n", "m", "d", "options"),
    [
        (129, 140, 2, {}),
        (257, 300, 1, {"cost": "euclidean"}),
        (300, 257, 5, {"bandwidth": 20}),
        (33, 700, 3, {"cost": "cosine", "step_penalty": 0.3}),
        (512, 384, 9, {"bandwidth": 3, "band": "slanted"}),
        (256, 256, 2, {"cost": "huber", "gamma": 10.0}),
        (384, 130, 2, {"gamma": 0.01}),
    ],
)
def test_long_series(n: int, m: int, d: int, options: dict[str, Any]) -> None:
    x, y = pair(2, n, m, d, dtype=F64, grad=True)
    tangents = tuple(randn(*t.shape, seed=7 + k, dtype=F64) for k, t in enumerate((x, y)))
    step = 1e-6

    def gradients(sign: int) -> tuple[Tensor, ...]:
        moved = [
            (t + sign * step * v).detach().requires_grad_() for t, v in zip((x, y), tangents, strict=True)
        ]
        return grad(soft_dtw(*moved, **options).sum(), moved)

    _, *got = products(soft_dtw(x, y, **options), (x, y), tangents)
    for a, after, before in zip(got, gradients(1), gradients(-1), strict=True):
        expected = (after - before) / (2 * step)
        # Rounding of the gradients over the step, and its square times the fourth derivative.
        assert (a - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_float32_against_float64(gamma: float, dtype: torch.dtype) -> None:
    """Inside all is float64: what is left is the rounding of the result, and of the first backward pass."""
    x, y = pair(2, 150, 140, 3, dtype=dtype, grad=True)
    wide = tuple(t.detach().double().requires_grad_() for t in (x, y))
    tangents = tuple(randn(*t.shape, seed=3 + k, dtype=dtype) for k, t in enumerate((x, y)))
    got = products(soft_dtw(x, y, gamma=gamma), (x, y), tangents)
    expected = products(soft_dtw(*wide, gamma=gamma), wide, tuple(t.double() for t in tangents))
    for a, b in zip(got[1:], expected[1:], strict=True):
        assert a.dtype == dtype
        assert (a.double() - b).norm() < (1e-6 if dtype == torch.float32 else 2e-2) * b.norm()


def test_strides() -> None:
    x, y = pair(2, 6, 7, 3, dtype=F64)
    a, b = x.mT.contiguous().requires_grad_(), y[:, :, :2].repeat(1, 1, 2).requires_grad_()
    strided = soft_dtw(a.mT[..., ::2], b[..., ::2])
    plain = soft_dtw(a.mT[..., ::2].contiguous(), b[..., ::2].contiguous())
    assert_products(strided, plain, (a, b), rtol=1e-13)
    (gradient,) = grad(soft_dtw(x.requires_grad_(), y).sum(), x, create_graph=True)
    expanded = torch.ones(1, 1, 1, dtype=F64).expand(2, 6, 3)
    (got,) = grad(gradient, x, expanded, retain_graph=True)
    assert torch.equal(got, grad(gradient, x, expanded.contiguous())[0])


# gradgradcheck


OPTIONS: list[dict[str, Any]] = [
    {},
    {"gamma": 0.05},
    {"gamma": 30.0},
    {"bandwidth": 2, "step_penalty": 0.3},
    {"band": "itakura", "max_slope": 3.0},
    {"normalize": True},
    {"reduction": "mean"},
]


@pytest.mark.parametrize(
    "options", [*OPTIONS, *({"cost": c, "bandwidth": 2, "step_penalty": 0.3} for c in COSTS[1:])], ids=str
)
def test_gradgradcheck(options: dict[str, Any]) -> None:
    x, y = pair(2, 3, 4, 2, dtype=F64, grad=True)
    options = {"gamma": 0.7, **options}
    assert gradgradcheck(lambda x, y: soft_dtw(x, y, **options), (x, y), check_fwd_over_rev=True)
    assert gradcheck(lambda x, y: soft_dtw(x, y, **options), (x, y), check_forward_ad=True)


def test_gradgradcheck_of_one_side_and_a_batch_of_one() -> None:
    x, y = pair(3, 4, 5, 2, dtype=F64)
    lengths = {"x_lengths": torch.tensor([4, 1, 3]), "y_lengths": torch.tensor([2, 5, 1])}
    assert gradgradcheck(lambda x: soft_dtw(x, y, **lengths), (x.clone().requires_grad_(),))
    assert gradgradcheck(lambda y: soft_dtw(x, y, **lengths), (y.clone().requires_grad_(),))
    assert gradgradcheck(lambda x: soft_dtw(x, y), (x[:1].clone().requires_grad_(),))
    assert gradgradcheck(lambda x: soft_dtw(x, x[:, 1:]), (x.clone().requires_grad_(),))
    gamma = torch.tensor([0.3, 1.0, 4.0], dtype=F64)
    mask = torch.tensor([False, True, False, False]).expand(3, -1)
    assert gradgradcheck(lambda x: soft_dtw(x, y, gamma=gamma, x_mask=mask), (x.clone().requires_grad_(),))


@pytest.mark.parametrize("options", [o for o in OPTIONS if "normalize" not in o], ids=str)
def test_gradgradcheck_cost_matrix(options: dict[str, Any]) -> None:
    cost = randn(3, 5, 4, seed=1, dtype=F64, grad=True)
    lengths = (
        {}
        if "max_slope" in options
        else {"x_lengths": torch.tensor([5, 1, 3]), "y_lengths": torch.tensor([2, 4, 4])}
    )
    assert gradgradcheck(lambda c: soft_dtw_cost(c, **options, **lengths), (cost,), check_fwd_over_rev=True)
    assert gradcheck(lambda c: soft_dtw_cost(c, **options, **lengths), (cost,), check_forward_ad=True)


def test_gradgradcheck_of_a_cost_function() -> None:
    x, y = pair(2, 4, 5, 2, dtype=F64, grad=True)

    def cost(x: Tensor, y: Tensor) -> Tensor:
        return (x[:, :, None] - y[:, None]).pow(4).sum(-1)

    assert gradgradcheck(lambda x, y: soft_dtw(x, y, cost=cost), (x, y))


# Special values


def test_nan_stays_in_its_pair_and_inf_is_forbidden() -> None:
    cost = randn(3, 5, 6, seed=2, dtype=F64)
    cost[0, 2, 3] = torch.nan
    cost[1, 2, 1:] = torch.inf
    cost[2, 4, :] = torch.inf  # no path is left
    tangent = randn(3, 5, 6, seed=3, dtype=F64)
    value, bent = OPS.soft_dtw_cost_jvp(cost, tangent, None, None, 0.5, True)
    assert value[0].isnan() and bent[0].isnan().all()
    assert value[1].isfinite() and bent[1].isfinite().all() and not bent[1, 2, 1:].any()
    assert value[2] == 0 and not bent[2].any()
    tangent[1, 2, 2] = torch.nan  # of a forbidden cell
    again = OPS.soft_dtw_cost_jvp(cost, tangent, None, None, 0.5, True)
    assert torch.equal(again[0][1:], value[1:]) and torch.equal(again[1][1:], bent[1:])


@pytest.mark.parametrize("cost", COSTS)
def test_kinks_are_finite(cost: Any) -> None:
    """Equal steps and zero vectors, where not every cost has a derivative."""
    x, y = pair(1, 6, 6, 2, dtype=F64)
    x[0, 1] = y[0, 1]
    x[0, 2] = y[0, 4] = 0.0
    inputs = (x.requires_grad_(), y.requires_grad_())
    for result in products(soft_dtw(x, y, cost=cost), inputs, (torch.ones_like(x), torch.ones_like(y))):
        assert result.isfinite().all()


def test_costs_beyond_float32() -> None:
    """Where only float64's exponents suffice, and alignments are all but hard: the Hessian along the best path."""
    x, y = pair(1, 40, 40, 2)
    x, y = (100 * x).requires_grad_(), 100 * y
    (got,) = products(soft_dtw(x, y, gamma=1e-3), (x,), (torch.ones_like(x),))[1:]
    alignment = warpalign.soft_dtw_alignment(x, y, gamma=1e-3).alignment
    torch.testing.assert_close(got, (2 * alignment.sum(2))[..., None].expand_as(got))
