"""Missing time steps and "auto" in all that is built on soft_dtw: sets of series, barycenters, estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import randn
from warpalign._core.series import SeriesSet, as_series, without_gaps
from warpalign.metrics import SoftDTWMetric

pytest.importorskip("sklearn")
F64 = torch.float64


def holes(*shape: int, seed: int = 0) -> Tensor:
    """A mask with a step missing in about one of five places, and none without a step."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.2
    mask[:, 0] = False
    return mask


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_all_pairs_are_those_of_soft_dtw(device: torch.device, normalize: bool, ragged: bool) -> None:
    X, Y = randn(7, 9, 2, seed=0, device=device, dtype=F64), randn(4, 8, 2, seed=1, device=device, dtype=F64)
    x_mask, y_mask = holes(7, 9).to(device), holes(4, 8, seed=1).to(device)
    n = torch.tensor([9, 3, 7, 7, 2, 9, 5] if ragged else [9] * 7, device=device)
    X = X.masked_fill(x_mask[:, :, None], torch.nan).requires_grad_()  # what is missing is not looked at
    options: dict[str, Any] = {"gamma": 0.3, "normalize": normalize}

    def rows(other: Tensor, mask: Tensor, lengths: Tensor | None) -> Tensor:
        return torch.stack(
            [
                warpalign.soft_dtw(
                    X[i].expand(len(other), -1, -1), other, x_lengths=n[i].expand(len(other)), y_lengths=lengths,
                    x_mask=x_mask[i].expand(len(other), -1), y_mask=mask, **options,
                )
                for i in range(len(X))
            ]
        )  # fmt: skip

    for got, expected in (
        (warpalign.cdist_soft_dtw(X, Y, x_lengths=n, x_mask=x_mask, y_mask=y_mask, block_size=5, **options), rows(Y, y_mask, None)),
        (warpalign.cdist_soft_dtw(X, x_lengths=n, x_mask=x_mask, block_size=6, **options), rows(X, x_mask, n)),
    ):  # fmt: skip
        assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
        weights = randn(*got.shape, seed=3, device=device, dtype=F64)
        gradients = [torch.autograd.grad((weights * value).sum(), X)[0] for value in (got, expected)]
        assert torch.allclose(*gradients, rtol=1e-10, atol=1e-10)
        assert (gradients[0][x_mask] == 0).all()


def test_masked_arrays_are_masks() -> None:
    X, mask = randn(5, 9, 2, seed=0, dtype=F64), holes(5, 9)
    expected = warpalign.cdist_soft_dtw(X, x_mask=mask)
    arrays = np.ma.masked_array(X.numpy(), mask[:, :, None].expand(5, 9, 2).numpy())
    parts = [arrays[i] for i in range(5)]
    for form in (arrays, parts, [*parts[:2], *(np.ma.masked_array(part) for part in parts[2:])]):
        assert torch.equal(warpalign.cdist_soft_dtw(form), expected)
    univariate = np.ma.masked_invalid(np.where(mask, np.nan, X[:, :, 0]))
    assert torch.equal(
        warpalign.cdist_soft_dtw(univariate), warpalign.cdist_soft_dtw(X[:, :, 0], x_mask=mask)
    )
    unequal = [univariate[0], univariate[1, :6]]
    padded = torch.stack([X[0, :, 0], X[1, :, 0]])
    assert torch.equal(
        warpalign.cdist_soft_dtw(unequal),
        warpalign.cdist_soft_dtw(padded, x_lengths=[9, 6], x_mask=mask[:2]),
    )
    assert torch.equal(warpalign.cdist_soft_dtw(np.ma.masked_array(X.numpy())), warpalign.cdist_soft_dtw(X))


