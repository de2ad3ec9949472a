"""Random calls of the JAX functions against the float64 references: shapes, dtypes, lengths, options.

Each shape is a program of its own, which XLA compiles, so calls are few and small.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import warpalign.jax as wj  # noqa: E402
from tests.python.ctc.cases import Problem, torch_losses  # noqa: E402
from tests.python.fuzz import fuzz, share  # noqa: E402
from tests.python.soft_dtw.reference import gradient_tolerance, value_tolerance  # noqa: E402
from tests.python.soft_dtw.reference_series import soft_dtw64  # noqa: E402
from tests.python.transducer import reference as transducer  # noqa: E402
from tests.python.transport import reference as transport  # noqa: E402

DTYPES = ("float64", "float32", "float16", "bfloat16")
# A call with its compilation takes as long as some 20 of PyTorch's.
FUZZ = share(4, weight=20)
SEEDS = st.tuples(st.integers(0, 2**31 - 1))
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def drawn(check: Callable[[random.Random, str], None]) -> None:
    """Calls check(draw, dtype) with numbers of JAX as wide as the dtype asks for, and with results of 32 bits half of the time."""

    def run(seed: int) -> None:
        draw = random.Random(seed)
        torch.manual_seed(draw.randrange(2**31))
        dtype = draw.choice(DTYPES)
        with jax.enable_x64(dtype == "float64" or draw.random() < 0.5):
            check(draw, dtype)

    fuzz(run, SEEDS, FUZZ)


def rounded(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """float64 numbers that the dtype has."""
    return values.to(getattr(torch, dtype)).double()


def array(values: torch.Tensor, dtype: str) -> Any:
    return jnp.asarray(values.detach().numpy(), dtype)


def lengths(draw: random.Random, batch: int, least: int, most: int) -> torch.Tensor:
    kind = draw.choice((torch.int64, torch.int32, torch.int16))
    return torch.tensor([draw.randint(least, most) for _ in range(batch)], dtype=kind)


def values_and_gradients(function: Callable[..., Any], *arrays: Any) -> tuple[Any, list[Any]]:
    """(B,) values, and the gradients of their sum with weights 1, 2, ..."""
    value, pullback = jax.vjp(jax.jit(function), *arrays)
    gradients = pullback(jnp.arange(1, 1 + len(value), dtype=value.dtype))
    return np.asarray(value, "float64"), [np.asarray(one, "float64") for one in gradients]


def expected(values: torch.Tensor, *inputs: torch.Tensor) -> tuple[Any, list[Any]]:
    weights = torch.arange(1, 1 + len(values), dtype=torch.float64)
    gradients = torch.autograd.grad((values * weights).sum(), inputs)
    return values.detach().numpy(), [one.numpy() for one in gradients]


def near(found: Any, wanted: Any, tolerance: float, dtype: str) -> None:
    error = np.abs(found - wanted)
    assert (
        error
        <= tolerance * max(1.0, np.abs(wanted).max(initial=0.0)) + ROUNDING.get(dtype, 0.0) * np.abs(wanted)
    ).all()


def test_soft_dtw() -> None:
    drawn(check_soft_dtw)


def check_soft_dtw(draw: random.Random, dtype: str) -> None:
    batch, n, m, features = draw.randint(1, 4), draw.randint(1, 20), draw.randint(1, 20), draw.randint(1, 5)
    x, y = (rounded(torch.randn(batch, size, features), dtype).requires_grad_() for size in (n, m))
    counts = [lengths(draw, batch, 1, size) for size in (n, m)]
    gamma = 10 ** draw.uniform(-1, 2)
    options: dict[str, Any] = {
        "cost": draw.choice(("sqeuclidean", "euclidean", "l1", "huber", "cosine")),
        "step_penalty": draw.choice((0.0, 0.5)),
        "normalize": draw.random() < 0.3,
    }
    mask = torch.rand(batch, n) < (0.0 if options["normalize"] else 0.1)
    hidden = {} if options["normalize"] else {"x_mask": mask}  # the reference of divergences has no masks
    wanted = soft_dtw64(x, y, gamma=gamma, x_lengths=counts[0], y_lengths=counts[1], **hidden, **options)

    def run(x: Any, y: Any) -> Any:
        given = {"x_lengths": counts[0].numpy(), "y_lengths": jnp.asarray(counts[1].numpy())}
        return wj.soft_dtw(x, y, gamma=gamma, x_mask=jnp.asarray(mask.numpy()), **given, **options)

    value, gradients = values_and_gradients(run, array(x, dtype), array(y, dtype))
    value64, gradients64 = expected(wanted, x, y)
    size = float(np.abs(value64).max()) + gamma * (n + m)
    wide = torch.float64 if dtype == "float64" else torch.float32
    assert np.abs(value - value64).max() <= 4 * value_tolerance(size, gamma, n, m, wide)
    for one, other in zip(gradients, gradients64, strict=True):
        near(one, other, 4 * gradient_tolerance(gamma, wide), dtype)


def test_ctc_loss() -> None:
    drawn(check_ctc_loss)


def check_ctc_loss(draw: random.Random, dtype: str) -> None:
    batch, frames, classes, labels = (
        draw.randint(1, 4),
        draw.randint(1, 40),
        draw.choice((2, 3, 17)),
        draw.randint(0, 12),
    )
    blank = draw.randrange(classes)
    logits = rounded(
        torch.randn(batch, frames, classes) * draw.choice((0.1, 1.0, 5.0)), dtype
    ).requires_grad_()
    targets = torch.randint(0, classes - 1, (batch, labels))
    targets += targets >= blank
    counts = [lengths(draw, batch, 0, size).long() for size in (frames, labels)]
    wanted = torch_losses(Problem(logits, targets, *counts), blank, zero_infinity=True)

    def run(logits: Any) -> Any:
        given = (jnp.asarray(targets.numpy()), counts[0].tolist(), jnp.asarray(counts[1].numpy()))
        return wj.ctc_loss(logits, *given, blank=blank, zero_infinity=True, reduction="none")

    value, gradients = values_and_gradients(run, array(logits, dtype))
    value64, gradients64 = expected(wanted, logits)
    np.testing.assert_allclose(value, value64, rtol=1e-6, atol=1e-5)
    near(gradients[0], gradients64[0], 1e-6, dtype)


def test_transducer_losses() -> None:
    drawn(check_transducer_losses)


def check_transducer_losses(draw: random.Random, dtype: str) -> None:
    batch, frames, states, classes = (
        draw.randint(1, 3),
        draw.randint(1, 7),
        draw.randint(1, 5),
        draw.randint(4, 9),
    )
    durations = draw.choice((None, (0, 1, 2), (1, 3)))
    options = transducer.Options(blank=0, durations=durations, sigma=draw.choice((0.0, 0.05)))
    columns = classes + len(durations or ())
    logits = rounded(torch.randn(batch, frames, states, columns), dtype).requires_grad_()
    targets = torch.randint(1, classes, (batch, states - 1))
    counts = [lengths(draw, batch, least, size) for least, size in ((1, frames), (0, states - 1))]
    values = []
    for b in range(batch):
        t, u = int(counts[0][b]), int(counts[1][b])
        own = logits[b, :t, : u + 1]
        of_durations = None if durations is None else own[..., classes:]
        values.append(transducer.loss(own[..., :classes], targets[b, :u].tolist(), options, of_durations))
    wanted = torch.stack([one if one.isfinite() else 0 * one.nan_to_num() for one in values])

    def run(logits: Any) -> Any:
        given = (jnp.asarray(targets.numpy()), jnp.asarray(counts[0].numpy()), counts[1].numpy())
        more: dict[str, Any] = {
            "blank": 0,
            "sigma": options.sigma,
            "zero_infinity": True,
            "reduction": "none",
        }
        if durations is None:
            return wj.transducer_loss(logits, *given, **more)
        return wj.tdt_loss(logits, None, *given, durations=durations, **more)

    value, gradients = values_and_gradients(run, array(logits, dtype))
    value64, gradients64 = expected(wanted, logits)
    np.testing.assert_allclose(value, value64, rtol=1e-6, atol=1e-5)
    near(gradients[0], np.nan_to_num(gradients64[0]), 3e-6, dtype)


def test_sinkhorn() -> None:
    drawn(check_sinkhorn)


def check_sinkhorn(draw: random.Random, dtype: str) -> None:
    batch, n, m, features = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 4)
    x, y = (rounded(torch.randn(batch, size, features), dtype).requires_grad_() for size in (n, m))
    a, b = (torch.rand(batch, size, dtype=torch.float64) + 0.1 for size in (n, m))
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    cost, epsilon = draw.choice(("sqeuclidean", "euclidean", "l1", "huber", "cosine")), draw.uniform(1.0, 3.0)
    options = {name: draw.choice((None, 0.3, 2.0)) for name in ("rho_a", "rho_b")}
    answers = [
        transport.solve(transport.costs(u, v, cost), p, q, epsilon, iterations=80, **options)  # type: ignore[arg-type]
        for u, v, p, q in zip(x, y, a, b, strict=True)
    ]
    wide = "float64" if dtype == "float64" else "float32"

    def run(x: Any, y: Any) -> Any:
        weights = {"a": array(a, wide), "b": array(b, wide)}
        result = wj.sinkhorn(x, y, cost=cost, epsilon=epsilon, max_iter=400, tol=1e-12, **weights, **options)
        return result.value, (result.linear, result.plan.to_dense())

    def value_alone(x: Any, y: Any) -> Any:
        return run(x, y)[0]

    arrays = array(x, dtype), array(y, dtype)
    value, gradients = values_and_gradients(value_alone, *arrays)
    linear, plan = jax.jit(run)(*arrays)[1]
    value64, gradients64 = expected(torch.stack([one.value for one in answers]), x, y)
    tolerance = 1e-7 if dtype == "float64" else 2e-5
    near(value, value64, tolerance, "float32")
    near(
        np.asarray(linear),
        torch.stack([one.linear for one in answers]).detach().numpy(),
        tolerance,
        "float32",
    )
    near(np.asarray(plan), torch.stack([one.plan for one in answers]).detach().numpy(), tolerance, "float32")
    for one, other in zip(gradients, gradients64, strict=True):
        near(one, other, tolerance, dtype)
