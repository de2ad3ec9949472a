"""Bands: the cells that they hold, values and gradients within them, and bands that hold no path."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import numpy64, randn, relative_error
from tests.python.soft_dtw.reference import (
    band_mask,
    gradient_tolerance,
    pair,
    squared_distances,
    value_and_alignment,
    value_tolerance,
)

BANDS: dict[str, dict[str, Any]] = {
    "diagonal": {"bandwidth": 0},
    "sakoe_chiba": {"bandwidth": 3},
    "wide": {"bandwidth": 1000},
    "abs": {"bandwidth": 11, "band": "abs"},
    "slanted": {"bandwidth": 2, "band": "slanted"},
    "itakura": {"band": "itakura"},
    "steep itakura": {"band": "itakura", "max_slope": 4.5},
}
# tests/cpp/soft_dtw/band_test.cpp has further sizes.
SIZES = [(1, 1), (4, 4), (33, 40), (40, 31), (129, 140)]


def mask_of(options: dict[str, Any], n: int, m: int) -> np.ndarray:
    options = {"band": "sakoe_chiba", **options}
    return band_mask(options.pop("band"), n, m, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("d", [1, 7])
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("case", BANDS)
def test_against_the_reference(case: str, n: int, m: int, d: int, dtype: torch.dtype) -> None:
    x, y = pair(2, n, m, d, dtype=dtype, grad=True)
    mask = mask_of(BANDS[case], n, m)
    value, alignment = warpalign.soft_dtw_alignment(x, y, **BANDS[case])
    grad_x, grad_y = torch.autograd.grad(value.sum(), (x, y))
    for b in range(2):
        xs, ys = numpy64(x[b]), numpy64(y[b])
        expected, e = value_and_alignment(np.where(mask, squared_distances(xs, ys), np.inf), 1.0)
        assert abs(float(value[b]) - expected) <= value_tolerance(expected, 1.0, n, m, dtype)
        tolerance = gradient_tolerance(1.0, dtype)
        assert relative_error(alignment[b], e) <= tolerance
        assert not numpy64(alignment[b])[~mask].any()
        assert relative_error(grad_x[b], 2 * (e.sum(1)[:, None] * xs - e @ ys)) <= tolerance
        assert relative_error(grad_y[b], 2 * (e.sum(0)[:, None] * ys - e.T @ xs)) <= tolerance


@pytest.mark.parametrize("case", BANDS)
def test_cost_matrix(case: str) -> None:
    cost = randn(2, 35, 40, seed=1, dtype=torch.float64, grad=True)
    mask = torch.from_numpy(mask_of(BANDS[case], 35, 40))
    value = warpalign.soft_dtw_cost(cost.masked_fill(~mask, torch.nan), **BANDS[case])
    (grad,) = torch.autograd.grad(value.sum(), cost)
    for b in range(2):
        expected, e = value_and_alignment(np.where(mask, numpy64(cost[b]), np.inf), 1.0)
        assert float(value[b]) == pytest.approx(expected, rel=1e-11)
        assert relative_error(grad[b], e) <= 1e-10


@pytest.mark.parametrize("case", BANDS)
def test_lengths_have_bands_of_their_own(case: str) -> None:
    x, y = pair(3, 60, 50, 2, dtype=torch.float64)
    lengths = torch.tensor([60, 21, 30]), torch.tensor([50, 30, 30])
    got = warpalign.soft_dtw(x, y, x_lengths=lengths[0], y_lengths=lengths[1], **BANDS[case])
    single = [
        warpalign.soft_dtw(x[b, : lengths[0][b]], y[b, : lengths[1][b]], **BANDS[case]) for b in range(3)
    ]
    assert torch.equal(got, torch.stack(single))


@pytest.mark.parametrize("case", BANDS)
def test_gradcheck(case: str) -> None:
    x, y = pair(2, 9, 8, 2, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda x, y: warpalign.soft_dtw(x, y, **BANDS[case]), (x, y))
    cost = randn(2, 9, 8, seed=2, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda c: warpalign.soft_dtw_cost(c, **BANDS[case]), (cost,))


@pytest.mark.parametrize("case", BANDS)
def test_compiled_and_vmapped(case: str) -> None:
    x, y = pair(3, 12, 10, 2)
    expected = warpalign.soft_dtw(x, y, **BANDS[case])
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, y: warpalign.soft_dtw(x, y, **BANDS[case]), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(x, y), expected)
    assert torch.equal(torch.func.vmap(lambda x, y: warpalign.soft_dtw(x, y, **BANDS[case]))(x, y), expected)
    assert torch.equal(warpalign.SoftDTW(**BANDS[case])(x, y), expected)


def test_tslearns_masks() -> None:
    """The reference's masks are those of tslearn, so that a radius or slope means the same in both."""
    metrics = pytest.importorskip("tslearn.metrics")
    for n, m in itertools.product((1, 2, 5, 12, 13, 30), (1, 3, 12, 14, 30)):
        for radius in (0, 1, 4):
            expected = metrics.sakoe_chiba_mask(n, m, radius)
            assert np.array_equal(band_mask("sakoe_chiba", n, m, bandwidth=radius), np.asarray(expected))
        for slope in (1.5, 2.0, 3.0):
            try:
                expected = metrics.itakura_mask(n, m, slope)
            except RuntimeWarning:
                continue  # no path
            assert np.array_equal(band_mask("itakura", n, m, max_slope=slope), np.asarray(expected))


def test_a_radius_may_be_any_integer() -> None:
    x, y = pair(2, 9, 7, 2)
    radius: Any = np.int64(3)
    assert torch.equal(warpalign.soft_dtw(x, y, bandwidth=radius), warpalign.soft_dtw(x, y, bandwidth=3))
