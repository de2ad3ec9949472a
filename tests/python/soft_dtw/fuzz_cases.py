"""What random calls are made of, and how far their results may be off.

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
from hypothesis import strategies as st
from torch import Tensor

from tests.python.fuzz import fuzz as fuzz_any
from tests.python.fuzz import share
from tests.python.helpers import Array, numpy64
from tests.python.soft_dtw.reference import band_mask, hard_dtw_reference

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FUZZ = share(16)  # tests of test_fuzz.py and test_fuzz_options.py


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


bands: st.SearchStrategy[dict[str, Any]] = st.one_of(
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


def fuzz(check: Callable[..., None], *more: st.SearchStrategy[Any]) -> None:
    """This test's share of the cases, with what else is drawn."""
    fuzz_any(check, st.tuples(cases, *more), FUZZ)


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
    """How far a value may be off: the rounding of the costs on its paths, whose sum is at most value + gamma * entropy."""
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
    """(B, 1, 1): how far a cell of E, at most 1, may be off by the error of the paths' weights and N + M steps' rounding."""
    epsilon = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    return (2 * error_of_value / gamma + 16 * epsilon * (n + m))[:, None, None]
