"""warpalign.compat.tslearn computes what tslearn computes, where that is right; it runs beside it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.python.helpers import numpy64, randn
from tests.python.soft_dtw.compat_cases import (
    EPS32,
    gradient_tolerance,
    l1,
    pair,
    reference,
    same,
    with_gradients,
)
from warpalign.compat import tslearn as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tslearn_metrics = pytest.importorskip("tslearn.metrics")
    tslearn_barycenters = pytest.importorskip("tslearn.barycenters")
    tslearn_clustering = pytest.importorskip("tslearn.clustering")
    tslearn_neighbors = pytest.importorskip("tslearn.neighbors")


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "none": {},
    "empty": {"global_constraint": ""},
    "radius": {"sakoe_chiba_radius": 2},
    "radius 0": {"sakoe_chiba_radius": 0},
    "sakoe_chiba": {"global_constraint": "sakoe_chiba"},
    "slope": {"itakura_max_slope": 2.5},
    "itakura": {"global_constraint": "itakura"},
    "itakura, radius ignored": {"global_constraint": "itakura", "sakoe_chiba_radius": 1},
    "both": {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": 3, "itakura_max_slope": 2.0},
}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 7), (9, 7), (7, 9)])
def test_tslearn_pairs(n: int, m: int, constraint: str) -> None:
    options = CONSTRAINTS[constraint]
    x, y = numpy64(randn(n, 2, seed=n)), numpy64(randn(m, 2, seed=50 + m))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, gamma=0.5, **options)
        got = getattr(ours, name)(x, y, gamma=0.5, **options)
        assert isinstance(got, float) and got == pytest.approx(theirs, rel=1e-12, abs=1e-12)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.5, **options)
    their_alignment, their_value = tslearn_metrics.soft_dtw_alignment(x, y, 0.5, **options)
    assert value == pytest.approx(their_value, rel=1e-12) and type(value) is type(their_value)
    assert isinstance(alignment, np.ndarray) and np.allclose(alignment, their_alignment, rtol=0, atol=1e-11)


@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
def test_tslearn_hard(constraint: str) -> None:
    """gamma 0: squared in soft_dtw, not in cdist; the path's cells for an alignment."""
    options = CONSTRAINTS[constraint]
    x, y = numpy64(randn(7, 2, seed=1)), numpy64(randn(9, 2, seed=2))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, gamma=0.0, **options)
        assert getattr(ours, name)(x, y, gamma=0.0, **options) == pytest.approx(theirs, rel=1e-12)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.0, **options)
    their_alignment, their_value = tslearn_metrics.soft_dtw_alignment(x, y, 0.0, **options)
    assert value == pytest.approx(their_value, rel=1e-12) and np.array_equal(alignment, their_alignment)
    assert type(value) is type(their_value)
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    (of_cells, of_value), (theirs_of_cells, theirs_of_value) = (
        m.soft_dtw_alignment(*tensors, 0.0, **options) for m in (ours, tslearn_metrics)
    )
    assert torch.equal(of_cells, theirs_of_cells) and of_cells.dtype == theirs_of_cells.dtype
    assert of_value.dtype == theirs_of_value.dtype and of_value.item() == pytest.approx(value)
    for name in ("cdist_soft_dtw", "cdist_soft_dtw_normalized"):
        got, theirs = (
            getattr(m, name)([x, y], gamma=0.0, **options) for m in (ours, tslearn_metrics._soft_dtw)
        )
        assert np.allclose(got, theirs, rtol=1e-12, atol=0)