def test_masked_arrays_of_pairs() -> None:
    """What has no gradient takes them too: a batch, one pair, a list of unequal series."""
    x, y, mask = randn(3, 9, 2, seed=0, dtype=F64), randn(3, 7, 2, seed=1, dtype=F64), holes(3, 9)
    masked = np.ma.masked_array(x.numpy(), mask[:, :, None].expand(3, 9, 2).numpy())
    expected = warpalign.soft_dtw_alignment(x, y, x_mask=mask)
    got = warpalign.soft_dtw_alignment(masked, y)
    assert torch.equal(got.alignment, expected.alignment) and torch.equal(got.value, expected.value)
    path = warpalign.dtw_path(masked[1], y[1])
    alone = warpalign.dtw_path(x[1], y[1], x_mask=mask[1:2])
    assert torch.equal(path.value, alone.value) and torch.equal(path.paths, alone.paths)  # type: ignore[arg-type]
    listed = warpalign.soft_dtw_alignment([masked[0], masked[1, :6]], y[:2])
    ragged = warpalign.soft_dtw_alignment(x[:2], y[:2], x_lengths=[9, 6], x_mask=mask[:2])
    assert torch.equal(listed.alignment, ragged.alignment)
    metric = SoftDTWMetric()
    metric.update(masked, y)
    assert metric.compute().item() == pytest.approx(expected.value.mean().item())


def test_a_masked_step_at_the_end_is_no_padding() -> None:
    X = np.ma.masked_array([[1.0, 2.0, 5.0], [1.0, 3.0, 4.0]], [[False, False, True], [False] * 3])
    series = as_series(X, "X")
    assert (
        series.lengths is None and series.mask is not None and series.mask.tolist()[0] == [False, False, True]
    )


@pytest.mark.parametrize("method", ["lbfgs", "dba"])
def test_barycenters_of_series_with_missing_steps(device: torch.device, method: Any) -> None:
    """The least sum of the values that soft_dtw has with the mask; what is missing changes nothing."""
    X, mask = randn(6, 12, 2, seed=0, device=device, dtype=F64).cumsum(1), holes(6, 12).to(device)
    groups = [0, 0, 1, 1, 0, 1]
    results = []
    for filler in (torch.nan, 1e6):
        given = X.masked_fill(mask[:, :, None], filler)
        results.append(
            warpalign.soft_dtw_barycenter(
                given, x_mask=mask, groups=groups, gamma=0.1, method=method, max_iter=8
            )
        )
    assert torch.equal(results[0].barycenter, results[1].barycenter)
    centers, losses = results[0].barycenter, results[0].losses
    own = centers[torch.tensor(groups, device=device)]
    values = warpalign.soft_dtw(own, X, gamma=0.0 if method == "dba" else 0.1, y_mask=mask).cpu()
    sums = torch.zeros(2, dtype=F64).index_add(0, torch.tensor(groups), values)
    assert torch.allclose(sums, losses[:, -1], rtol=1e-9) and (losses[:, -1] < losses[:, 0]).all()


def test_a_barycenters_step_that_meets_missing_ones_alone_stays() -> None:
    X = torch.tensor([[[0.0], [9.0], [4.0]]], dtype=F64)
    start = torch.tensor([[1.0], [7.0], [5.0]], dtype=F64)
    mask = torch.tensor([[False, True, False]])
    found = warpalign.soft_dtw_barycenter(X, x_mask=mask, init=start, method="dba", bandwidth=0).barycenter
    assert found.tolist() == [[0.0], [7.0], [4.0]]


def test_gaps_are_interpolated_for_a_start() -> None:
    values = torch.tensor([[0.0, 1, 0, 0, 7, 0], [0, 0, 3, 0, 0, 0]])[:, :, None]
    mask = torch.tensor([[True, False, True, True, False, True], [True, True, False, True, False, False]])
    found = without_gaps(SeriesSet(values, torch.tensor([6, 4]), mask)).values[:, :, 0]
    assert found[0].tolist() == pytest.approx([1, 1, 3, 5, 7, 7]) and found[1, :4].tolist() == [3, 3, 3, 3]


def waves(count: int, seed: int) -> tuple[Any, Any]:
    """Masked arrays (count, 24) of two shapes, with holes, and their classes."""
    generator = np.random.default_rng(seed)
    phase = np.linspace(0, 6, 24) + generator.uniform(0, 0.5, (count, 1))
    kinds = np.arange(count) % 2
    values = np.where(kinds[:, None] == 0, np.sin(phase), 0.4 * phase - 1)
    return np.ma.masked_array(values, generator.uniform(size=values.shape) < 0.15, fill_value=1e9), kinds


