"""Two hundred random calls of each drop-in beside its original: value, type, dtype, gradient, or the error's type."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from tests.python.soft_dtw.compat_cases import VALUE, gradient_tolerance, l1
from warpalign.compat import pysdtw as our_pysdtw
from warpalign.compat import tslearn as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pysdtw = pytest.importorskip("pysdtw")
    metrics = pytest.importorskip("tslearn.metrics")

CALLS = 200
Random = np.random.Generator


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the error's type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (ValueError, RuntimeWarning, KeyError) as error:
            return type(error)


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(got, type):  # the type of an error
        assert got is expected
    elif isinstance(got, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            if isinstance(one, (int, np.integer)):
                assert one == other
            else:
                same(one, other)
    else:
        assert getattr(got, "dtype", None) == getattr(expected, "dtype", None)
        assert np.shape(got) == np.shape(expected)
        a, b = (np.asarray(v.detach() if isinstance(v, Tensor) else v, float) for v in (got, expected))
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9)


def series(random: Random, steps: int, features: int, form: str) -> Any:
    """One series in some form, now and then with NaN behind its end."""
    values = random.normal(size=(steps, features)).round(2)
    if form in ("array", "tensor") and random.uniform() < 0.2 and steps > 1:
        values[steps - 1] = np.nan
    if features == 1 and random.uniform() < 0.5:
        values = values[:, 0]
    forms: dict[str, Callable[[Any], Any]] = {
        "array": lambda v: v,
        "float32": lambda v: v.astype(np.float32),
        "integers": lambda v: (4 * v).astype(int),
        "list": lambda v: v.tolist(),
        "tensor": torch.tensor,
    }
    return forms[form](values)


def band(random: Random) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = [
        {},
        {},
        {"sakoe_chiba_radius": int(random.integers(0, 4))},
        {"itakura_max_slope": float(random.uniform(1, 4))},
        {"global_constraint": "sakoe_chiba"},
        {"global_constraint": "itakura", "sakoe_chiba_radius": 2},
        {"global_constraint": "round"},
    ]
    return kinds[random.integers(len(kinds))]


def test_tslearns_functions() -> None:
    random = np.random.default_rng(0)
    pairs = ("soft_dtw", "soft_dtw_normalized", "soft_dtw_alignment", "dtw", "dtw_path")
    sets = ("cdist_soft_dtw", "cdist_soft_dtw_normalized", "cdist_dtw", "gamma_soft_dtw")
    errors = 0
    for _ in range(CALLS):
        name = [*pairs, *sets][random.integers(9)]
        features = int(random.integers(1, 4))
        form = ["array", "float32", "integers", "list", "tensor"][random.integers(5)]
        options = band(random)
        if "soft" in name:
            options["gamma"] = float([0, 0.01, 0.3, 1, 10][random.integers(5)])
        steps = random.integers(1, 9, size=2)
        if name in pairs:
            given = tuple(series(random, int(n), features, form) for n in steps)
        elif name == "gamma_soft_dtw":
            options = {"n_samples": int(random.integers(5, 30)), "random_state": int(random.integers(99))}
            given = (random.normal(size=(3, int(steps[0]) + 2, features)),)
        else:
            sides = [random.normal(size=(int(random.integers(1, 4)), int(n), features)) for n in steps]
            given = tuple(torch.tensor(side) if form == "tensor" else side for side in sides)
            given = given[: 1 + int(random.integers(2))]
        theirs = getattr(metrics._soft_dtw if "soft" in name and name != "gamma_soft_dtw" else metrics, name)
        expected = outcome(lambda f=theirs, a=given, o=options: f(*a, **o))  # type: ignore[misc]
        got = outcome(lambda n=name, a=given, o=options: getattr(ours, n)(*a, **o))  # type: ignore[misc]
        errors += isinstance(expected, type)
        same(got, expected)
    assert 0 < errors < CALLS / 2


def gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype)
    return list(torch.autograd.grad(weights @ value, inputs))


def compare(ours_: Any, theirs: Any, x: Any, y: Any, gamma: float, with_gradients: bool) -> None:
    """Compares losses. The originals keep float64 tables in float32."""
    got, expected = ours_(x, y), theirs(x, y)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert torch.equal(torch.isfinite(got), torch.isfinite(expected))
    finite = torch.isfinite(expected)
    scale = expected[finite].abs().clamp(min=1)
    assert ((got[finite] - expected[finite]).abs() <= 4 * VALUE * scale).all()
    inputs = [t for t in (x, y) if isinstance(t, Tensor) and t.requires_grad]
    if with_gradients and inputs and finite.all():
        for a, b in zip(gradients(got, inputs), gradients(expected, inputs), strict=True):
            bound = 4 * gradient_tolerance(gamma, x.shape[1], y.shape[1])
            assert (a - b).norm() <= bound * b.norm() + 1e-5


def batch(random: Random, size: int, steps: int, features: int, dtype: torch.dtype) -> Tensor:
    values = torch.from_numpy(0.7 * random.normal(size=(size, steps, features)))
    if not dtype.is_floating_point:
        return (3 * values).to(dtype)
    return values.to(dtype).requires_grad_()


def test_tslearns_loss() -> None:
    random = np.random.default_rng(1)
    for _ in range(CALLS):
        size, n, m, features = (int(random.integers(low, 9)) for low in (1, 1, 1, 0))
        dtypes = [torch.float32, torch.float64, torch.float64, torch.int64]
        of_x = dtypes[random.integers(3)]
        of_y = of_x if random.uniform() < 0.7 else dtypes[random.integers(4)]
        gamma = float([0.1, 0.5, 2][random.integers(3)])
        settings: dict[str, Any] = {"gamma": gamma, "normalize": bool(random.integers(2))}
        constraint = {} if random.uniform() < 0.7 else {"sakoe_chiba_radius": int(random.integers(1, 4))}
        if not of_y.is_floating_point:
            settings["normalize"] = False  # theirs writes infinity into costs of integers
        if random.uniform() < 0.2 and features:
            settings["dist_func"] = l1
        settings |= constraint
        x, y = batch(random, size, n, features, of_x), batch(random, size, m, features, of_y)
        pair = ours.SoftDTWLossPyTorch(**settings), metrics.SoftDTWLossPyTorch(**settings)
        compare(*pair, x, y, gamma, not constraint)  # with a band their gradients are NaN


def test_pysdtw() -> None:
    random = np.random.default_rng(2)
    for _ in range(CALLS):
        size, n, m, features = (int(random.integers(low, 9)) for low in (1, 1, 1, 0))
        dtype = [torch.float32, torch.float64, torch.int64][random.integers(3)]
        gamma = float([0.1, 0.5, 2][random.integers(3)])
        bandwidth = [None, None, 0, 1, 2.5, math.inf][random.integers(6)]
        settings: dict[str, Any] = {"gamma": gamma, "use_cuda": False, "bandwidth": bandwidth}
        x: Any
        y: Any
        x, y = batch(random, size, n, features, dtype), batch(random, size, m, features, dtype)
        if random.uniform() < 0.3 and dtype.is_floating_point and features:
            x, y = (
                pack_sequence([one[: int(k)].detach() for one, k in zip(t, random.integers(1, t.shape[1] + 1, size), strict=True)], False)
                for t in (x, y)
            )  # fmt: skip
        their_settings = dict(settings)
        if dtype.is_floating_point:
            their_settings["dist_func"] = pysdtw.distance.pairwise_l2_squared_exact
        compare(our_pysdtw.SoftDTW(**settings), pysdtw.SoftDTW(**their_settings), x, y, gamma, True)
