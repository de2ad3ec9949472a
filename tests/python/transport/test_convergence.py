"""Results that are none say so: not converged, not finite, impossible, or of arguments that mean something else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from tests.python.helpers import randn
from tests.python.transport.gromov import DEFAULTS
from warpalign import GromovTransport
from warpalign.transport import (
    ConvergenceWarning,
    SinkhornDivergence,
    gromov_wasserstein,
    gromov_wasserstein_sampled,
    sinkhorn,
    sinkhorn_divergence,
)

X, Y = randn(20, 3, seed=1), randn(25, 3, seed=2)
WHOLE = torch.full((20,), 1 / 20)
SIDES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "unbalanced": {"rho_a": 0.7, "rho_b": 2.0},
    "semi-relaxed": {"rho_b": 0.0},
    "partial": {"mass": 0.6},
}


def warned(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result, and the warnings of convergence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert all(one.filename == __file__ for one in caught)
    return result, [str(one.message) for one in caught if one.category is ConvergenceWarning]


def test_what_has_not_converged_warns_with_the_remedy() -> None:
    result, texts = warned(lambda: sinkhorn(X, Y, epsilon=1e-3, max_iter=20))
    assert not bool(result.converged) and float(result.error) > 1e-5
    assert texts == [
        f"sinkhorn: expected error <= tol = 1e-05, got {float(result.error):.3g} after max_iter = 20 iterations: write a larger "
        "max_iter or epsilon, annealing=, or tol=0 for a fixed number of iterations"
    ]
    result, texts = warned(lambda: sinkhorn(X, Y, epsilon=1.0))
    assert bool(result.converged) and texts == []
    _, texts = warned(lambda: sinkhorn(X, Y, epsilon=1e-3, max_iter=20, tol=0))
    assert texts == []


def test_batches_count_the_problems_that_have_not_converged() -> None:
    result, texts = warned(lambda: sinkhorn(X, Y, epsilon=1.0, max_iter=20))
    epsilon = torch.tensor([1e-3, 10.0, 1e-3])
    result, texts = warned(lambda: sinkhorn(X.expand(3, -1, -1), Y[None], epsilon=epsilon, max_iter=20))
    assert result.converged.tolist() == [False, True, False]
    assert len(texts) == 1 and "(2 of 3 problems)" in texts[0]


def test_a_line_warns_once_whatever_the_numbers_are() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for k in range(3):
            sinkhorn(X + k, Y, epsilon=1e-3, max_iter=20 + k)
        sinkhorn(X, Y, epsilon=1e-3, max_iter=20)
    assert [one.category for one in caught] == [ConvergenceWarning] * 2
    assert issubclass(ConvergenceWarning, RuntimeWarning)


def test_divergences_warn_once_and_return_their_errors() -> None:
    result, texts = warned(lambda: sinkhorn_divergence(X, Y, epsilon=1e-3, max_iter=9, return_result=True))
    assert len(texts) == 1 and texts[0].startswith("sinkhorn_divergence: expected error <= tol")
    errors = [float(sinkhorn(p, q, epsilon=1e-3, max_iter=9, tol=0, updates="symmetric").error)
              for p, q in ((X, Y), (X, X), (Y, Y))]  # fmt: skip
    assert float(result.error) == max(errors) and int(result.iterations) == 9 and not bool(result.converged)
    assert result.value == warned(lambda: sinkhorn_divergence(X, Y, epsilon=1e-3, max_iter=9))[0]
    loss = SinkhornDivergence(epsilon=1e-3, max_iter=9)
    assert len(warned(lambda: loss(X, Y))[1]) == 1
    batch = sinkhorn_divergence(X[None], Y[None], epsilon=1.0, reduction="mean", return_result=True)
    assert batch.value.shape == () and batch.error.shape == (1,) and batch.converged.tolist() == [True]


def test_no_warning_where_values_are_hidden() -> None:
    def solve(x: Tensor) -> Tensor:
        return sinkhorn(x, Y, epsilon=1e-3, max_iter=9).value

    assert warned(lambda: torch.func.vmap(solve)(X.expand(2, -1, -1)))[1] == []
    assert warned(lambda: torch.compile(solve, backend="eager", fullgraph=True)(X))[1] == []
    with FakeTensorMode() as mode:
        x, y = mode.from_tensor(X), mode.from_tensor(Y)
        assert warned(lambda: sinkhorn(x, y, epsilon=1e-3))[1] == []
        assert warned(lambda: sinkhorn(x, y, epsilon=1.0, init=(x[:, 0], y[:, 0])))[1] == []


@pytest.mark.parametrize("name", SIDES)
@pytest.mark.parametrize("updates", ["alternating", "symmetric", "mixed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_error_of_a_solution_beside_what_is_not_finite(
    name: str, updates: Any, dtype: torch.dtype, device: torch.device
) -> None:
    x, y = X.to(device, dtype), Y.to(device, dtype)
    bad = x.clone()
    bad[3, 1] = torch.nan
    options: dict[str, Any] = {"updates": updates, "max_iter": 20, **SIDES[name]}
    half = {"storage": "half"} if dtype == torch.float32 else {}
    calls: list[Callable[[], Any]] = [
        lambda: sinkhorn(x, y, epsilon=1e-30, **options),
        lambda: sinkhorn(cost_matrix=torch.cdist(x, y), epsilon=1e-30, **half, **options),
        lambda: sinkhorn(bad, y, epsilon=1.0, **options),
        lambda: sinkhorn(cost_matrix=torch.cdist(bad, y), epsilon=1.0, **half, **options),
    ]
    for call in calls:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = call()
        finite = bool(result.value.isfinite() & result.linear.isfinite())
        assert finite or not bool(result.error.isfinite() | result.converged), result[:2]
    if name == "balanced" and device.type == "cpu":
        assert "epsilon = 1e-30 is too small or too large for" in warned(calls[0])[1][0]


def test_an_infinite_error_beside_a_finite_value_asks_for_iterations() -> None:
    """After few symmetric updates a marginal is 0, and its logarithm infinite."""
    x, y = randn(5, 3, seed=0), randn(6, 3, seed=1)
    result, (message,) = warned(
        lambda: sinkhorn_divergence(x, y, epsilon=1e-3, max_iter=2, return_result=True)
    )
    assert bool(result.error.isinf()) and bool(result.value.isfinite()) and not bool(result.converged)
    assert "write a larger max_iter" in message


def test_half_weights_are_rescaled_to_equal_sums(device: torch.device) -> None:
    x, y = X.to(device), Y.to(device)
    exact = torch.softmax(randn(20, seed=3), 0).to(device)
    truth = sinkhorn(x, y, epsilon=1.0, a=exact)
    for dtype in (torch.float16, torch.bfloat16):
        got = sinkhorn(x, y, epsilon=1.0, a=exact.to(dtype))
        assert bool(got.converged)
        # A weight is off by its own rounding, and the value by about as much.
        assert abs(float(got.value / truth.value) - 1) < torch.finfo(dtype).eps
    both = sinkhorn(x, y, epsilon=1.0, a=exact.bfloat16(), b=torch.full((25,), 1 / 25, device=device).half())
    assert bool(both.converged)
    with pytest.raises(ValueError, match="a: expected the sum of b"):
        sinkhorn(X, Y, epsilon=1.0, a=torch.ones(20).half())


def test_sums_within_rounding_are_equal() -> None:
    for weights in (WHOLE, torch.full((20,), 1 / 20, dtype=torch.float64).float(), WHOLE * (1 + 5e-5)):
        sinkhorn(X, Y, epsilon=1.0, a=weights, max_iter=5, tol=0)
    with pytest.raises(ValueError, match="a: expected the sum of b"):
        sinkhorn(X, Y, epsilon=1.0, a=WHOLE * 1.001)
    assert bool(sinkhorn(X, Y, epsilon=1.0, a=torch.ones(20), rho_a=1.0).converged)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_other_sums_make_nan() -> None:
    weights = torch.stack([WHOLE, torch.ones(20)]).cuda()
    result = sinkhorn(X.cuda().expand(2, -1, -1), Y.cuda()[None], epsilon=1.0, a=weights)
    assert result.converged.tolist() == [True, False] and result.value.isnan().tolist() == [False, True]
    too_much = sinkhorn(X.cuda(), Y.cuda(), epsilon=1.0, mass=1.5)
    assert bool(too_much.value.isnan()) and not bool(too_much.converged)


def test_weights_are_taken_as_arrays_lists_and_integers() -> None:
    want = sinkhorn(X, Y, epsilon=1.0, a=WHOLE, b=torch.full((25,), 1 / 25)).value
    assert sinkhorn(X, Y, epsilon=1.0, a=np.full(20, 1 / 20), b=[1 / 25] * 25).value == want
    counts = sinkhorn(X, Y, epsilon=1.0, a=torch.ones(20, dtype=torch.int64), b=np.full(25, 20 / 25))
    assert float(counts.value) == pytest.approx(
        float(sinkhorn(X, Y, epsilon=1.0, a=torch.ones(20), b=torch.full((25,), 20 / 25)).value)
    )
    lossless = sinkhorn(X.double(), Y.double(), epsilon=1.0, a=WHOLE)
    assert lossless.value.dtype == torch.float64


# Gromov-Wasserstein
POINTS, OTHERS = randn(12, 2, seed=5), randn(10, 2, seed=6)
SOLVERS: dict[str, Any] = {
    "exact": partial(gromov_wasserstein, **DEFAULTS),
    "sampled": partial(gromov_wasserstein_sampled, **DEFAULTS),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_gromov_wasserstein_that_has_not_converged(name: str) -> None:
    result, texts = warned(lambda: SOLVERS[name](POINTS, OTHERS, max_iter=2))
    assert not bool(result.converged)
    assert len(texts) == 1 and "max_iter = 2 steps" in texts[0] and "write a larger max_iter" in texts[0]
    result, texts = warned(lambda: SOLVERS[name](POINTS, POINTS.flip(0), epsilon=0.1))
    assert bool(result.converged) and texts == [] and float(result.error) < 0.1


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_gromov_wasserstein_of_points_that_are_not_finite(name: str, value: float) -> None:
    bad = POINTS.clone()
    bad[3, 1] = value
    result, texts = warned(lambda: SOLVERS[name](bad, OTHERS))
    assert not bool(result.converged) and not float(result.error) < torch.inf
    assert len(texts) == 1 and "contain NaN" in texts[0]


def test_a_plan_whose_sums_are_wrong_has_not_converged() -> None:
    """Mass has ceased to move, but the last problem has not come to its marginals."""
    x, y = randn(6, 2, seed=0), randn(7, 3, seed=1)
    options: dict[str, Any] = {"epsilon": 0.01, "cost_normalization": None}
    result, texts = warned(lambda: gromov_wasserstein(x, y, **options))
    assert not bool(result.converged) and float(result.history[-1]) < 1e-3
    off = (result.plan.to_dense().sum(0) * 7 - 1).abs().max()
    assert off > 0.1 and result.error > 0.1
    assert texts == [
        f"gromov_wasserstein: expected a plan with an error of at most 0.1, got {float(result.error):.3g}: write a larger epsilon or polish_iters"
    ]
    batch = torch.stack([x, randn(6, 2, seed=1)]), torch.stack([y, randn(7, 3, seed=2)])
    assert "(2 of 2 problems)" in warned(lambda: gromov_wasserstein(*batch, **options))[1][0]
    with pytest.warns(
        match="GromovTransport: expected a plan with an error of at most 0.1, got .*larger epsilon"
    ):
        GromovTransport(**options).fit(x.numpy(), Xt=y.numpy())


def test_a_sampled_plan_whose_sums_do_not_stand_has_not_converged() -> None:
    result, texts = warned(lambda: gromov_wasserstein_sampled(POINTS, OTHERS, epsilon=1e-10))
    assert not result.converged and result.error > 0.1 and len(texts) == 1


@pytest.mark.parametrize("name", SOLVERS)
def test_tables_in_the_place_of_points_warn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpalign._core.checks._warned", set())
    tables = torch.cdist(POINTS, POINTS), torch.cdist(OTHERS, OTHERS)
    with pytest.warns(UserWarning, match=r"did you mean distances=\(x, y\)\?"):
        SOLVERS[name](*tables, max_iter=1)
    for options in ({"geometry": "euclidean"}, {}):
        x, y = tables if options else (POINTS, tables[1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            monkeypatch.setattr("warpalign._core.checks._warned", set())
            SOLVERS[name](x, y, max_iter=1, **options)
        assert all(one.category is ConvergenceWarning for one in caught)


@pytest.mark.parametrize("name", SOLVERS)
def test_infinite_distances_are_refused(name: str) -> None:
    table = torch.cdist(POINTS, POINTS)
    table[:5, 5:] = table[5:, :5] = torch.inf
    table[-1, :-1] = table[:-1, -1] = torch.inf
    with pytest.raises(
        ValueError, match=r"distances\[1\]: expected finite .* 3 components of 12 points: write"
    ):
        SOLVERS[name](distances=(torch.cdist(OTHERS, OTHERS), table))


@pytest.mark.parametrize("name", SOLVERS)
def test_features_of_another_dtype_are_taken(name: str) -> None:
    features = randn(12, 10, seed=7).square()
    options: dict[str, Any] = {"feature_weight": 0.3, "epsilon": 0.1, "max_iter": 30}
    want = SOLVERS[name](POINTS, OTHERS, feature_cost=features, **options)
    for dtype in (torch.float64, torch.float16):
        got = SOLVERS[name](POINTS, OTHERS, feature_cost=features.to(dtype), **options)
        exact = dtype == torch.float64 and name == "exact"
        assert got.plan.to_dense().dtype == (torch.float64 if exact else torch.float32)
        assert torch.allclose(got.plan.to_dense().float(), want.plan.to_dense(), rtol=2e-2)
    without = SOLVERS[name](POINTS, OTHERS, feature_cost=features, **{**options, "feature_weight": 0.0})
    plain = SOLVERS[name](POINTS, OTHERS, epsilon=0.1, max_iter=30)
    assert torch.allclose(without.plan.to_dense(), plain.plan.to_dense(), rtol=1e-4)
