"""The scikit-learn estimators: scikit-learn's own checks, what they promise, and the same data through tslearn."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import warpalign

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from warpalign import (
    SoftDTWKMeans,
    SoftDTWKNeighborsClassifier,
    SoftDTWKNeighborsRegressor,
    cdist_soft_dtw,
)

# Why a check of scikit-learn's does not apply, by its name. None so far: as tables of univariate series, all of them do.
EXEMPT: dict[str, str] = {}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The series are short, and other tests run on the same cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        SoftDTWKMeans(),
        SoftDTWKNeighborsClassifier(),
        SoftDTWKNeighborsClassifier(weights="distance", normalize=True),
        SoftDTWKNeighborsRegressor(),
        SoftDTWKNeighborsClassifier(1, gamma=0, bandwidth=2),
        SoftDTWKNeighborsRegressor(weights="distance", gamma=0, bandwidth=2),
        SoftDTWKMeans(gamma=0, bandwidth=2),
    ],
    expected_failed_checks=lambda estimator: EXEMPT,
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def bumps(per_class: int = 6, size: int = 30, seed: int = 0) -> tuple[Any, Any]:
    """Three classes of shapes that come early or late: one bump, two bumps, a dip; (n, size, 2) and labels."""
    random = np.random.default_rng(seed)
    steps = np.linspace(-1, 1, size)
    series, labels = [], []
    for label, (height, centers) in enumerate([(2.0, (0.0,)), (2.0, (-0.5, 0.4)), (-2.0, (0.1,))]):
        for _ in range(per_class):
            shift = random.uniform(-0.3, 0.3)
            shape = sum(height * np.exp(-((steps - c - shift) ** 2) / 0.01) for c in centers)
            series.append(np.stack([shape, -shape / 2], 1) + random.normal(scale=0.1, size=(size, 2)))
            labels.append(label)
    return np.array(series), np.array(labels)


def unequal(X: Any, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [series[: random.integers(len(series) - 4, len(series) + 1)] for series in X]


def nan_padded(X: list[Any]) -> Any:
    padded = np.full((len(X), max(len(series) for series in X), X[0].shape[1]), math.nan)
    for row, series in zip(padded, X, strict=True):
        row[: len(series)] = series
    return padded


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_k_means_finds_the_classes(init: str, dtype: Any) -> None:
    X, labels = bumps()
    X = X.astype(dtype)
    model = SoftDTWKMeans(3, gamma=0.1, random_state=0, init=init, n_init=5)
    found = model.fit_predict(X)
    assert adjusted_rand_score(labels, found) == 1
    assert model.cluster_centers_.shape == (3, 30, 2) and model.cluster_centers_.dtype == dtype
    assert model.n_features_in_ == 2 and 1 <= model.n_iter_ <= 50
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    values = model.transform(X)
    assert values.shape == (18, 3) and values.dtype == dtype
    np.testing.assert_array_equal(values, cdist_soft_dtw(X, model.cluster_centers_, gamma=0.1))
    assert model.inertia_ == pytest.approx(values.min(1).astype(float).sum())
    assert model.score(X) == pytest.approx(-model.inertia_)


@pytest.mark.parametrize("seed", range(5))
def test_labels_belong_to_the_centers_that_are_kept(seed: int) -> None:
    """Whatever ends the run; tslearn's labels belong to the centers before the last."""
    X, _ = bumps(4, 20, seed)
    for options in (
        {"max_iter": 1},
        {"max_iter": 2, "max_iter_barycenter": 3},
        {"n_clusters": 9},
        {"n_init": 2},
    ):
        model = SoftDTWKMeans(gamma=1.0, random_state=seed).set_params(**options).fit(unequal(X, seed))
        np.testing.assert_array_equal(model.predict(unequal(X, seed)), model.labels_)
        np.testing.assert_array_equal(clone(model).fit(unequal(X, seed)).labels_, model.labels_)


def test_inertia_falls_with_every_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    X, _ = bumps()
    SoftDTWKMeans(4, gamma=0.1, random_state=1, max_iter_barycenter=2, verbose=1).fit(X)
    inertias = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(inertias) > 3 and inertias == sorted(inertias, reverse=True)


def test_more_starts_are_no_worse() -> None:
    X, _ = bumps()
    inertias = [
        SoftDTWKMeans(3, gamma=0.1, random_state=7, n_init=n, init="random").fit(X).inertia_ for n in (1, 4)
    ]
    assert inertias[1] <= inertias[0]