def test_tslearn_bands_hold_the_same_paths() -> None:
    """Soft-DTW of zeros at gamma 1 is minus the logarithm of the number of paths."""
    infeasible = 0
    bands: list[dict[str, Any]] = [{"sakoe_chiba_radius": radius} for radius in (0, 1, 3)]
    bands += [{"itakura_max_slope": slope} for slope in (1.0, 1.5, 2.0, 3.7)]
    for n, m in np.ndindex(13, 13):
        x, y = np.zeros((n + 1, 1)), np.zeros((m + 1, 1))
        for options in bands:
            try:
                expected = tslearn_metrics.soft_dtw(x, y, **options)
            except RuntimeWarning as error:
                infeasible += 1
                with pytest.raises(RuntimeWarning) as caught:
                    ours.soft_dtw(x, y, **options)
                assert str(caught.value) == str(error)
            else:
                assert ours.soft_dtw(x, y, **options) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert 0 < infeasible < 13 * 13 * 4


@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
def test_tslearn_tensors_have_gradients(constraint: str) -> None:
    """With a band theirs are NaN: there the reference stands for them."""
    options = CONSTRAINTS[constraint]
    x, y = (randn(size, 2, seed=size, grad=True) for size in (6, 7))
    for name in ("soft_dtw", "soft_dtw_normalized"):
        theirs = getattr(tslearn_metrics._soft_dtw, name)(x, y, 0.5, **options)
        got = getattr(ours, name)(x, y, 0.5, **options)
        assert got.dtype == theirs.dtype == torch.float64 and got.shape == theirs.shape == ()
        assert got.item() == pytest.approx(theirs.item(), rel=1e-12)
        if name == "soft_dtw":
            mask = tslearn_metrics.compute_mask(
                6, 7, 0, *options.values() if constraint == "radius" else (None, *options.values())
            )
            expected = reference(x[None], y[None], 0.5, lambda i, j, mask=mask: bool(mask[i - 1, j - 1]))[1:]
            for a, b in zip(torch.autograd.grad(got, (x, y), retain_graph=True), expected, strict=True):
                # float32 inputs have float32 gradients.
                assert torch.allclose(a.double(), b[0], rtol=EPS32, atol=EPS32)
        if constraint == "none":
            for a, b in zip(
                *(torch.autograd.grad(v, (x, y), retain_graph=True) for v in (got, theirs)), strict=True
            ):
                assert torch.allclose(a, b, rtol=4 * EPS32, atol=4 * EPS32)
    alignment, value = ours.soft_dtw_alignment(x, y, 0.5, **options)
    assert alignment.dtype == value.dtype == torch.float64 and alignment.shape == (6, 7)


def ragged() -> list[list[float]]:
    return [[1, 2, 2, 3], [1.0, 2.0, 3.0, 4.0, 2.5], [0.5, 1.5, 3.5]]


DATASETS: dict[str, Any] = {
    "lists": ragged(),
    "one series": [1.0, 2.0, 4.0],
    "(n, N)": np.arange(12.0).reshape(3, 4) % 5,
    "(n, N, D)": np.arange(24.0).reshape(3, 4, 2) % 7,
    "integers": np.arange(12).reshape(3, 4) % 5,
    "float32": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "NaN behind": np.array([[1, 2, 3, np.nan], [1, 3, 2, 4], [5, np.nan, np.nan, np.nan]]),
}


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("constraint", ["none", "radius"])
def test_tslearn_cdist(name: str, constraint: str) -> None:
    data, options = DATASETS[name], CONSTRAINTS[constraint]
    other = np.random.default_rng(0).normal(size=(2, 6, 2 if name == "(n, N, D)" else 1))
    for function in ("cdist_soft_dtw", "cdist_soft_dtw_normalized"):
        mine, theirs = getattr(ours, function), getattr(tslearn_metrics._soft_dtw, function)
        for second in (None, other):
            got, expected = (f(data, second, gamma=0.3, **options) for f in (mine, theirs))
            assert isinstance(got, np.ndarray) and got.dtype == expected.dtype and got.shape == expected.shape
            assert np.allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cdist_soft_dtw", "cdist_soft_dtw_normalized"])
