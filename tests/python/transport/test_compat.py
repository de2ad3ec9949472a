"""The drop-ins next to their originals' recorded answers, and to the originals themselves where they are installed."""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from tests.python.transport import compat_cases as cases
from warpalign.compat import flash_sinkhorn, geomloss, pot
from warpalign.transport import sinkhorn, sinkhorn_divergence

RECORDED = json.loads(cases.RECORDED.read_text())
# POT's float64 iterations stop at a change of 1e-14, of condition numbers up to 1e3.
TOLERANCE = 1e-9
has_pot = pytest.mark.skipif(importlib.util.find_spec("ot") is None, reason="needs POT")
has_geomloss = pytest.mark.skipif(importlib.util.find_spec("geomloss") is None, reason="needs geomloss")


def check(got: Any, expected: Any, tolerance: float) -> None:
    """The same parts, and numbers that differ by no more than the tolerance times the largest one of their array."""
    ours, theirs = dict(cases.numbers(cases.plain(got))), dict(cases.numbers(expected))
    assert list(ours) == list(theirs)
    for where, value in theirs.items():
        if not isinstance(value, (dict, float)):
            assert ours[where] == value, where
            continue
        arrays = []
        for one in (ours[where], value):
            assert isinstance(one, dict) == isinstance(value, dict), where
            arrays.append(
                np.array(one["values"]).reshape(one["shape"]) if isinstance(one, dict) else np.array(one)
            )
        assert arrays[0].shape == arrays[1].shape, where
        # POT's entropic map of a sample far from all others is 0 / 0; ours is not.
        known = np.isfinite(arrays[1])
        assert np.isfinite(arrays[0]).all() and known.any(), where
        scale = np.abs(arrays[1][known]).max()
        np.testing.assert_allclose(
            arrays[0][known], arrays[1][known], rtol=0, atol=tolerance * max(scale, 1e-3), err_msg=where
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases.POT)
def test_pot(name: str) -> None:
    # The debiased value's part of a set with itself: POT adds 1e-15 within its logarithms.
    check(cases.POT[name](pot), RECORDED["POT"][name], 1e-7 if "debias" in name else TOLERANCE)


@pytest.mark.parametrize("name", cases.GEOMLOSS)
def test_geomloss(name: str) -> None:
    tolerance = 1e-5 if name == "float32" else 1e-4 if name == "distances" else 1e-10
    check(cases.GEOMLOSS[name](geomloss), RECORDED["geomloss"][name], tolerance)


@has_pot
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases.POT)
def test_recorded_answers_are_pots(name: str) -> None:
    import ot

    check(cases.POT[name](ot), RECORDED["POT"][name], 1e-12)


@has_geomloss
@pytest.mark.parametrize("name", cases.GEOMLOSS)
def test_recorded_answers_are_geomloss(name: str) -> None:
    import geomloss as original

    check(cases.GEOMLOSS[name](original), RECORDED["geomloss"][name], 1e-5 if name == "float32" else 1e-12)


def signatures(ours: Any, theirs: Any) -> None:
    mine, others = (inspect.signature(one).parameters for one in (ours, theirs))
    assert list(mine) == list(others)
    for name, parameter in others.items():
        if not callable(parameter.default):
            assert mine[name].default == parameter.default, name


@has_pot
@pytest.mark.parametrize("module", ["bregman", "unbalanced", "partial", "lowrank", "batch", "da", ""])
def test_signatures_are_pots(module: str) -> None:
    import ot

    ours, theirs = (getattr(one, module) if module else one for one in (pot, ot))
    for name in ours.__all__:
        function = getattr(ours, name)
        if inspect.ismodule(function):
            continue
        if inspect.isclass(function):
            signatures(function.__init__, getattr(theirs, name).__init__)
        else:
            signatures(function, getattr(theirs, name))


@has_geomloss
def test_signature_is_geomloss() -> None:
    import geomloss as original

    signatures(geomloss.SamplesLoss.__init__, original.SamplesLoss.__init__)


# What no recorded answer shows.