def test_plusplus_starts_in_different_classes_more_often_than_chance() -> None:
    from sklearn.utils import check_random_state

    from warpalign._core.series import as_series
    from warpalign._soft_dtw.estimators.kmeans import _plusplus

    X, labels = bumps()
    series = as_series(unequal(X), "X")
    chosen = [labels[_plusplus(series, 3, {"gamma": 0.1}, check_random_state(seed))] for seed in range(20)]
    assert sum(len(set(c)) == 3 for c in chosen) >= 18  # by chance 27 %: 5
    assert len({tuple(c) for c in chosen}) > 1


def test_an_empty_cluster_takes_a_series() -> None:
    X, labels = bumps()
    far = np.full((1, 30, 2), 1e3)
    init = np.concatenate([X[:1], X[6:7], far])
    model = SoftDTWKMeans(3, gamma=0.1, init=init).fit(X)
    assert sorted(np.bincount(model.labels_)) == [6, 6, 6]
    assert adjusted_rand_score(labels, model.labels_) == 1


def test_fewer_different_series_than_clusters() -> None:
    X = np.repeat(bumps(1)[0], 4, axis=0)
    model = SoftDTWKMeans(5, gamma=0.1, random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.n_iter_ < 10


def test_k_means_reads_all_forms_alike() -> None:
    X, _ = bumps()
    ragged = unequal(X)
    expected = SoftDTWKMeans(3, gamma=0.1, random_state=0).fit(ragged)
    for form in (
        nan_padded(ragged),
        [torch.from_numpy(s) for s in ragged],
        torch.from_numpy(nan_padded(ragged)),
        np.array([*ragged, None], dtype=object)[:-1],
        pack_sequence([torch.from_numpy(s) for s in ragged], enforce_sorted=False),
    ):
        model = SoftDTWKMeans(3, gamma=0.1, random_state=0).fit(form)
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
        np.testing.assert_array_equal(model.predict(ragged[:5]), expected.labels_[:5])
    assert model.predict(X[:, :20]).shape == (18,)  # another length than in fit
    table = SoftDTWKMeans(3, gamma=0.1, random_state=0).fit(X[:, :, 0])
    assert table.cluster_centers_.shape == (3, 30, 1) and table.n_features_in_ == 30
    univariate = SoftDTWKMeans(3, gamma=0.1, random_state=0).fit(X[:, :, :1])
    np.testing.assert_array_equal(table.labels_, univariate.labels_)
    np.testing.assert_array_equal(univariate.predict(X[:, :, 0]), table.labels_)
    np.testing.assert_array_equal(table.predict(X[:, :25, :1]), univariate.predict(X[:, :25, :1]))


def test_own_centers_may_have_another_length() -> None:
    X, _ = bumps()
    model = SoftDTWKMeans(2, gamma=0.1, init=X[[0, 8], ::2]).fit(X)
    assert model.cluster_centers_.shape == (2, 15, 2)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.gpu
def test_k_means_on_a_gpu(cuda: torch.device) -> None:
    X, labels = bumps()
    expected = SoftDTWKMeans(3, gamma=0.1, random_state=0, n_init=3).fit(X)
    for model, given in (
        (SoftDTWKMeans(3, gamma=0.1, random_state=0, n_init=3, device="cuda"), X),
        (SoftDTWKMeans(3, gamma=0.1, random_state=0, n_init=3), torch.from_numpy(X).to(cuda)),
    ):
        model.fit(given)
        assert adjusted_rand_score(labels, model.labels_) == 1
        assert model.inertia_ == pytest.approx(expected.inertia_, rel=1e-4)
        np.testing.assert_array_equal(model.predict(given), model.labels_)
    neighbors = SoftDTWKNeighborsClassifier(3, gamma=0.1, device="cuda").fit(X, labels)
    assert neighbors.score(X, labels) == 1


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"normalize": True, "weights": "distance"}])
def test_neighbors(options: dict[str, Any]) -> None:
    X, labels = bumps(6)
    Z, test_labels = bumps(4, size=25, seed=1)
    names = np.array(["one", "two", "dip"])
    model = SoftDTWKNeighborsClassifier(3, gamma=0.1, **options).fit(unequal(X), names[labels])
    assert list(model.classes_) == ["dip", "one", "two"]
    assert model.score(unequal(Z), names[test_labels]) == 1
    distances, indices = model.kneighbors(Z)
    assert distances.shape == indices.shape == (12, 3)
    table = cdist_soft_dtw(list(Z), unequal(X), gamma=0.1, normalize=bool(options)).numpy()
    np.testing.assert_array_equal(distances, np.sort(table, 1)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(table, indices, 1), distances)
    np.testing.assert_array_equal(model.kneighbors(Z, 2, return_distance=False), indices[:, :2])
    votes = model.predict_proba(Z)
    np.testing.assert_allclose(votes.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[votes.argmax(1)], model.predict(Z))


