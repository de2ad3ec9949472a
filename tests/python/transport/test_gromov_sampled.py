"""gromov_wasserstein_sampled: quality, seeds, and what no table of costs changes."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_tensors_equal
from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.gromov import solve_exact, solve_sampled
from tests.python.transport.test_gromov import geodesics
from warpalign._core import checks
from warpalign._transport import anchor_ops, gromov_anchors, gromov_progress, ops
from warpalign._transport.gromov_geometry import largest_differences
from warpalign._transport.gromov_landmarks import paths_to_landmarks
from warpalign._transport.gromov_patience import Patience
from warpalign._transport.gromov_solver import Objective
from warpalign.transport import (
    ConvergenceWarning,
    Geodesic,
    farthest_landmarks,
    knn_graph,
    shortest_paths,
    sinkhorn,
)


@pytest.mark.parametrize("seed", range(3))
def test_spiral_and_swiss_roll(seed: int) -> None:
    """The exact gradient's distortion is 1.6e-3 at this epsilon; a mirrored matching has four times that."""
    x, y = spiral(400, 0), swiss_roll(500, 1)
    graphs = (knn_graph(x, 5), knn_graph(y, 5))
    result = solve_sampled(graphs=graphs, generator=seed)
    assert result.converged and result.iterations <= 45  # 22 of them shrink epsilon
    plan = result.plan.to_dense()
    cx, cy = (geodesics(z).float()[None] for z in (x, y))
    distortion = float(Objective(cx, cy, True, None, 0.0).distortion(plan[None]))
    assert distortion <= 2.0e-3
    # The largest distance from 500 points is that of all points here; the estimate's own deviation is 4 %.
    assert abs(float(result.distortion) - distortion) <= 5 * float(result.distortion_std)
    assert float(result.distortion_std) <= 0.1 * distortion
    places = result.plan.barycentric_map(torch.arange(500.0)[:, None])[:, 0]
    ranks = places.argsort().argsort().float()
    assert float(torch.corrcoef(torch.stack([ranks, torch.arange(400.0)]))[0, 1]) >= 0.998
    assert float((result.plan.marginal(1) * 400 - 1).abs().max()) <= 1e-3
    assert float((result.plan.marginal(0) * 500 - 1).abs().max()) <= 1e-3


