"""The exact and the sampled solver: the same arguments, the same result, the same callback."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.transport.clouds import spiral, swiss_roll
from tests.python.transport.gromov import solve_exact, solve_sampled
from warpalign._core import checks
from warpalign._transport import gromov_progress
from warpalign.transport import (
    ConvergenceWarning,
    GromovResult,
    LowRankResult,
    SinkhornDivergenceResult,
    SinkhornResult,
    gromov_wasserstein,
    gromov_wasserstein_sampled,
)

Solve = Callable[..., GromovResult]
BOTH = pytest.mark.parametrize("solve", [solve_exact, solve_sampled])
ONLY_EXACT = {"tol", "precision"}
ONLY_SAMPLED = {"n_anchors", "patience", "min_iter"}
KINDS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "unbalanced": {"rho_a": 0.4, "rho_b": 0.7},
    "semi-relaxed": {"rho_b": 0.0},
    "partial": {"mass": 0.6},
    "features": {"features": (torch.rand(30, 3).double(), torch.rand(25, 3).double()), "feature_weight": 0.3},
    "a table of features": {"feature_cost": torch.rand(30, 25).double(), "feature_weight": 0.3},
}


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (torch.where(p > 0, p * (p / q).log(), 0.0) - p + q).sum()


def test_arguments_are_the_same_but_for_the_stop_rules() -> None:
    exact, sampled = (
        inspect.signature(function).parameters
        for function in (gromov_wasserstein, gromov_wasserstein_sampled)
    )
    assert set(exact) - ONLY_EXACT == set(sampled) - ONLY_SAMPLED
    defaults = {name: one.default for name, one in exact.items() if name in sampled}
    differing = {name for name, default in defaults.items() if default != sampled[name].default}
    assert differing == {"step", "sinkhorn_iters"}


@pytest.mark.parametrize("result", [SinkhornResult, SinkhornDivergenceResult, GromovResult, LowRankResult])
def test_results_are_a_family(result: Any) -> None:
    """Of named fields, the value first, then what says whether it has converged; each is documented."""
    named = result._fields
    assert named[0] == "value"
    common = [name for name in named if name in ("plan", "converged", "error", "iterations")]
    assert common == (["plan"] if "plan" in named else []) + ["converged", "error", "iterations"]
    source = textwrap.dedent(inspect.getsource(result))
    for name in named:
        described = re.search(rf'    (def )?{name}(: |\(self\)).*\n\s+"""[\w(]', source)
        assert described, name


@pytest.mark.filterwarnings("ignore::warpalign.transport.ConvergenceWarning")
@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_fields_and_the_objective_at_the_plan(solve: Solve, kind: str) -> None:
    x, y = spiral(30, 0).double(), swiss_roll(25, 1).double()
    result = solve(x, y, epsilon=0.02, annealing=0.05, max_iter=20, polish_iters=3000, **KINDS[kind])
    plan = result.plan.to_dense()
    cx, cy = (torch.cdist(z, z) / torch.cdist(z, z).max() for z in (x, y))
    squares = (cx[:, None, :, None] - cy[None, :, None, :]).square()
    distortion = torch.einsum("ijkl,ij,kl", squares, plan, plan)
    assert abs(float(result.distortion - distortion)) <= 5 * float(result.distortion_std) + 1e-12
    assert float(result.distortion_std) == 0 or solve is solve_sampled
    options = KINDS[kind]
    weight, a, b = options.get("feature_weight", 0.0), torch.full((30,), 1 / 30), torch.full((25,), 1 / 25)
    expected = (1 - weight) * result.distortion + 0.02 * kl(plan, (a[:, None] * b).double())
    for name, dim, weights in (("rho_a", 1, a), ("rho_b", 0, b)):
        expected = expected + options.get(name, 0.0) * kl(plan.sum(dim), weights.double())
    if weight > 0:
        table = options.get("feature_cost")
        if table is None:
            table = torch.cdist(*options["features"]).square()
        expected = expected + weight * (table * plan).sum()
    assert float(result.value) == pytest.approx(float(expected), rel=1e-4)
    for name in ("value", "distortion", "distortion_std", "error"):
        assert getattr(result, name).shape == () and getattr(result, name).dtype == torch.float64, name
    assert result.converged.dtype == torch.bool and result.iterations.dtype == torch.int32
    assert result.converged.shape == result.iterations.shape == ()
    assert result.history.shape == (int(result.iterations),)
    assert result._fields[0] == "value" and all(hasattr(result, name) for name in result._fields)


@BOTH
def test_callbacks_get_the_step_its_epsilon_and_its_entry_of_history(solve: Solve) -> None:
    seen: list[tuple[int, Tensor, Tensor]] = []
    result = solve(
        spiral(30, 0),
        swiss_roll(25, 1),
        epsilon=0.05,
        annealing=0.06,
        max_iter=5,
        callback=lambda *given: seen.append(given),
    )
    assert [step for step, _, _ in seen] == list(range(1, int(result.iterations) + 1))
    assert all(epsilon.shape == entry.shape == () for _, epsilon, entry in seen)
    assert [float(epsilon) for _, epsilon, _ in seen[:3]] == pytest.approx([0.06, 0.054, 0.05])
    assert torch.equal(torch.stack([entry for _, _, entry in seen]), result.history)


def test_features_are_their_squared_distances() -> None:
    x, y = torch.rand(2, 12, 2).double(), torch.rand(2, 9, 2).double()
    of_x, of_y = torch.rand(2, 12, 3).double().requires_grad_(), torch.rand(9, 3).double()
    options: dict[str, Any] = {"feature_weight": 0.4, "epsilon": 0.05, "max_iter": 5}
    got = solve_exact(x, y, features=(of_x, of_y), **options)
    table = torch.cdist(of_x.detach(), of_y.expand(2, -1, -1)).square()
    expected = solve_exact(x, y, feature_cost=table, **options)
    torch.testing.assert_close(got.value, expected.value)
    (gradient,) = torch.autograd.grad(got.value.sum(), of_x)
    plan = got.plan.to_dense().detach()
    differences = of_x.detach()[:, :, None] - of_y
    torch.testing.assert_close(gradient, 0.8 * (plan[..., None] * differences).sum(2), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"mass": 0.5}, {"a": torch.rand(300).softmax(0), "rho_a": 1.0}])
