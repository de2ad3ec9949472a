"""Elastic distances against their definitions, cell by cell in float64, and against aeon where it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.soft_dtw.reference import randn
from warpalign._soft_dtw import elastic
from warpalign._soft_dtw.elastic import ElasticMetric

F64 = torch.float64
METRICS: tuple[str, ...] = get_args(ElasticMetric)
PARAMETERS: dict[str, dict[str, float]] = {
    "adtw": {"penalty": 0.3},
    "wdtw": {"steepness": 0.2},
    "erp": {"gap": 0.2},
    "msm": {"penalty": 0.4},
    "twe": {"penalty": 0.4, "stiffness": 0.1},
}
Series = list[list[float]]


def distance(a: list[float], b: list[float]) -> float:
    return math.dist(a, b)


def dynamic(n: int, m: int, start: float, step: Callable[[int, int], tuple[float, float, float]]) -> float:
    """The last node; step(i, j): costs from above, from the left, and diagonally."""
    values = np.full((n, m), np.inf)
    for i in range(n):
        for j in range(m):
            up, left, match = step(i, j)
            before = [values[i - 1, j] + up] if i else []
            before += [values[i, j - 1] + left] if j else []
            before += [values[i - 1, j - 1] + match] if i and j else []
            values[i, j] = min(before, default=start)
    return float(values[-1, -1])


def reference(metric: str, x: Series, y: Series, **of: float) -> float:
    n, m = len(x), len(y)
    if metric in ("adtw", "wdtw"):

        def cost(i: int, j: int) -> float:
            weight = (
                1 / (1 + math.exp(-of["steepness"] * (abs(i - j) - max(n, m) / 2))) if metric == "wdtw" else 1
            )
            return weight * distance(x[i], y[j]) ** 2

        more = of.get("penalty", 0.0)
        return dynamic(n, m, cost(0, 0), lambda i, j: (cost(i, j) + more, cost(i, j) + more, cost(i, j)))
    if metric == "erp":
        gap = [of["gap"]] * len(x[0])
        return dynamic(
            n + 1,
            m + 1,
            0.0,
            lambda i, j: (distance(x[i - 1], gap), distance(y[j - 1], gap), distance(x[i - 1], y[j - 1])),
        )
    if metric == "twe":
        more = of["penalty"] + of["stiffness"]

        def step(i: int, j: int) -> tuple[float, float, float]:
            match = distance(x[i], y[j]) + distance(x[i - 1], y[j - 1]) + 2 * of["stiffness"] * abs(i - j)
            return distance(x[i], x[i - 1]) + more, distance(y[j], y[j - 1]) + more, match

        return dynamic(n, m, distance(x[0], y[0]), step)

    def msm(a: list[float], b: list[float]) -> float:
        def split(value: float, before: float, other: float) -> float:
            if before <= value <= other or before >= value >= other:
                return of["penalty"]
            return of["penalty"] + min(abs(value - before), abs(value - other))

        return dynamic(
            n,
            m,
            abs(a[0] - b[0]),
            lambda i, j: (split(a[i], a[i - 1], b[j]), split(b[j], b[j - 1], a[i]), abs(a[i] - b[j])),
        )

    return sum(msm(list(a), list(b)) for a, b in zip(zip(*x, strict=True), zip(*y, strict=True), strict=True))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n", "m", "features"), [(1, 1, 1), (1, 6, 2), (7, 1, 1), (9, 12, 1), (14, 11, 3)])
def test_values_are_those_of_the_definition(
    metric: Any, n: int, m: int, features: int, device: torch.device
) -> None:
    x, y = randn(3, n, features, seed=1, dtype=F64), randn(3, m, features, seed=2, dtype=F64)
    found = warpalign.elastic_distance(x.to(device), y.to(device), metric=metric, **PARAMETERS[metric])
    expected = [
        reference(metric, a.tolist(), b.tolist(), **PARAMETERS[metric]) for a, b in zip(x, y, strict=True)
    ]
    torch.testing.assert_close(found.cpu(), torch.tensor(expected, dtype=F64), rtol=1e-12, atol=1e-12)
    in_float32 = warpalign.elastic_distance(
        x.float().to(device), y.float().to(device), metric=metric, **PARAMETERS[metric]
    )
    torch.testing.assert_close(in_float32, found.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_padding_is_ignored(metric: Any, device: torch.device) -> None:
    x, y = (randn(3, 8, 2, seed=s, dtype=F64).to(device) for s in (1, 2))
    lengths = {"x_lengths": [8, 3, 1], "y_lengths": [5, 8, 2]}
    for series, own in zip((x, y), lengths.values(), strict=True):
        for one, length in zip(series, own, strict=True):
            one[length:] = torch.nan
    x.requires_grad_(), y.requires_grad_()
    found = warpalign.elastic_distance(x, y, metric=metric, **lengths)
    of_x, of_y = torch.autograd.grad(found.sum(), (x, y))
    for b, (n, m) in enumerate(zip(*lengths.values(), strict=True)):
        a, c = x[b, :n].detach().requires_grad_(), y[b, :m].detach().requires_grad_()
        alone = warpalign.elastic_distance(a, c, metric=metric)
        torch.testing.assert_close(found[b], alone)
        for whole, one in zip((of_x[b], of_y[b]), torch.autograd.grad(alone, (a, c)), strict=True):
            torch.testing.assert_close(whole[: len(one)], one)
            assert not whole[len(one) :].any()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("features", [1, 9])
def test_a_few_pairs_at_a_time(metric: Any, features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values and gradients, with lengths, and with one series for all."""
    y = randn(5, 7, features, seed=2, dtype=F64, grad=True)
    for x in (
        randn(5, 6, features, seed=1, dtype=F64, grad=True),
        randn(1, 6, features, seed=1, dtype=F64, grad=True),
    ):
        results = []
        for chunk in (10**9, 100 * features):
            monkeypatch.setattr(elastic, "_CHUNK", chunk)
            value = warpalign.elastic_distance(x, y, metric=metric, y_lengths=[7, 3, 1, 6, 7])
            results.append((value.detach(), *torch.autograd.grad(value.sum(), (x, y))))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_gradcheck(metric: Any) -> None:
    x, y = randn(2, 5, 2, seed=1, dtype=F64, grad=True), randn(2, 4, 2, seed=2, dtype=F64, grad=True)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return warpalign.elastic_distance(x, y, metric=metric, **PARAMETERS[metric])

    assert torch.autograd.gradcheck(value, (x, y))


