"""Random calls against the float64 reference, over shapes, strides, lengths, dtypes, gammas, bands and data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import numpy64
from tests.python.soft_dtw.fuzz_cases import (
    DTYPES,
    Case,
    close,
    fuzz,
    laid_out,
    lengths_of,
    numbers,
    padded,
    refused,
    share_error,
    tolerance,
    within_band,
)
from tests.python.soft_dtw.reference import values_and_alignments

FUNCTIONS = ("soft_dtw", "soft_dtw_alignment")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_series(function: str, dtype: torch.dtype) -> None:
    fuzz(lambda case: check_series(case, function, dtype))


def check_series(case: Case, function: str, dtype: torch.dtype) -> None:
    generator = np.random.default_rng(case.seed)
    # Half-precision gradients must not overflow.
    scale = 10.0 ** (
        min(case.scale_exponent, 0) if dtype in (torch.float16, torch.bfloat16) else case.scale_exponent
    )
    gamma = scale**2 * 10**case.gamma_exponent
    x, y = (
        laid_out(
            torch.from_numpy(numbers(case, (case.batch, size, case.d), generator, scale)).to(dtype), layout
        )
        for size, layout in zip((case.n, case.m), case.layouts, strict=True)
    )
    batch = max(len(x), len(y))
    (x_lengths, n), (y_lengths, m) = (
        lengths_of(case, side, limit, batch, generator) for side, limit in enumerate((case.n, case.m))
    )
    a, b = (
        np.broadcast_to(numpy64(x), (batch, *x.shape[1:])),
        np.broadcast_to(numpy64(y), (batch, *y.shape[1:])),
    )
    cost = ((a[:, :, None] - b[:, None]) ** 2).sum(-1)
    cost, holds_a_path = within_band(case, cost, n, m)
    values, alignments = values_and_alignments(cost, gamma, n, m)

    x, y = (padded(t, lengths, 1).detach().requires_grad_() for t, lengths in ((x, n), (y, m)))
    options = {"gamma": gamma, "x_lengths": x_lengths, "y_lengths": y_lengths, **case.band}
    if not holds_a_path:
        refused(lambda: getattr(warpalign, function)(x, y, **options))
        return
    result = getattr(warpalign, function)(x, y, **options)
    value = result.value if function == "soft_dtw_alignment" else result
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32) and value.shape == (
        batch,
    )
    error = tolerance(values, gamma, case.n, case.m, dtype)
    close(value, values, error, value.dtype)
    share = share_error(error, gamma, case.n, case.m, dtype)
    if function == "soft_dtw_alignment":
        close(result.alignment, alignments, share, value.dtype)

    weights = generator.uniform(-2, 2, size=batch).astype(np.float32)
    grad_x, grad_y = torch.autograd.grad((value * torch.from_numpy(weights)).sum(), (x, y))
    weighted = weights[:, None, None] * alignments
    differences = a[:, :, None] - b[:, None]
    for gradient, sign, axis, source in ((grad_x, 2, 2, x), (grad_y, -2, 1, y)):
        expected = sign * (weighted[..., None] * differences).sum(axis)
        # An error of a share in one cell moves that much of the paths elsewhere: errors of E are absolute.
        inside = (np.arange(case.n)[:, None] < n[:, None, None]) & (np.arange(case.m) < m[:, None, None])
        size = 2 * np.abs(weights)[:, None, None] * (inside[..., None] * np.abs(differences)).sum(axis)
        bound = share * size
        rounded = np.abs(expected)
        if len(source) < batch:  # summed over the pairs before it is rounded
            expected, bound = (t.sum(0, keepdims=True) for t in (expected, bound))
            rounded = np.abs(expected)
        assert gradient.dtype == dtype
        close(gradient, expected, bound, dtype, rounded)
    if len(x) == batch:
        behind = np.arange(case.n) >= n[:, None]
        assert (numpy64(grad_x)[behind] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cost_matrices(dtype: torch.dtype) -> None:
    fuzz(lambda case: check_cost(case, dtype))


def check_cost(case: Case, dtype: torch.dtype) -> None:
    """Costs of any sign, some of them forbidden."""
    generator = np.random.default_rng(case.seed)
    scale = 10.0 ** min(case.scale_exponent, 0)
    gamma = scale * 10**case.gamma_exponent
    numbers_ = torch.from_numpy(numbers(case, (case.batch, case.n, case.m), generator, scale)).to(dtype)
    forbidden = torch.from_numpy(
        generator.random((case.batch, case.n, case.m)) < generator.choice([0, 0.1, 0.5])
    )
    numbers_ = torch.where(forbidden, torch.inf, numbers_)
    table = laid_out(numbers_, "contiguous" if case.layouts[0] == "shared" else case.layouts[0])
    (x_lengths, n), (y_lengths, m) = (
        lengths_of(case, side, limit, case.batch, generator) for side, limit in enumerate((case.n, case.m))
    )
    cost, holds_a_path = within_band(case, numpy64(table), n, m)
    values, alignments = values_and_alignments(cost, gamma, n, m)
    table = padded(padded(table, n, 1), m, 2).detach().requires_grad_()
    options = {"gamma": gamma, "x_lengths": x_lengths, "y_lengths": y_lengths, **case.band}
    if not holds_a_path:
        refused(lambda: warpalign.soft_dtw_cost(table, **options))
        return
    value = warpalign.soft_dtw_cost(table, **options)
    reached = np.isfinite(values)
    assert np.array_equal(np.isposinf(numpy64(value)), ~reached)
    # Costs of both signs: the paths' rounding is that of their absolute values.
    largest = np.where(forbidden, 0, np.abs(numpy64(numbers_))).max(axis=(1, 2))
    size = np.where(reached, values, 0), (case.n + case.m) * largest
    error = tolerance(np.abs(size[0]) + size[1], gamma, case.n, case.m, dtype)
    close(torch.where(torch.from_numpy(reached), value, 0), size[0], error, value.dtype)
    (gradient,) = torch.autograd.grad(value[torch.from_numpy(reached)].sum(), table)
    close(gradient, alignments, share_error(error, gamma, case.n, case.m, dtype), dtype)
    outside = (np.arange(case.n)[:, None] >= n[:, None, None]) | (np.arange(case.m) >= m[:, None, None])
    assert (numpy64(gradient)[outside | np.isinf(cost)] == 0).all()


def test_the_suite_can_fail() -> None:
    """An error of 1e-4 of gamma is seen."""
    case = Case(2, 5, 6, 2, 0.0, 0, ("contiguous", "contiguous"), "normal", (True, False), torch.int64, {}, 1)
    check_series(case, "soft_dtw", torch.float32)
    soft_dtw = warpalign.soft_dtw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            warpalign, "soft_dtw", lambda *a, gamma, **k: soft_dtw(*a, gamma=gamma * (1 + 1e-4), **k)
        )
        with pytest.raises(AssertionError):
            check_series(case, "soft_dtw", torch.float32)