def test_the_first_anchors_of_a_product_are_independent(options: dict[str, Any]) -> None:
    """One step from the product of the weights, whose linearised cost is a sum of a row's and a column's part."""
    x, y = spiral(300, 0), spiral(300, 0)
    result = solve_sampled(
        x, y, init="product", max_iter=1, step=1.0, annealing=None, epsilon=0.05, n_anchors=500, **options
    )
    exact = solve_exact(
        x, y, init="product", max_iter=1, annealing=None, epsilon=0.05, sinkhorn_iters=500, **options
    )
    difference = float((result.plan.to_dense() - exact.plan.to_dense()).abs().sum())
    assert difference <= 0.15 * float(exact.plan.mass()), difference


@BOTH
def test_progress(solve: Solve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = spiral(50, 0), swiss_roll(60, 1)
    plain = solve(x, y, max_iter=7)
    assert capsys.readouterr().err == ""
    shown = solve(x, y, max_iter=7, progress=True)
    bar = capsys.readouterr().err
    assert "Gromov-Wasserstein" in bar and ", epsilon" in bar and "step/s" in bar
    assert torch.equal(shown.plan.f, plain.plan.f)
    monkeypatch.setattr(gromov_progress, "LONG_PAIRS", 2999)
    monkeypatch.setattr(checks, "_warned", set())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    name = "gromov_wasserstein" if solve is solve_exact else "gromov_wasserstein_sampled"
    with pytest.warns(UserWarning, match=f"^progress: expected True or False in {name} between 50 and 60"):
        solve(x, y, max_iter=3)


def test_progress_counts_the_steps_of_all_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(ConvergenceWarning):
        solve_exact(spiral(20, 0), swiss_roll(20, 1), max_iter=4, tol=0.0, restarts=3, progress=True)
    assert "12/12" in capsys.readouterr().err
