"""Random calls against the float64 reference: 10 000 of them, over shapes, strides, lengths, dtypes, gammas, bands and data.

A case is one call, with a batch of up to four pairs of lengths of their own. What Hypothesis draws is small; the numbers come
from a generator with a drawn seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import warpalign
from reference import Array, band_mask, hard_dtw_reference, numpy64, values_and_alignments

CASES = 10_000
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FUNCTIONS = ("soft_dtw", "soft_dtw_alignment", "soft_dtw_cost")
FUZZ = settings(
    max_examples=-(-CASES // (len(DTYPES) * len(FUNCTIONS))),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

LAYOUTS = (
    "contiguous",
    "time last",
    "batch last",
    "every second step",
    "every second feature",
    "offset",
    "shared",
)
DATA = ("normal", "integers", "constant", "far from 0", "one spike")


@dataclass(frozen=True)
class Case:
    batch: int
    n: int
    m: int
    d: int
    gamma_exponent: float
    scale_exponent: int
    layouts: tuple[str, str]
    data: str
    has_lengths: tuple[bool, bool]
    length_dtype: torch.dtype
    band: dict[str, Any]
    seed: int


bands = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"band": st.sampled_from(["sakoe_chiba", "abs", "slanted"]), "bandwidth": st.integers(0, 40)}
    ),
    st.fixed_dictionaries({"band": st.just("itakura"), "max_slope": st.floats(1, 5)}),
)
sizes = st.one_of(st.integers(1, 6), st.integers(1, 20), st.sampled_from([8, 9, 15, 16, 17, 31, 32, 33]))
cases = st.builds(
    Case,
    batch=st.integers(1, 4),
    n=sizes,
    m=sizes,
    d=st.one_of(st.integers(1, 4), st.sampled_from([7, 8, 9, 16, 17])),
    gamma_exponent=st.floats(-3, 3),
    scale_exponent=st.integers(-2, 3),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    data=st.sampled_from(DATA),
    has_lengths=st.tuples(st.booleans(), st.booleans()),
    length_dtype=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.uint8]),
    band=bands,
    seed=st.integers(0, 2**32 - 1),
)


def fuzz(check: Callable[[Case], None]) -> None:
    """This test's share of the cases, and that it is no less."""
    count = 0

    @FUZZ
    @given(cases)
    def run(case: Case) -> None:
        nonlocal count
        count += 1
        check(case)

    run()
    assert count >= FUZZ.max_examples


def numbers(case: Case, shape: tuple[int, ...], generator: np.random.Generator, scale: float) -> Array:
    values = generator.normal(size=shape)
    if case.data == "integers":  # ties
        values = np.round(values)
    elif case.data == "constant":
        values = np.broadcast_to(values[:, :1], shape).copy()
    elif case.data == "far from 0":
        values = values + 30
    elif case.data == "one spike":
        values = np.zeros(shape)
        values[:, generator.integers(shape[1])] = 3
    return values * scale


def laid_out(values: Tensor, layout: str) -> Tensor:
    """The same numbers in another memory layout; what lies between them is NaN."""
    b, n, d = values.shape
    if layout == "time last":
        return values.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "batch last":
        return values.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    if layout == "every second step":
        wide = values.new_full((b, 2 * n, d), torch.nan)
        wide[:, ::2] = values
        return wide[:, ::2]
    if layout == "every second feature":
        wide = values.new_full((b, n, 2 * d), torch.nan)
        wide[..., 1::2] = values
        return wide[..., 1::2]
    if layout == "offset":
        flat = values.new_full((values.numel() + 3,), torch.nan)
        flat[3:] = values.flatten()
        return flat[3:].view(b, n, d)
    if layout == "shared":  # a batch of 1, paired with all
        return values[:1]
    return values.contiguous()


def lengths_of(case: Case, side: int, limit: int, batch: int, generator: np.random.Generator) -> Any:
    """(lengths as a tensor or None, lengths as an array)."""
    if not case.has_lengths[side]:
        return None, np.full(batch, limit)
    known = generator.integers(1, limit + 1, size=batch)
    return torch.from_numpy(known).to(case.length_dtype), known


def padded(values: Tensor, lengths: Array, axis: int) -> Tensor:
    """NaN and infinity behind every pair's end along an axis; a shared series ends with the longest."""
    lengths = lengths.max(keepdims=True) if len(values) == 1 else lengths
    shape = [1, 1, 1]
    shape[axis] = -1
    steps = torch.arange(values.shape[axis]).view(shape)
    behind = steps >= torch.from_numpy(lengths).view(-1, 1, 1)
    junk = torch.where(steps % 2 == 0, torch.nan, torch.inf).to(values.dtype)
    return torch.where(behind, junk, values)


def within_band(case: Case, cost: Array, n: Array, m: Array) -> tuple[Array, bool]:
    """The costs (B, N, M), infinite outside each pair's band, and whether every band holds a path."""
    if not case.band:
        return cost, True
    cost, holds = cost.copy(), True
    for table, rows, columns in zip(cost, n, m, strict=True):
        mask = band_mask(**{"n": rows, "m": columns, **case.band})
        table[:rows, :columns][~mask] = np.inf
        holds = holds and bool(np.isfinite(hard_dtw_reference(np.where(mask, 0.0, np.inf))))
    return cost, holds


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="^band: expected"):
        call()


def tolerance(value: Array, gamma: float, n: int, m: int, dtype: torch.dtype) -> Array:
    """Of a value: the rounding of the costs on its paths, whose sum is at most value + gamma * (their entropy)."""
    epsilon = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    return 8 * epsilon * (np.abs(value) + 2 * gamma * (n + m))


def close(got: Tensor, expected: Array, error: Array, dtype: torch.dtype, size: Array | None = None) -> None:
    """Within an error of the result's size, and the rounding of half-precision gradients, of terms of a `size` in all."""
    size = np.abs(expected) if size is None else size
    rounding = {torch.float16: (2**-10, 2**-24), torch.bfloat16: (2**-7, 2**-133)}.get(dtype, (0.0, 0.0))
    bound = error + rounding[0] * size + rounding[1]
    difference = np.abs(numpy64(got) - expected)
    assert (difference <= bound).all(), f"{difference.max():.3g}, of {np.abs(expected).max():.3g}"


def share_error(error_of_value: Array, gamma: float, n: int, m: int, dtype: torch.dtype) -> Array:
    """Of a cell of E, which is at most 1: the paths' weights' relative error, and the rounding of N + M steps; (B, 1, 1)."""
    epsilon = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    return (2 * error_of_value / gamma + 16 * epsilon * (n + m))[:, None, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS[:2])
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
        if len(source) < batch:  # summed over the pairs, in the source's type
            expected, bound, rounded = (t.sum(0, keepdims=True) for t in (expected, bound, batch * rounded))
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
    (n_lengths, n), (m_lengths, m) = (
        lengths_of(case, side, limit, case.batch, generator) for side, limit in enumerate((case.n, case.m))
    )
    cost, holds_a_path = within_band(case, numpy64(table), n, m)
    values, alignments = values_and_alignments(cost, gamma, n, m)
    table = padded(padded(table, n, 1), m, 2).detach().requires_grad_()
    options = {"gamma": gamma, "n_lengths": n_lengths, "m_lengths": m_lengths, **case.band}
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