def test_tslearn_cdist_of_tensors(name: str) -> None:
    x, y = randn(3, 5, 2, seed=0, dtype=torch.float64, grad=True), randn(2, 6, 2, seed=1, dtype=torch.float64)
    got, expected = (getattr(module, name)(x, y, gamma=0.5) for module in (ours, tslearn_metrics))
    assert got.dtype == expected.dtype == torch.float64
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    a, b = (torch.autograd.grad((weights * value).sum(), x)[0] for value in (got, expected))
    assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_tslearn_cdist_of_tensors_with_a_band() -> None:
    """Pair by pair the values and gradients of soft_dtw, which the tests above compare with the reference."""
    x, y = randn(3, 5, 2, seed=0, dtype=torch.float64, grad=True), randn(2, 6, 2, seed=1, dtype=torch.float64)
    got = ours.cdist_soft_dtw(x, y, gamma=0.5, sakoe_chiba_radius=1)
    one_by_one = torch.stack(
        [torch.stack([ours.soft_dtw(a, b, gamma=0.5, sakoe_chiba_radius=1) for b in y]) for a in x]
    )
    assert torch.allclose(got, one_by_one, rtol=1e-12, atol=1e-12)
    a, b = (torch.autograd.grad(value.square().sum(), x)[0] for value in (got, one_by_one))
    assert torch.allclose(a, b, rtol=0, atol=1e-10)


