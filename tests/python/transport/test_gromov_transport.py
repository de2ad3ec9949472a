"""GromovTransport: what it promises as an estimator, and that samples go where they belong."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import (
    check_estimator_repr,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from tests.python.helpers import Array
from warpalign import GromovTransport
from warpalign.transport import Geodesic, gromov_wasserstein, gromov_wasserstein_sampled


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
    check("GromovTransport", GromovTransport(epsilon=0.3, geometry=Geodesic(k=7)))


def clusters(seed: int, count: int = 60) -> tuple[Array, Array]:
    """Three groups of 30, 20 and 10 of 60 points, with different distances between them."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1, 2], [count // 2, count // 3, count // 6])
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 7.0]])
    return corners[labels] + random.normal(scale=0.4, size=(count, 2)), labels


def lifted(points: Array) -> Array:
    """Moved into three dimensions, without a common feature."""
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(3, 3)))[0]
    result: Array = np.concatenate([points, np.zeros((len(points), 1))], 1) @ turn + 20
    return result


@pytest.mark.parametrize("out_of_sample", ["continuous", "nearest"])
@pytest.mark.parametrize("geometry", ["euclidean", "sqeuclidean", Geodesic(k=8)])
def test_new_samples_go_to_their_groups(geometry: Any, out_of_sample: Any) -> None:
    xs, ys = clusters(0)
    xt, yt = clusters(1)
    model = GromovTransport(1e-3, geometry=geometry, out_of_sample=out_of_sample)
    model.fit(xs, Xt=lifted(xt))
    assert (model.transform_labels(ys).argmax(1) == yt).mean() > 0.9
    assert (model.inverse_transform_labels(yt).argmax(1) == ys).mean() > 0.9
    fresh, labels = clusters(2)
    centres = np.stack([lifted(xt)[yt == label].mean(0) for label in range(3)])
    moved = model.transform(fresh)
    assert moved.shape == (60, 3)
    assert (np.linalg.norm(moved[:, None] - centres, axis=2).argmin(1) == labels).mean() > 0.9
    own = np.stack([xs[ys == label].mean(0) for label in range(3)])
    back = model.inverse_transform(lifted(fresh))
    assert (np.linalg.norm(back[:, None] - own, axis=2).argmin(1) == labels).mean() > 0.9


@pytest.mark.parametrize("options", [{}, {"rho_a": 0.5, "rho_b": 0.5}, {"mass": 0.8}])
def test_fitted_samples_go_where_the_plan_sends_them(options: dict[str, Any]) -> None:
    """Their row of the last linearised cost is the plan's."""
    xs, xt = clusters(0)[0], lifted(clusters(1)[0])
    a = np.random.default_rng(0).dirichlet(np.full(60, 5.0))
    model = GromovTransport(0.01, tol=1e-9, max_iter=400, out_of_sample="continuous", **options)
    model.fit(xs, Xt=xt, a=a, b=np.full(60, 1 / 60))
    plan = model.coupling_
    np.testing.assert_allclose(model.transform(xs), plan @ xt / plan.sum(1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(
        model.inverse_transform(xt), plan.T @ xs / plan.sum(0)[:, None], rtol=1e-4, atol=1e-4
    )
    nearest = GromovTransport(0.01, tol=1e-9, max_iter=400, **options).fit(xs, Xt=xt, a=a)
    np.testing.assert_allclose(nearest.transform(xs), plan @ xt / plan.sum(1, keepdims=True), rtol=1e-5)


def test_plans_are_those_of_the_functions() -> None:
    xs, xt = clusters(0)[0], lifted(clusters(1)[0])
    x, y = torch.from_numpy(xs), torch.from_numpy(xt)
    model = GromovTransport(0.01, restarts=2, random_state=3).fit(xs, Xt=xt)
    expected = gromov_wasserstein(x, y, epsilon=0.01, restarts=2, generator=3)
    np.testing.assert_allclose(model.coupling_, expected.plan.to_dense().numpy(), rtol=1e-6, atol=1e-12)
    assert model.cost_ == pytest.approx(float(expected.distortion))
    assert model.n_iter_ == int(expected.iterations)
    sampled = GromovTransport(0.01, n_anchors=40, random_state=3, max_iter=30).fit(xs, Xt=xt)
    of_sampled = gromov_wasserstein_sampled(x, y, epsilon=0.01, n_anchors=40, generator=3, max_iter=30)
    np.testing.assert_array_equal(sampled.coupling_, of_sampled.plan.to_dense().numpy())
    assert sampled.transform(xs[:4]).shape == (4, 3)
    assert GromovTransport(n_anchors=20, geometry=Geodesic(k=5), max_iter=5).fit(xs, Xt=xt).n_iter_ == 5


def test_labels_of_both_domains_choose_among_equal_matchings() -> None:
    """A square onto itself has eight matchings; its corners' labels leave one."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    order = np.array([2, 0, 3, 1])
    labels = np.arange(4)
    model = GromovTransport(1e-3, label_weight=0.3).fit(square, labels, lifted(square[order]), labels[order])
    np.testing.assert_array_equal(order[model.coupling_.argmax(1)], np.arange(4))


def test_as_an_estimator() -> None:
    xs, ys = clusters(0)
    xt = lifted(clusters(1)[0])
    model = GromovTransport(0.01)
    with pytest.raises(NotFittedError):
        model.transform(xs)
    with pytest.raises(NotFittedError):
        model.coupling_  # noqa: B018
    model.fit(torch.from_numpy(xs), Xt=xt.tolist())
    moved = model.transform(xs)
    for other in (clone(model).fit(xs, ys, xt), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.transform(xs), moved)
    assert (model.n_features_in_, model.n_features_out_) == (2, 3)
    single = GromovTransport(0.01).fit_transform(xs.astype(np.float32), Xt=xt.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, moved, rtol=1e-2, atol=1e-2)


@pytest.mark.gpu
def test_on_a_gpu(cuda: torch.device) -> None:
    xs, ys = clusters(0)
    xt = lifted(clusters(1)[0])
    expected = GromovTransport(0.01, out_of_sample="continuous").fit(xs, Xt=xt)
    model = GromovTransport(0.01, out_of_sample="continuous", device="cuda").fit(xs, Xt=xt)
    np.testing.assert_allclose(model.transform(xs), expected.transform(xs), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.transform_labels(ys), expected.transform_labels(ys), atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"n_anchors": 8}], ids=["exact", "sampled"])
def test_what_has_not_converged_warns_once(options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    with pytest.warns(Warning) as said:
        GromovTransport(max_iter=1, **options).fit(
            random.normal(size=(20, 2)), Xt=random.normal(size=(20, 3))
        )
    (one,) = said
    assert one.category is ConvergenceWarning and one.filename == __file__
    assert str(one.message).startswith("GromovTransport: not converged after n_iter_ = 1 steps")
