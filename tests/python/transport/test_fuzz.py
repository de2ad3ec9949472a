"""Random calls against the float64 reference: sides, costs, shapes, strides, lengths, dtypes, batches with a NaN."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from hypothesis import strategies as st

from tests.python.fuzz import fuzz, share
from tests.python.transport import reference
from warpalign.transport import sinkhorn

COSTS = ("sqeuclidean", "euclidean", "l1", "huber", "cosine")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# 80 dense iterations of the reference take some 20 times as long as a call of soft-DTW with its reference.
FUZZ = share(1, weight=20)
ITERATIONS = 80


def test_random_calls() -> None:
    fuzz(check, st.tuples(st.integers(0, 2**31 - 1)), FUZZ)


def sides(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.2:
        return {"mass": draw.uniform(0.2, 0.9)}
    strengths = (None, 0.0, 0.3, 2.0)
    return {"rho_a": draw.choice(strengths), "rho_b": draw.choice(strengths)}


def check_half_costs(table: torch.Tensor, draw: random.Random, options: dict[str, Any]) -> None:
    """Costs that are stored as float16 are the rounded ones, whatever their layout."""
    half = table.half()
    strided = half.mT.contiguous().mT if draw.random() < 0.5 else half
    options = options | {"epsilon": draw.uniform(0.5, 3.0), "max_iter": 10, "tol": 0.0}
    if "mass" in options:
        options["mass"] = min(options["mass"], 0.9)
    got = sinkhorn(cost_matrix=draw.choice((table, strided)), storage="half", **options)
    expected = sinkhorn(cost_matrix=half.float(), **options)
    assert torch.equal(got.value, expected.value) and torch.equal(
        got.plan.to_dense(), expected.plan.to_dense()
    )


def check(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(draw.randrange(2**31))
    dtype, cost = draw.choice(DTYPES), draw.choice(COSTS)
    batch, n, m, dim = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 4)
    x, y = torch.randn(batch, n, dim).to(dtype), torch.randn(batch, m, dim).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    a, b = (torch.rand(batch, count, dtype=wide) + 0.1 for count in (n, m))
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    lengths = [torch.tensor([draw.randint(1, size) for _ in range(batch)]) for size in (n, m)]
    bad = draw.randrange(batch) if draw.random() < 0.2 else None
    if bad is not None:
        x[bad, 0, 0] = math.nan
    options = sides(draw) | {"reference": draw.choice(("product", "counting"))}
    if "mass" in options:  # a share of the weights inside the lengths
        parts = [
            float(w[k, : int(count[k])].sum())
            for w, count in zip((a, b), lengths, strict=True)
            for k in range(batch)
        ]
        options["mass"] *= min(parts)
    elif options["rho_a"] is None and options["rho_b"] is None:  # both sums are exact, and alike
        lengths = [torch.full((batch,), size) for size in (n, m)]
    epsilon = draw.uniform(1.0, 3.0)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1) if draw.random() < 0.5 else x
    got = sinkhorn(
        strided, y, cost=cost, a=a, b=b, x_lengths=lengths[0], y_lengths=lengths[1], epsilon=epsilon,
        max_iter=400, tol=1e-13, **options,
    )  # type: ignore[arg-type]  # fmt: skip
    if dtype != torch.float64 and bad is None and draw.random() < 0.3:
        tables = [reference.costs(u.double(), v.double(), cost) for u, v in zip(x, y, strict=True)]
        check_half_costs(torch.stack(tables).float(), draw, options)
    plans = got.plan.to_dense()
    limit = 1e-8 if dtype == torch.float64 else 2e-5
    for k in range(batch):
        rows, columns = int(lengths[0][k]), int(lengths[1][k])
        where = f"seed {seed}, problem {k}"
        assert (plans[k, rows:] == 0).all() and (plans[k, :, columns:] == 0).all(), where
        if k == bad:
            assert math.isnan(float(got.value[k])), where
            continue
        table = reference.costs(x[k, :rows].double(), y[k, :columns].double(), cost)
        expected = reference.solve(
            table, a[k, :rows].double(), b[k, :columns].double(), epsilon, iterations=ITERATIONS, **options
        )
        size = float(expected.plan.abs().max())
        plan = plans[k, :rows, :columns].double()
        assert float((plan - expected.plan).abs().max()) <= limit * max(size, 1e-3), where
        scale = abs(float(expected.value)) + epsilon
        assert abs(float(got.value[k]) - float(expected.value)) <= limit * scale, where
        assert abs(float(got.linear[k]) - float(expected.linear)) <= limit * (
            abs(float(expected.linear)) + 0.1
        ), where