def test_pot_of_tensors_returns_tensors_with_gradients() -> None:
    a, b, M = cases.tensors(cases.A, cases.B, cases.M)
    plan = pot.sinkhorn(a, b, M, 0.1)
    assert isinstance(plan, torch.Tensor)
    (gradient,) = torch.autograd.grad(plan.square().sum(), M)
    moved = M.detach() + 1e-6 * torch.from_numpy(np.random.RandomState(1).randn(*M.shape))
    difference = pot.sinkhorn(a, b, moved, 0.1, stopThr=1e-14).square().sum() - plan.square().sum()
    expected = float((gradient * (moved - M)).sum())
    assert float(difference) == pytest.approx(expected, rel=1e-3)
    value = pot.solve(M, a, b, reg=0.1).value
    (by_costs,) = torch.autograd.grad(value, M)
    torch.testing.assert_close(by_costs, plan.detach(), rtol=1e-6, atol=1e-9)
    assert not pot.solve(M, a, b, reg=0.1, grad="detach").value.requires_grad


def test_pot_warns_where_it_has_not_converged() -> None:
    with pytest.warns(UserWarning, match="Sinkhorn did not converge"):
        pot.sinkhorn(cases.A, cases.B, cases.M, 1e-3, numItermax=2)


def test_pots_empirical_functions_make_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    from warpalign.compat.pot import _common

    monkeypatch.setattr(_common, "pair_costs", lambda *given: pytest.fail("a table was made"))
    lazy = pot.bregman.empirical_sinkhorn(cases.X, cases.Y, 1.0, isLazy=True, log=True)[2]["lazy_plan"]
    assert lazy.shape == (7, 5)
    result = pot.solve_sample(cases.X, cases.Y, reg=1.0)
    np.testing.assert_allclose(result.plan, result.lazy_plan.to_dense().numpy())
    assert result.sparse_plan.shape == (7, 5)
    assert result.marginal_a == pytest.approx(np.full(7, 1 / 7), rel=1e-6)


def root(rho: float | None) -> float | None:
    return None if rho is None else math.sqrt(rho)


@pytest.mark.parametrize("rho", [(None, None), (0.25, 0.25), (None, 0.25), (0.25, None)])
@pytest.mark.parametrize("debias", [False, True])
def test_flash_sinkhorn_after_many_updates(rho: tuple[float | None, float | None], debias: bool) -> None:
    """Values, potentials and gradients are those of the converged solution, with both backends."""
    if debias and rho[0] != rho[1]:
        pytest.skip("sinkhorn_divergence has one rho")
    a, x, b, y = given = [
        one.float().detach().requires_grad_() for one in cases.tensors(cases.A, cases.X, cases.B, cases.Y)
    ]
    if debias:
        options: dict[str, Any] = {"rho": rho[0], "tol": 1e-7}
        expected = sinkhorn_divergence(x, y, a=a, b=b, epsilon=4.0, **options)
    else:
        result = sinkhorn(x, y, a=a, b=b, epsilon=4.0, rho_a=rho[0], rho_b=rho[1], tol=1e-7)
        expected = result.value
    reach = {"reach_x": root(rho[0]), "reach_y": root(rho[1]), "debias": debias}
    backends: list[dict[str, Any]] = [
        {"eps_list": [4.0] * 200},
        {"backend": "alternating", "eps": 4.0, "n_iters": 300, "use_epsilon_scaling": False},
    ]
    for backend in backends:
        value = flash_sinkhorn.SamplesLoss(**reach, **backend)(a, x, b, y)
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
        for got, truth in zip(
            torch.autograd.grad(value, given),
            torch.autograd.grad(expected, given, retain_graph=True),
            strict=True,
        ):
            if got.dim() == 1 and rho == (None, None):  # sums are fixed: up to a constant
                got, truth = got - got.mean(), truth - truth.mean()
            if got.dim() == 1:  # normalised weights: along directions that keep their sum
                got, truth = got - got.mean(), truth - truth.mean()
            torch.testing.assert_close(got, truth, rtol=1e-4, atol=2e-6)
        if not debias:
            f, g = flash_sinkhorn.SamplesLoss(potentials=True, **reach, **backend)(a, x, b, y)
            for got, truth in ((f, result.f), (g, result.g)):
                if rho == (None, None):
                    got, truth = got - got.mean(), truth - truth.mean()
                torch.testing.assert_close(got, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reach", [None, 0.7])
@pytest.mark.parametrize("debias", [False, True])
def test_flash_sinkhorn_of_half_costs_is_geomloss(reach: float | None, debias: bool) -> None:
    x, y = (torch.from_numpy(one).float() for one in (cases.X, cases.Y))
    options: dict[str, Any] = {"blur": 0.2, "reach": reach, "debias": debias}
    flash = flash_sinkhorn.SamplesLoss(half_cost=True, **options)
    torch.testing.assert_close(flash(x, y), geomloss.SamplesLoss(**options)(x, y))
    both = flash(torch.stack([x, x + 0.5]), torch.stack([y, y]))
    torch.testing.assert_close(both, torch.stack([flash(x, y), flash(x + 0.5, y)]))
    cut = flash_sinkhorn.SamplesLoss(half_cost=True, last_extrapolation=False, n_iters=2, **options)
    assert cut(x, y).isfinite() and cut(x, y) != flash(x, y)


def test_flash_sinkhorn_normalises_weights_and_keeps_their_shape() -> None:
    a, x, b, y = (torch.from_numpy(one).float() for one in (cases.A, cases.X, cases.B, cases.Y))
    loss = flash_sinkhorn.SamplesLoss(blur=0.3)
    torch.testing.assert_close(loss(3 * a, x, 5 * b, y), loss(a, x, b, y))
    f, g = flash_sinkhorn.SamplesLoss(blur=0.3, potentials=True)(a[:, None], x, b[:, None], y)
    assert f.shape == (7, 1) and g.shape == (5, 1)


@pytest.mark.parametrize("debias", [False, True])
def test_geomloss_gradients_with_reach_are_those_of_the_value(debias: bool) -> None:
    """Which geomloss' own are not: its factor of the backward pass is in a method that nobody calls."""
    given = cases.tensors(cases.A, cases.X, cases.B, cases.Y)
    a, x, b, y = given
    reach, blur = 0.8, 1.0
    loss = geomloss.SamplesLoss(reach=reach, blur=blur, diameter=1.0001, scaling=0.999999, debias=debias)
    value = loss(a, x, b, y)  # about 100 updates at one epsilon
    if debias:
        truth = sinkhorn_divergence(x, y, a=a, b=b, epsilon=blur**2, rho=reach**2, cost_scale=0.5, tol=1e-12)
    else:
        options: dict[str, Any] = {"rho_a": reach**2, "rho_b": reach**2, "tol": 1e-12}
        truth = sinkhorn(x, y, a=a, b=b, epsilon=blur**2, cost_scale=0.5, **options).value
    torch.testing.assert_close(value, truth, rtol=1e-3, atol=1e-6)
    for got, expected in zip(
        torch.autograd.grad(value, given), torch.autograd.grad(truth, given), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-4)


def test_equal_sets_have_no_divergence() -> None:
    x = torch.from_numpy(cases.X)
    assert float(geomloss.SamplesLoss(blur=0.1)(x, x)) == pytest.approx(0, abs=1e-12)
    assert float(geomloss.SamplesLoss(p=1, blur=0.1)(x, x)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"p": 1}, {"reach": 0.5}, {"debias": False}])
