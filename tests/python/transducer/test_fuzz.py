"""Random calls against the float64 reference: families, penalties, shapes, strides, lengths, dtypes, −inf and NaN."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.python.fuzz import fuzz, share
from tests.python.transducer import reference
from tests.python.transducer.cases import every_family_and_penalty, logits_for, loss

CASES = every_family_and_penalty()
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def laid_out(x: Tensor, how: str) -> Tensor:
    """The same numbers in other strides."""
    if how == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "columns":
        wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), math.nan, dtype=x.dtype, device=x.device)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    return x


def allowed(expected: float, steps: int, logits: Tensor, dtype: torch.dtype) -> float:
    """Each step's score is a logit less its row's log sum exp, and both have roundings of the logits' size."""
    epsilon = 2.3e-16 if dtype == torch.float64 else 1.2e-7
    size = float(logits.abs().nan_to_num(posinf=0.0).max().clamp(min=1.0))
    return 4 * epsilon * abs(expected) + 2 * steps * epsilon * size


@pytest.mark.parametrize("name", CASES)
def test_random_calls(name: str, device: torch.device) -> None:
    calls = share(len(CASES), weight=2, device=device)
    fuzz(lambda seed: check(name, seed, device), st.tuples(st.integers(0, 2**31 - 1)), calls)


def check(name: str, seed: int, device: torch.device) -> None:
    options, draw = CASES[name], random.Random(f"{name} {seed}")
    torch.manual_seed(draw.randrange(2**31))
    dtype = draw.choice(DTYPES)
    batch, frames, states = draw.randint(1, 3), draw.randint(1, 7), draw.randint(1, 5)
    scale = draw.choice((0.1, 1.0, 5.0))
    x, z = (None if s is None else (s * scale).to(dtype) for s in logits_for(options, batch, frames, states))
    assert x is not None
    y = torch.randint(1, 4, (batch, states - 1))
    lengths = (
        torch.tensor([draw.randint(0, frames) for _ in range(batch)]),
        torch.tensor([draw.randint(0, states - 1) for _ in range(batch)]),
    )
    bad = draw.choice((None, None, -math.inf, math.nan))
    if bad is not None:
        x[tuple(draw.randrange(size) for size in x.shape)] = bad
    how = draw.choice(("contiguous", "transposed", "columns"))
    settings: dict[str, Any] = {"inplace_grad": draw.random() < 0.3, "zero_infinity": draw.random() < 0.3}
    leaves = [None if s is None else laid_out(s.to(device), how).detach().requires_grad_() for s in (x, z)]
    given = [None if s is None else s.clone() if settings["inplace_grad"] else s for s in leaves]
    assert given[0] is not None
    values = loss(given[0], given[1], y.to(device), options, *(n.to(device) for n in lengths), **settings)
    upstream = torch.randn(batch, dtype=values.dtype)
    found = iter(torch.autograd.grad(values, [s for s in given if s is not None], upstream.to(device)))
    gradients = [None if s is None else next(found).cpu().double() for s in given]
    for b in range(batch):
        where = f"{name}, seed {seed}, utterance {b}"
        t, u = int(lengths[0][b]), int(lengths[1][b])
        wide = [None if s is None else s[b, :t, : u + 1].double().clone().requires_grad_() for s in (x, z)]
        assert wide[0] is not None
        expected = reference.loss(wide[0], y[b, :u].tolist(), options, wide[1])
        number, value = float(expected.detach()), float(values[b].detach())
        inside = wide[0].detach()
        if options.from_log_probs and not inside.isfinite().all():
            continue  # an entry that no arc names may be anything
        if inside.isnan().any():
            assert math.isnan(value), where
            continue
        no_path = math.isinf(number) or math.isnan(number)  # the reference's −inf − −inf
        if no_path and math.isnan(number):
            continue
        if no_path:
            assert value == (0.0 if settings["zero_infinity"] else math.inf), where
        else:
            assert abs(value - number) <= allowed(number, t + u, inside, dtype), where
            if expected.requires_grad:  # a star alone has no score
                expected.backward()
        for source, gradient in zip(wide, gradients, strict=True):
            if source is None or gradient is None:
                continue
            wanted = torch.zeros_like(gradient[b])
            if source.grad is not None and not no_path:
                wanted[:t, : u + 1] = source.grad.nan_to_num() * float(upstream[b])
            rounding = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 0.0)
            error = (
                (gradient[b] - wanted).abs() - rounding * wanted.abs() - 2.0**-24 * (rounding > 0)
            ).clamp(min=0)
            # p S - g cancels where p is 1 or nearly so, in the naive formula too: a unit in the last place of S.
            epsilon, limit = (2.3e-16, 1e-10) if dtype == torch.float64 else (1.2e-7, 1e-5)
            assert error.norm() <= limit * wanted.norm() + 4 * epsilon * abs(float(upstream[b])), where
