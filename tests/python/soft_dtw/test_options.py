"""Costs, step penalty, gamma as a tensor and as 0, missing steps, normalize, packed and nested series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

import warpalign
from tests.python.helpers import Array, numpy64, randn, relative_error
from tests.python.soft_dtw.reference import log_delannoy, pair, paths
from warpalign._core.costs import COSTS

F64 = torch.float64


def costs_of(cost: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(B, N, M) by torch's own functions, differentiable."""
    difference = x[:, :, None] - y[:, None]
    if cost == "cosine":
        return 1 - torch.nn.functional.cosine_similarity(x[:, :, None], y[:, None], dim=-1, eps=1e-30)
    if cost == "huber":
        return torch.nn.functional.huber_loss(
            *torch.broadcast_tensors(x[:, :, None], y[:, None]), reduction="none"
        ).sum(-1)
    powers = {"sqeuclidean": difference.square(), "l1": difference.abs(), "euclidean": difference.square()}
    total = powers[cost].sum(-1)
    return total.sqrt() if cost == "euclidean" else total


def by_all_paths(cost: Array, gamma: float, penalty: float = 0.0) -> tuple[float, float]:
    """Value and its derivative by gamma, from every path of a small table."""
    n, m = cost.shape
    totals = []
    for path in paths(n, m):
        steps = np.diff(np.array(path), axis=0)
        totals.append(sum(cost[cell] for cell in path) + penalty * int((steps.sum(1) == 1).sum()))
    scaled = -np.array(totals) / gamma
    top = scaled.max()
    share = np.exp(scaled - top)
    value = -gamma * (top + np.log(share.sum()))
    share /= share.sum()
    return float(value), float((share * np.log(share)).sum())


# Costs.


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("d", [1, 3, 7])
@pytest.mark.parametrize("cost", COSTS)
def test_costs(cost: str, d: int, dtype: torch.dtype) -> None:
    x, y = pair(3, 33, 40, d, dtype=F64, grad=True)
    expected = warpalign.soft_dtw_cost(costs_of(cost, x, y), gamma=0.7)
    expected_grads = torch.autograd.grad(expected.sum(), (x, y))
    x, y = (t.detach().to(dtype).requires_grad_() for t in (x, y))
    value = warpalign.soft_dtw(x, y, gamma=0.7, cost=cost)
    grads = torch.autograd.grad(value.sum(), (x, y))
    tolerance = 1e-10 if dtype == F64 else 2e-5
    assert relative_error(value, numpy64(expected)) <= tolerance
    for got, wanted in zip(grads, expected_grads, strict=True):
        # The cosine of numbers is a sign: without slope, up to rounding.
        assert relative_error(got, numpy64(wanted)) <= tolerance or (
            cost == "cosine" and d == 1 and not got.any()
        )


@pytest.mark.parametrize("cost", COSTS)
def test_gradcheck_of_costs(cost: str) -> None:
    x, y = pair(2, 6, 5, 2, dtype=F64, grad=True)
    options = {"x_lengths": torch.tensor([6, 3]), "step_penalty": 0.2, "bandwidth": 3}
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x, y, cost=cost, **options), (x, y))


@pytest.mark.parametrize("cost", COSTS)
def test_finite_at_kinks(cost: str) -> None:
    x = torch.zeros(2, 5, 3, requires_grad=True)
    y = torch.zeros(2, 6, 3, requires_grad=True)
    value = warpalign.soft_dtw(x, y, cost=cost)
    for gradient in torch.autograd.grad(value.sum(), (x, y)):
        assert not gradient.any()
    equal = randn(2, 9, 3, seed=1, grad=True)
    (gradient,) = torch.autograd.grad(warpalign.soft_dtw(equal, equal.detach(), cost=cost).sum(), equal)
    assert gradient.isfinite().all()


def test_a_function_as_cost() -> None:
    x, y = pair(2, 6, 5, 2, dtype=F64, grad=True)

    def cost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, y, p=3.0)

    lengths = torch.tensor([6, 2])
    assert torch.autograd.gradcheck(
        lambda x, y: warpalign.soft_dtw(x, y, cost=cost, x_lengths=lengths), (x, y)
    )
    expected = warpalign.soft_dtw_cost(cost(x, y))
    assert torch.equal(warpalign.soft_dtw(x, y, cost=cost), expected)
    assert torch.equal(warpalign.SoftDTW(cost=cost)(x, y), expected)
    value, alignment = warpalign.soft_dtw_alignment(x, y, cost=cost)
    assert torch.equal(value, expected) and alignment.shape == (2, 6, 5) and not alignment.requires_grad
    unbatched = warpalign.soft_dtw(x[0], y[0], cost=cost)
    assert torch.equal(unbatched, expected[0])