@pytest.mark.parametrize("spread", [0.0, 1e-30])
def test_losses_of_points_that_are_all_the_same_are_zero(spread: float, options: dict[str, Any]) -> None:
    """A list of epsilons that began at their diameter's square would begin at 0."""
    for module in (geomloss, flash_sinkhorn)[: 1 if "p" in options else 2]:
        x = (torch.ones(4, 2) if spread == 0 else spread * torch.randn(4, 2)).requires_grad_()
        value = module.SamplesLoss(**options)(x, x.detach().clone())
        (by_x,) = torch.autograd.grad(value, x)
        assert value == 0
        assert by_x.abs().max() <= 1e-12


@pytest.mark.parametrize("module", [geomloss, flash_sinkhorn])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_losses_warn_once_of_points_that_are_not_finite(module: Any, number: str) -> None:
    x, y = torch.randn(3, 4, 2), torch.randn(3, 5, 2)
    # A module's one diameter is that of all problems, so the point must not be one that the box ends at.
    x[1, 0] = 0
    expected = module.SamplesLoss()(x, y)
    x[1, 0, 0] = float(number)
    with pytest.warns(RuntimeWarning) as caught:
        value = module.SamplesLoss()(x, y)
    assert [str(one.message) for one in caught] == [
        f"x: expected finite numbers, got {number}: write x.nan_to_num(), or leave such points out"
    ]
    assert caught[0].filename == __file__
    assert value.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(value[::2], expected[::2])


def test_losses_warn_of_costs_that_are_not_finite() -> None:
    loss = geomloss.SamplesLoss(cost=lambda x, y: torch.full((len(x), x.shape[1], y.shape[1]), torch.nan))
    with pytest.warns(
        RuntimeWarning, match="SamplesLoss: expected a finite result, got nan: weights are below 0"
    ):
        loss(torch.randn(4, 2), torch.randn(5, 2))
