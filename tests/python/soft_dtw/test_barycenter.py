"""Barycenters: the optimiser by itself, known minima, groups, weights, forms of input, and next to tslearn."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import randn
from warpalign import dtw, soft_dtw, soft_dtw_barycenter
from warpalign._core.series import as_series, resampled
from warpalign._soft_dtw.minimize import Criterion, Search, adam, lbfgs, minimize


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The series are short, other tests run on the same cores, and tslearn takes one thread by default."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The optimiser.


def rosenbrock(scales: Tensor) -> Any:
    """sum_i scale (x[i+1] - x[i]^2)^2 + (1 - x[i])^2, another scale for every search; minimum 0 at 1."""

    def evaluate(indices: list[int], positions: Tensor) -> tuple[Tensor, Tensor]:
        x = positions.clone().requires_grad_()
        losses = (scales[indices, None] * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)
        return losses.detach(), torch.autograd.grad(losses.sum(), x)[0]

    return evaluate


def start_of(count: int) -> Tensor:
    return randn(count, 8, seed=5, dtype=torch.float64)


def test_lbfgs_finds_minima_with_about_as_many_evaluations_as_scipy() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    scales = torch.tensor([1.0, 100.0, 10.0, 100.0], dtype=torch.float64)
    evaluate, starts = rosenbrock(scales), start_of(4)
    criterion = Criterion(max_iter=500, patience=3, tol=1e-15, unit=1e-3, epsilon=2.2e-16)
    ours = theirs = 0
    for index, start in enumerate(starts):
        evaluations = []

        def counted(indices: list[int], positions: Tensor, index: int = index) -> tuple[Tensor, Tensor]:
            evaluations.append(1)  # noqa: B023
            return evaluate([index], positions)  # type: ignore[no-any-return]

        (minimum,) = minimize([lbfgs(start, criterion, 2.0)], counted, lambda remaining: None)
        assert minimum.converged and minimum.losses[-1] < 4  # the other minimum of this function has 3.9...
        assert minimum.losses == sorted(minimum.losses, reverse=True)
        gradient = evaluate([index], minimum.position[None])[1]
        assert gradient.abs().max() < 1e-5
        ours += len(evaluations)

        def function(x: Any, index: int = index) -> tuple[float, Any]:
            loss, gradient = evaluate([index], torch.tensor(x)[None])
            return float(loss), gradient[0].numpy()

        theirs += optimize.minimize(function, start.numpy(), jac=True, method="L-BFGS-B", tol=1e-15).nfev
    assert ours < 1.3 * theirs


def test_searches_do_not_see_each_other() -> None:
    scales = torch.tensor([1.0, 100.0, 10.0], dtype=torch.float64)
    criterion = Criterion(max_iter=30, patience=3, tol=1e-9, unit=1.0, epsilon=2.2e-16)

    def searches() -> list[Search]:
        starts = start_of(3)
        return [
            lbfgs(starts[0], criterion, 2.0),
            adam(starts[1], criterion, 0.1),
            lbfgs(starts[2], criterion, 200.0),
        ]

    remaining: list[int] = []
    together = minimize(searches(), rosenbrock(scales), remaining.append)
    assert remaining == sorted(remaining, reverse=True) and remaining[-1] == 0
    for index, search in enumerate(searches()):
        (alone,) = minimize([search], rosenbrock(scales[[index]]), lambda remaining: None)
        assert torch.equal(alone.position, together[index].position)
        assert alone.losses == together[index].losses


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_beyond_a_wall(value: float) -> None:
    """x - log(x), whose first step leaps over the wall at 0: the line search comes back."""

    def evaluate(indices: list[int], x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(x > 0, x - x.log(), value).sum(1), torch.where(x > 0, 1 - 1 / x, value)

    criterion = Criterion(max_iter=50, patience=3, tol=1e-12, unit=1.0, epsilon=2.2e-16)
    start = torch.tensor([5.0], dtype=torch.float64)
    (minimum,) = minimize([lbfgs(start, criterion, 0.01)], evaluate, lambda remaining: None)
    assert minimum.converged
    assert abs(float(minimum.position) - 1) < 1e-5


def test_a_search_that_finds_no_lower_point_has_not_converged() -> None:
    """The slope is far from flat, but everywhere else the loss is infinite."""
    start = torch.tensor([3.0], dtype=torch.float64)

    def evaluate(indices: list[int], x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(x == start, x.square(), math.inf).sum(1), 2 * x

    criterion = Criterion(max_iter=50, patience=3, tol=1e-5, unit=1.0, epsilon=2.2e-16)
    (minimum,) = minimize([lbfgs(start, criterion, 2.0)], evaluate, lambda remaining: None)
    assert not minimum.converged
    assert minimum.losses == [9.0] and torch.equal(minimum.position, start)


def test_rounding_errors_do_not_cost_evaluations() -> None:
    """Near its minimum a float32 loss has no digits left: the search ends instead of halving its steps."""
    calls = 0

    def evaluate(indices: list[int], x: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        y = x.float()
        return (1e4 + (y**2).sum(1)).double(), 2 * x

    criterion = Criterion(max_iter=100, patience=3, tol=0.0, unit=1.0, epsilon=1.2e-7)
    start = torch.full((20,), 0.3, dtype=torch.float64)
    (minimum,) = minimize([lbfgs(start, criterion, 3.0)], evaluate, lambda remaining: None)
    assert minimum.converged and calls < 12


# Barycenters.


def objective(center: Tensor, X: Any, gamma: float, weights: Tensor | None = None) -> float:
    series = as_series(X, "X")
    center = center.detach()[None].double()
    values = soft_dtw(center, series.values.double(), gamma=gamma, y_lengths=series.lengths)
    return float(values.sum() if weights is None else values @ weights.to(values))


def noisy_copies(count: int = 12, size: int = 40, seed: int = 0) -> Tensor:
    """Bumps of the same shape that come early or late."""
    steps = torch.linspace(-1, 1, size)
    shifts = 0.3 * randn(count, 1, seed=seed)
    bumps = torch.exp(-((steps - shifts) ** 2) / 0.05)
    return torch.stack([bumps, -bumps], 2) + 0.05 * randn(count, size, 2, seed=seed + 1)


def test_adam_takes_the_steps_of_torch() -> None:
    start, scales = randn(6, seed=0).double(), torch.tensor([3.0])
    evaluate = rosenbrock(scales)
    search, steps = adam(start, Criterion(50, 10, 0.0, 1.0, 1e-16), 0.05), []
    wanted = start.clone()
    optimizer = torch.optim.Adam([wanted], lr=0.05)
    position = next(search)
    for _ in range(50):
        steps.append((position - wanted).abs().max())
        loss, gradient = evaluate([0], position[None])
        position = search.send((float(loss[0]), gradient[0]))
        _, gradient = evaluate([0], wanted[None])
        wanted.grad = gradient[0]
        optimizer.step()
    assert max(steps) < 1e-12  # the same operations: rounding alone could differ between releases of torch
    assert (position - start).abs().max() > 0.5


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_local_minimum(device: torch.device, dtype: torch.dtype, method: Any) -> None:
    X = noisy_copies().to(device, dtype)
    options: dict[str, Any] = {"method": method, "lr": 0.02, "max_iter": 500, "tol": 1e-7}
    result = soft_dtw_barycenter(X, gamma=0.1, **options)
    center = result.barycenter
    assert (center.shape, center.dtype, center.device.type) == ((40, 2), dtype, device.type)
    assert result.converged and result.converged.shape == ()
    assert result.losses[0] == pytest.approx(objective(X.mean(0), X, 0.1), rel=1e-5)
    assert result.losses[-1] == pytest.approx(objective(center, X, 0.1), rel=1e-5)
    assert (result.losses.diff() <= 0).all() and result.losses[-1] < result.losses[0]
    at = center.double().requires_grad_()
    start = X.mean(0).double().requires_grad_()
    gradients = [
        torch.autograd.grad(soft_dtw(z[None], X.double(), gamma=0.1).sum(), z)[0] for z in (at, start)
    ]
    assert gradients[0].norm() < (0.005 if method == "lbfgs" else 0.1) * gradients[1].norm()


def test_a_minimum_that_is_known() -> None:
    """One time step: soft-DTW is the squared distance, so the barycenter is the weighted mean."""
    X = randn(9, 1, 3, seed=0, dtype=torch.float64)
    weights = torch.rand(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (weights @ X[:, 0]) / weights.sum()
    start = torch.zeros(1, 3, dtype=torch.float64)
    got = soft_dtw_barycenter(X, weights=weights, init=start, tol=1e-12)
    torch.testing.assert_close(got.barycenter, expected[None], rtol=1e-6, atol=1e-6)


def test_groups_in_one_batch_are_groups_one_by_one(device: torch.device) -> None:
    X = [noisy_copies(7, 20 + 5 * k, k)[i].to(device, torch.float64) for k in range(3) for i in range(7)]
    groups = torch.tensor([k for k in range(3) for _ in range(7)])
    weights = torch.rand(21, generator=torch.Generator().manual_seed(0)).double() + 0.1
    shuffled = torch.randperm(21, generator=torch.Generator().manual_seed(1))
    result = soft_dtw_barycenter(
        [X[i] for i in shuffled],
        gamma=0.1,
        groups=groups[shuffled],
        weights=weights[shuffled],
        barycenter_size=25,
        block_size=4,
        tol=1e-9,
        max_iter=500,
    )
    assert result.barycenter.shape == (3, 25, 2) and result.converged.shape == (3,)
    for k in range(3):
        alone = soft_dtw_barycenter(
            X[7 * k : 7 * k + 7],
            gamma=0.1,
            weights=weights[7 * k : 7 * k + 7],
            barycenter_size=25,
            tol=1e-9,
            max_iter=500,
        )
        torch.testing.assert_close(result.barycenter[k], alone.barycenter, rtol=1e-3, atol=1e-3)
        assert float(result.losses[k, -1]) == pytest.approx(float(alone.losses[-1]), rel=1e-5)
        assert objective(result.barycenter[k], X[7 * k : 7 * k + 7], 0.1, weights[7 * k : 7 * k + 7]) == (
            pytest.approx(float(result.losses[k, -1]), rel=1e-5)
        )


def test_repeated_runs_give_the_same_bits(device: torch.device) -> None:
    X = noisy_copies().to(device)
    groups = [0, 1] * 6
    first, second = (soft_dtw_barycenter(X, gamma=0.1, groups=groups) for _ in range(2))
    assert torch.equal(first.barycenter, second.barycenter) and torch.equal(first.losses, second.losses)


def test_weights_and_padding_count_as_they_should(device: torch.device) -> None:
    X = noisy_copies(6).to(device, torch.float64)
    expected = soft_dtw_barycenter(torch.cat([X[:2], X[:1], X[2:5]]), gamma=0.5).barycenter
    got = soft_dtw_barycenter(X, gamma=0.5, weights=[2, 1, 1, 1, 1, 0])
    torch.testing.assert_close(got.barycenter, expected, rtol=1e-4, atol=1e-4)
    lengths = torch.tensor([40, 35, 30, 40, 22, 33], device=device)
    padded = X.clone()
    for series, length in zip(padded, lengths, strict=True):
        series[length:] = math.nan
    by_padding, by_lengths = (
        soft_dtw_barycenter(padded, gamma=0.5),
        soft_dtw_barycenter(X, gamma=0.5, x_lengths=lengths),
    )
    assert torch.equal(by_padding.barycenter, by_lengths.barycenter)
    ragged = [series[:length] for series, length in zip(X, lengths, strict=True)]
    assert torch.equal(soft_dtw_barycenter(ragged, gamma=0.5).barycenter, by_padding.barycenter)


def test_starts(device: torch.device) -> None:
    X = noisy_copies(5, 30).to(device)
    start = soft_dtw_barycenter(X, max_iter=0)
    torch.testing.assert_close(start.barycenter, X.mean(0))
    assert start.losses.shape == (1,) and not start.converged
    assert soft_dtw_barycenter(X, barycenter_size=11, max_iter=0).barycenter.shape == (11, 2)
    own = randn(17, 2, seed=0, device=device, dtype=torch.float64)
    assert torch.equal(soft_dtw_barycenter(X, init=own, max_iter=0).barycenter, own.float())
    centers = soft_dtw_barycenter(X, groups=[0, 1, 1, 0, 0], init=own.expand(2, -1, -1)).barycenter
    assert centers.shape == (2, 17, 2)


@pytest.mark.parametrize("method", ["lbfgs", "adam", "dba"])
def test_in_inference_mode(device: torch.device, method: Any) -> None:
    X = torch.randn(5, 9, 2, device=device)
    options: dict[str, Any] = {"method": method, "max_iter": 3}
    expected = soft_dtw_barycenter(X, init=X.mean(0), **options).barycenter
    with torch.inference_mode():
        assert torch.equal(soft_dtw_barycenter(X.clone(), init=X.mean(0), **options).barycenter, expected)


def test_a_start_may_be_an_array() -> None:
    X = torch.randn(3, 5, 2)
    expected = soft_dtw_barycenter(X, init=X[0], max_iter=3).barycenter
    for start in (X[0].numpy(), X[0].tolist()):
        assert torch.equal(soft_dtw_barycenter(X, init=start, max_iter=3).barycenter, expected)


def test_a_start_at_the_minimum_ends_soon() -> None:
    X = noisy_copies()
    first = soft_dtw_barycenter(X, gamma=0.1, tol=1e-6)
    again = soft_dtw_barycenter(X, gamma=0.1, init=first.barycenter)
    assert again.converged and len(again.losses) <= 5
    assert again.losses[-1] <= first.losses[-1] + 1e-4


def test_resampling() -> None:
    ramp = [torch.arange(n).double()[:, None] / (n - 1) for n in (5, 3, 9)]
    got = resampled(as_series(ramp, "X"), 7)
    torch.testing.assert_close(got, torch.linspace(0, 1, 7, dtype=torch.float64).expand(3, -1)[..., None])
    X = randn(4, 9, 2, seed=0)
    assert torch.equal(resampled(as_series(X, "X"), 9), X)
    assert torch.equal(resampled(as_series(X[:, :1], "X"), 3), X[:, :1].expand(-1, 3, -1))
    assert torch.equal(resampled(as_series(X, "X"), 1), X[:, 4:5])


def test_annealing_finds_a_lower_minimum() -> None:
    """Class 2 of Trace at a small gamma: the plain descent stays near the mean's smeared jump."""
    series, labels, *_ = pytest.importorskip("tslearn.datasets").CachedDatasets().load_dataset("Trace")
    X = series[labels == 2].astype(np.float32)
    plain = soft_dtw_barycenter(X, gamma=0.1)
    annealed = soft_dtw_barycenter(X, gamma=0.1, annealing=(100, 10))
    assert objective(annealed.barycenter, X, 0.1) == pytest.approx(float(annealed.losses[-1]), rel=1e-5)
    assert annealed.losses[-1] < plain.losses[-1] - 0.05 * abs(plain.losses[-1])


