"""Transport of low rank: plans against their dense form, objectives against POT's, gradients, batches, starts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from tests.python.helpers import randn
from tests.python.transport.pot_low_rank import GROMOV, LINEAR, RECORDED, distortion, linear, problem
from warpalign._transport.low_rank import descent
from warpalign.transport import (
    ConvergenceWarning,
    LowRankPlan,
    TransportPlan,
    gromov_wasserstein_low_rank,
    sinkhorn,
    sinkhorn_low_rank,
)

POT = json.loads(RECORDED.read_text())
Solve = Callable[..., Any]
SOON = 1e-2  # a tolerance that ends descents early where they need not converge
BOTH = pytest.mark.parametrize("solve", [sinkhorn_low_rank, gromov_wasserstein_low_rank])


def points(
    device: torch.device, dtype: torch.dtype = torch.float64, batch: int | None = None
) -> list[Tensor]:
    """(9, 2) and (7, 2)"""
    lead = () if batch is None else (batch,)
    return [randn(*lead, n, 2, seed=n, device=device, dtype=dtype) for n in (9, 7)]


def plan_of(device: torch.device, *, transposed: bool = False, batch: int | None = None) -> LowRankPlan:
    x, y = points(device, batch=batch)
    plan = (
        sinkhorn_low_rank(y, x, rank=3, generator=0, tol=SOON).plan.T
        if transposed
        else sinkhorn_low_rank(x, y, rank=3, generator=0, tol=SOON).plan
    )
    assert plan.shape[-2:] == (9, 7)
    return plan


@pytest.mark.parametrize("name", LINEAR)
def test_the_objective_is_no_worse_than_pot_s(name: str) -> None:
    of = problem(*LINEAR[name])
    x, y, a, b = (torch.from_numpy(t) for t in of[:4])
    for dtype, rounding in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = sinkhorn_low_rank(
            x.to(dtype), y.to(dtype), rank=of.rank, a=a.to(dtype), b=b.to(dtype), restarts=3, generator=0
        )
        assert found.value.dtype == found.plan.q.dtype == dtype
        plan = found.plan.to_dense().double().numpy()
        assert linear(plan, of) <= 1.01 * POT["linear"][name]
        assert float(found.linear) == pytest.approx(linear(plan, of), rel=10 * rounding)
        assert np.abs(plan.sum(1) - of.a).sum() < rounding and np.abs(plan.sum(0) - of.b).sum() < rounding
        assert bool(found.converged) and float(found.error) < rounding and plan.min() >= 0


@pytest.mark.parametrize("name", GROMOV)
def test_the_distortion_is_no_worse_than_pot_s(name: str) -> None:
    of = problem(*GROMOV[name])
    x, y, a, b = (torch.from_numpy(t) for t in of[:4])
    for dtype, rounding in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = gromov_wasserstein_low_rank(
            x.to(dtype),
            y.to(dtype),
            rank=of.rank,
            a=a.to(dtype),
            b=b.to(dtype),
            restarts=3,
            generator=0,
            tol=1e-3,
        )
        plan = found.plan.to_dense().double().numpy()
        assert distortion(plan, of) <= 1.01 * POT["gromov"][name]
        assert float(found.distortion) == pytest.approx(distortion(plan, of), rel=100 * rounding)
        assert np.abs(plan.sum(1) - of.a).sum() < rounding and np.abs(plan.sum(0) - of.b).sum() < rounding
        assert bool(found.converged) and float(found.distortion_std) == 0


def test_a_full_rank_comes_near_the_exact_cost() -> None:
    """Beside which every plan of low rank costs more."""
    x, y = points(torch.device("cpu"))
    exact = float(sinkhorn(x, y, epsilon=0.01, annealing=1.0, max_iter=20000, tol=1e-4).linear)
    values = [float(sinkhorn_low_rank(x, y, rank=rank, generator=0).linear) for rank in (1, 3, 7)]
    assert values[0] > values[1] > values[2] > 0.999 * exact
    assert values[2] < 1.1 * exact


@pytest.mark.parametrize("transposed", [False, True])
def test_a_plan_is_the_matrix_it_stands_for(transposed: bool, device: torch.device) -> None:
    plan = plan_of(device, transposed=transposed)
    dense = plan.to_dense()
    assert isinstance(plan, TransportPlan) and plan.rank == 3 and plan.epsilon == 0
    torch.testing.assert_close(plan.q / plan.weights @ plan.r.mT, dense)
    torch.testing.assert_close(plan.T.to_dense(), dense.T)
    v, u = (randn(n, 2, seed=n, device=device, dtype=torch.float64) for n in (7, 9))
    torch.testing.assert_close(plan @ v, dense @ v)
    torch.testing.assert_close(plan.apply(u, transpose=True), dense.T @ u)
    torch.testing.assert_close(u.T @ plan, u.T @ dense)
    torch.testing.assert_close(plan.marginal(1), dense.sum(1))
    torch.testing.assert_close(plan.mass(), dense.sum())
    torch.testing.assert_close(plan.barycentric_map(v), dense @ v / dense.sum(1, keepdim=True))
    torch.testing.assert_close(plan.rows([4, 0]), dense[[4, 0]])
    torch.testing.assert_close(plan.columns([1]), dense[:, [1]])
    torch.testing.assert_close(plan[2:5, 3], dense[2:5, 3])
    torch.testing.assert_close(torch.from_numpy(np.asarray(plan)), dense.cpu())
    for k in (1, 3):
        top = plan.topk(k)
        torch.testing.assert_close(top.values, dense.topk(k).values)
        torch.testing.assert_close(dense.gather(1, top.indices), top.values)
    torch.testing.assert_close(dense.gather(0, plan.argmax(0)[None])[0], dense.amax(0))
    torch.testing.assert_close(plan.to_sparse(k=7).to_dense(), dense)
    torch.testing.assert_close(plan.to_sparse(threshold=0.02).to_dense(), dense.where(dense > 0.02, 0.0))


def test_equal_entries_are_found_by_their_index() -> None:
    """Points of one cluster have equal rows."""
    x = torch.zeros(6, 1, dtype=torch.float64)
    plan = sinkhorn_low_rank(x, x[:5], rank=1).plan
    assert plan.argmax().tolist() == [0] * 6
    assert plan.topk(3).indices.tolist() == [[0, 1, 2]] * 6


def test_samples_have_the_plan_s_shares(device: torch.device) -> None:
    plan = plan_of(device, transposed=True)
    pairs = plan.sample(40000, generator=3)
    assert torch.equal(pairs, plan.sample(40000, generator=3))
    found = torch.zeros(9, 7, dtype=torch.float64, device=device)
    found.index_put_((pairs[:, 0], pairs[:, 1]), found.new_ones(()), accumulate=True)
    dense = plan.to_dense()
    # Five standard deviations of a count.
    assert bool(((found / 40000 - dense).abs() < 5 * (dense / 40000).sqrt() + 1e-12).all())
    assert float(dense.min()) > 0 or bool((found[dense == 0] == 0).all())


def test_potentials_do_not_exist() -> None:
    plan = plan_of(torch.device("cpu"))
    assert not hasattr(plan, "f")
    with pytest.raises(AttributeError, match="g: a plan of low rank has no potentials, but factors"):
        _ = plan.g
    assert repr(plan) == "LowRankPlan(shape=(9, 7), rank=3)"


@BOTH
def test_a_batch_gives_what_its_problems_give_alone(solve: Solve, device: torch.device) -> None:
    x, y = points(device, batch=2)
    init = (
        randn(2, 9, 3, seed=1, device=device, dtype=torch.float64).exp(),
        randn(2, 7, 3, seed=2, device=device, dtype=torch.float64).exp(),
        torch.full((2, 3), 1 / 3, device=device, dtype=torch.float64),
    )
    batch = solve(x, y, rank=3, init=init, tol=SOON)
    assert batch.plan.shape == (2, 9, 7) and batch.value.shape == batch.converged.shape == (2,)
    for k in range(2):
        one = solve(x[k], y[k], rank=3, init=tuple(t[k] for t in init), tol=SOON)
        assert int(one.iterations) == int(batch.iterations[k])
        torch.testing.assert_close(one.value, batch.value[k])
        torch.testing.assert_close(one.plan.to_dense(), batch.plan[k].to_dense())
    assert len(list(batch.plan)) == 2


@pytest.mark.gpu
@BOTH
def test_both_devices_agree(solve: Solve, cuda: torch.device) -> None:
    x, y = points(torch.device("cpu"))
    init = plan_of(torch.device("cpu"))
    options: dict[str, Any] = {"rank": 3, "tol": 0.0, "max_iter": 30}
    expected = solve(x, y, init=init, **options)
    factors = tuple(t.to(cuda) for t in (init.q, init.r, init.weights))
    found = solve(x.to(cuda), y.to(cuda), init=factors, **options)
    torch.testing.assert_close(found.value.cpu(), expected.value, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.plan.to_dense().cpu(), expected.plan.to_dense(), rtol=1e-6, atol=1e-9)
    drawn = solve(x.to(cuda), y.to(cuda), rank=3, generator=0, max_iter=100)
    assert float(drawn.value) < 1.2 * float(expected.value) and float(drawn.error) < 1e-12


def test_long_descents_keep_their_digits() -> None:
    """Factors come near 0 and 1. Their logits, and the dual variables of the projection, stay in the range of float32."""
    x, y = randn(200, 8, seed=1), 0.7 * randn(150, 8, seed=2)
    options: dict[str, Any] = {"rank": 20, "generator": 0, "tol": 0.0, "max_iter": 600}
    found = sinkhorn_low_rank(x, y, **options)
    expected = sinkhorn_low_rank(x.double(), y.double(), **options)
    assert float(found.value) == pytest.approx(float(expected.value), rel=5e-3)
    assert float(found.error) < 1e-5 and bool(found.plan.q.isfinite().all())


@BOTH
def test_points_without_weight_get_nothing(solve: Solve, device: torch.device) -> None:
    x, y = points(device)
    a = torch.tensor([0.0, 1, 2, 0, 1, 1, 1, 1, 1], device=device, dtype=torch.float64)
    a = a / a.sum()
    far = x.clone()
    far[0] = 1e3  # which changes nothing
    plan = solve(far, y, rank=3, a=a, generator=0, tol=SOON).plan.to_dense()
    assert bool((plan[[0, 3]] == 0).all()) and bool(plan.isfinite().all())
    torch.testing.assert_close(plan.sum(1), a)
    torch.testing.assert_close(plan.sum(0), torch.full_like(plan[0], 1 / 7))


@BOTH
def test_weights_of_another_mass_scale_the_plan(solve: Solve) -> None:
    x, y = points(torch.device("cpu"))
    a, b = torch.full((9,), 3 / 9).double(), torch.full((7,), 3 / 7).double()
    one, three = solve(x, y, rank=2, generator=0), solve(x, y, rank=2, a=a, b=b, generator=0)
    torch.testing.assert_close(three.plan.to_dense(), 3 * one.plan.to_dense())
    torch.testing.assert_close(three.plan.weights, 3 * one.plan.weights)


def test_factored_costs_are_those_of_the_points(device: torch.device) -> None:
    x, y = points(device)
    squares = [t.square().sum(1, keepdim=True) for t in (x, y)]
    left = torch.cat([squares[0], torch.ones_like(squares[0]), -2 * x], 1)
    right = torch.cat([torch.ones_like(squares[1]), squares[1], y], 1)
    init = plan_of(device)
    given = sinkhorn_low_rank(cost_factors=(left, right), rank=3, init=init, tol=SOON)
    same = sinkhorn_low_rank(x, y, rank=3, init=init, tol=SOON)
    torch.testing.assert_close(given.plan.to_dense(), same.plan.to_dense(), rtol=1e-5, atol=1e-7)
    clustered = sinkhorn_low_rank(cost_factors=(left, right), rank=3, generator=0)
    assert float(clustered.linear) < 1.2 * float(same.linear)


def test_factored_distances_are_those_of_the_points(device: torch.device) -> None:
    x, y = points(device)

    def factors(z: Tensor) -> tuple[Tensor, Tensor]:
        squares, ones = z.square().sum(1, keepdim=True), z.new_ones(len(z), 1)
        return torch.cat([squares, ones, -2 * z], 1), torch.cat([ones, squares, z], 1)

    init = plan_of(device)
    given = gromov_wasserstein_low_rank(
        distance_factors=(factors(x), factors(y)), rank=3, init=init, tol=SOON
    )
    same = gromov_wasserstein_low_rank(x, y, rank=3, init=init, tol=SOON)
    torch.testing.assert_close(given.value, same.value)
    clustered = gromov_wasserstein_low_rank(distance_factors=(factors(x), factors(y)), rank=3, generator=0)
    assert float(clustered.value) < 1.5 * float(same.value)


@BOTH
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_the_value_s_gradient_is_that_of_the_whole_map(solve: Solve, epsilon: float) -> None:
    """Differences of values, each solved again from the same plan, in the direction of the gradient."""
    x, y = (t.requires_grad_() for t in points(torch.device("cpu")))
    options: dict[str, Any] = {"rank": 3, "epsilon": epsilon, "tol": 1e-9, "max_iter": 4000}
    start = solve(x.detach(), y.detach(), generator=0, **options).plan
    result = solve(x, y, init=start, **options)
    gradients = torch.autograd.grad(result.value, (x, y), retain_graph=True)
    h = 1e-4
    size = sum(float(g.square().sum()) for g in gradients)
    ends = [
        float(
            solve(
                *(t.detach() + sign * h * g for t, g in zip((x, y), gradients, strict=True)),
                init=start,
                **options,
            ).value
        )
        for sign in (1, -1)
    ]
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(size, rel=1e-3)
    if epsilon > 0:
        other = result.linear if solve is sinkhorn_low_rank else result.distortion
        with pytest.raises(NotImplementedError, match="with epsilon > 0 are not available"):
            other.backward()


@BOTH
def test_other_derivatives_are_refused(solve: Solve) -> None:
    x, y = (t.requires_grad_() for t in points(torch.device("cpu")))
    result = solve(x, y, rank=2, generator=0)
    (gradient,) = torch.autograd.grad(result.value, x, create_graph=True)
    with pytest.raises(
        NotImplementedError, match="second derivatives of .*low_rank's value are not available"
    ):
        gradient.sum().backward()
    with pytest.raises(NotImplementedError, match="derivatives of .*low_rank's plan are not available"):
        result.plan.apply(y).sum().backward()
    v = torch.ones(7, 1, dtype=torch.float64, requires_grad=True)
    constant = solve(x.detach(), y.detach(), rank=2, generator=0).plan
    torch.testing.assert_close(torch.autograd.grad(constant.apply(v).sum(), v)[0][:, 0], constant.marginal(0))


@BOTH
def test_transforms_are_refused(solve: Solve) -> None:
    x, y = points(torch.device("cpu"), batch=2)
    with pytest.raises(NotImplementedError, match="low_rank is not available under torch.func.vmap"):
        torch.func.vmap(lambda one: solve(one, y[0], rank=2, generator=0).value)(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x[0], torch.ones_like(x[0]))
        with pytest.raises(
            NotImplementedError, match="forward-mode derivatives of .*low_rank are not available"
        ):
            solve(dual, y[0], rank=2, generator=0)


@BOTH
def test_half_types_and_autocast(solve: Solve) -> None:
    x, y = points(torch.device("cpu"), torch.bfloat16)
    expected = solve(x.float(), y.float(), rank=2, generator=0)
    found = solve(x, y, rank=2, generator=0)
    assert found.value.dtype == torch.float32 and torch.equal(found.value, expected.value)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(solve(x, y, rank=2, generator=0).value, expected.value)


@BOTH
def test_convergence_is_told(solve: Solve) -> None:
    x, y = points(torch.device("cpu"))
    with pytest.warns(ConvergenceWarning, match="after max_iter = 3 steps: write a larger max_iter or tol"):
        assert not bool(solve(x, y, rank=3, max_iter=3, generator=0).converged)
    x[0, 0] = torch.nan
    with pytest.warns(ConvergenceWarning, match="expected a finite plan, got NaN"):
        found = solve(x, y, rank=3, generator=0)
    assert not bool(found.converged) and int(found.iterations) == 10


@pytest.mark.parametrize(
    ("dtype", "size", "came"), [(torch.float32, 1e15, "inf"), (torch.float64, 1e100, "nan")]
)
def test_a_value_that_is_not_finite_has_not_converged(dtype: torch.dtype, size: float, came: str) -> None:
    """The plan is finite, and stands; fourth powers of distances are beyond the range."""
    x, y = points(torch.device("cpu"), dtype)
    for tol in (1e-4, 0.0):
        with pytest.warns(
            ConvergenceWarning, match=f"expected a finite value, got {came}: the objective .*divided by"
        ):
            found = gromov_wasserstein_low_rank(x * size, y, rank=3, generator=0, tol=tol, max_iter=100)
        assert not bool(found.value.isfinite()) and float(found.error) < 1e-5 and not bool(found.converged)


@BOTH
def test_steps_of_the_wrong_size_do_not_converge(solve: Solve) -> None:
    """A tiny step moves little wherever the plan is; a huge one throws it to the product of the weights, where it stands."""
    x, y = randn(60, 2, seed=0), randn(50, 2, seed=1)
    best = solve(x, y, rank=3, generator=0)
    assert bool(best.converged)
    with pytest.warns(
        ConvergenceWarning, match="tol = 0.0001 times step = 0.001 of the mass .*: write a larger step"
    ):
        tiny = solve(x, y, rank=3, generator=0, step=1e-3, max_iter=50)
    with pytest.warns(
        ConvergenceWarning, match="a larger one with step = 1000: write a smaller step, such as 10"
    ):
        huge = solve(x, y, rank=3, generator=0, step=1e3)
    for found in (tiny, huge):
        assert not bool(found.converged) and float(found.value) > 1.1 * float(best.value)


@BOTH
def test_a_large_step_from_the_best_plan_has_not_risen(solve: Solve) -> None:
    """Each set with itself, a component per point: the objective is 0 up to rounding from the start on."""
    x = randn(6, 2, seed=0)
    eye = torch.eye(6) / 6
    found = solve(x, x, rank=6, init=(eye, eye, torch.full((6,), 1 / 6)), step=20.0)
    assert bool(found.converged) and abs(float(found.value)) < 1e-5


@BOTH
def test_starts_and_seeds(solve: Solve) -> None:
    x, y = points(torch.device("cpu"))
    one, same, other = (solve(x, y, rank=3, init="random", generator=seed) for seed in (0, 0, 1))
    assert torch.equal(one.plan.q, same.plan.q) and not torch.equal(one.plan.q, other.plan.q)
    best = solve(x, y, rank=3, init="random", restarts=3, generator=0)
    assert float(best.value) <= float(one.value)
    again = solve(x, y, rank=3, init=one.plan)
    assert float(again.value) <= float(one.value) * (1 + 1e-3)
    assert int(again.iterations) <= int(one.iterations)


@pytest.mark.gpu
@BOTH
def test_a_solve_in_a_cuda_graph(solve: Solve, cuda: torch.device) -> None:
    """With tol=0 and a given start nothing waits for the device."""
    x, y = points(cuda, torch.float32)
    init = solve(x, y, rank=3, generator=0, max_iter=20).plan
    options: dict[str, Any] = {"rank": 3, "init": init, "tol": 0.0, "max_iter": 20}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = solve(x, y, **options).plan.to_dense()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = solve(x, y, **options).plan.to_dense()
    graph.replay()
    torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@BOTH
@pytest.mark.parametrize("batch", [(), (2,)])
def test_replayed_steps_are_the_same(
    solve: Solve, batch: tuple[int, ...], cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step in a CUDA graph gives the same bits, also where steps are no multiple of ten, or end at a tolerance."""
    x, y = (randn(*batch, n, 3, seed=n, device=cuda) for n in (90, 70))
    settings: list[dict[str, Any]] = [{"tol": 0.0, "max_iter": 73}, {"tol": 3e-3, "max_iter": 200}]
    for options in settings:
        found = []
        for captures in (True, False):
            monkeypatch.setattr(descent, "can_capture", lambda _, captures=captures: captures)
            found.append(solve(x, y, rank=3, generator=0, **options))
        one, other = found
        assert torch.equal(one.plan.q, other.plan.q) and torch.equal(one.iterations, other.iterations)
        assert torch.equal(one.value, other.value)


@pytest.mark.gpu
def test_memory_is_linear(cuda: torch.device) -> None:
    x, y = (randn(100_000, 32, seed=n, device=cuda) for n in (1, 2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = sinkhorn_low_rank(x, y, rank=50, max_iter=400, tol=0.0, generator=0)
    assert torch.cuda.max_memory_allocated() - before < 1 << 30
    assert float(found.error) < 1e-5 and bool(found.value.isfinite())
