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
    DEVICE,
    FRAMES,
    LABELS,
    LOGITS,
    MASK,
    M,
    N,
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
    "cdist_soft_dtw",
    "cdist_soft_dtw of one set",
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


def tensor(array: np.ndarray, dtype: str | None = None) -> torch.Tensor:
    return torch.tensor(array, dtype=None if dtype is None else getattr(torch, dtype), device=DEVICE)


def equal(found: object, wanted: object) -> None:
    """Named tuples of arrays and of tensors."""
    leaves = [one for one in jax.tree.leaves(wanted) if isinstance(one, torch.Tensor)]
    for one, other in zip(jax.tree.leaves(found), leaves, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other.cpu().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_expected_alignments_and_paths(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        series = jnp.asarray(X, dtype), jnp.asarray(Y, dtype)
        expected = warpalign.soft_dtw_alignment(tensor(X, dtype), tensor(Y, dtype), gamma=0.5)
        equal(wj.soft_dtw_alignment(*series, gamma=0.5), expected)
        options = {"x_lengths": N, "y_lengths": M, "bandwidth": 5, "band": "slanted"}
        wanted = warpalign.dtw_path(tensor(X, dtype), tensor(Y, dtype), **options)
        value, paths, lengths = jax.jit(lambda x, y: wj.dtw_path(x, y, **options))(*series)
        equal(value, wanted.value)
        for one, length, path in zip(paths, lengths, wanted.paths, strict=True):
            equal(one[:length], path)
            assert (np.asarray(one[length:]) == -1).all()
        alone = wj.dtw_path(series[0][0], series[1][0])
        equal(
            alone.paths[: alone.lengths], warpalign.dtw_path(tensor(X[0], dtype), tensor(Y[0], dtype)).paths
        )


def test_pairs_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN has no path, and other pairs keep theirs; few pairs at a time are as good as all."""
    x = jnp.asarray(X, "float32").at[1, 3].set(jnp.nan)
    whole = wj.dtw_path(x, jnp.asarray(Y, "float32"))
    assert whole.lengths[1] == 0 and (whole.paths[1] == -1).all() and jnp.isnan(whole.value[1])
    assert (whole.lengths[::2] >= 17).all()
    monkeypatch.setattr("warpalign.jax._soft_dtw_sets._PATH_CELLS", 2 * 14 * 17)
    for one, other in zip(wj.dtw_path(x, jnp.asarray(Y, "float32")), whole, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("block_size", [1, 3, 5, None])
@pytest.mark.parametrize("normalize", [False, True])
def test_all_pairs(block_size: int | None, normalize: bool) -> None:
    """Values of pairs have the same bits, whatever the blocks."""
    x, y = X.astype("float32"), np.concatenate([Y, Y[:2] + 1]).astype("float32")
    options = {"gamma": 0.5, "normalize": normalize, "cost": "l1", "x_lengths": N, "x_mask": MASK}
    tensors = options | {"x_mask": tensor(MASK)}
    table = wj.cdist_soft_dtw(x, y, block_size=block_size, **options)
    equal(table, warpalign.cdist_soft_dtw(tensor(x), tensor(y), **tensors))
    square = wj.cdist_soft_dtw(x, block_size=block_size, **options)
    equal(square, warpalign.cdist_soft_dtw(tensor(x), **tensors))
    np.testing.assert_array_equal(np.asarray(square), np.asarray(square).T)
    lines = wj.cdist_soft_dtw(x[..., 0], y[..., 0], gamma=jnp.float32(0.5), block_size=block_size)
    equal(lines, warpalign.cdist_soft_dtw(tensor(x[..., 0]), tensor(y[..., 0]), gamma=0.5))


def test_no_pairs() -> None:
    x = jnp.zeros((2, 5, 1))
    assert wj.cdist_soft_dtw(x, x[:0]).shape == (2, 0)
    assert wj.cdist_soft_dtw(x[:0]).shape == (0, 0)
    assert wj.dtw_path(x[:0], x[:0]).paths.shape == (0, 9, 2)


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