@pytest.mark.parametrize("gamma", [1.0, 0.1])
def test_as_low_as_tslearn_in_less_time(gamma: float) -> None:
    barycenters = pytest.importorskip("tslearn.barycenters")
    series, labels, *_ = pytest.importorskip("tslearn.datasets").CachedDatasets().load_dataset("Trace")

    settings: dict[str, Any] = {
        "tol": 1e-5,
        "max_iter": 100,
    }  # our defaults; tslearn's end sooner, and higher

    def best_of_three(barycenter: Any) -> tuple[float, Tensor]:
        barycenter(max_iter=1)  # Numba compiles, torch loads
        times = []
        for _ in range(3):
            start = time.perf_counter()
            center = torch.as_tensor(barycenter())
            times.append(time.perf_counter() - start)
        return min(times), center

    for label in (1, 3):
        X = series[labels == label][:8, ::2]
        their_time, theirs = best_of_three(
            partial(barycenters.softdtw_barycenter, X, gamma=gamma, **settings)
        )
        our_time, ours = best_of_three(
            lambda X=X, **options: soft_dtw_barycenter(X, gamma=gamma, **options).barycenter
        )
        assert objective(ours, X, gamma) <= objective(theirs, X, gamma) + 1e-9
        assert our_time < their_time


# DTW barycenter averaging.


