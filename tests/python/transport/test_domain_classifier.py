"""DomainAdaptationClassifier: moved samples train, raw ones are predicted; scikit-learn's conventions of a meta-estimator."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import (
    check_estimator_repr,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from tests.python.transport.test_adaptation import blobs
from warpalign import DomainAdaptationClassifier, GromovTransport, SinkhornTransport
from warpalign.compat import pot


@pytest.mark.parametrize(
    "check",
    [
        check_no_attributes_set_in_init,
        check_parameters_default_constructible,
        check_get_params_invariance,
        check_set_params,
        check_estimator_repr,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learns_checks_of_parameters(check: Any) -> None:
    """Those of fit(X, y) do not apply: two domains are fitted."""
    check(
        "DomainAdaptationClassifier", DomainAdaptationClassifier(LogisticRegression(), SinkhornTransport(0.3))
    )


def test_a_pipeline_moves_target_samples_again() -> None:
    """Digits of which the target's are faint on a bright ground: a Pipeline is worse than no transport, this estimator is better."""
    images, labels = load_digits(return_X_y=True)
    Xs, ys = images[:300] / 16, labels[:300]
    Xt, yt = 0.4 * images[300:600] / 16 + np.linspace(0, 0.9, 64), labels[300:600]
    transport, nearest = SinkhornTransport(epsilon=0.05, cost_normalization="mean"), KNeighborsClassifier(1)
    before = nearest.fit(Xs, ys).score(Xt, yt)
    pipeline = make_pipeline(transport, nearest)
    wrong = pipeline.fit(Xs, ys, sinkhorntransport__Xt=Xt).score(Xt, yt)
    model = DomainAdaptationClassifier(nearest, transport).fit(Xs, ys, Xt)
    assert model.score(Xt, yt) > max(before, wrong) + 0.3
    by_hand = clone(nearest).fit(clone(transport).fit(Xs, Xt=Xt).transform(Xs), ys)
    np.testing.assert_array_equal(model.predict(Xt), by_hand.predict(Xt))
    np.testing.assert_array_equal(model.predict_proba(Xt), by_hand.predict_proba(Xt))


def test_attributes_and_conventions() -> None:
    xs, ys = blobs(0, 0.0)
    xt, yt = blobs(1, 0.7)
    names = np.array(["a", "b", "c"])[ys]
    estimator, transport = LogisticRegression(), SinkhornTransport(0.05, cost_normalization="max")
    model = DomainAdaptationClassifier(estimator, transport)
    assert is_classifier(model)
    with pytest.raises(NotFittedError):
        model.predict(xt)
    assert model.fit(xs, names, xt) is model
    assert not hasattr(estimator, "coef_") and not hasattr(transport, "plan_")  # clones were fitted
    assert list(model.classes_) == ["a", "b", "c"] and model.n_features_in_ == 2
    assert model.predict_proba(xt).shape == (len(xt), 3)
    assert not hasattr(DomainAdaptationClassifier(LinearSVC()), "predict_proba")
    assert DomainAdaptationClassifier(LinearSVC(), transport).fit(xs, ys, xt).decision_function(xt).shape == (
        len(xt),
        3,
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(xt), model.predict(xt))
    assert model.set_params(transport__epsilon=0.1, estimator__C=2.0).transport.epsilon == 0.1
    assert isinstance(DomainAdaptationClassifier(estimator).fit(xs, ys, xt).transport_, SinkhornTransport)


def test_labels_of_some_samples_and_weights() -> None:
    xs, ys = blobs(0, 0.0)
    xt, yt = blobs(1, 0.7)
    some: list[Any] = [None if k % 5 == 0 else "abc"[label] for k, label in enumerate(ys)]
    known = ["abc"[label] if k % 4 == 0 else None for k, label in enumerate(yt)]
    transport = SinkhornTransport(0.05, cost_normalization="max", max_iter=20000)
    a = np.linspace(1, 2, len(xs)) / np.linspace(1, 2, len(xs)).sum()
    model = DomainAdaptationClassifier(KNeighborsClassifier(3), transport).fit(xs, some, xt, known, a=a)
    expected = clone(transport).fit(xs, some, xt, known, a=a)
    np.testing.assert_array_equal(model.transport_.coupling_, expected.coupling_)
    assert list(model.classes_) == ["a", "b", "c"]
    assert model.estimator_.n_samples_fit_ == sum(label is not None for label in some)
    assert model.score(xt, np.array(list("abc"))[yt]) > 0.9


def test_selection_of_models() -> None:
    xs, ys = blobs(0, 0.0)
    xt, _ = blobs(1, 0.0)
    model = DomainAdaptationClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()),
        SinkhornTransport(0.05, cost_normalization="max"),
    )
    assert cross_val_score(model, xs, ys, cv=3, params={"Xt": xt}).mean() > 0.9
    grid = GridSearchCV(model, {"transport__epsilon": [0.02, 0.2]}, cv=2).fit(xs, ys, Xt=xt)
    assert grid.best_params_["transport__epsilon"] in (0.02, 0.2)


def test_other_transports() -> None:
    xs, ys = blobs(0, 0.0, 30)
    xt = np.concatenate([xs, np.zeros((len(xs), 1))], 1) + 7  # another space
    across = DomainAdaptationClassifier(KNeighborsClassifier(1), GromovTransport()).fit(xs, ys, xt)
    assert across.n_features_in_ == 3 and across.predict(xt).shape == ys.shape
    with_pot = DomainAdaptationClassifier(
        KNeighborsClassifier(1), pot.da.SinkhornTransport(reg_e=0.5, norm="max")
    )
    assert with_pot.fit(xs, ys, xs + 1).score(xs + 1, ys) > 0.5