def test_fitted_series_are_not_their_own_neighbours() -> None:
    X, labels = bumps()
    model = SoftDTWKNeighborsClassifier(3, gamma=0.1).fit(X, labels)
    distances, indices = model.kneighbors()
    table = cdist_soft_dtw(X, gamma=0.1).numpy()
    np.fill_diagonal(table, np.inf)
    np.testing.assert_array_equal(distances, np.sort(table, 1)[:, :3])
    assert (indices != np.arange(len(X))[:, None]).all()


def test_votes_weigh_what_was_asked_for() -> None:
    X = np.array([[0.0, 0, 0], [1, 1, 1], [1.1, 1.1, 1.1]])
    labels, query = [0, 1, 1], [[0.2, 0.2, 0.2]]
    settings: dict[str, Any] = {"n_neighbors": 3, "gamma": 1e-6, "normalize": True}
    uniform = SoftDTWKNeighborsClassifier(**settings).fit(X, labels)
    np.testing.assert_allclose(uniform.predict_proba(query), [[1 / 3, 2 / 3]])
    by_distance = SoftDTWKNeighborsClassifier(**settings, weights="distance").fit(X, labels)
    votes = np.array([1 / 0.04, 1 / 0.64 + 1 / 0.81])
    np.testing.assert_allclose(by_distance.predict_proba(query)[0], votes / votes.sum(), rtol=1e-4)
    np.testing.assert_array_equal(by_distance.predict_proba(X), np.eye(2)[labels])  # an equal series decides
    own = SoftDTWKNeighborsClassifier(**settings, weights=np.exp).fit(X, labels)
    shares = np.array([np.exp(0.12), np.exp([1.92, 2.43]).sum()])
    np.testing.assert_allclose(own.predict_proba(query)[0], shares / shares.sum(), rtol=1e-4)


def test_rounding_makes_no_distance_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    from warpalign._soft_dtw.estimators import neighbors

    X, labels = bumps(2)
    model = SoftDTWKNeighborsClassifier(3, normalize=True, weights="distance").fit(X, labels)
    monkeypatch.setattr(
        neighbors, "all_pairs", lambda X, Y, **options: torch.full((len(X.values), len(Y.values)), -1e-7)
    )
    distances, _ = model.kneighbors(X)
    assert (distances == 0).all()
    assert (model.predict_proba(X) >= 0).all()


def test_queries_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from warpalign._soft_dtw.estimators import neighbors

    X, labels = bumps()
    model = SoftDTWKNeighborsClassifier(3, gamma=0.1).fit(X, labels)
    expected = model.kneighbors(), model.kneighbors(unequal(X))
    monkeypatch.setattr(neighbors, "_CELLS_AT_ONCE", 5 * len(X))
    for got, whole in zip((model.kneighbors(), model.kneighbors(unequal(X))), expected, strict=True):
        np.testing.assert_array_equal(got[0], whole[0])
        np.testing.assert_array_equal(got[1], whole[1])


def traces() -> tuple[Any, Any, Any, Any]:
    """Training series (20, 92, 1), their classes, and test series, which tslearn ships."""
    datasets = pytest.importorskip("tslearn.datasets")
    train, labels, test, test_labels = datasets.CachedDatasets().load_dataset("Trace")
    return train[::5, ::3], labels[::5], test[::5, ::3], test_labels[::5]


@pytest.mark.parametrize("bandwidth", [None, 0, 3, 10])
def test_one_nearest_neighbour_under_dtw_is_tslearns(bandwidth: int | None) -> None:
    train, labels, test, _ = traces()
    from tslearn.neighbors import KNeighborsTimeSeriesClassifier, KNeighborsTimeSeriesRegressor

    params = (
        {} if bandwidth is None else {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": bandwidth}
    )
    theirs = KNeighborsTimeSeriesClassifier(1, metric="dtw", metric_params=params).fit(train, labels)
    own = SoftDTWKNeighborsClassifier(1, gamma=0, bandwidth=bandwidth).fit(train, labels)
    distances, indices = theirs.kneighbors(test)
    found, places = own.kneighbors(test)
    np.testing.assert_array_equal(places, indices)
    np.testing.assert_allclose(np.sqrt(found), distances, rtol=1e-9)
    np.testing.assert_array_equal(own.predict(test), theirs.predict(test))
    assert own.gamma_ == 0
    numbers = np.arange(len(train), dtype=float)
    regressor = KNeighborsTimeSeriesRegressor(1, metric="dtw", metric_params=params).fit(train, numbers)
    np.testing.assert_array_equal(
        SoftDTWKNeighborsRegressor(1, gamma=0, bandwidth=bandwidth).fit(train, numbers).predict(test),
        regressor.predict(test).ravel(),
    )


def test_digits_as_series_have_tslearns_neighbours_under_dtw() -> None:
    from sklearn.datasets import load_digits

    neighbors = pytest.importorskip("tslearn.neighbors")
    X, labels = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8)  # (n, rows, columns)
    train, test = slice(0, 150), slice(150, 200)
    theirs = neighbors.KNeighborsTimeSeriesClassifier(1, metric="dtw").fit(X[train], labels[train])
    own = SoftDTWKNeighborsClassifier(1, gamma=0).fit(X[train], labels[train])
    np.testing.assert_array_equal(own.predict(X[test]), theirs.predict(X[test]))