@pytest.mark.parametrize(
    "options",
    [{}, {"bandwidth": 4}, {"band": "itakura", "max_slope": 3.0}],
    ids=["no band", "radius", "slope"],
)
@pytest.mark.parametrize("is_ragged", [False, True])
def test_dba_takes_tslearns_steps(options: dict[str, Any], is_ragged: bool) -> None:
    """The same start, paths and means, so the same series after every round; and the sums that it reports."""
    tslearn = pytest.importorskip("tslearn.barycenters")
    X = noisy_copies(8, 24).double()
    series = [one[: 24 - index] for index, one in enumerate(X)] if is_ragged else list(X)
    weights = torch.linspace(0.5, 2, 8, dtype=torch.float64)
    metric = {
        "radius": {"sakoe_chiba_radius": options.get("bandwidth")},
        "slope": {"itakura_max_slope": options.get("max_slope")},
    }.get("radius" if "bandwidth" in options else "slope" if options else "", {})
    for rounds in (1, 3, 30):
        got = soft_dtw_barycenter(
            series, method="dba", weights=weights, init=X[0], max_iter=rounds, tol=0.0, **options
        )
        theirs = tslearn.dtw_barycenter_averaging(
            [one.numpy() for one in series],
            weights=weights.numpy(),
            init_barycenter=X[0].numpy(),
            max_iter=rounds,
            tol=-1.0,
            metric_params=metric,
        )
        np.testing.assert_allclose(got.barycenter, theirs, rtol=0, atol=1e-9)
    values = torch.stack([dtw(got.barycenter, one, **options) for one in series])
    assert got.losses[-1].item() == pytest.approx(float(weights @ values), rel=1e-12)
    assert bool(got.converged) and (got.losses.diff() <= 0).all() and got.losses[-1] < got.losses[0]


