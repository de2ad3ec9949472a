"""warpalign.compat.pysdtw computes what pysdtw computes, where that is right; it runs beside it."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from tests.python.helpers import randn
from tests.python.soft_dtw.compat_cases import (
    SIZES,
    VALUE,
    gradient_tolerance,
    l1,
    pair,
    same,
    with_gradients,
)
from warpalign.compat import pysdtw as our_pysdtw

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pysdtw = pytest.importorskip("pysdtw")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("bandwidth", [None, 0, 2, 3.5])
def test_pysdtw(n: int, m: int, gamma: float, bandwidth: float | None, dtype: torch.dtype) -> None:
    x, y = pair(n, m, dtype=dtype)
    settings: dict[str, Any] = {"gamma": gamma, "use_cuda": False, "bandwidth": bandwidth}
    value, *gradients = with_gradients(our_pysdtw.SoftDTW(**settings), x, y)
    exact = pysdtw.distance.pairwise_l2_squared_exact
    theirs = with_gradients(pysdtw.SoftDTW(dist_func=exact, **settings), x, y)
    reached = torch.isfinite(theirs[0])
    assert torch.equal(torch.isfinite(value), reached)
    if reached.all():
        same((value, *gradients), theirs, gradient_tolerance(gamma, n, m))
    else:  # theirs are NaN then
        assert all((gradient == 0).all() for gradient in gradients)


def test_pysdtw_bands_cut_something() -> None:
    """The cases above see the band: the corner is outside at 1 x 5, and other values change."""
    x, y = pair(9, 6)
    wide, narrow = (our_pysdtw.SoftDTW(use_cuda=False, bandwidth=b)(x, y) for b in (None, 2))
    assert (narrow > wide + 1e-3).all() and torch.isfinite(narrow).all()
    assert torch.isinf(our_pysdtw.SoftDTW(use_cuda=False, bandwidth=2)(*pair(1, 5))).all()


@pytest.mark.parametrize("bandwidth", [None, 2])
def test_pysdtw_packed(bandwidth: float | None) -> None:
    """Values as theirs; the gradients as those of each pair alone (theirs are NaN or wrong with a band)."""
    lengths = [(4, 7), (9, 5), (6, 6)]
    x = [0.7 * randn(n, 2, seed=n, dtype=torch.float64, grad=True) for n, _ in lengths]
    y = [0.7 * randn(m, 2, seed=50 + m, dtype=torch.float64) for _, m in lengths]
    packed = pack_sequence(x, enforce_sorted=False), pack_sequence(y, enforce_sorted=False)
    got = our_pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(*packed)
    theirs = pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(*packed)
    assert torch.allclose(got, theirs, rtol=VALUE, atol=VALUE)
    gradients = torch.autograd.grad(got.sum(), x)
    for a, b, gradient in zip(x, y, gradients, strict=True):
        alone = our_pysdtw.SoftDTW(use_cuda=False, bandwidth=bandwidth)(a[None], b[None])
        assert torch.allclose(gradient, torch.autograd.grad(alone.sum(), a)[0], rtol=0, atol=1e-12)


def test_pysdtw_own_distance() -> None:
    x, y = pair(6, 8)
    for bandwidth in (None, 4):
        settings: dict[str, Any] = {"dist_func": l1, "use_cuda": False, "bandwidth": bandwidth}
        got = with_gradients(our_pysdtw.SoftDTW(**settings), x, y)
        same(got, with_gradients(pysdtw.SoftDTW(**settings), x, y), gradient_tolerance(1.0, 6, 8))


def test_pysdtw_names() -> None:
    theirs, found = inspect.signature(pysdtw.SoftDTW), inspect.signature(our_pysdtw.SoftDTW)
    assert list(found.parameters) == list(theirs.parameters)
    for name, parameter in theirs.parameters.items():
        assert found.parameters[name].default == parameter.default
    x, y = pair(5, 6)
    for name in ("pairwise_l2_squared", "pairwise_l2_squared_exact"):
        got = getattr(our_pysdtw.distance, name)(x, y)
        assert torch.allclose(got, getattr(pysdtw.distance, name)(x, y), rtol=1e-12, atol=1e-13)
