"""compat.pot.gromov next to POT's recorded answers, and to POT itself where it is installed."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from tests.python.transport import compat_gromov_cases as cases
from tests.python.transport.pot import squared_distances
from tests.python.transport.pot_gromov import asymmetric, gauss
from tests.python.transport.test_compat import check, signatures
from warpalign.compat import pot
from warpalign.transport import gromov_wasserstein

RECORDED = json.loads(cases.RECORDED.read_text())["POT"]
has_pot = pytest.mark.skipif(importlib.util.find_spec("ot") is None, reason="needs POT")
# Steps end at other thresholds than POT's where both run until then. POT's inner problems of small epsilons end unfinished.
LOOSE = {"entropic, defaults": 1e-6, "entropic, kl loss of 10 steps": 1e-5}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", cases.CASES)
def test_pot(name: str) -> None:
    check(cases.CASES[name](pot), RECORDED[name], LOOSE.get(name, 1e-7))


@has_pot
@pytest.mark.parametrize("module", ["gromov", "batch", ""])
def test_signatures_are_pots(module: str) -> None:
    import ot

    ours, theirs = (getattr(one, module) if module else one for one in (pot, ot))
    for name in ours.__all__ if module else ["solve_gromov"]:
        signatures(getattr(ours, name), getattr(theirs, name))


def test_numbers_of_pots_own_tests() -> None:
    """Tables A2 and A3: of gauss(10, 42), as POT 0.9.7 computes them."""
    assert float(RECORDED["entropic, PGD of many steps"]) == pytest.approx(0.0551724568, rel=1e-8)
    assert float(RECORDED["entropic, kl loss of 10 steps"]) == pytest.approx(0.0826562653, rel=1e-5)
    assert (
        float(
            pot.gromov.entropic_gromov_wasserstein2(*gauss(10, 42), epsilon=0.1, max_iter=300, solver="PPA")
        )
        < 1e-9
    )


@pytest.mark.parametrize(("symmetric", "tolerance"), [(True, 1e-2), (False, 1e-1)])
def test_semirelaxed_transport_finds_the_blocks(symmetric: bool, tolerance: float) -> None:
    """Table A11."""
    sums = pot.gromov.entropic_semirelaxed_gromov_wasserstein(
        *cases.blocks(symmetric), epsilon=0.1, max_iter=200
    ).sum(0)
    np.testing.assert_allclose(np.sort(sums), [1 / 3, 2 / 3], atol=tolerance)


def test_costs_count_in_partial_fused_transport() -> None:
    """POT adds a number in the place of the costs, which changes no plan. Features alone give partial transport of them."""
    given: dict[str, Any] = {"reg": 0.05, "m": 0.6}
    plan = pot.gromov.entropic_partial_fused_gromov_wasserstein(
        cases.M, cases.C1, cases.C2, cases.P, cases.Q, alpha=0.0, **given
    )
    linear = pot.partial.entropic_partial_wasserstein(cases.P, cases.Q, cases.M, 0.05, m=0.6)
    np.testing.assert_allclose(plan, linear, atol=1e-9)


def test_tensors_keep_their_kind_and_have_gradients() -> None:
    C1, C2, M = (torch.from_numpy(c).float().requires_grad_() for c in (cases.C1, cases.C2, cases.M))
    value, log = pot.gromov.entropic_fused_gromov_wasserstein2(M, C1, C2, alpha=0.4, epsilon=0.05, log=True)
    by_c, by_m = torch.autograd.grad(value, [C1, M])
    plan = log["T"]
    assert plan.dtype == torch.float32 and not plan.requires_grad
    torch.testing.assert_close(by_m, 0.6 * plan)
    rows = plan.sum(1)
    torch.testing.assert_close(
        by_c, 0.4 * 2 * (C1 * rows[:, None] * rows - plan @ C2 @ plan.T), rtol=1e-4, atol=1e-7
    )


def test_plans_are_those_of_gromov_wasserstein() -> None:
    """The drop-in's epsilon is the library's, without a division of distances."""
    plan = pot.gromov.entropic_gromov_wasserstein(cases.C1, cases.C2, epsilon=0.02)
    result = gromov_wasserstein(
        distances=(torch.from_numpy(cases.C1), torch.from_numpy(cases.C2)),
        epsilon=0.02, cost_normalization=None, init="product", annealing=None, sinkhorn_iters=2000, polish_iters=2000, tol=1e-9,
    )  # fmt: skip
    np.testing.assert_allclose(plan, result.plan.to_dense().numpy(), atol=1e-7)


def test_unbalanced_plans_of_equal_spaces() -> None:
    """Table A9: costs and distances both say that points come in reverse order. POT's test has epsilon 0."""
    reverse = np.eye(5)[::-1]
    first, second, log = pot.gromov.fused_unbalanced_gromov_wasserstein(
        *gauss(5, 4), reg_marginals=(100, 50), epsilon=1e-3, unbalanced_solver="sinkhorn", alpha=0.5, M=1 - reverse,
        max_iter=20, log=True,
    )  # fmt: skip
    for plan in (first, second):
        np.testing.assert_allclose(plan, reverse / 5, atol=1e-3)
    assert 0 <= log["fugw_cost"] <= 1e-2