def test_tslearn_bands_of_ragged_tensors_have_finite_gradients() -> None:
    x = torch.tensor([[1.0, 2, 3, torch.nan], [1, 3, 2, 4]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ours.cdist_soft_dtw(x, gamma=0.3, sakoe_chiba_radius=1).sum(), x)
    assert gradient.isfinite().all() and gradient[0, 3] == 0 and (gradient[1] != 0).any()


@pytest.mark.parametrize(
    ("be", "given", "is_tensor"),
    [
        (None, ([1.0, 2], [1.0, 3]), False),
        (None, ([1.0, 2], torch.tensor([1.0, 3])), True),
        (None, (np.array([1.0, 2]), torch.tensor([1.0, 3])), False),
        ("pytorch", ([1.0, 2], np.array([1.0, 3])), True),
        ("numpy", (torch.tensor([1.0, 2]), [1.0, 3]), False),
    ],
)
def test_tslearn_backends(be: str | None, given: tuple[Any, Any], is_tensor: bool) -> None:
    got, theirs = ours.soft_dtw(*given, be=be), tslearn_metrics.soft_dtw(*given, be=be)
    assert isinstance(got, Tensor) is isinstance(theirs, Tensor) is is_tensor
    assert float(got) == pytest.approx(float(theirs), rel=1e-12)
    from tslearn.backend import instantiate_backend

    assert isinstance(ours.soft_dtw(*given, be=instantiate_backend(be, *given)), Tensor) is is_tensor


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.soft_dtw([np.nan, np.nan], [1.0]), ValueError),
        (lambda m: m.soft_dtw([[1.0, 2.0]], [[1.0]]), ValueError),
        (lambda m: m.soft_dtw([1.0], [1.0], sakoe_chiba_radius=1, itakura_max_slope=2.0), RuntimeWarning),
        (lambda m: m.soft_dtw([1.0] * 7, [1.0] * 3, itakura_max_slope=1.0), RuntimeWarning),
        (lambda m: m.soft_dtw([1.0], [1.0], global_constraint="slanted"), KeyError),
    ],
)
def test_tslearn_errors(call: Callable[[Any], object], error: type[Exception]) -> None:
    messages = []
    for module in (ours, tslearn_metrics):
        with pytest.raises(error) as caught:
            call(module)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("constraint", ["none", "radius", "slope"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tslearn_loss(dtype: torch.dtype, constraint: str, normalize: bool) -> None:
    x, y = pair(7, 9, dtype=dtype)
    settings: dict[str, Any] = {"gamma": 0.5, "normalize": normalize, **CONSTRAINTS[constraint]}
    theirs = with_gradients(tslearn_metrics.SoftDTWLossPyTorch(**settings), x, y)
    got = with_gradients(ours.SoftDTWLossPyTorch(**settings), x, y)
    same(got, theirs, gradient_tolerance(0.5, 7, 9))


def test_tslearn_loss_of_integers_and_own_distances() -> None:
    """The example of tslearn's documentation: y holds integers."""
    x, y = torch.zeros((4, 3, 2), requires_grad=True), torch.arange(24).reshape(4, 3, 2)
    loss = ours.SoftDTWLossPyTorch(gamma=0.1)(x, y).mean()
    loss.backward()
    assert loss.item() == pytest.approx(1081.0)
    assert x.grad is not None and x.grad[0, 0].tolist() == pytest.approx([0.0, -0.5])
    a, b = pair(5, 6)
    for settings in ({"dist_func": l1}, {"dist_func": l1, "sakoe_chiba_radius": 1}):
        got = with_gradients(ours.SoftDTWLossPyTorch(**settings), a, b)
        same(
            got,
            with_gradients(tslearn_metrics.SoftDTWLossPyTorch(**settings), a, b),
            gradient_tolerance(1.0, 5, 6),
        )


@pytest.mark.parametrize("constraint", ["none", "radius"])
@pytest.mark.parametrize(
    "settings", [{}, {"weights": [1.0, 2.0, 0.5]}, {"weights": [1.0]}, {"init": np.zeros((6, 1))}]
)
@pytest.mark.parametrize("data", ["lists", "(n, N)", "NaN behind"])
def test_tslearn_barycenter(data: str, settings: dict[str, Any], constraint: str) -> None:
    """Few steps of the same optimiser from the same place: equal to far less than what it is still moving by."""
    got, theirs = (
        module.softdtw_barycenter(
            DATASETS[data], gamma=0.5, max_iter=4, **settings, **CONSTRAINTS[constraint]
        )
        for module in (ours, tslearn_barycenters)
    )
    assert got.shape == theirs.shape and got.dtype == theirs.dtype
    assert np.allclose(got, theirs, rtol=0, atol=1e-6)
    start = ours.softdtw_barycenter(DATASETS[data], max_iter=0, **settings)
    assert np.allclose(start, tslearn_barycenters.softdtw_barycenter(DATASETS[data], max_iter=0, **settings))
    assert np.abs(got - start).max() > 1e-2


@pytest.mark.parametrize("data", [*DATASETS, "tensor"])
def test_tslearn_gamma(data: str) -> None:
    dataset = torch.randn(4, 9, 2, dtype=torch.float64) if data == "tensor" else DATASETS[data]
    for settings in ({"random_state": 3}, {"n_samples": 7, "random_state": np.random.RandomState}, {}):
        found = []
        for module in (ours, tslearn_metrics):
            np.random.seed(5)
            options = {name: value() if callable(value) else value for name, value in settings.items()}
            if "n_samples" in options:
                options["random_state"].seed(1)
            found.append(module.gamma_soft_dtw(dataset, **options))
        assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-12) and float(found[0]) > 0
        assert type(found[0]) is type(found[1])


def test_tslearn_signatures() -> None:
    for name in dir(ours):
        packages = (tslearn_metrics._soft_dtw, tslearn_metrics, tslearn_barycenters)
        theirs = next(
            getattr(package, name)
            for package in (*packages, tslearn_clustering, tslearn_neighbors)
            if hasattr(package, name)
        )
        expected = {p.name: p.default for p in inspect.signature(theirs).parameters.values()}
        found = {p.name: p.default for p in inspect.signature(getattr(ours, name)).parameters.values()}
        assert found == expected, name
    theirs = tslearn_metrics.SoftDTWLossPyTorch().dist_func
    x, y = randn(2, 5, 3, seed=0), randn(2, 6, 3, seed=1)
    assert torch.allclose(ours.SoftDTWLossPyTorch().dist_func(x, y), theirs(x, y))
