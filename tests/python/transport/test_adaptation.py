"""SinkhornTransport: what it promises as an estimator, and that moved samples train a better model. POT's numbers: test_compat_pot.py."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import (
    check_estimator_repr,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from tests.python.helpers import Array
from warpalign import SinkhornTransport
from warpalign.transport import sinkhorn


def blobs(seed: int, angle: float, count: int = 60) -> tuple[Array, Array]:
    """Three classes around corners of a triangle, turned by an angle and moved as far; the last one has half as many."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], [count // 3, count // 3, count // 6])
    corners = np.array([[0.0, 3.0], [2.6, -1.5], [-2.6, -1.5]])
    points = corners[labels] + random.normal(scale=0.5, size=(len(labels), 2))
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return points @ turn + 5 * angle, labels


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
    """Those of fit(X, y) do not apply: two domains are fitted, as in POT."""
    check("SinkhornTransport", SinkhornTransport(epsilon=0.3, cost="l1"))


@pytest.mark.parametrize("out_of_sample", ["continuous", "nearest"])
@pytest.mark.parametrize("scale", [None, "max", "mean"])
def test_moved_samples_train_a_better_model(out_of_sample: str, scale: str | None) -> None:
    xs, ys = blobs(0, 0.0)
    xt, yt = blobs(1, 0.7)
    model = SinkhornTransport(
        0.3 if scale is None else 0.02, cost_normalization=scale, out_of_sample=out_of_sample
    )
    before = KNeighborsClassifier(1).fit(xs, ys).score(xt, yt)
    moved = model.fit_transform(xs, Xt=xt)
    after = KNeighborsClassifier(1).fit(moved, ys).score(xt, yt)
    assert before < 0.8 and after > 0.85
    labels = model.transform_labels(ys)
    assert labels.shape == (len(xt), 3)
    np.testing.assert_allclose(labels.sum(1), 1, rtol=1e-6)
    assert (labels.argmax(1) == yt).mean() > 0.85
    back = model.inverse_transform_labels(yt)
    assert (back.argmax(1) == ys).mean() > 0.85
    fresh, fresh_labels = blobs(2, 0.0)
    assert KNeighborsClassifier(1).fit(xt, yt).score(model.transform(fresh), fresh_labels) > 0.85
    target, target_labels = blobs(3, 0.7)
    moved_back = model.inverse_transform(target)
    assert KNeighborsClassifier(1).fit(xs, ys).score(moved_back, target_labels) > 0.85


def test_fitted_samples_go_where_the_plan_sends_them() -> None:
    """The entropic map at a fitted sample is the plan's barycentric map."""
    xs, _ = blobs(0, 0.0)
    xt, _ = blobs(1, 0.4)
    weights = np.random.default_rng(0).dirichlet(np.ones(len(xs)))
    for options in ({}, {"rho_a": 1.0, "rho_b": 0.5}, {"mass": 0.7}, {"reference": "counting", "rho_b": 2.0}):
        model = SinkhornTransport(0.5, cost_normalization=None, tol=1e-12, max_iter=5000, **options).fit(
            xs, Xt=xt, a=weights
        )
        plan = model.plan_.to_dense().numpy()
        np.testing.assert_array_equal(model.coupling_, plan)
        np.testing.assert_allclose(model.transform(xs), plan @ xt / plan.sum(1, keepdims=True), rtol=1e-8)
        expected = plan.T @ xs / plan.sum(0)[:, None]
        np.testing.assert_allclose(model.inverse_transform(xt), expected, rtol=1e-7, atol=1e-12)


def test_what_has_not_converged_warns() -> None:
    """Class 2 has no sample in the target, and nowhere else may its mass go."""
    xs, xt = np.arange(12.0).reshape(6, 2), np.arange(10.0).reshape(5, 2)
    ys, yt = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 1])
    with pytest.warns(
        ConvergenceWarning, match="SinkhornTransport: after 50 iterations the error is"
    ) as said:
        SinkhornTransport(10.0, cost_normalization=None, max_iter=50).fit(xs, ys, xt, yt)
    assert [one.filename for one in said] == [__file__]  # and sinkhorn says nothing of its own
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SinkhornTransport(10.0, cost_normalization=None, limit_max=2).fit(xs, ys, xt, yt)


def test_labels_of_both_domains_forbid_pairs() -> None:
    xs, ys = blobs(0, 0.0)
    xt, yt = blobs(1, 2.0)
    known = np.where(np.arange(len(yt)) % 5 == 0, yt, -1)
    plan = SinkhornTransport(0.3, cost_normalization=None).fit(xs, ys, xt, known).coupling_
    forbidden = (ys[:, None] != known) & (known != -1)
    assert (plan[forbidden] == 0).all() and np.isfinite(plan).all()
    np.testing.assert_allclose(plan.sum(1), 1 / len(xs), rtol=1e-4)
    model = SinkhornTransport(0.3, cost_normalization=None, limit_max=1.5).fit(xs, ys, xt, known)
    costs = np.square(xs[:, None] - xt).sum(-1)
    costs = np.where(forbidden, np.maximum(costs, 1.5 * costs.max()), costs)
    expected = sinkhorn(cost_matrix=torch.from_numpy(costs), epsilon=0.3).plan.to_dense().numpy()
    np.testing.assert_allclose(model.coupling_, expected, rtol=1e-9)


