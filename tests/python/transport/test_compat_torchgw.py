"""compat.torchgw: what users of sampled_gw rely on, and what it does otherwise than the original."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.test_gromov import geodesics
from warpalign._transport.gromov_geometry import of_sides
from warpalign._transport.gromov_gradients import of_table
from warpalign._transport.gromov_sides import point_sets
from warpalign._transport.gromov_solver import Objective
from warpalign.compat import _torchgw_solve, torchgw
from warpalign.transport import (
    ConvergenceWarning,
    connected_components,
    gromov_wasserstein_sampled,
    sinkhorn,
)

sampled_gw = partial(torchgw.sampled_gw, generator=0)
SPIRAL, ROLL = spiral(400, 0), swiss_roll(500, 1)


def correlation(matched: Tensor) -> float:
    """The correlation between points' places and those that they are matched with."""
    return float(torch.corrcoef(torch.stack([matched.double(), torch.arange(len(matched)).double()]))[0, 1])


def distortion(plan: Tensor) -> float:
    """The exact distortion of a plan between the spiral and the roll."""
    cx, cy = geodesics(SPIRAL)[None], geodesics(ROLL)[None]
    return float(Objective(cx, cy, True, None, 0.0).distortion(plan[None]))


def test_identity() -> None:
    x = np.random.default_rng(42).normal(size=(50, 5))
    plan = sampled_gw(x, x, k=10, M=50, alpha=0.5, epsilon=0.005, max_iter=200)
    assert plan.dtype == torch.float64 and plan.shape == (50, 50)
    assert abs(correlation(plan.argmax(1))) > 0.5
    assert float(plan.sum()) <= 1 + 1e-6


@pytest.mark.parametrize("mode", ["dijkstra", "precomputed", "landmark"])
def test_spiral_and_roll(mode: str) -> None:
    """All of the spiral's points are among the shared ones. The correlation has its sign: no mirror image.

    Angles grow with places, so that the correlation of places is that of angles.
    """
    options: dict[str, Any] = {"X_source": SPIRAL, "X_target": ROLL, "k": 5, "n_landmarks": 20}
    if mode == "precomputed":
        options = {"dist_source": geodesics(SPIRAL), "dist_target": geodesics(ROLL)}
    plan, record = sampled_gw(
        **options, distance_mode=mode, s_shared=400, M=80, alpha=0.8, epsilon=0.005, max_iter=200,
        min_iter_before_converge=30, mixed_precision=True, log=True,
    )  # fmt: skip
    assert set(record) == {"err_list", "n_iter", "gw_cost"}
    assert 30 <= record["n_iter"] < 200 and len(record["err_list"]) == record["n_iter"]
    assert correlation(plan.argmax(1)) >= 0.90
    assert float(plan.sum()) == pytest.approx(0.8, rel=1e-4)


def test_cost_is_unbiased_and_steps_end_after_the_annealing() -> None:
    plan, record = sampled_gw(
        SPIRAL, ROLL, k=5, M=80, epsilon=5e-4, min_iter_before_converge=1, mixed_precision=True, log=True
    )
    # From ten times epsilon in steps of 0.9.
    assert 22 < record["n_iter"] < 500
    exact = distortion(plan)
    assert exact <= 2.0e-3 and correlation(plan.argmax(1)) >= 0.99
    assert record["gw_cost"] == pytest.approx(exact, rel=0.25)  # its standard deviation is 4 %


def small(seed: int = 0, n: int = 30, m: int = 40) -> dict[str, Tensor]:
    return {"X_source": spiral(n, seed), "X_target": swiss_roll(m, seed + 1)}


