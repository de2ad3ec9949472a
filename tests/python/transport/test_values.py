"""sinkhorn's values against a dense float64 solution, and what its arguments mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import HALF_DTYPES, randn
from tests.python.transport import reference
from warpalign._core.costs import COSTS
from warpalign.transport import sinkhorn

MARGINALS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "counting": {"reference": "counting"},
    "unbalanced": {"rho_a": 0.7, "rho_b": 2.0},
    "unbalanced, counting": {"rho_a": 0.7, "rho_b": 2.0, "reference": "counting"},
    "semi-relaxed": {"rho_b": 0.0},
    "partial": {"mass": 0.6},
    "partial, counting": {"mass": 0.6, "reference": "counting"},
}


def weights(count: int, seed: int, **options: Any) -> Tensor:
    return torch.softmax(randn(count, seed=seed, **options), 0)


@pytest.mark.parametrize("name", MARGINALS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_linear(name: str, dtype: torch.dtype, device: torch.device) -> None:
    options = MARGINALS[name]
    x, y = randn(33, 3, seed=1, dtype=dtype), randn(17, 3, seed=2, dtype=dtype)
    a, b = weights(33, 3, dtype=dtype), weights(17, 4, dtype=dtype)
    truth = reference.solve(
        reference.costs(x.double(), y.double(), "sqeuclidean"), a.double(), b.double(), 0.5, **options
    )
    given = [t.to(device) for t in (x, y, a, b)]
    got = sinkhorn(*given[:2], a=given[2], b=given[3], epsilon=0.5, tol=0, max_iter=500, **options)
    # float32: sums of 561 products whose rounding is 6e-8 each, and potentials of some 10 epsilon.
    tolerance = 1e-10 if dtype == torch.float64 else 2e-6
    assert got.value.dtype == dtype
    for one, other in ((got.value, truth.value), (got.linear, truth.linear)):
        assert abs(float(one) - float(other)) <= tolerance * abs(float(other))


@pytest.mark.parametrize("cost", COSTS)
def test_costs_of_points_are_those_of_a_matrix(cost: str, device: torch.device) -> None:
    x = randn(2, 19, 4, seed=1, device=device, dtype=torch.float64)
    y = randn(2, 23, 4, seed=2, device=device, dtype=torch.float64)
    tables = torch.stack([reference.costs(p, q, cost) for p, q in zip(x, y, strict=True)])
    options: dict[str, Any] = {"epsilon": 0.3, "cost_scale": 0.5}
    points = sinkhorn(x, y, cost=cost, **options)  # type: ignore[arg-type]
    matrix = sinkhorn(cost_matrix=tables, **options)
    function = sinkhorn(
        x,
        y,
        cost=lambda p, q: torch.stack([reference.costs(*pair, cost) for pair in zip(p, q, strict=True)]),
        **options,
    )
    for other in (matrix, function):
        torch.testing.assert_close(points.value, other.value, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(points.f, other.f, rtol=1e-6, atol=1e-8)


def test_batches_ragged_lengths_and_single_problems_agree(device: torch.device) -> None:
    x, y = randn(3, 9, 2, seed=1, device=device), randn(3, 7, 2, seed=2, device=device)
    n, m = [9, 4, 1], [3, 7, 5]
    for b in range(3):
        x[b, n[b] :], y[b, m[b] :] = float("nan"), float("nan")
    got = sinkhorn(x, y, epsilon=0.4, x_lengths=n, y_lengths=m)
    for b in range(3):
        alone = sinkhorn(x[b, : n[b]], y[b, : m[b]], epsilon=0.4)
        assert alone.value.shape == () and alone.f.shape == (n[b],)
        torch.testing.assert_close(got.value[b], alone.value, rtol=1e-6, atol=0)
        torch.testing.assert_close(got.f[b, : n[b]], alone.f, rtol=1e-5, atol=1e-5)
        assert not got.f[b, n[b] :].any() and not got.g[b, m[b] :].any()
    shared = sinkhorn(x[:1, :4], y[1:2].expand(2, -1, -1), epsilon=0.4)
    assert torch.equal(shared.value[0], shared.value[1])


def test_an_epsilon_per_problem(device: torch.device) -> None:
    x, y = randn(2, 9, 2, seed=1, device=device), randn(2, 7, 2, seed=2, device=device)
    both = sinkhorn(x, y, epsilon=torch.tensor([0.2, 3.0], device=device)).value
    for b, epsilon in enumerate((0.2, 3.0)):
        torch.testing.assert_close(both[b], sinkhorn(x[b], y[b], epsilon=epsilon).value)
        tensor = torch.tensor(epsilon, device=device)
        assert torch.equal(sinkhorn(x[b], y[b], epsilon=tensor).value, both[b])


def test_annealing_and_warm_starts_save_iterations(device: torch.device) -> None:
    x = randn(60, 2, seed=1, device=device, dtype=torch.float64)
    y = randn(50, 2, seed=2, device=device, dtype=torch.float64)
    cold = sinkhorn(x, y, epsilon=0.05, max_iter=5000, tol=1e-8)
    annealed = sinkhorn(x, y, epsilon=0.05, annealing=10.0, max_iter=5000, tol=1e-8)
    warm = sinkhorn(x, y, epsilon=0.05, init=cold, tol=1e-7)
    pair = sinkhorn(x, y, epsilon=0.05, init=(cold.f, cold.g), tol=1e-7)
    torch.testing.assert_close(annealed.value, cold.value, rtol=1e-9, atol=0)
    assert int(annealed.iterations) < int(cold.iterations)
    assert int(warm.iterations) <= 2 and torch.equal(pair.value, warm.value)
    assert float(cold.error) <= 1e-8


def test_a_start_may_have_infinite_potentials(device: torch.device) -> None:
    cost = torch.rand(3, 4, device=device)
    cost[:, 2] = torch.inf
    first = sinkhorn(cost_matrix=cost, epsilon=0.1, mass=0.5)
    again = sinkhorn(cost_matrix=cost, epsilon=0.1, mass=0.5, init=first)
    torch.testing.assert_close(again.value, first.value)
    assert first.value.isfinite()


@pytest.mark.parametrize("dtype", HALF_DTYPES)
def test_half_types_are_widened(dtype: torch.dtype, device: torch.device) -> None:
    x = randn(2, 9, 3, seed=1, device=device).to(dtype).requires_grad_()
    y = randn(2, 7, 3, seed=2, device=device).to(dtype)
    a = weights(9, 3).to(device, dtype)
    got = sinkhorn(x, y, a=a / a.sum(), epsilon=0.5, rho_a=1.0)
    wide = x.detach().float().requires_grad_()
    truth = sinkhorn(wide, y.float(), a=(a / a.sum()).float(), epsilon=0.5, rho_a=1.0)
    assert got.value.dtype == torch.float32 and torch.equal(got.value, truth.value)
    (grad,) = torch.autograd.grad(got.value.sum(), x)
    (exact,) = torch.autograd.grad(truth.value.sum(), wide)
    assert grad.dtype == dtype and torch.equal(grad, exact.to(dtype))


def test_updates_of_all_kinds_meet(device: torch.device) -> None:
    x, y = randn(2, 9, 2, seed=1, dtype=torch.float64), randn(2, 7, 2, seed=2, dtype=torch.float64)
    x, y = x.to(device), y.to(device)
    one, two, three = (
        sinkhorn(x, y, epsilon=0.5, updates=updates, tol=1e-12).value  # type: ignore[arg-type]
        for updates in ("alternating", "symmetric", "mixed")
    )
    torch.testing.assert_close(one, two, rtol=1e-11, atol=0)
    torch.testing.assert_close(one, three, rtol=1e-11, atol=0)


@pytest.mark.parametrize(("tol", "symmetric"), [(0.0, 28), (1e-3, 14), (1e-5, 21)])
def test_mixed_updates_are_symmetric_then_alternating(
    tol: float, symmetric: int, device: torch.device
) -> None:
    x, y = randn(2, 30, 2, seed=1, dtype=torch.float64), randn(2, 40, 2, seed=2, dtype=torch.float64)
    x, y = x.to(device), y.to(device)
    options: dict[str, Any] = {"epsilon": 0.02, "annealing": 1.0, "tol": tol}
    whole = sinkhorn(x, y, updates="mixed", max_iter=symmetric + 5, **options)
    first = sinkhorn(x, y, updates="symmetric", max_iter=symmetric, **options)
    both = sinkhorn(x, y, init=first, max_iter=5, epsilon=0.02, tol=tol)
    torch.testing.assert_close(whole.f, both.f, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(whole.g, both.g, rtol=1e-11, atol=1e-11)
    assert whole.iterations.tolist() == [symmetric + 5] * 2
    own = [
        sinkhorn(x, x, updates=kind, max_iter=symmetric + 5, **options).f for kind in ("mixed", "symmetric")
    ]  # type: ignore[arg-type]
    assert torch.equal(own[0], own[1])


def test_special_values(device: torch.device) -> None:
    x, y = randn(3, 5, 2, seed=1, device=device), randn(3, 4, 2, seed=2, device=device)
    clean = sinkhorn(x, y, epsilon=0.5).value
    x[1, 2, 0] = torch.nan
    got = sinkhorn(x, y, epsilon=0.5)
    assert got.value.isnan().tolist() == [False, True, False]
    assert torch.equal(got.value[::2], clean[::2]) and got.f[1].isnan().all()
    cost = torch.rand(4, 3, device=device)
    cost[1] = torch.inf
    assert sinkhorn(cost_matrix=cost, epsilon=0.5).value == torch.inf
    a = torch.tensor([0.5, 0.0, 0.25, 0.25], device=device)
    assert sinkhorn(cost_matrix=cost, a=a, epsilon=0.5).value.isfinite()


def test_empty_batches_and_single_points(device: torch.device) -> None:
    empty = torch.zeros(0, 3, 2, device=device)
    got = sinkhorn(empty, empty, epsilon=1.0)
    assert got.value.shape == (0,) and got.f.shape == (0, 3)
    x, y = torch.zeros(1, 2, device=device), torch.ones(1, 2, device=device)
    assert float(sinkhorn(x, y, epsilon=1.0).value) == pytest.approx(2.0)


def test_repeated_runs_and_thread_counts_give_the_same_bits(device: torch.device) -> None:
    x, y = randn(700, 5, seed=1, device=device), randn(600, 5, seed=2, device=device)
    x.requires_grad_()
    results = []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        value = sinkhorn(x, y, epsilon=1.0).value
        results.append((value.detach(), torch.autograd.grad(value, x)[0]))
    for value, gradient in results[1:]:
        assert torch.equal(value, results[0][0]) and torch.equal(gradient, results[0][1])