def test_as_an_estimator() -> None:
    xs, ys = blobs(0, 0.0)
    xt, _ = blobs(1, 0.4)
    model = SinkhornTransport(0.5, cost_normalization=None)
    with pytest.raises(NotFittedError):
        model.transform(xs)
    model.fit(torch.from_numpy(xs), Xt=xt.tolist())
    moved = model.transform(xs)
    for other in (clone(model).fit(xs, ys, xt), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(xs), moved)
    assert model.n_features_in_ == 2 and model.n_iter_ > 1 and model.normalizer_ == 1
    single = SinkhornTransport(0.5, cost_normalization=None).fit(
        xs.astype(np.float32), Xt=xt.astype(np.float32)
    )
    assert single.transform(xs).dtype == np.float32
    np.testing.assert_allclose(single.transform(xs), moved, rtol=1e-3, atol=1e-3)


def test_scale_is_that_of_the_fit() -> None:
    xs, _ = blobs(0, 0.0)
    xt, _ = blobs(1, 0.4)
    model = SinkhornTransport(0.05, cost_normalization="max").fit(xs, Xt=xt)
    largest = np.square(xs[:, None] - xt).sum(-1).max()
    assert model.normalizer_ == pytest.approx(largest, rel=1e-12)
    same = SinkhornTransport(0.05 * largest, cost_normalization=None).fit(xs, Xt=xt)
    np.testing.assert_allclose(model.transform(xs[:3]), same.transform(xs[:3]), rtol=1e-6)


def as_labels(kind: str, labels: list[int]) -> Any:
    """Labels 0, 1, 2, and −1 where a sample has none, as users have them."""
    names: list[Any] = [("a", "b", "c", None)[label] for label in labels]
    if kind in ("categories", "a nullable column", "a column of names"):
        pandas = pytest.importorskip("pandas")
        if kind == "categories":
            return pandas.Categorical(names)
        if kind == "a nullable column":
            return pandas.array([pandas.NA if label < 0 else label for label in labels], dtype="Int64")
        return pandas.Series(names, dtype="string")
    return {
        "a list": labels,
        "a tensor": torch.tensor(labels),
        "floats with NaN": np.where(np.array(labels) < 0, np.nan, labels),
        "names with None": np.array(names, dtype=object),
        "names and NaN": [np.nan if name is None else name for name in names],
        "names and −1": np.array([-1 if name is None else name for name in names]),  # NumPy makes it "-1"
    }[kind]


KINDS = (
    "a list", "a tensor", "floats with NaN", "names with None", "names and NaN", "names and −1", "categories",
    "a nullable column", "a column of names",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_all_kinds(kind: str) -> None:
    """Also of :class:`warpalign.GromovTransport`, which shares the code."""
    xs, ys = blobs(0, 0.0, 12)
    xt, yt = blobs(1, 0.7, 12)
    some, known = list(ys), list(yt)
    some[0] = some[5] = known[3] = -1
    options: dict[str, Any] = {"limit_max": 2.0, "max_iter": 20000}
    expected = SinkhornTransport(0.3, cost_normalization=None, **options).fit(
        xs, np.array(some), xt, np.array(known)
    )
    model = SinkhornTransport(0.3, cost_normalization=None, **options).fit(
        xs, as_labels(kind, some), xt, as_labels(kind, known)
    )
    np.testing.assert_array_equal(model.coupling_, expected.coupling_)
    shares = model.transform_labels(as_labels(kind, some))
    assert shares.shape == (len(xt), 3)
    of_classes = np.stack([np.array(some) == label for label in range(3)], 1)
    plan = model.coupling_
    np.testing.assert_allclose(shares, plan.T @ of_classes / plan.sum(0)[:, None], rtol=1e-9)
    assert shares.sum(1).min() < 0.99  # the unlabelled samples' mass
    back = model.inverse_transform_labels(as_labels(kind, known))
    np.testing.assert_allclose(back, model.plan_.T.transfer_labels(known).numpy(), rtol=1e-9)


def test_labels_of_plans() -> None:
    plan = sinkhorn(torch.randn(4, 2), torch.randn(3, 2), epsilon=0.5).plan
    labels = torch.tensor([1, -1, 0, 1])
    dense = plan.to_dense()
    expected = torch.stack([dense[2], dense[0] + dense[3]], 1) / dense.sum(0)[:, None]
    for given in (labels, labels.int(), labels.tolist(), labels.numpy()):
        torch.testing.assert_close(plan.transfer_labels(given), expected)
    wide = plan.transfer_labels(labels, num_classes=4)
    torch.testing.assert_close(wide, torch.nn.functional.pad(expected, (0, 2)))
    assert not plan.transfer_labels([-1] * 4, num_classes=2).any()


@pytest.mark.gpu
def test_on_a_gpu(cuda: torch.device) -> None:
    xs, ys = blobs(0, 0.0)
    xt, _ = blobs(1, 0.7)
    expected = SinkhornTransport(0.3, cost_normalization=None).fit(xs, Xt=xt)
    model = SinkhornTransport(0.3, cost_normalization=None, device="cuda").fit(xs, Xt=xt)
    np.testing.assert_allclose(model.transform(xs), expected.transform(xs), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.transform_labels(ys), expected.transform_labels(ys), atol=1e-3)
