"""compat.tslearn's DTW, k-means and nearest neighbours compute what tslearn's do; they run beside it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from tests.python.helpers import numpy64, randn
from warpalign.compat import tslearn as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    metrics = pytest.importorskip("tslearn.metrics")
    barycenters = pytest.importorskip("tslearn.barycenters")
    clustering = pytest.importorskip("tslearn.clustering")
    neighbors = pytest.importorskip("tslearn.neighbors")

BANDS: dict[str, dict[str, Any]] = {
    "none": {},
    "radius": {"sakoe_chiba_radius": 2},
    "slope": {"global_constraint": "itakura"},
}
RAGGED = [[1, 2, 2, 3], [1.0, 2.0, 3.0, 4.0, 2.5], [0.5, 1.5, 3.5]]


def groups(count: int, *, ragged: bool = False) -> Any:
    """(count, 16, 2) series of three shapes, of which the ragged ones end early."""
    generator = np.random.default_rng(3)
    phase = np.linspace(0, 6, 16) + generator.uniform(0, 0.4, (count, 1))
    shapes = [np.sin(phase), np.cos(2 * phase), 0.3 * phase - 1]
    first = np.choose(np.arange(count)[:, None] % 3, shapes)
    values = np.stack([first, first[:, ::-1]], 2) + generator.normal(0, 0.05, (count, 16, 2))
    if ragged:
        for index in range(0, count, 4):
            values[index, 16 - 1 - index % 3 :] = np.nan
    return values


@pytest.mark.parametrize("band", BANDS)
def test_pairs(band: str) -> None:
    x, y = numpy64(randn(9, 2, seed=1)), numpy64(randn(11, 2, seed=2))
    got, theirs = (m.dtw(x, y, **BANDS[band]) for m in (ours, metrics))
    assert got == pytest.approx(theirs, rel=1e-12) and type(got) is type(theirs)
    (path, value), (their_path, their_value) = (m.dtw_path(x, y, **BANDS[band]) for m in (ours, metrics))
    assert path == [(int(i), int(j)) for i, j in their_path] and value == pytest.approx(their_value)
    assert {type(i) for cell in path for i in cell} == {int} and type(path[0]) is tuple
    for second in (None, [y, x[:7]]):
        tables = [m.cdist_dtw([x, y], second, **BANDS[band]) for m in (ours, metrics)]
        assert np.allclose(*tables, rtol=1e-12, atol=0) and tables[0].dtype == tables[1].dtype


def test_tensors_have_gradients() -> None:
    x, y = (randn(size, 2, seed=size, dtype=torch.float64, grad=True) for size in (6, 7))
    got, theirs = ours.dtw(x, y), metrics.dtw(x, y)
    for a, b in zip(*(torch.autograd.grad(v, (x, y)) for v in (got, theirs)), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("band", ["none", "radius"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weights": np.array([1.0, 2.0, 0.5])},
        {"init_barycenter": np.zeros((6, 1))},
        {"barycenter_size": 4},
    ],
)
@pytest.mark.parametrize("data", ["lists", "(n, N)"])
def test_barycenters(data: str, settings: dict[str, Any], band: str) -> None:
    X = RAGGED if data == "lists" else np.arange(12.0).reshape(3, 4) % 5
    got, theirs = (
        module.dtw_barycenter_averaging(X, max_iter=7, metric_params=BANDS[band], **settings)
        for module in (ours, barycenters)
    )
    assert got.shape == theirs.shape and got.dtype == theirs.dtype
    assert np.allclose(got, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"metric": "dtw"},
        {"metric": "dtw", "metric_params": {"sakoe_chiba_radius": 3}, "init": "random", "n_init": 2},
        {"metric": "softdtw", "metric_params": {"gamma": 0.5}, "max_iter_barycenter": 5},
        {"metric": "softdtw", "dtw_inertia": True, "max_iter_barycenter": 3},
        {"metric": "euclidean"},
    ],
    ids=str,
)
def test_kmeans(settings: dict[str, Any], ragged: bool) -> None:
    if ragged and settings["metric"] == "euclidean":
        pytest.skip("series of one length")
    X = groups(18, ragged=ragged)
    options: dict[str, Any] = {"n_clusters": 3, "max_iter": 4, "random_state": 5, **settings}
    mine, theirs = ours.TimeSeriesKMeans(**options).fit(X), clustering.TimeSeriesKMeans(**options).fit(X)
    assert np.array_equal(mine.labels_, theirs.labels_) and mine.n_iter_ == theirs.n_iter_
    assert mine.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6, abs=1e-6)
    # A few steps of L-BFGS from one start: alike to far less than what they still move by.
    assert np.allclose(mine.cluster_centers_, theirs.cluster_centers_, rtol=0, atol=1e-5)
    assert np.array_equal(mine.predict(X), mine.labels_)
    assert np.allclose(mine.transform(X), theirs.transform(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"metric": "softdtw", "metric_params": {"gamma_sdtw": 0.01}},
        {"metric_params": {"sakoe_chiba_radius": 2, "n_jobs": 1}, "weights": "distance", "n_neighbors": 3},
        {"metric": "sqeuclidean", "n_neighbors": 1},
    ],
    ids=str,
)
def test_neighbors(settings: dict[str, Any]) -> None:
    X, y = groups(20), np.array(["a", "b", "c"])[np.arange(20) % 3]
    queries = groups(24)[20:] + 0.1
    mine, theirs = (m.KNeighborsTimeSeriesClassifier(**settings).fit(X, y) for m in (ours, neighbors))
    assert np.array_equal(mine.predict(queries), theirs.predict(queries))
    assert np.allclose(mine.predict_proba(queries), theirs.predict_proba(queries), rtol=1e-9, atol=1e-12)
    assert list(mine.classes_) == list(theirs.classes_)
    for a, b in zip(mine.kneighbors(queries), theirs.kneighbors(queries), strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9)
    distances, indices = mine.kneighbors()
    assert (indices != np.arange(20)[:, None]).all() and (np.diff(distances, axis=1) >= 0).all()
    assert np.array_equal(mine.kneighbors(n_neighbors=2, return_distance=False)[:, :1], indices[:, :1])
