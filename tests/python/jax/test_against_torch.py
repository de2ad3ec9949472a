"""Values and gradients of the JAX functions are those of the PyTorch functions, bitwise on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tests.python.jax.cases import CASES, in_jax, in_torch  # noqa: E402

# Here XLA or torch computes something besides the operator: sums, squares or means, in an order of their own.
NEARLY = {
    "soft_dtw one to many",
    "ctc_loss options",
    "transducer_loss options",
    "sinkhorn potentials",
    "sinkhorn plan",
    "sinkhorn costs",
    "soft_dtw band",
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_same_bits(name: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        found = in_jax(name, dtype)
    wanted = in_torch(name, dtype)
    assert any(one.any() for one in wanted[1:])
    for one, other in zip(found, wanted, strict=True):
        if name in NEARLY:
            np.testing.assert_allclose(one, other, rtol=0, atol=3e-6 * max(1, np.abs(other).max()))
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["soft_dtw", "ctc_loss", "transducer_loss", "sinkhorn"])
def test_half_types(name: str, dtype: str) -> None:
    """Every gradient has the dtype of its input, and is rounded once."""
    for one, other in zip(in_jax(name, dtype), in_torch(name, dtype), strict=True):
        np.testing.assert_array_equal(one, other)
