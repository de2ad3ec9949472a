"""Random calls with costs, masks, step penalties, gammas per pair and 0, and subsequences, against the float64 reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import warpalign
from tests.python.helpers import Array, numpy64
from tests.python.soft_dtw.fuzz_cases import (
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
from warpalign._core.costs import COSTS

DTYPES = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Options:
    cost: str
    penalty: float  # in units of gamma, or of the cost at gamma 0
    gamma: str
    has_masks: tuple[bool, bool]


options = st.builds(
    Options,
    cost=st.sampled_from(COSTS),
    penalty=st.sampled_from([0.0, 0.0, 0.1, 3.0]),
    gamma=st.sampled_from(["a number", "a tensor", "one per pair", "0"]),
    has_masks=st.tuples(st.booleans(), st.booleans()),
)


def table_and_slopes(cost: str, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """C (B, N, M), and dC/dx and dC/dy (B, N, M, D); 0 where there are none."""
    t = a[:, :, None] - b[:, None]
    if cost == "cosine":
        sizes = [np.linalg.norm(side, axis=-1, keepdims=True) for side in (a, b)]
        u, v = (
            np.divide(side, size, out=np.zeros_like(side), where=size > 0)
            for side, size in zip((a, b), sizes, strict=True)
        )
        u, v, x_size, y_size = u[:, :, None], v[:, None], sizes[0][:, :, None], sizes[1][:, None]
        is_cosine = (x_size > 0) & (y_size > 0)
        inner = (u * v).sum(-1, keepdims=True)
        x_slope = np.divide(inner * u - v, x_size, out=np.zeros_like(t), where=is_cosine)
        y_slope = np.divide(inner * v - u, y_size, out=np.zeros_like(t), where=is_cosine)
        c = np.where(is_cosine[..., 0], ((u - v) ** 2).sum(-1) / 2, 1.0)
        return c, x_slope, y_slope
    if cost == "sqeuclidean":
        c, slope = (t**2).sum(-1), 2 * t
    elif cost == "l1":
        c, slope = np.abs(t).sum(-1), np.sign(t)
    elif cost == "huber":
        c, slope = np.where(np.abs(t) <= 1, t**2 / 2, np.abs(t) - 0.5).sum(-1), t.clip(-1, 1)
    else:
        c = np.sqrt((t**2).sum(-1))
        slope = np.divide(t, c[..., None], out=np.zeros_like(t), where=c[..., None] > 0)
    return c, slope, -slope


def unit_of(cost: str, scale: float) -> float:
    """What costs of series of this scale are about."""
    return {"sqeuclidean": scale**2, "cosine": 1.0, "huber": min(scale, scale**2)}.get(cost, scale)


@dataclass
class Call:
    """A drawn call, and its numbers in float64."""

    x: torch.Tensor
    y: torch.Tensor
    keywords: dict[str, Any]
    n: Array
    m: Array
    cost: Array  # (B, N, M), without a band
    slopes: tuple[Array, Array]
    slope_sizes: tuple[Array, Array]  # what their rounding is relative to
    floor: float  # absolute rounding of a cost


def drawn(case: Case, chosen: Options, generator: np.random.Generator, dtype: torch.dtype) -> Call:
    scale = 10.0**case.scale_exponent
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
    a, b = (np.broadcast_to(numpy64(t), (batch, *t.shape[1:])) for t in (x, y))
    cost, *slopes = table_and_slopes(chosen.cost, a, b)
    sizes = [np.abs(slope) for slope in slopes]
    floor = 0.0
    if chosen.cost == "cosine":
        # Differences of vectors of length 1: what is rounded is 1, and in the slopes 1 / |x|.
        floor = 1.0
        norms = np.linalg.norm(a, axis=-1)[:, :, None, None], np.linalg.norm(b, axis=-1)[:, None, :, None]
        sizes = [
            np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0) + 0 * cost[..., None]
            for norm in norms
        ]
    keywords: dict[str, Any] = {"cost": chosen.cost, "x_lengths": x_lengths, "y_lengths": y_lengths}
    x, y = (padded(t, lengths, 1) for t, lengths in ((x, n), (y, m)))
    for name, size, axis, wanted in (
        ("x_mask", case.n, 2, chosen.has_masks[0]),
        ("y_mask", case.m, 1, chosen.has_masks[1]),
    ):
        if not wanted:
            continue
        mask = generator.random((batch, size)) < 0.2
        keywords[name] = torch.from_numpy(mask)
        is_missing = np.expand_dims(mask, axis)
        cost = np.where(is_missing, 0.0, cost)
        slopes = [np.where(is_missing[..., None], 0.0, slope) for slope in slopes]
        sizes = [np.where(is_missing[..., None], 0.0, slope) for slope in sizes]
    return Call(
        x.detach().requires_grad_(), y.detach().requires_grad_(), keywords, n, m, cost,
        (slopes[0], slopes[1]), (sizes[0], sizes[1]), floor,
    )  # fmt: skip


def check_gradients(
    call: Call,
    grads: tuple[torch.Tensor, ...],
    alignments: Array,
    share: Array,
    weights: Array,
    dtype: torch.dtype,
) -> None:
    inside = (np.arange(call.cost.shape[1])[:, None] < call.n[:, None, None]) & (
        np.arange(call.cost.shape[2]) < call.m[:, None, None]
    )
    for gradient, slope, size, axis in zip(grads, call.slopes, call.slope_sizes, (2, 1), strict=True):
        expected = ((weights[:, None, None] * alignments)[..., None] * slope).sum(axis)
        bound = share * (np.abs(weights)[:, None, None, None] * inside[..., None] * size).sum(axis)
        if len(gradient) < len(expected):  # one series for all pairs
            expected, bound = expected.sum(0, keepdims=True), bound.sum(0, keepdims=True)
        close(gradient, expected, bound, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_options(dtype: torch.dtype) -> None:
    fuzz(lambda case, chosen: check_options(case, chosen, dtype), options)


def check_options(case: Case, chosen: Options, dtype: torch.dtype) -> None:
    generator = np.random.default_rng(case.seed)
    call = drawn(case, chosen, generator, dtype)
    batch, n, m = call.cost.shape
    unit = unit_of(chosen.cost, 10.0**case.scale_exponent)
    gammas = unit * 10**case.gamma_exponent * np.ones(batch)
    if chosen.gamma == "one per pair":
        gammas = gammas * generator.uniform(0.5, 2, batch)
    # As the operators have them.
    gammas = numpy64(torch.from_numpy(gammas).to(dtype)) if chosen.gamma != "a number" else gammas
    penalty = chosen.penalty * (unit if chosen.gamma == "0" else gammas[0])
    given: Any = {
        "a number": gammas[0],
        "a tensor": torch.tensor(gammas[0], dtype=dtype, requires_grad=True),
        "one per pair": torch.tensor(gammas, dtype=dtype, requires_grad=True),
        "0": 0.0,
    }[chosen.gamma]
    gammas = 0 * gammas if chosen.gamma == "0" else gammas
    keywords = {**call.keywords, **case.band, "gamma": given, "step_penalty": penalty}
    cost, holds_a_path = within_band(case, call.cost, call.n, call.m)
    if not holds_a_path:
        refused(lambda: warpalign.soft_dtw(call.x, call.y, **keywords))
        return
    values, alignments = values_and_alignments(cost, gammas, call.n, call.m, penalty=penalty)
    value = warpalign.soft_dtw(call.x, call.y, **keywords)
    # Penalties are rounded as costs are, and so are those of paths that are no best ones.
    largest = np.abs(values) + (n + m) * (call.floor + penalty)
    error = np.array([tolerance(v, g, n, m, dtype) for v, g in zip(largest, gammas, strict=True)])
    close(value, values, error, dtype)

    weights = generator.uniform(-2, 2, size=batch).astype(np.float32).astype(np.float64)
    inputs = [call.x, call.y, *([given] if isinstance(given, torch.Tensor) else [])]
    total = (value * torch.from_numpy(weights).to(value)).sum()
    grad_x, grad_y, *grad_gamma = torch.autograd.grad(total, inputs)
    if chosen.gamma == "0":
        # Sums of costs are rounded, so another one of equally good paths may be taken: any best path will do.
        path = numpy64(warpalign.soft_dtw_alignment(call.x, call.y, **keywords).alignment)
        assert np.isin(path, (0, 1)).all() and (path[:, 0, 0] == 1).all()
        straight = path.sum((1, 2)) - 1  # steps
        straight -= (path[:, 1:, 1:] * path[:, :-1, :-1] * (path[:, 1:, :-1] + path[:, :-1, 1:] == 0)).sum(
            (1, 2)
        )
        assert (np.abs((path * call.cost).sum((1, 2)) + penalty * straight - values) <= error).all()
        share = np.full((batch, 1, 1), 16 * float(torch.finfo(dtype).eps))
        check_gradients(call, (grad_x, grad_y), path, share, weights, dtype)
        return
    share = np.concatenate([share_error(error[i : i + 1], gammas[i], n, m, dtype) for i in range(batch)])
    check_gradients(call, (grad_x, grad_y), alignments, share, weights, dtype)
    if grad_gamma:
        step = 1e-5
        above, below = (
            values_and_alignments(cost, gammas * (1 + sign * step), call.n, call.m, penalty=penalty)[0]
            for sign in (1, -1)
        )
        slopes = (above - below) / (2 * step * gammas)
        # The difference's own error, and of a share p the error of p log p, in each of n + m steps.
        bound = np.abs(weights) * (n + m) * (1e-6 + 4 * share[:, 0, 0]) + 1e-10 * np.abs(values / gammas)
        expected = weights * slopes
        if given.dim() == 0:
            expected, bound = expected.sum(keepdims=True)[0], bound.sum()
        close(grad_gamma[0], expected, bound, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_subsequences(dtype: torch.dtype) -> None:
    fuzz(lambda case, chosen: check_subsequence(case, chosen, dtype), options)


def check_subsequence(case: Case, chosen: Options, dtype: torch.dtype) -> None:
    """End values by the sum over all first columns of the values of the parts of the series that begin there."""
    chosen = Options(chosen.cost, chosen.penalty, "0" if chosen.gamma == "0" else "a number", (False, False))
    generator = np.random.default_rng(case.seed)
    case = Case(**{**case.__dict__, "n": min(case.n, 9), "m": min(case.m, 9), "band": {}})
    call = drawn(case, chosen, generator, dtype)
    batch, n, m = call.cost.shape
    unit = unit_of(chosen.cost, 10.0**case.scale_exponent)
    gamma = 0.0 if chosen.gamma == "0" else unit * 10**case.gamma_exponent
    penalty = chosen.penalty * (gamma or unit)
    names = {"x_lengths": "query_lengths", "y_lengths": "series_lengths"}
    keywords = {names.get(name, name): value for name, value in call.keywords.items()}
    found = warpalign.soft_dtw_subsequence(call.x, call.y, gamma=gamma, step_penalty=penalty, **keywords)

    # Every part of every series, by first and last column, moved to the left: one batch for the reference.
    places = [(first, last) for first in range(m) for last in range(first, m)]
    tables = np.zeros((len(places), batch, n, m))
    for index, (first, last) in enumerate(places):
        tables[index, :, :, : last + 1 - first] = call.cost[:, :, first : last + 1]
    lengths = np.repeat([last + 1 - first for first, last in places], batch)
    of_parts, paths = values_and_alignments(
        tables.reshape(-1, n, m), gamma, np.tile(call.n, len(places)), lengths, penalty=penalty
    )
    parts = np.full((m, batch, m), np.inf)  # first column, pair, last column
    shares = np.zeros((m, m, batch, n, m))
    for (first, last), value_, path in zip(
        places, of_parts.reshape(-1, batch), paths.reshape(-1, batch, n, m), strict=True
    ):
        parts[first, :, last] = value_
        shares[first, last, :, :, first:] = path[:, :, : m - first]
    parts[:, np.arange(m) >= call.m[:, None]] = np.inf
    ends, best = parts.min(0), parts.min((0, 2))
    value = best
    if gamma > 0:
        with np.errstate(invalid="ignore"):
            ends = ends - gamma * np.log(np.exp((ends - parts) / gamma).sum(0))
        mass = np.exp((best[:, None] - parts) / gamma)
        value = best - gamma * np.log(mass.sum((0, 2)))
    error = tolerance(np.abs(value) + np.abs(best) + (n + m) * (call.floor + penalty), gamma, n, m, dtype)
    close(found.value, value, error, dtype)
    got = numpy64(found.end_values)
    behind = np.arange(m) >= call.m[:, None]
    assert np.isposinf(got[behind]).all()
    bound = tolerance(np.abs(ends) + (n + m) * (call.floor + penalty), gamma, n, m, dtype)
    assert (np.abs(got[~behind] - ends[~behind]) <= bound[~behind]).all()
    if gamma == 0:
        assert found.match is not None
        for pair, (first, last) in enumerate(found.match.tolist()):
            assert abs(parts[first, pair, last] - value[pair]) <= error[pair]
        return
    mass /= mass.sum((0, 2))[:, None]
    alignments = np.einsum("fbl,flbnm->bnm", mass, shares)
    weights = generator.uniform(-2, 2, size=batch).astype(np.float32).astype(np.float64)
    grads = torch.autograd.grad(
        (found.value * torch.from_numpy(weights).to(found.value)).sum(), (call.x, call.y)
    )
    check_gradients(call, grads, alignments, share_error(error, gamma, n, m, dtype), weights, dtype)


def test_the_suite_can_fail() -> None:
    """A step penalty that is 0.1 % off is seen."""
    case = Case(2, 5, 6, 2, 0.0, 0, ("contiguous", "contiguous"), "normal", (True, False), torch.int64, {}, 1)
    chosen = Options("huber", 1.0, "one per pair", (True, False))
    check_options(case, chosen, torch.float32)
    check_subsequence(case, chosen, torch.float32)
    for name, check in (("soft_dtw", check_options), ("soft_dtw_subsequence", check_subsequence)):
        function = getattr(warpalign, name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                warpalign,
                name,
                lambda *a, step_penalty, function=function, **k: function(
                    *a, step_penalty=1.001 * step_penalty, **k
                ),
            )
            with pytest.raises(AssertionError):
                check(case, chosen, torch.float32)