def test_votes_weigh_by_distances_under_dtw() -> None:
    X, labels = bumps()
    Z, _ = bumps(2, seed=1)
    model = SoftDTWKNeighborsClassifier(3, "distance", gamma=0).fit(X, labels)
    distances, indices = model.kneighbors(Z)
    assert (distances >= 0).all()
    votes = np.zeros((len(Z), 3))
    np.add.at(votes, (np.arange(len(Z))[:, None], labels[indices]), 1 / distances)
    np.testing.assert_allclose(model.predict_proba(Z), votes / votes.sum(1, keepdims=True))
    np.testing.assert_array_equal(model.predict(X), labels)  # equal series have distance 0


def test_k_means_under_dtw_has_dba_centers() -> None:
    X, labels = bumps()
    model = SoftDTWKMeans(3, gamma=0, bandwidth=12, random_state=0, n_init=3).fit(unequal(X))
    assert adjusted_rand_score(labels, model.labels_) == 1
    values = cdist_soft_dtw(unequal(X), model.cluster_centers_, gamma=0, bandwidth=12).numpy()
    np.testing.assert_array_equal(model.transform(unequal(X)), values)
    assert model.inertia_ == pytest.approx(values.min(1).sum(), rel=1e-12)
    members = [series for series, label in zip(unequal(X), model.labels_, strict=True) if label == 0]
    again = warpalign.soft_dtw_barycenter(
        members, method="dba", bandwidth=12, init=model.cluster_centers_[0], barycenter_size=30, max_iter=100
    )
    assert float(again.losses[-1]) == pytest.approx(values[model.labels_ == 0, 0].sum(), rel=1e-3)


def test_bandwidth_is_that_of_metric_params() -> None:
    X, labels = bumps()
    for make in (
        lambda **o: SoftDTWKMeans(3, gamma=0.1, max_iter=2, random_state=0, **o),
        SoftDTWKNeighborsClassifier,
    ):
        direct, params = make(bandwidth=3), make(metric_params={"bandwidth": 3})
        for model in (direct, params):
            model.fit(X, labels)
        np.testing.assert_array_equal(direct.predict(X), params.predict(X))
        slanted = make(bandwidth=3, metric_params={"band": "slanted", "bandwidth": None}).fit(X, labels)
        assert slanted.predict(X).shape == (18,)
        assert clone(direct).bandwidth == 3
    search = GridSearchCV(SoftDTWKNeighborsClassifier(1, gamma=0), {"bandwidth": [0, 20]}, cv=2).fit(
        X, labels
    )
    assert search.best_params_ == {"bandwidth": 20}


@pytest.mark.parametrize("metric", [{"bandwidth": 3}, {"cost": "l1", "step_penalty": 0.2}])
def test_options_of_soft_dtw_reach_every_value(metric: dict[str, Any]) -> None:
    X, labels = bumps()
    model = SoftDTWKMeans(3, gamma=0.1, max_iter=2, random_state=0, metric_params=metric).fit(X)
    values = cdist_soft_dtw(X, model.cluster_centers_, gamma=0.1, **metric).numpy()
    assert np.array_equal(model.transform(X), values)
    assert np.array_equal(model.labels_, values.argmin(1))
    assert model.inertia_ == pytest.approx(values.min(1).sum(), rel=1e-12)
    neighbors = SoftDTWKNeighborsClassifier(2, gamma=0.1, metric_params=metric).fit(X, labels)
    nearest = cdist_soft_dtw(X, gamma=0.1, **metric).numpy().argsort(1, kind="stable")[:, :2]
    assert np.array_equal(neighbors.kneighbors(X)[1], nearest)
    plain = cdist_soft_dtw(X, model.cluster_centers_, gamma=0.1).numpy()
    assert np.abs(values - plain).max() > 1e-2
    copy = clone(model).fit(X)
    assert np.array_equal(copy.cluster_centers_, model.cluster_centers_)