def test_dba_of_groups_is_dba_one_by_one(device: torch.device) -> None:
    X, groups = noisy_copies(9, 20).to(device), torch.tensor([0, 2, 1, 1, 0, 2, 2, 0, 1])
    lengths = torch.tensor([20, 3, 18, 1, 20, 20, 15, 11, 20], device=device)
    padded = X.clone()
    padded[torch.arange(20, device=device) >= lengths[:, None]] = (
        math.inf
    )  # what is behind the lengths is never used
    got = soft_dtw_barycenter(padded, method="dba", groups=groups, x_lengths=lengths, block_size=2)
    for group in range(3):
        own = groups == group
        alone = soft_dtw_barycenter(X[own], method="dba", x_lengths=lengths[own], barycenter_size=20)
        # A GPU sums groups of other sizes in another order.
        tolerance = 0.0 if device.type == "cpu" else 1e-6
        torch.testing.assert_close(got.barycenter[group], alone.barycenter, rtol=tolerance, atol=tolerance)
        assert got.losses[group, -1] == pytest.approx(alone.losses[-1].item(), rel=tolerance)
        assert got.converged[group] == alone.converged


def test_dba_of_equal_series_is_that_series_and_a_penalty_keeps_it_diagonal() -> None:
    X = noisy_copies(1, 15).expand(3, -1, -1)
    found = soft_dtw_barycenter(X, method="dba", init=X[0] + 1)
    torch.testing.assert_close(found.barycenter, X[0])
    assert found.losses[-1] < 1e-9
    X = noisy_copies(5, 15)
    rigid = soft_dtw_barycenter(X, method="dba", step_penalty=1e6)
    torch.testing.assert_close(rigid.barycenter, X.mean(0))


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    soft_dtw_barycenter(noisy_copies(4, 10), groups=[0, 0, 1, 1], progress=True)
    assert "2 of 2 done" in capsys.readouterr().err