def test_the_seed_alone_decides(device: torch.device) -> None:
    x, y = spiral(60, 0).to(device), swiss_roll(70, 1).to(device)
    one, again, other = (
        solve_sampled(x, y, generator=seed, max_iter=30).plan.to_dense() for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


OPTIONS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "one whole step": {"step": 1.0},
    "fused": {"features": (torch.rand(50, 2).double(), torch.rand(60, 2).double()), "feature_weight": 0.3},
    "semi-relaxed": {"rho_b": 0.0},
    "unbalanced": {"rho_a": 0.5, "rho_b": 0.5},
    "partial": {"mass": 0.6},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_stored_table_of_costs_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = spiral(50, 0).double(), swiss_roll(60, 1).double()
    options: dict[str, Any] = {"epsilon": 0.01, "annealing": 0.02, "max_iter": 12, "n_anchors": 20}
    stored = solve_sampled(x, y, **options | OPTIONS[kind])
    monkeypatch.setattr(gromov_anchors, "_STORED_ENTRIES", 0)
    made = solve_sampled(x, y, **options | OPTIONS[kind])
    torch.testing.assert_close(made.plan.to_dense(), stored.plan.to_dense(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(made.history, stored.history, rtol=1e-6, atol=1e-12)
    mass = float(made.plan.mass())
    assert mass == pytest.approx(OPTIONS[kind].get("mass", 1.0), rel=1e-4) or kind == "unbalanced"
    if kind in ("balanced", "semi-relaxed"):
        assert float((made.plan.marginal(1) * 50 - 1).abs().max()) < 1e-6


@pytest.mark.parametrize("kind", OPTIONS)
def test_last_iterations_find_the_plan_of_their_costs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gromov_anchors, "_STORED_ENTRIES", 0)  # the costs are then those of coordinates
    x, y = spiral(50, 0).double(), swiss_roll(60, 1).double()
    options: dict[str, Any] = {"epsilon": 0.02, "annealing": 0.04, "max_iter": 12, "n_anchors": 20}
    plan = solve_sampled(x, y, polish_iters=300, **options | OPTIONS[kind]).plan
    of, scale = plan._of, plan._settings.cost_scale
    assert of.x is not None and of.y is not None
    kept = {name: option for name, option in OPTIONS[kind].items() if name in ("rho_a", "rho_b", "mass")}
    expected = sinkhorn(
        of.x[0], of.y[0], cost_scale=scale, epsilon=0.02, max_iter=20000, tol=1e-9, **kept
    ).plan
    # The last one changes no sum by more than 2e-4 of it.
    assert float((plan.to_dense() - expected.to_dense()).abs().sum()) <= 1e-3 * float(expected.mass())


def test_landmarks_stand_for_geodesics() -> None:
    """Their metric is exact from a landmark, never too long, and short by at most twice the way to the nearest one."""
    x, y = spiral(300, 0), swiss_roll(350, 1)
    graph = knn_graph(x, 5)
    found = farthest_landmarks(graph, 20)
    exact, table = shortest_paths(graph), found.distances.T.contiguous()
    bound = largest_differences(table, table)
    torch.testing.assert_close(bound[found.indices], found.distances, rtol=1e-5, atol=1e-6)
    nearest = found.distances.amin(0)
    missing = exact - bound
    assert float(missing.min()) >= -1e-5
    assert bool((missing <= 2 * torch.minimum(nearest[:, None], nearest[None]) + 1e-5).all())
    options: dict[str, Any] = {"geometry": Geodesic(k=5, n_landmarks=50)}
    result = solve_sampled(x, y, **options)
    places = result.plan.barycentric_map(torch.arange(350.0)[:, None])[:, 0]
    assert float(torch.corrcoef(torch.stack([places, torch.arange(300.0)]))[0, 1]) >= 0.998
    # Landmarks found eight at a time leave no node much farther than those found one by one.
    eight = paths_to_landmarks(graph, 20).distances
    assert float(eight.amin(0).amax()) <= 1.5 * float(nearest.max())
    of_graphs = solve_sampled(graphs=(graph, knn_graph(y, 5)), geometry=Geodesic(n_landmarks=50))
    assert torch.equal(of_graphs.plan.f, result.plan.f)
    exactly = solve_exact(x[:60], y[:50], geometry=Geodesic(k=5, n_landmarks=60), max_iter=5).plan.to_dense()
    geodesic = solve_exact(x[:60], y[:50], geometry=Geodesic(k=5), max_iter=5).plan.to_dense()
    torch.testing.assert_close(exactly, geodesic, rtol=1e-2, atol=1e-6)


@pytest.mark.gpu
def test_a_gpu_rounds_and_agrees(cuda: torch.device) -> None:
    """Anchors come from the same random numbers, coordinates have 11 bits: plans differ, their quality does not."""
    x, y = spiral(400, 0).to(cuda), swiss_roll(500, 1).to(cuda)
    table = geodesics(x.cpu()).float()[None], geodesics(y.cpu()).float()[None]
    for seed in range(3):
        result = solve_sampled(x, y, geometry=Geodesic(k=5, n_landmarks=50), generator=seed, polish_iters=200)
        assert result.converged and result.plan.f.is_cuda
        plan = result.plan.to_dense().cpu()
        assert float(Objective(*table, True, None, 0.0).distortion(plan[None])) <= 2.0e-3
        assert float((plan.sum(1) * 400 - 1).abs().max()) <= 1e-3
        assert float((plan.sum(0) * 500 - 1).abs().max()) <= 2e-2
        again = solve_sampled(x, y, geometry=Geodesic(k=5, n_landmarks=50), generator=seed, polish_iters=200)
        assert torch.equal(again.plan.f, result.plan.f)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["balanced", "fused", "semi-relaxed", "unbalanced", "partial"])
def test_options_on_a_gpu(kind: str, cuda: torch.device) -> None:
    """The plan solves the problem between its own rounded coordinates, as float64 on a CPU does."""
    x, y = spiral(50, 0).to(cuda), swiss_roll(60, 1).to(cuda)
    given = {
        name: tuple(t.float().to(cuda) for t in option) if name == "features" else option
        for name, option in OPTIONS[kind].items()
    }
    plan = solve_sampled(
        x, y, epsilon=0.02, annealing=0.04, max_iter=12, n_anchors=20, polish_iters=300, **given
    ).plan
    of, settings = plan._of, plan._settings
    assert of.x is not None and of.y is not None and of.x.is_cuda
    assert torch.equal(of.x, of.x.half().float()) and torch.equal(of.y, of.y.half().float())
    kept = {name: option for name, option in OPTIONS[kind].items() if name in ("rho_a", "rho_b", "mass")}
    expected = sinkhorn(
        of.x[0].cpu().double(),
        of.y[0].cpu().double(),
        cost_scale=settings.cost_scale,
        epsilon=0.02,
        max_iter=20000,
        tol=1e-9,
        **kept,
    ).plan
    assert float(plan.mass()) == pytest.approx(float(expected.mass()), rel=1e-3)
    difference = float((plan.to_dense().cpu().double() - expected.to_dense()).abs().sum())
    assert difference <= 1e-2 * float(expected.mass())


@pytest.mark.gpu
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_in_one_call_is_its_parts(weighted: bool, cuda: torch.device) -> None:
    """Bit by bit: two plans give columns for rows, all distances to the pairs are coordinates, and their problem is solved."""
    n, m, counts, seeds = 70, 90, [19, 5], [3, 1 << 40]
    points = spiral(n, 0).to(cuda), swiss_roll(m, 1).to(cuda)
    units = [torch.tensor([size], device=cuda) for size in (1.5, 2.5)]
    xs, ys = ([torch.rand(s, 7, device=cuda).half().float() for _ in counts] for s in (n, m))
    gs, rows = [torch.rand(m, device=cuda) for _ in counts], torch.randint(n, (24,), device=cuda)
    a, b = (torch.full((1, s), 1 / s, device=cuda) if weighted else None for s in (n, m))
    f0, g0, of_b = torch.zeros(1, n, device=cuda), torch.zeros(1, m, device=cuda), None if b is None else b[0]
    got = anchor_ops.step(
        *points, *units, 1, 2, xs, ys, gs, [0.5, 0.25], [0.1, 0.2], counts, seeds, rows, a, b, f0, g0,
        0.08, 0.05, 0.7, float("inf"), 0.0, 3,
    )  # fmt: skip
    columns = [
        anchor_ops.columns(x, y, g, of_b, some, scale, epsilon, seed)
        for x, y, g, some, scale, epsilon, seed in zip(
            xs, ys, gs, rows.split(counts), (0.5, 0.25), (0.1, 0.2), seeds, strict=True
        )
    ]
    x = anchor_ops.coordinates(points[0], rows, units[0], 1)[None]
    y = anchor_ops.coordinates(points[1], torch.cat(columns), units[1], 2)[None]
    settings: dict[str, Any] = {"cost_scale": 0.08, "epsilon": 0.05, "rho_a": 0.7, "rho_b": float("inf")}
    _, linear, f, g = ops.sinkhorn_potentials(
        x, y, None, a, b, None, None, None, f0, g0, max_iterations=3, precision=2, tolerance=0.0, **settings
    )
    assert_tensors_equal(got, (x, y, linear, f, g))
    with pytest.raises(RuntimeError, match="counts: expected a sum of 24, got 23"):
        anchor_ops.step(
            *points, *units, 1, 2, xs, ys, gs, [0.5, 0.25], [0.1, 0.2], [18, 5], seeds, rows, a, b, f0, g0,
            0.08, 0.05, 0.7, float("inf"), 0.0, 3,
        )  # fmt: skip


@pytest.mark.gpu
def test_no_table_is_stored_on_a_gpu(cuda: torch.device) -> None:
    x, y = spiral(4000, 0).to(cuda), swiss_roll(5000, 1).to(cuda)
    solve_sampled(x[:100], y[:100], geometry=Geodesic(k=5, n_landmarks=50), max_iter=2)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    solve_sampled(x, y, geometry=Geodesic(k=5, n_landmarks=50))
    assert torch.cuda.max_memory_allocated() - before <= 20 * 2**20


@pytest.mark.gpu
def test_more_than_2_to_the_31_pairs(cuda: torch.device) -> None:
    """Rows, matches and sums of a plan of 47 000² entries, next to the definition in float64."""
    n, some = 47_000, torch.tensor([0, 23_456, 46_999], device=cuda)
    x, y = spiral(n, 0).to(cuda), swiss_roll(n, 1).to(cuda)
    plan = solve_sampled(
        x, y, geometry="euclidean", n_anchors=16, epsilon=0.01, max_iter=3, polish_iters=8
    ).plan
    of, scale = plan._of, plan._settings.cost_scale
    assert of.x is not None and of.y is not None
    squares = (of.x[0, some].double()[:, None] - of.y[0].double()).square().sum(2)
    logits = (plan.f.double()[some, None] + plan.g.double() - scale * squares) / 0.01
    expected = logits.exp() / n / n
    rows = plan.rows(some).double()
    # float32 potentials over epsilon: logits are off by some 1e-5.
    torch.testing.assert_close(rows, expected, rtol=1e-3, atol=1e-6 / n)
    found = rows.gather(1, plan.argmax(1)[some, None])[:, 0]
    torch.testing.assert_close(found, rows.amax(1), rtol=1e-3, atol=0)
    torch.testing.assert_close(plan.marginal(1).double()[some], rows.sum(1), rtol=1e-3, atol=0)


def test_features_decide_where_distances_do_not() -> None:
    """Points on a circle have any rotation for a match; features choose one."""
    angles = torch.arange(40) * (2 * torch.pi / 40)
    x = torch.stack([angles.cos(), angles.sin()], 1)
    label = (torch.arange(40) / 40)[:, None]
    order = torch.randperm(40)
    result = solve_sampled(x, x[order], features=(label, label[order]), feature_weight=0.5, epsilon=2e-3)
    assert torch.equal(order[result.plan.argmax()], torch.arange(40))


def test_geometries_and_few_points() -> None:
    x, y = spiral(30, 0), swiss_roll(25, 1)
    distances = (torch.cdist(x, x), torch.cdist(y, y))
    for options in ({"distances": distances}, {"x": x, "y": y, "geometry": Geodesic(k=4)}):
        assert solve_sampled(**options, max_iter=10).plan.shape == (30, 25)  # type: ignore[arg-type]
    one = torch.zeros(1, 2)
    assert solve_sampled(one, one).plan.to_dense().tolist() == [[1.0]]
    for many, few in ((x, one), (one, x)):
        plan = solve_sampled(many, few, n_anchors=1, step=1.0, max_iter=3).plan.to_dense()
        torch.testing.assert_close(plan, torch.full(plan.shape, 1 / 30))


def test_a_table_of_features_is_their_squared_distances() -> None:
    x, y = spiral(40, 0).double(), swiss_roll(30, 1).double()
    of_x, of_y = torch.rand(40, 3).double(), torch.rand(30, 3).double()
    table = (of_x[:, None] - of_y).square().sum(2)
    options: dict[str, Any] = {"feature_weight": 0.4, "epsilon": 0.01, "max_iter": 12}
    by_table = solve_sampled(x, y, feature_cost=table, **options)
    by_features = solve_sampled(x, y, features=(of_x, of_y), **options)
    torch.testing.assert_close(by_table.plan.to_dense(), by_features.plan.to_dense(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", ["table", "plan"])
def test_a_start_is_where_anchors_come_from(kind: str) -> None:
    """One step from the answer, or from its mirror image, stays there."""
    x = spiral(80, 0)
    for order in (torch.arange(80), torch.arange(79, -1, -1)):
        table = torch.eye(80)[order] / 80
        init: Any = table
        if kind == "plan":
            init = sinkhorn(cost_matrix=1 - 80 * table, epsilon=0.05).plan
        result = solve_sampled(x, x, geometry=Geodesic(k=4), init=init, max_iter=1, step=1.0, annealing=None)
        # The other order differs by 40 on average. The spiral is not its mirror image, so this one is not met exactly.
        assert float((result.plan.argmax() - order).abs().float().mean()) < 12


def test_weights_may_have_any_sum() -> None:
    x, y = spiral(30, 0).double(), swiss_roll(25, 1).double()
    options: dict[str, Any] = {"annealing": None, "max_iter": 8, "sinkhorn_iters": 2000}
    start = torch.ones(30, 25, dtype=torch.float64)
    ones = solve_sampled(x, y, epsilon=0.02, init=start / 750, **options).plan.to_dense()
    a, b = torch.full((30,), 0.1).double(), torch.full((25,), 0.12).double()
    # The objective's first part has the square of the mass, KL has it once.
    three = solve_sampled(x, y, a=a, b=b, epsilon=0.06, init=start / 250, **options).plan.to_dense()
    torch.testing.assert_close(three / 3, ones, rtol=1e-6, atol=1e-12)


def test_callbacks_and_fewest_steps() -> None:
    x, y = spiral(30, 0), swiss_roll(25, 1)
    seen: list[tuple[int, float, float]] = []
    options: dict[str, Any] = {"annealing": None, "patience": 2, "epsilon": 0.05}
    result = solve_sampled(
        x, y, min_iter=40, callback=lambda *of: seen.append((of[0], float(of[1]), float(of[2]))), **options
    )
    assert result.iterations >= 40 > solve_sampled(x, y, **options).iterations
    assert [of[0] for of in seen] == list(range(1, result.iterations + 1))
    assert {of[1] for of in seen} == {0.05}
    assert [of[2] for of in seen] == result.history.tolist()


def test_patience_ends_when_noise_hides_the_fall() -> None:
    """Costs that fall are waited for. Costs at rest end the steps, and so do those that are NaN."""

    def steps(costs: Tensor) -> int:
        patience = Patience(6)
        for step, cost in enumerate(costs):
            if patience.is_over():
                return step
            patience.add(cost)
        return len(costs)

    noise = 0.05 * torch.randn(20, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    at_rest = sorted(steps(1 + some) for some in noise)
    assert at_rest[0] == 12 and at_rest[10] <= 13 and at_rest[-1] <= 30
    falling = 0.98 ** torch.arange(100.0, dtype=torch.float64)
    assert sorted(steps(falling * (1 + some[:100])) for some in noise)[10] >= 90
    assert steps(falling) == 100 and steps(torch.ones(100)) == 12
    assert steps(torch.full((100,), torch.nan)) == 12


def test_scales_of_distances_change_nothing() -> None:
    x, y = spiral(40, 0).double(), swiss_roll(30, 1).double()
    options: dict[str, Any] = {"epsilon": 0.01, "max_iter": 12}
    first = solve_sampled(x, y, **options).plan.to_dense()
    scaled = solve_sampled(1e6 * x, 1e-6 * y, **options).plan.to_dense()
    torch.testing.assert_close(scaled, first, rtol=1e-5, atol=1e-10)


def test_sums_after_many_last_iterations() -> None:
    """Partial mass to 1e-5, and sums to 1e-3, once the last plan has iterations enough."""
    x, y = spiral(60, 0).double(), swiss_roll(50, 1).double()
    partial = solve_sampled(x, y, mass=0.7, epsilon=0.01, max_iter=20, polish_iters=2000)
    assert float(partial.plan.mass()) == pytest.approx(0.7, rel=1e-5)
    balanced = solve_sampled(x, y, epsilon=2e-3, max_iter=40, polish_iters=2000)
    assert float((balanced.plan.marginal(1) * 60 - 1).abs().max()) <= 1e-3
    assert float((balanced.plan.marginal(0) * 50 - 1).abs().max()) <= 1e-3


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_shared_table_of_costs_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs by a product, once a step, and by differences, made anew in each pass."""
    monkeypatch.setattr(gromov_anchors, "_STORED_ENTRIES", 0)
    for dtype, share in ((torch.float64, 1e-9), (torch.float32, 2e-3)):
        x, y = spiral(50, 0).to(dtype), swiss_roll(60, 1).to(dtype)
        features = tuple(t.to(dtype) for t in OPTIONS[kind].get("features", ()))
        options: dict[str, Any] = {"epsilon": 0.01, "annealing": 0.02, "max_iter": 12, "n_anchors": 20}
        options |= OPTIONS[kind] | ({"features": features} if features else {})
        monkeypatch.setattr(gromov_anchors, "_SHARED_BYTES", 1 << 20)
        shared = solve_sampled(x, y, **options)
        monkeypatch.setattr(gromov_anchors, "_SHARED_BYTES", 0)
        made = solve_sampled(x, y, **options)
        assert shared.plan._of.cost is None  # The table is not part of the result.
        difference = float((shared.plan.to_dense() - made.plan.to_dense()).abs().sum())
        assert difference <= share * float(made.plan.mass())
        torch.testing.assert_close(shared.history, made.history, rtol=share, atol=0)


def test_costs_are_made_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All passes of a step, and all last iterations, take them from one table."""
    monkeypatch.setattr(gromov_anchors, "_STORED_ENTRIES", 0)
    made: list[Tensor] = []
    squares = gromov_anchors.squares

    def counted(u: Tensor, v: Tensor, out: Tensor | None = None) -> Tensor:
        assert out is not None and out.shape == (50, 60)
        made.append(out)
        return squares(u, v, out)

    monkeypatch.setattr(gromov_anchors, "squares", counted)
    result = solve_sampled(spiral(50, 0), swiss_roll(60, 1), max_iter=7)
    assert len(made) == 1 + result.iterations  # the start has its own costs
    assert all(table is made[0] for table in made)


def test_progress_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = spiral(50, 0), swiss_roll(60, 1)
    plain = solve_sampled(x, y, max_iter=7)
    assert capsys.readouterr().err == ""
    shown = solve_sampled(x, y, max_iter=7, progress=True)
    bar = capsys.readouterr().err
    assert "Gromov-Wasserstein" in bar and "last iterations, epsilon" in bar and "step/s" in bar
    assert torch.equal(shown.plan.f, plain.plan.f)


def test_progress_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm.*pip install 'warpalign\[progress\]'"):
        solve_sampled(torch.zeros(2, 1), torch.zeros(2, 1), progress=True)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_long_solve_announces_itself(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a bar where somebody looks, else by one warning; progress=False says that it shall not."""
    x, y = spiral(50, 0), swiss_roll(60, 1)
    monkeypatch.setattr(gromov_progress, "LONG_PAIRS", 2999)
    monkeypatch.setattr(checks, "_warned", set())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)

    def warned(**options: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solve_sampled(x, y, max_iter=3, **options)
        return [str(one.message) for one in caught if not isinstance(one.message, ConvergenceWarning)]

    assert warned(progress=False) == [] and capsys.readouterr().err == ""
    said = warned()
    if is_terminal:
        assert said == [] and "Gromov-Wasserstein" in capsys.readouterr().err
        return
    assert said == [
        "progress: expected True or False in gromov_wasserstein_sampled between 50 and 60 points on a CPU, which takes "
        "seconds to minutes, got None: progress=True shows a bar, progress=False silences this, and a GPU takes a small "
        "part of the time"
    ]
    assert warned() == []  # once
    monkeypatch.setattr(gromov_progress, "LONG_PAIRS", 3000)
    monkeypatch.setattr(checks, "_warned", set())
    assert warned() == []  # few pairs