def test_unbalanced_plans_become_balanced() -> None:
    """Strong KL and no costs: the plan of the balanced problem with half the entropy of each of both plans."""
    options: dict[str, Any] = {"max_iter": 300, "max_iter_ot": 5000, "tol": 1e-12, "tol_ot": 1e-12}
    first, second = pot.gromov.fused_unbalanced_gromov_wasserstein(
        cases.C1, cases.C2, cases.P, cases.Q, float("inf"), 0.05, unbalanced_solver="sinkhorn", **options
    )
    balanced = pot.gromov.entropic_gromov_wasserstein(
        cases.C1, cases.C2, cases.P, cases.Q, epsilon=0.1, tol=1e-12
    )
    np.testing.assert_allclose(first, second, atol=1e-6)
    np.testing.assert_allclose(first, balanced, atol=1e-6)


def test_asymmetric_matrices_of_a_small_epsilon() -> None:
    """Table A6: POT's kernels underflow at this epsilon."""
    C1, C2 = asymmetric()
    options: dict[str, Any] = {"epsilon": 0.1, "max_iter": 5, "numItermax": 50000}
    plan = pot.gromov.entropic_gromov_wasserstein(C1, C2, **options)
    told = pot.gromov.entropic_gromov_wasserstein(C1, C2, symmetric=False, **options)
    np.testing.assert_allclose(plan, told, atol=1e-6)
    for axis in (0, 1):
        np.testing.assert_allclose(plan.sum(axis), 0.1, atol=1e-4)


def test_a_batch_is_its_items() -> None:
    """Table A10."""
    state = np.random.RandomState(0)
    C, D = (np.stack([squared_distances(x, x) for x in state.randn(2, 8, 2)]) for _ in range(2))
    options: dict[str, Any] = {"reg": 0.01, "max_iter": 50, "max_iter_inner": 2000, "tol": 1e-9}
    together = pot.batch.solve_gromov_batch(C, D, **options)
    for k in range(2):
        alone = pot.batch.solve_gromov_batch(C[k : k + 1], D[k : k + 1], **options)
        np.testing.assert_allclose(together.plan[k], alone.plan[0], atol=1e-5)
        assert together.value[k] == pytest.approx(alone.value[0], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("C1", lambda C, N: pot.gromov.entropic_gromov_wasserstein(N, C)),
        ("C2", lambda C, N: pot.gromov.entropic_gromov_wasserstein2(C, N)),
        ("C1", lambda C, N: pot.gromov.entropic_gromov_wasserstein(-C, C, loss_fun="kl_loss")),
        ("M", lambda C, N: pot.gromov.entropic_fused_gromov_wasserstein(N, C, C)),
        ("C1", lambda C, N: pot.gromov.entropic_partial_gromov_wasserstein(N, C, reg=0.1)),
        ("C1", lambda C, N: pot.gromov.entropic_semirelaxed_gromov_wasserstein(N, C)),
        ("C1", lambda C, N: pot.gromov.semirelaxed_gromov_wasserstein(N, C)),
        ("Ca", lambda C, N: pot.solve_gromov(N, C, reg=0.1)),
    ],
)
def test_plans_that_are_not_finite_are_warned_of_once(name: str, call: Any) -> None:
    C = np.random.RandomState(0).rand(5, 5)
    with pytest.warns(UserWarning) as said:
        call(C, np.full((5, 5), np.nan))
    (one,) = said
    assert str(one.message).startswith(
        f"Numerical errors: the plan is not finite. {name}: expected finite numbers"
    )
    assert one.filename == __file__