@pytest.mark.parametrize("three_axes", [False, True])
def test_estimators_take_masked_arrays(three_axes: bool) -> None:
    (X, y), (queries, truth) = waves(16, 0), waves(8, 1)
    if three_axes:
        X, queries = X[:, :, None], queries[:, :, None]
    model = warpalign.SoftDTWKMeans(2, gamma=0.1, random_state=0, max_iter_barycenter=10).fit(X)
    assert np.array_equal(model.labels_ == model.labels_[0], y == y[0])
    assert np.array_equal(model.predict(X), model.labels_) and np.isfinite(model.cluster_centers_).all()
    voter = warpalign.SoftDTWKNeighborsClassifier(3, gamma=0.1).fit(X, y)
    assert np.array_equal(voter.predict(queries), truth)
    distances, indices = voter.kneighbors(queries, 2)
    table = warpalign.cdist_soft_dtw(queries, X, gamma=0.1).numpy()
    assert np.allclose(distances, np.sort(table, 1)[:, :2]) and indices.shape == (8, 2)
    own, _ = voter.kneighbors()
    square = warpalign.cdist_soft_dtw(X, gamma=0.1).numpy() + np.diag([np.inf] * 16)
    assert np.allclose(own, np.sort(square, 1)[:, :3])


# gamma="auto".


def test_auto_is_tslearns_heuristic() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metrics = pytest.importorskip("tslearn.metrics")
    X = randn(5, 12, 2, seed=0, dtype=F64)  # 60 steps: all of them are drawn
    gamma = metrics.gamma_soft_dtw(X.numpy(), n_samples=60, random_state=0)
    expected = warpalign.cdist_soft_dtw(X, gamma=float(gamma))
    assert torch.allclose(warpalign.cdist_soft_dtw(X, gamma="auto"), expected, rtol=1e-9)
    assert torch.allclose(warpalign.cdist_soft_dtw(X, X[:2], gamma="auto"), expected[:, :2], rtol=1e-9)
    got = warpalign.soft_dtw_barycenter(X, gamma="auto", max_iter=3).barycenter
    assert torch.allclose(got, warpalign.soft_dtw_barycenter(X, gamma=float(gamma), max_iter=3).barycenter)
    model = warpalign.SoftDTWKMeans(2, gamma="auto", random_state=0, max_iter=2).fit(X)
    assert model.gamma_ == pytest.approx(float(gamma), rel=1e-9)
    assert np.allclose(
        model.transform(X[:3, :7]),  # the gamma of the series that were fitted
        warpalign.cdist_soft_dtw(X[:3, :7], model.cluster_centers_, gamma=model.gamma_),
    )
    for kind in (warpalign.SoftDTWKNeighborsClassifier, warpalign.SoftDTWKNeighborsRegressor):
        assert kind(1, gamma="auto").fit(X, np.arange(5) % 2).gamma_ == model.gamma_


def test_auto_leaves_out_what_is_no_time_step() -> None:
    X, mask = randn(5, 12, 2, seed=0, dtype=F64), holes(5, 12)
    junk = X.masked_fill(mask[:, :, None], 1e6)
    junk[0, 9:] = torch.nan
    lengths = [9, 12, 12, 12, 12]
    of_steps = X[~mask & (torch.arange(12) < torch.tensor(lengths)[:, None])]
    gamma = 24 * float(torch.pdist(of_steps).quantile(0.5)) ** 2
    assert torch.allclose(
        warpalign.cdist_soft_dtw(junk, x_mask=mask, gamma="auto"),
        warpalign.cdist_soft_dtw(junk, x_mask=mask, gamma=gamma),
        rtol=1e-9,
    )


# The regressor; scikit-learn's own checks are in test_estimators.py.


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda distances: 1 / (1 + distances)])
def test_regressor(weights: Any) -> None:
    X, queries = randn(20, 9, 2, seed=0).numpy(), randn(6, 9, 2, seed=1).numpy()
    y = np.random.default_rng(0).normal(size=20)
    model = warpalign.SoftDTWKNeighborsRegressor(4, weights, gamma=0.5, normalize=True).fit(X, y)
    distances, indices = model.kneighbors(queries)
    shares = {"uniform": np.ones_like(distances), "distance": 1 / distances}.get(weights, 1 / (1 + distances))
    expected = (shares * y[indices]).sum(1) / shares.sum(1)
    assert np.allclose(model.predict(queries), expected)
    assert model.score(X, y) <= 1 and model.n_samples_fit_ == 20
    if weights == "distance":  # an equal series outvotes all others
        assert np.allclose(model.predict(X), y)