# Step penalty and gamma.


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_penalty_and_gradient_by_gamma(gamma: float, penalty: float) -> None:
    cost = randn(2, 4, 5, seed=3, dtype=F64)
    gammas = torch.tensor([gamma, 2 * gamma], dtype=F64, requires_grad=True)
    value = warpalign.soft_dtw_cost(cost, gamma=gammas, step_penalty=penalty)
    (slope,) = torch.autograd.grad(value.sum(), gammas)
    for b in range(2):
        expected, expected_slope = by_all_paths(numpy64(cost[b]), float(gammas[b]), penalty)
        assert float(value[b].detach()) == pytest.approx(expected, rel=1e-12)
        assert float(slope[b]) == pytest.approx(expected_slope, rel=1e-10)
    scalar = warpalign.soft_dtw_cost(cost, gamma=gamma, step_penalty=penalty)
    assert torch.equal(scalar[0], value[0])


@pytest.mark.parametrize("cost", COSTS)
def test_gradcheck_of_gamma(cost: str) -> None:
    x, y = pair(3, 6, 5, 2, dtype=F64, grad=True)
    for gamma in (torch.tensor(0.8, dtype=F64), torch.tensor([0.3, 1.0, 4.0], dtype=F64)):
        inputs = (x, y, gamma.requires_grad_())
        assert torch.autograd.gradcheck(
            lambda x, y, g: warpalign.soft_dtw(x, y, gamma=g, cost=cost, step_penalty=0.3), inputs
        )
    table = randn(3, 6, 5, seed=4, dtype=F64, grad=True)
    assert torch.autograd.gradcheck(lambda c, g: warpalign.soft_dtw_cost(c, gamma=g), (table, inputs[2]))


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_gradient_by_gamma_is_minus_the_entropy(dtype: torch.dtype) -> None:
    x, y = pair(2, 150, 300, 3, dtype=dtype)
    gamma = torch.tensor([0.5, 5.0], dtype=dtype, requires_grad=True)
    value, alignment = warpalign.soft_dtw_alignment(x, y, gamma=gamma)
    (slope,) = torch.autograd.grad(value.sum(), gamma)
    value64, e64 = warpalign.soft_dtw_alignment(x.double(), y.double(), gamma=gamma.detach().double())
    expected = (value64 - (e64 * torch.cdist(x.double(), y.double()).square()).sum((1, 2))) / gamma.detach()
    assert relative_error(slope, numpy64(expected)) <= (1e-10 if dtype == F64 else 1e-5)


def test_a_gamma_that_learns() -> None:
    module = warpalign.SoftDTW(torch.nn.Parameter(torch.tensor(1.0)), reduction="mean")
    x, y = pair(3, 20, 30, 2)
    module(x, y).backward()
    (parameter,) = module.parameters()
    assert parameter.grad is not None and parameter.grad < 0