# What has not converged


def texts_of(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result, and the texts of warnings, each of which is one of convergence at the line that called."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert all(one.category is warpalign.ConvergenceWarning and one.filename == __file__ for one in caught)
    return result, [str(one.message) for one in caught]


def test_steps_that_are_too_long_have_not_converged() -> None:
    X = noisy_copies(2, 5)
    result, texts = texts_of(lambda: soft_dtw_barycenter(X, method="adam", lr=10.0, max_iter=20))
    assert not bool(result.converged)
    assert texts == [
        "soft_dtw_barycenter: expected losses whose relative change is at most tol = 1e-05, got larger relative changes after "
        "max_iter = 20 iterations: write a smaller lr than 10, a larger max_iter or tol, or tol=0 for at most max_iter iterations"
    ]
    assert bool((result.losses.diff() <= 0).all())


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_max_iter_warns_once_and_tol_0_is_silent(method: Any) -> None:
    X = noisy_copies(4, 10)
    result, texts = texts_of(lambda: soft_dtw_barycenter(X, groups=[0, 0, 1, 1], method=method, max_iter=1))
    assert not bool(result.converged.any())
    assert len(texts) == 1 and "after max_iter = 1 iterations (2 of 2 groups): write " in texts[0]
    for options in ({"max_iter": 1, "tol": 0.0}, {"max_iter": 0}, {"max_iter": 1000}):
        given: Any = options
        assert texts_of(lambda given=given: soft_dtw_barycenter(X, method=method, **given))[1] == []


@pytest.mark.parametrize("method", ["lbfgs", "adam", "dba"])
@pytest.mark.parametrize("max_iter", [0, 5])
def test_a_loss_that_is_not_finite_has_not_converged(method: Any, max_iter: int) -> None:
    X = torch.randn(2, 5, 3) * 1e20
    result, texts = texts_of(lambda: soft_dtw_barycenter(X, method=method, max_iter=max_iter, tol=0))
    assert not bool(result.converged | result.losses[-1].isfinite())
    assert texts == [
        "soft_dtw_barycenter: expected finite losses, got inf: values of X are too large for float32, or the band leaves a pair no "
        "path: write X.double(), X divided by its largest value, or a wider band"
    ]