@pytest.mark.parametrize("metric", METRICS)
def test_equal_series_have_distance_0_and_finite_gradients(metric: Any) -> None:
    x = randn(2, 6, 2, seed=1, dtype=F64, grad=True)
    found = warpalign.elastic_distance(x, x.detach().clone(), metric=metric)
    assert not found.any()
    assert torch.autograd.grad(found.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("metric", METRICS)
def test_one_series_and_a_batch(metric: Any) -> None:
    x, y = randn(1, 6, 2, seed=1, dtype=F64), randn(3, 7, 2, seed=2, dtype=F64)
    found = warpalign.elastic_distance(x, y, metric=metric)
    alone = [warpalign.elastic_distance(x[0], one, metric=metric) for one in y]
    torch.testing.assert_close(found, torch.stack(alone))


def test_defaults_are_the_documented_ones() -> None:
    x, y = randn(6, 1, seed=1, dtype=F64), randn(7, 1, seed=2, dtype=F64)
    told: dict[str, dict[str, float]] = {
        "adtw": {"penalty": 1.0},
        "wdtw": {"steepness": 0.05},
        "erp": {"gap": 0.0},
        "msm": {"penalty": 1.0},
        "twe": {"penalty": 1.0, "stiffness": 0.001},
    }
    for metric, parameters in told.items():
        found = warpalign.elastic_distance(x, y, metric=metric)  # type: ignore[arg-type]
        assert float(found) == pytest.approx(reference(metric, x.tolist(), y.tolist(), **parameters))


@pytest.mark.parametrize("metric", ["adtw", "wdtw", "msm", "twe"])
def test_values_are_those_of_aeon(metric: Any) -> None:
    """aeon's erp takes all gaps of a series where a path begins with some."""
    distances = pytest.importorskip("aeon.distances")
    names = {
        "penalty": {"adtw": "warp_penalty", "msm": "c", "twe": "lmbda"}.get(metric),
        "steepness": "g",
        "stiffness": "nu",
    }
    for n, m, features in ((12, 9, 3), (5, 7, 1), (20, 20, 2)):
        x, y = randn(n, features, seed=1, dtype=F64), randn(m, features, seed=2, dtype=F64)
        options = {names[name]: value for name, value in PARAMETERS[metric].items()}
        theirs = getattr(distances, f"{metric}_distance")(x.numpy().T, y.numpy().T, **options)
        assert float(warpalign.elastic_distance(x, y, metric=metric, **PARAMETERS[metric])) == pytest.approx(
            theirs
        )
