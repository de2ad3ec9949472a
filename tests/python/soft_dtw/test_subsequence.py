"""A query sought within a series: values of every end, the value over all of them, its gradient, the best match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import warpalign
from tests.python.helpers import Array, numpy64, randn
from tests.python.soft_dtw.reference import pair, paths, squared_distances
from warpalign._core.costs import COSTS

F64 = torch.float64


def by_all_paths(cost: Array, gamma: float, penalty: float) -> tuple[Array, float]:
    """End values and value, from every path through every part of a small series."""
    n, m = cost.shape
    ends: list[list[float]] = [[] for _ in range(m)]
    for first in range(m):
        for last in range(first, m):
            for path in paths(n, last - first + 1):
                steps = sum(sum(b) == sum(a) + 1 for a, b in zip(path, path[1:], strict=False))
                ends[last].append(sum(cost[i, first + j] for i, j in path) + penalty * steps)

    def softmin(values: Any) -> float:
        values = np.asarray(values)
        if gamma == 0:
            return float(values.min())
        return float(values.min() - gamma * np.log(np.exp((values.min() - values) / gamma).sum()))

    of_ends = np.array([softmin(values) for values in ends])
    return of_ends, softmin(of_ends)


@pytest.mark.parametrize("penalty", [0.0, 0.7])
@pytest.mark.parametrize("gamma", [0.0, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (3, 1), (3, 5), (4, 4)])
def test_every_path_counts_once(n: int, m: int, gamma: float, penalty: float) -> None:
    x, y = pair(2, n, m, 2, dtype=F64)
    found = warpalign.soft_dtw_subsequence(x, y, gamma=gamma, step_penalty=penalty)
    for b in range(2):
        ends, value = by_all_paths(squared_distances(numpy64(x[b]), numpy64(y[b])), gamma, penalty)
        assert numpy64(found.end_values[b]) == pytest.approx(ends, rel=1e-11, abs=1e-12)
        assert float(found.value[b]) == pytest.approx(value, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("cost", COSTS)
def test_gradcheck(cost: Any, gamma: float) -> None:
    x, y = pair(3, 4, 9, 2, dtype=F64, grad=True)
    options: dict[str, Any] = {
        "query_lengths": torch.tensor([4, 2, 3]),
        "series_lengths": torch.tensor([9, 9, 5]),
        "with_match": False,
    }

    def value(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return warpalign.soft_dtw_subsequence(x, y, cost=cost, gamma=gamma, **options).value

    assert torch.autograd.gradcheck(value, (x, y))


def test_the_query_is_found() -> None:
    series = randn(3, 700, 2, seed=1)
    places = [0, 100, 660]
    query = torch.stack([series[b, first : first + 40] for b, first in enumerate(places)])
    found = warpalign.soft_dtw_subsequence(query, series, gamma=0.0)
    assert found.match is not None
    assert found.match.tolist() == [[first, first + 39] for first in places]
    assert not found.value.any()
    assert found.end_values.argmin(1).tolist() == [first + 39 for first in places]
    unbatched = warpalign.soft_dtw_subsequence(query[1], series[1], gamma=0.0)
    assert unbatched.match is not None and unbatched.match.tolist() == [100, 139]
    assert unbatched.value.shape == () and torch.equal(unbatched.end_values, found.end_values[1])
    assert warpalign.soft_dtw_subsequence(query, series, with_match=False).match is None


def test_against_tslearn() -> None:
    tslearn = pytest.importorskip("tslearn.metrics")
    for seed in range(5):
        query, series = randn(12, 2, seed=seed, dtype=F64), randn(60, 2, seed=seed + 50, dtype=F64)
        path, distance = tslearn.dtw_subsequence_path(query.numpy(), series.numpy())
        found = warpalign.soft_dtw_subsequence(query, series, gamma=0.0)
        assert float(found.value) == pytest.approx(distance**2)
        assert found.match is not None and found.match.tolist() == [path[0][1], path[-1][1]]


def test_one_query_in_many_series_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    query, series = randn(1, 9, 2, seed=3), randn(5, 40, 2, seed=4)
    whole = warpalign.soft_dtw_subsequence(query, series)
    monkeypatch.setattr("warpalign._soft_dtw.paths._PATH_CELLS", 2 * 9 * 40)
    parts = warpalign.soft_dtw_subsequence(query, series)
    assert whole.match is not None and parts.match is not None and torch.equal(whole.match, parts.match)
    for b in range(5):
        one = warpalign.soft_dtw_subsequence(query[0], series[b])
        assert torch.equal(one.value, whole.value[b]) and one.match is not None
        assert torch.equal(one.match, whole.match[b])


def test_lengths_and_nan() -> None:
    query, series = pair(3, 9, 30, 2)
    lengths = torch.tensor([30, 11, 30])
    series[1, 11:] = torch.nan
    query[2, 4, 0] = torch.nan
    found = warpalign.soft_dtw_subsequence(query, series, series_lengths=lengths)
    assert found.end_values[1, 11:].isinf().all() and found.end_values[1, :11].isfinite().all()
    assert found.value[2].isnan() and found.end_values[2].isnan().all()
    assert found.match is not None and found.match[2].tolist() == [-1, -1]


def test_compiled_vmapped_and_checked() -> None:
    query, series = pair(3, 9, 30, 2)
    query.requires_grad_()

    def value(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return warpalign.soft_dtw_subsequence(x, y, with_match=False).value

    expected = value(query, series)
    (gradient,) = torch.autograd.grad(expected.sum(), query)
    torch._dynamo.reset()
    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")(query, series)
    assert torch.equal(compiled, expected)
    assert torch.equal(torch.autograd.grad(compiled.sum(), query)[0], gradient)
    assert torch.equal(torch.func.vmap(value)(query, series), expected)
    mapped = torch.func.vmap(torch.func.grad(value))(query.detach(), series)
    assert torch.equal(mapped, gradient)
    torch.library.opcheck(
        torch.ops.warpalign.soft_dtw_subsequence.default,
        (query.detach(), series, None, None, 0.5, True, False),
        {"needs_alignment": True, "cost_kind": 1},
    )