def test_seeds_and_whole_steps() -> None:
    first, again, other = (sampled_gw(**small(), k=5, max_iter=30, generator=s) for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    whole = sampled_gw(**small(), k=5, alpha=1.0, max_iter=30)
    assert float((whole.sum(1) * 30 - 1).abs().max()) < 1e-3


def test_precisions_agree() -> None:
    plans = [sampled_gw(**small(), k=5, epsilon=0.05, mixed_precision=mixed) for mixed in (False, True)]
    assert float((plans[0].argmax(1) == plans[1].argmax(1)).double().mean()) > 0.9


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("mode", ["dijkstra", "precomputed", "landmark"])
def test_float64_on_a_gpu_is_solved_in_float32(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """float64 would leave the kernels of points rounded to binary16. The plan is as good, and float64 on the GPU."""
    given: list[torch.dtype] = []

    def noting(*args: Any, **options: Any) -> Any:
        sides = options["distances"] if "distances" in options else (options["x"], options["y"])
        given.extend(side.dtype for side in sides)
        return gromov_wasserstein_sampled(*args, **options)

    monkeypatch.setattr(_torchgw_solve, "gromov_wasserstein_sampled", noting)
    options: dict[str, Any] = {"X_source": SPIRAL, "X_target": ROLL, "k": 5, "n_landmarks": 20}
    if mode == "precomputed":
        options = {"dist_source": geodesics(SPIRAL), "dist_target": geodesics(ROLL)}
    options = {k: v.double().cuda() if isinstance(v, Tensor) else v for k, v in options.items()}
    plan = sampled_gw(**options, distance_mode=mode, M=80, epsilon=5e-4, min_iter_before_converge=1)
    assert given == [torch.float32] * 2
    assert plan.dtype == torch.float64 and plan.is_cuda
    assert correlation(plan.argmax(1).cpu()) >= 0.99
    assert float((plan.sum(0) - 1 / len(ROLL)).abs().max()) < 1e-5


def drift(plan: Tensor) -> float:
    return max(float((plan.sum(1) - 1 / 30).abs().max()), float((plan.sum(0) - 1 / 40).abs().max()))


def test_relaxed_sums() -> None:
    """Relaxed sums drift, and less the stronger KL is; semi_relaxed leaves the source's sums exact."""
    options: dict[str, Any] = {"k": 5, "epsilon": 0.05, "max_iter": 60}
    balanced = sampled_gw(**small(), **options)
    relaxed = sampled_gw(**small(), rho=0.1, **options)
    strong = sampled_gw(**small(), rho=1e5, **options)
    assert drift(balanced) < 1e-4 and drift(relaxed) > 5e-3 and drift(strong) < 1e-4
    torch.testing.assert_close(strong, balanced, rtol=1e-2, atol=1e-5)
    half = sampled_gw(**small(), semi_relaxed=True, rho_b=0.01, **options)
    assert float((half.sum(1) - 1 / 30).abs().max()) < 1e-5
    assert float((half.sum(0) - 1 / 40).abs().max()) > 1e-3


def test_shared_points_leave_out_those_that_match_nothing() -> None:
    """A tail that the target lacks gets less than its share. Without s_shared every point is matched."""
    x = torch.linspace(0, 1, 40).double()
    line = torch.stack([x, torch.zeros(40)], 1).double()
    tail = torch.stack([torch.full((10,), 0.5), torch.linspace(0.4, 0.7, 10)], 1).double()
    source = torch.cat([line, tail])
    distances = {"dist_source": torch.cdist(source, source), "dist_target": torch.cdist(line, line)}
    options: dict[str, Any] = {"distance_mode": "precomputed", "epsilon": 0.002, "max_iter": 100, "M": 50}
    plan = sampled_gw(**distances, s_shared=40, **options)
    assert float(plan.sum()) == pytest.approx(0.8, rel=1e-4)
    assert float(plan[40:].sum()) < 0.05
    assert float(sampled_gw(**distances, **options)[40:].sum()) == pytest.approx(0.2, rel=1e-3)


def test_slack_changes_nothing_where_masses_are_equal() -> None:
    """A dear row and column of slack, with a free corner, leave the balanced plan as it is: s_shared has no padding."""
    costs = torch.rand(6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padded = torch.nn.functional.pad(costs, (0, 1, 0, 1), value=100.0)
    padded[-1, -1] = 0
    a, b = torch.full((7,), 1 / 6).double(), torch.full((8,), 1 / 7).double()
    a[-1] = b[-1] = 0.4
    options: dict[str, Any] = {"epsilon": 0.05, "tol": 1e-10, "max_iter": 5000}
    balanced = sinkhorn(cost_matrix=costs, **options).plan.to_dense()
    slack = sinkhorn(cost_matrix=padded, a=a, b=b, **options).plan.to_dense()
    torch.testing.assert_close(slack[:-1, :-1], balanced, rtol=1e-6, atol=1e-12)


def test_a_start_is_used() -> None:
    x = spiral(60, 0)
    mirrored = torch.eye(60).flip(0) / 60
    options: dict[str, Any] = {"k": 4, "max_iter": 1, "min_iter_before_converge": 1, "alpha": 1.0}
    plan = sampled_gw(x, x, T_init=mirrored, **options)
    assert correlation(plan.argmax(1)) < -0.6


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_costs_count(share: float) -> None:
    """(1 − f) Λ + f C at epsilon: with f = 1 it is Sinkhorn's plan."""
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    costs = 1 - torch.eye(30)[order].double()
    angles = torch.arange(30) * (2 * torch.pi / 30)
    circle = torch.stack([angles.cos(), angles.sin()], 1)  # any rotation matches
    turned = circle[order.argsort()]
    plan = sampled_gw(circle, turned, C_linear=costs, fgw_alpha=share, k=4, epsilon=0.01)
    assert torch.equal(plan.argmax(1), order)
    if share == 1:
        expected = sinkhorn(cost_matrix=costs, epsilon=0.01).plan.to_dense()
        torch.testing.assert_close(plan, expected, rtol=1e-5, atol=1e-12)


def unrolled_plan(costs: Tensor, epsilon: float) -> Tensor:
    """Of uniform weights, by 300 iterations that autograd differentiates."""
    (n, m), g = costs.shape, torch.zeros(costs.shape[1], dtype=costs.dtype)
    for _ in range(300):
        f = -epsilon * ((g - costs) / epsilon).logsumexp(1)
        g = -epsilon * ((f[:, None] - costs) / epsilon).logsumexp(0) + epsilon * math.log(n / m)
    f = -epsilon * ((g - costs) / epsilon).logsumexp(1)
    return ((f[:, None] + g - costs) / epsilon).exp() / n


def test_gradient_of_the_plan_is_that_of_the_whole_map() -> None:
    generator = torch.Generator().manual_seed(0)
    costs = torch.rand(6, 7, generator=generator).double().requires_grad_()
    along = torch.rand(6, 7, generator=generator).double()
    weight = torch.rand(6, 7, generator=generator).double()
    x = {"X_source": torch.rand(6, 2), "X_target": torch.rand(7, 2)}

    def loss(costs: Tensor) -> Tensor:
        options: dict[str, Any] = {"fgw_alpha": 1.0, "epsilon": 0.1, "max_iter": 300, "tol": 1e-8}
        return (sampled_gw(**x, C_linear=costs, differentiable=True, **options) * weight).sum()

    (gradient,) = torch.autograd.grad(loss(costs), costs)
    step = 1e-5
    numeric = float(loss(costs.detach() + step * along) - loss(costs.detach() - step * along)) / (2 * step)
    assert float((gradient * along).sum()) == pytest.approx(numeric, rel=1e-3)
    (unrolled,) = torch.autograd.grad((unrolled_plan(costs, 0.1) * weight).sum(), costs)
    torch.testing.assert_close(gradient, unrolled, rtol=1e-4, atol=1e-4 * float(unrolled.abs().max()))


@pytest.fixture
def one_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls have the plan of the first one to draw anchors from, which are then constants."""
    found: list[Any] = []

    def solve(*args: Any, **options: Any) -> Any:
        if not found:
            found.append(gromov_wasserstein_sampled(*args, **options))
        return found[0]

    monkeypatch.setattr(_torchgw_solve, "gromov_wasserstein_sampled", solve)


RELAXED: dict[str, dict[str, Any]] = {
    "balanced": {},
    "shared": {"s_shared": 15},
    "semi-relaxed": {"semi_relaxed": True, "rho_b": 0.1},
    "relaxed": {"rho": 0.1},
}


@pytest.mark.usefixtures("one_solve")
@pytest.mark.parametrize("sums", RELAXED)
@pytest.mark.parametrize("mode", ["dijkstra", "landmark", "precomputed"])
def test_gradients_with_respect_to_points_and_distances(mode: str, sums: str) -> None:
    """Those of differences of the plan, in float64: the linearisation's cost is smooth in points but for ties of paths."""
    x, y = spiral(20, 0).double(), swiss_roll(25, 1).double()
    generator = torch.Generator().manual_seed(3)
    weight, *along = (torch.rand(s, generator=generator).double() - 0.5 for s in ((20, 25), x.shape, y.shape))
    options: dict[str, Any] = {"k": 3, "n_landmarks": 6, "epsilon": 0.05, "max_iter": 40, **RELAXED[sums]}
    if sums == "balanced":
        options |= {"C_linear": torch.rand(20, 25, generator=generator).double(), "fgw_alpha": 0.3}

    def loss(x: Tensor, y: Tensor) -> Tensor:
        given: dict[str, Any] = {"X_source": x, "X_target": y}
        if mode == "precomputed":
            given = {"dist_source": torch.cdist(x, x), "dist_target": torch.cdist(y, y)}
        plan = sampled_gw(**given, distance_mode=mode, differentiable=True, **options)
        return (plan * weight).sum()

    sides = [t.requires_grad_() for t in (x, y)]
    gradients = torch.autograd.grad(loss(*sides), sides)
    exact = sum(float((g * d).sum()) for g, d in zip(gradients, along, strict=True))
    step = 1e-6
    ahead, behind = (
        float(loss(*(t + h * d for t, d in zip(sides, along, strict=True))).detach()) for h in (step, -step)
    )
    assert exact == pytest.approx((ahead - behind) / (2 * step), rel=1e-3)
    assert all(float(g.norm()) > 0 for g in gradients)


def test_gradients_are_made_on_demand() -> None:
    """Without differentiable there are none; with it and without an input that requires one, the plan is the same."""
    points = small()
    options: dict[str, Any] = {"k": 5, "max_iter": 5}
    plain = sampled_gw(**points, **options)
    assert torch.equal(sampled_gw(**points, differentiable=True, **options), plain)
    points["X_source"].requires_grad_()
    assert not sampled_gw(**points, **options).requires_grad
    assert sampled_gw(**points, differentiable=True, **options).requires_grad


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("mode", ["dijkstra", "landmark", "precomputed"])
def test_gradients_on_a_gpu(mode: str) -> None:
    """Plan and gradients are on the GPU, and as near to a CPU's as those of another seed are."""
    found: list[list[Tensor]] = []
    for device in ("cuda", "cpu"):
        x, y = (t.to(device).requires_grad_() for t in (spiral(60, 0), swiss_roll(70, 1)))
        given: dict[str, Any] = {"X_source": x, "X_target": y}
        if mode == "precomputed":
            given = {"dist_source": torch.cdist(x, x), "dist_target": torch.cdist(y, y)}
        options: dict[str, Any] = {"k": 4, "n_landmarks": 10, "epsilon": 0.05, "M": 4000}
        plan = sampled_gw(**given, distance_mode=mode, differentiable=True, **options)
        weight = torch.rand(60, 70, generator=torch.Generator().manual_seed(0)).to(device)
        gradients = torch.autograd.grad((plan * weight).sum(), (x, y))
        assert plan.device.type == device and all(g.device.type == device for g in gradients)
        found.append([plan.detach().cpu(), *(g.cpu() for g in gradients)])
    for on_gpu, on_cpu in zip(*found, strict=True):
        # Plans that differ by rounding give other anchors. Another seed moves gradients by 7 to 14 % on a CPU.
        assert float((on_gpu - on_cpu).norm()) <= 0.3 * float(on_cpu.norm())


@pytest.mark.parametrize("mode", ["dijkstra", "precomputed", "landmark"])
def test_plans_of_low_rank(mode: str, device: torch.device) -> None:
    """Their distortion is no larger than that of the plan whose pairs they have, and their marginals are exact."""
    options: dict[str, Any] = {"X_source": SPIRAL, "X_target": ROLL, "k": 5, "n_landmarks": 20}
    if mode == "precomputed":
        options = {"dist_source": geodesics(SPIRAL), "dist_target": geodesics(ROLL)}
    options |= {"M": 80, "epsilon": 0.005, "max_iter": 60, "distance_mode": mode, "device": device}
    plan, record = torchgw.sampled_lowrank_gw(**options, rank=25, log=True, generator=0)
    assert plan.shape == (400, 500) and plan.rank == 25 and plan.q.device.type == device.type
    assert (
        set(record) == {"err_list", "n_iter", "gw_cost", "lr_converged", "lr_n_iter"}
        and record["lr_converged"]
    )
    dense = plan.to_dense().cpu().double()
    torch.testing.assert_close(dense.sum(1), torch.full((400,), 1 / 400).double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(dense.sum(0), torch.full((500,), 1 / 500).double(), rtol=1e-4, atol=0)
    assert correlation(dense.argmax(1)) >= 0.99
    assert distortion(dense) <= distortion(sampled_gw(**options).cpu()) / 2


def test_weights_of_plans_of_low_rank_and_arguments_of_the_other_function() -> None:
    x, y = spiral(30, 0).numpy(), swiss_roll(40, 1).numpy()
    p, q = (torch.rand(n, generator=torch.Generator().manual_seed(n)) + 0.1 for n in (30, 40))
    p, q = p / p.sum(), q / q.sum()
    plan, again = (
        torchgw.sampled_lowrank_gw(
            x, y, p, q, rank=5, k=5, max_iter=20, lr_max_iter=50, lr_dykstra_max_iter=20, mixed_precision=True,
            fgw_alpha=0, rho=None, log=False, differentiable=False, tol=1e-3, grad_mode="implicit", generator=0,
        )
        for _ in range(2)
    )  # fmt: skip
    assert plan.q.dtype == torch.float32
    assert torch.equal(again.q, plan.q) and torch.equal(again.r, plan.r)
    embedded = torchgw.joint_embedding("x", {"x": x, "y": y}, {"y": plan}, dim=3)
    dense = torchgw.joint_embedding("x", {"x": x, "y": y}, {"y": plan.to_dense()}, dim=3)
    torch.testing.assert_close(embedded["y"], dense["y"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(plan.to_dense().sum(1), p, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(plan.to_dense().sum(0), q, rtol=1e-4, atol=1e-7)


def test_starts_of_plans_of_low_rank_and_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    """All starts end; few steps of the problem of low rank are told; fewer points than the default rank are no error."""
    solve = partial(
        torchgw.sampled_lowrank_gw, spiral(30, 0), swiss_roll(25, 1), k=5, max_iter=3, generator=0
    )
    first = solve()
    assert first.rank == 25
    for start in (first, first.to_dense(), None):
        assert sampled_gw(spiral(30, 0), swiss_roll(25, 1), k=5, max_iter=3, T_init=start).shape == (30, 25)
        assert solve(T_init=start, multiscale=start is None, rank=3, verbose=True, verbose_every=1).rank == 3
    assert "linearised cost" in capsys.readouterr().out
    with pytest.warns(ConvergenceWarning, match="lr_max_iter = 2: write a larger lr_max_iter"):
        solve(rank=3, lr_max_iter=2)
    assert not solve(rank=3, lr_max_iter=2, log=True)[1]["lr_converged"]
    for name, value in {
        "s_shared": 4,
        "semi_relaxed": True,
        "rho": 1,
        "rho_a": 2.0,
        "differentiable": True,
    }.items():
        with pytest.raises(NotImplementedError, match=f"{name}: expected .* got {value}: write sampled_gw"):
            solve(**{name: value})
    solve(fgw_alpha=np.float32(0), differentiable=np.bool_(False), rho_b=1)


def test_costs_alone_need_no_points() -> None:
    costs = torch.rand(30, 25, generator=torch.Generator().manual_seed(0))
    points = {"X_source": spiral(30, 0), "X_target": swiss_roll(25, 1)}
    alone = torchgw.sampled_gw(fgw_alpha=1.0, C_linear=costs, epsilon=0.05)
    assert torch.equal(alone, torchgw.sampled_gw(**points, fgw_alpha=1.0, C_linear=costs, epsilon=0.05))
    shared = torchgw.sampled_gw(fgw_alpha=1.0, C_linear=costs, epsilon=0.05, s_shared=15)
    assert float(shared.sum()) == pytest.approx(0.5, rel=1e-4)


def test_given_distances_are_read_as_the_solver_reads_them() -> None:
    """From the anchors, where the two directions differ."""
    table = torch.rand(7, 7, generator=torch.Generator().manual_seed(0))
    places = torch.tensor([5, 0, 5])
    sides = point_sets(of_sides((None, None), (table, table), None, geometry="auto"), None)
    assert torch.equal(of_table(table)(places), sides[0].distances(places))
    assert not torch.equal(table[:, places], sides[0].distances(places))


def test_names_that_are_not_available_have_a_remedy() -> None:
    with pytest.raises(ImportError, match="write sampled_gw"):
        exec("from warpalign.compat.torchgw import PrecomputedProvider")
    with pytest.raises(AttributeError, match="no attribute 'lowrank'"):
        _ = torchgw.lowrank


def test_warm_starts_need_fewer_iterations_at_equal_error() -> None:
    costs = torch.rand(40, 50, generator=torch.Generator().manual_seed(0)).double()
    moved = costs + 1e-3 * torch.rand(40, 50, generator=torch.Generator().manual_seed(1)).double()
    before = sinkhorn(cost_matrix=costs, epsilon=0.01, tol=1e-6)
    cold, warm = (sinkhorn(cost_matrix=moved, epsilon=0.01, tol=1e-6, init=i) for i in (None, before))
    assert int(warm.iterations) < int(cold.iterations)
    assert max(float(cold.error), float(warm.error)) <= 1e-6


def test_progress_and_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    sampled_gw(**small(), k=5, max_iter=12, min_iter_before_converge=12, verbose=True, verbose_every=5)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 5", "step 10"]
    pytest.importorskip("scipy")
    graph = torchgw.build_knn_graph(np.repeat(np.arange(3.0), 20)[:, None], k=5)
    assert graph.shape == (60, 60) and int(connected_components(graph).max()) == 0


def test_joint_embedding_takes_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4))
    both = torchgw.joint_embedding("a", {"a": x, "b": x[::-1].copy()}, {"b": np.eye(30)[::-1].copy()}, dim=2)
    torch.testing.assert_close(both["a"].flip(0), both["b"])
