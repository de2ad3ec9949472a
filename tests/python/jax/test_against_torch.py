"""Values and gradients of the JAX functions are those of the PyTorch functions, bitwise on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402

import warpalign  # noqa: E402
import warpalign.jax as wj  # noqa: E402
from tests.python.jax.cases import (  # noqa: E402
    CASES,
    COUNTS,
    FRAMES,
    LABELS,
    LOGITS,
    X,
    Y,
    in_jax,
    in_torch,
)

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
NEAR = {"float32": 3e-6, "float64": 1e-13}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_same_bits(name: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        found = in_jax(name, dtype)
    wanted = in_torch(name, dtype)
    assert any(one.any() for one in wanted[1:])
    for one, other in zip(found, wanted, strict=True):
        if name in NEARLY:
            np.testing.assert_allclose(one, other, rtol=0, atol=NEAR[dtype] * max(1, np.abs(other).max()))
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["soft_dtw", "ctc_loss", "transducer_loss", "sinkhorn"])
def test_half_types(name: str, dtype: str) -> None:
    """Every gradient has the dtype of its input, and is rounded once."""
    for one, other in zip(in_jax(name, dtype), in_torch(name, dtype), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_alignments_of_ctc(dtype: str) -> None:
    """Best paths, and expected alignments, batched and under vmap."""
    logits, labels, frames, counts = LOGITS, LABELS, FRAMES, COUNTS
    of_jax = jnp.asarray(logits, dtype)
    wanted = warpalign.ctc_align(
        torch.tensor(logits, dtype=getattr(torch, dtype)),
        torch.tensor(labels),
        torch.tensor(frames),
        torch.tensor(counts),
    )
    found = wj.ctc_align(of_jax, labels, frames, counts)
    mapped = jax.vmap(wj.ctc_align)(of_jax, *map(jnp.asarray, (labels, frames, counts)))
    for one, other, third in zip(found, wanted, mapped, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other.numpy())
        np.testing.assert_array_equal(np.asarray(third), other.numpy())
    x, y = jnp.asarray(X, "float32"), jnp.asarray(Y, "float32")
    expected = warpalign.soft_dtw_alignment(*(torch.tensor(np.asarray(one)) for one in (x, y)), gamma=0.5)
    for one, other in zip(wj.soft_dtw_alignment(x, y, gamma=0.5), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other.numpy())