def test_gamma_under_vmap_and_compile() -> None:
    x, y = pair(3, 12, 10, 2)
    gamma = torch.tensor([0.3, 1.0, 4.0])
    mask = torch.zeros(3, 12, dtype=torch.bool)
    mask[:, 4] = True

    def loss(x: torch.Tensor, y: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return warpalign.soft_dtw(x, y, gamma=g, x_mask=m, cost="l1", step_penalty=0.1)

    expected = loss(x, y, gamma, mask)
    assert torch.equal(torch.func.vmap(loss)(x, y, gamma, mask), expected)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    leaf = gamma.clone().requires_grad_()
    assert torch.equal(compiled(x, y, leaf, mask), expected)
    (slope,) = torch.autograd.grad(compiled(x, y, leaf, mask).sum(), leaf)
    (wanted,) = torch.autograd.grad(loss(x, y, leaf, mask).sum(), leaf)
    assert torch.equal(slope, wanted)
    each = torch.func.vmap(torch.func.grad(lambda g, x, y, m: loss(x, y, g, m)))(gamma, x, y, mask)
    assert torch.equal(each, wanted)


def test_opcheck() -> None:
    x, y = pair(3, 12, 10, 2, grad=False)
    options = {
        "band": 1,
        "radius": 4,
        "step_penalty": 0.5,
        "gammas": torch.tensor([0.3, 1.0, 4.0]),
        "needs_grad_gamma": True,
    }
    series = {"cost_kind": 2, "x_mask": torch.zeros(3, 12, dtype=torch.bool)}
    for operator in (torch.ops.warpalign.soft_dtw, torch.ops.warpalign.soft_dtw_alignment):
        torch.library.opcheck(operator.default, (x, y, None, None, 1.0, True, False), options | series)
    cost = randn(3, 5, 4, seed=5)
    torch.library.opcheck(torch.ops.warpalign.soft_dtw_cost.default, (cost, None, None, 1.0, True), options)


# Hard DTW.


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_hard_dtw(dtype: torch.dtype, penalty: float) -> None:
    cost = randn(3, 4, 6, seed=6, dtype=dtype)
    value = warpalign.soft_dtw_cost(cost, gamma=0, step_penalty=penalty)
    for b in range(3):
        best = min(
            sum(numpy64(cost[b])[cell] for cell in path)
            + penalty * sum(sum(b) == sum(a) + 1 for a, b in zip(path, path[1:], strict=False))
            for path in paths(4, 6)
        )
        assert float(value[b]) == pytest.approx(best, rel=1e-6 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize("cost", COSTS)
def test_hard_dtw_is_where_gamma_goes_to_0(cost: str) -> None:
    x, y = pair(2, 40, 50, 2, dtype=F64, grad=True)
    hard = warpalign.dtw(x, y, cost=cost)
    grads = torch.autograd.grad(hard.sum(), (x, y))
    soft = warpalign.soft_dtw(x, y, cost=cost, gamma=1e-7)
    for got, wanted in zip(grads, torch.autograd.grad(soft.sum(), (x, y)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)
    # The soft minimum over all paths lies below the best of them, by gamma times the logarithm of their number at most.
    less, rounding = hard - soft, 1e-13 * float(hard.abs().max())
    assert ((less >= -rounding) & (less <= 1e-7 * log_delannoy(40, 50) + rounding)).all()
    assert torch.autograd.gradcheck(lambda x, y: warpalign.dtw(x, y, cost=cost), (x[:, :6], y[:, :5]))


def test_dtw_path() -> None:
    x, y = pair(5, 30, 26, 2, dtype=F64)
    lengths = torch.tensor([30, 1, 7, 30, 12])
    value, found = warpalign.dtw_path(x, y, x_lengths=lengths, step_penalty=0.1, cost="l1")
    costs = costs_of("l1", x, y)
    assert torch.equal(value, warpalign.dtw(x, y, x_lengths=lengths, step_penalty=0.1, cost="l1"))
    for b, path in enumerate(found):
        assert path[0].tolist() == [0, 0] and path[-1].tolist() == [int(lengths[b]) - 1, 25]
        steps = path.diff(dim=0)
        assert ((steps >= 0) & (steps <= 1)).all() and (steps.sum(1) > 0).all()
        total = costs[b][path[:, 0], path[:, 1]].sum() + 0.1 * (steps.sum(1) == 1).sum()
        torch.testing.assert_close(total, value[b])
    value, single = warpalign.dtw_path(x[0], y[0])
    assert value.shape == () and single.shape[1] == 2
    _, none = warpalign.dtw_path(torch.full((3, 1), torch.nan), torch.zeros(3, 1))
    assert none.shape == (0, 2)


def test_dtw_path_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pair(5, 30, 26, 2)
    whole = warpalign.dtw_path(x, y)
    monkeypatch.setattr("warpalign._soft_dtw.paths._PATH_CELLS", 2 * 30 * 26)
    parts = warpalign.dtw_path(x, y)
    assert torch.equal(whole.value, parts.value)
    assert all(torch.equal(a, b) for a, b in zip(whole.paths, parts.paths, strict=True))


def test_ties_go_diagonally_first() -> None:
    value, path = warpalign.dtw_path(torch.zeros(4, 1), torch.zeros(6, 1))
    # Back from the end: diagonal while that is as good as any.
    assert path.tolist() == [[0, 0], [0, 1], [0, 2], [1, 3], [2, 4], [3, 5]]
    assert value == 0
    tslearn = pytest.importorskip("tslearn.metrics")
    x, y = randn(20, 1, seed=7, dtype=F64), randn(30, 1, seed=8, dtype=F64)
    value, path = warpalign.dtw_path(x, y)
    expected_path, expected = tslearn.dtw_path(x.numpy(), y.numpy())
    assert path.tolist() == [list(cell) for cell in expected_path]
    assert float(value) == pytest.approx(expected**2)


# Missing steps.


@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize("cost", [*COSTS, torch.cdist])
def test_missing_steps(cost: Any, d: int) -> None:
    x, y = pair(2, 20, 24, d, dtype=F64)
    masks = {"x_mask": randn(2, 20, seed=9) > 1, "y_mask": randn(2, 24, seed=10) > 1}
    costs = cost(x, y) if callable(cost) else costs_of(cost, x, y)
    costs = costs.masked_fill(masks["x_mask"][:, :, None] | masks["y_mask"][:, None], 0)
    expected = warpalign.soft_dtw_cost(costs)
    x, y = (t.masked_fill(m[:, :, None], torch.nan) for t, m in zip((x, y), masks.values(), strict=True))
    x.requires_grad_(), y.requires_grad_()
    value = warpalign.soft_dtw(x, y, cost=cost, **masks)
    assert torch.allclose(value, expected, rtol=1e-11)
    for grad, mask in zip(torch.autograd.grad(value.sum(), (x, y)), masks.values(), strict=True):
        assert grad.isfinite().all() and not grad[mask].any()
        assert grad[~mask].any() != (cost == "cosine" and d == 1)


@pytest.mark.parametrize("cost", COSTS)
def test_gradcheck_with_missing_steps(cost: str) -> None:
    x, y = pair(2, 6, 5, 2, dtype=F64, grad=True)
    mask = torch.tensor([False, True, False, False, True, False])
    assert torch.autograd.gradcheck(
        lambda x, y: warpalign.soft_dtw(x, y, cost=cost, x_mask=mask, y_mask=mask[:5]), (x, y)
    )


# normalize, packed and nested series.


@pytest.mark.parametrize("cost", COSTS)
def test_normalize(cost: str) -> None:
    x, y = pair(3, 20, 27, 2, dtype=F64, grad=True)
    options: dict[str, Any] = {"cost": cost, "gamma": 0.5, "bandwidth": 9}
    value = warpalign.soft_dtw(x, y, normalize=True, **options)
    parts = [warpalign.soft_dtw(a, b, **options) for a, b in ((x, y), (x, x), (y, y))]
    assert torch.allclose(value, parts[0] - (parts[1] + parts[2]) / 2, rtol=1e-12)
    assert not warpalign.soft_dtw(x, x.clone(), normalize=True, **options).any()
    assert torch.autograd.gradcheck(
        lambda x, y: warpalign.soft_dtw(x, y, normalize=True, **options), (x[:, :5], y[:, :4])
    )
    assert torch.equal(warpalign.SoftDTW(normalize=True, **options)(x, y), value)


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_the_divergence_of_equal_ragged_series_is_0(dtype: torch.dtype) -> None:
    x, y = pair(3, 40, 57, 2, dtype=dtype)
    y[:, :40] = x
    lengths = torch.tensor([40, 3, 22])
    assert not warpalign.soft_dtw(x, y, x_lengths=lengths, y_lengths=lengths, normalize=True).any()


@pytest.mark.parametrize("layout", ["packed", "jagged", "strided"])
def test_packed_and_nested_series(layout: str) -> None:
    parts = [randn(n, 2, seed=n, dtype=F64, grad=True) for n in (5, 9, 3)]
    y = randn(3, 8, 2, seed=20, dtype=F64)
    if layout == "packed":
        series: Any = pack_sequence(parts, enforce_sorted=False)
    else:
        series = torch.nested.as_nested_tensor(parts, layout=getattr(torch, layout))
    value = warpalign.soft_dtw(series, y)
    grads = torch.autograd.grad(value.sum(), parts)
    single = [warpalign.soft_dtw(part, y[b]) for b, part in enumerate(parts)]
    assert torch.equal(value, torch.stack(single))
    assert torch.equal(
        warpalign.soft_dtw(y, series), torch.stack([warpalign.soft_dtw(y[b], p) for b, p in enumerate(parts)])
    )
    for grad, one, part in zip(grads, single, parts, strict=True):
        torch.testing.assert_close(grad, torch.autograd.grad(one, part)[0])
    with pytest.raises(ValueError, match="^x_lengths: expected None with a"):
        warpalign.soft_dtw(series, y, x_lengths=torch.tensor([1, 2, 3]))


def test_one_pair_and_a_batch_are_bitwise_identical(device: torch.device) -> None:
    """With batch_invariant, in every function that has it: a GPU would sweep one pair from both ends."""
    x, y = (t.to(device) for t in pair(40, 300, 280, 2))
    cost = torch.cdist(x, y).square()
    calls: list[Callable[[slice], Tensor]] = [
        lambda b: warpalign.soft_dtw(x[b], y[b], gamma=0.1, batch_invariant=True),
        lambda b: warpalign.soft_dtw_alignment(x[b], y[b], gamma=0.1, batch_invariant=True).value,
        lambda b: warpalign.soft_dtw_cost(cost[b], gamma=0.1, batch_invariant=True),
        lambda b: warpalign.dtw(x[b], y[b], batch_invariant=True),
        lambda b: warpalign.dtw_path(x[b], y[b], batch_invariant=True).value,
    ]
    for call in calls:
        assert torch.equal(call(slice(0, 1)), call(slice(None))[:1])