def test_among_scikit_learns_tools() -> None:
    X, labels = bumps()
    search = GridSearchCV(SoftDTWKNeighborsClassifier(1), {"gamma": [0.01, 10.0]}, cv=2).fit(X, labels)
    assert search.best_score_ > 0.9
    pipeline = make_pipeline(StandardScaler(), SoftDTWKMeans(3, random_state=0, n_init=3)).fit(X[:, :, 0])
    assert pipeline.transform(X[:, :, 0]).shape == (18, 3)
    model = SoftDTWKMeans(3, random_state=0).set_output(transform="pandas").fit(X)
    pytest.importorskip("pandas")
    assert list(model.transform(X).columns) == ["softdtwkmeans0", "softdtwkmeans1", "softdtwkmeans2"]
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(copied.predict(X), model.labels_)


@pytest.mark.parametrize("gamma", [1.0, 0.1])
def test_as_good_as_tslearn(gamma: float) -> None:
    datasets = pytest.importorskip("tslearn.datasets")
    from tslearn.clustering import TimeSeriesKMeans
    from tslearn.neighbors import KNeighborsTimeSeriesClassifier

    train, labels, test, test_labels = datasets.CachedDatasets().load_dataset("Trace")
    train, labels, test, test_labels = train[::5, ::3], labels[::5], test[::5, ::3], test_labels[::5]
    settings: dict[str, Any] = {"metric": "softdtw", "metric_params": {"gamma": gamma}}
    for start in ([0, 1, 2, 3], [4, 9, 14, 19]):
        theirs = TimeSeriesKMeans(4, max_iter=5, init=train[start], **settings).fit(train)
        ours = SoftDTWKMeans(4, gamma=gamma, max_iter=5, init=train[start]).fit(train)
        their_inertia = float(cdist_soft_dtw(train, theirs.cluster_centers_, gamma=gamma).amin(1).sum())
        assert ours.inertia_ <= their_inertia + 1e-9
    neighbors = KNeighborsTimeSeriesClassifier(3, **settings).fit(train, labels)
    own = SoftDTWKNeighborsClassifier(3, gamma=gamma).fit(train, labels)
    np.testing.assert_array_equal(own.kneighbors(test)[1], neighbors.kneighbors(test)[1])
    assert own.score(test, test_labels) >= neighbors.score(test, test_labels)


def run_python(code: str) -> str:
    environment = {"PYTHONPATH": str(Path(warpalign.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scikit_learn_is_loaded_when_an_estimator_is_named() -> None:
    code = "import sys, warpalign; before = 'sklearn' in sys.modules; warpalign.SoftDTWKMeans; print(before)"
    assert run_python(code) == "False\n"
    assert "SoftDTWKMeans" in dir(warpalign)
    with pytest.raises(AttributeError, match="no attribute 'SoftDTWKMean'"):
        warpalign.SoftDTWKMean  # type: ignore[attr-defined]  # noqa: B018


def test_without_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import warpalign\n"
        "try: warpalign.SoftDTWKMeans\n"
        "except ImportError as error: print(error)"
    )
    message = "warpalign.estimators needs scikit-learn, which is not installed: "
    assert run_python(code) == message + "pip install 'warpalign[estimators]'\n"


@pytest.mark.parametrize(
    ("change", "options", "text"),
    [
        (lambda X: X, {"n_clusters": 4, "max_iter": 1}, ".* tol = 1e-06, got one that still falls by more after max_iter = 1 iter"),
        (lambda X: X * 1e160, {"n_clusters": 2}, "expected a finite inertia_, got .*: values of X are too large for float64"),
        (lambda X: X * 0, {"n_clusters": 3}, "expected n_clusters = 3 distinct clusters, got 1: .*: write n_clusters=1"),
    ],
)  # fmt: skip
def test_clusters_that_are_none_warn_once(change: Any, options: dict[str, Any], text: str) -> None:
    X = change(np.random.default_rng(0).normal(size=(12, 6, 1)))
    with pytest.warns(SklearnConvergenceWarning, match="SoftDTWKMeans: " + text) as caught:
        SoftDTWKMeans(random_state=0, **options).fit(X)
    assert [one.filename for one in caught] == [__file__]


@pytest.mark.parametrize("options", [{"tol": 0, "max_iter": 1}, {"max_iter": 50}, {"max_iter_barycenter": 1}])
def test_clusters_do_not_warn_of_their_steps(options: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(size=(12, 6, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SoftDTWKMeans(3, random_state=0, **options).fit(X)
