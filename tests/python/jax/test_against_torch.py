"""Values and gradients of the JAX functions are those of the PyTorch functions, bitwise on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import warpalign  # noqa: E402
import warpalign.jax as wj  # noqa: E402
from tests.python.jax.cases import (  # noqa: E402
    CASES,
    COUNTS,
    DEVICE,
    FRAMES,
    JOINT,
    JOINT_FRAMES,
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
    "sinkhorn_divergence",
    "sinkhorn_divergence options",
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
@pytest.mark.parametrize(
    "name", ["soft_dtw", "ctc_loss", "transducer_loss", "transducer_loss_from_joint", "sinkhorn"]
)
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


ALIGNMENTS = {
    "ctc_align": ({}, (LOGITS, LABELS, FRAMES, COUNTS)),
    "ctc_align star": ({"star": 3, "blank": -1}, (LOGITS, LABELS, FRAMES, COUNTS)),
    "ctc_posteriors": ({}, (LOGITS, LABELS, FRAMES, COUNTS)),
    "monotonic_alignment_search": ({}, (LOGITS.swapaxes(1, 2), np.array([9, 4, 1]), FRAMES)),
    "monotonic_alignment_search durations": (
        {"output": "durations"},
        (LOGITS.swapaxes(1, 2), np.array([9, 4, 1]), FRAMES),
    ),
    "transducer_align": ({"blank": 0}, (JOINT, LABELS, JOINT_FRAMES, COUNTS)),
    "transducer_align posteriors": (
        {"posteriors": True, "sigma": 0.05, "big_blanks": (2, 3)},
        (JOINT, LABELS % 5, JOINT_FRAMES, COUNTS),
    ),
    "transducer_align durations": (
        {"posteriors": True, "durations": (0, 1, 2)},
        (JOINT, LABELS % 5, JOINT_FRAMES, COUNTS),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignments(name: str, dtype: str) -> None:
    """All results have the same bits, under jit and with a vmap over single utterances too."""
    options, (scores, *labels) = ALIGNMENTS[name]
    of_jax, of_torch = getattr(wj, name.split()[0]), getattr(warpalign, name.split()[0])
    wanted = of_torch(tensor(scores, dtype), *map(tensor, labels), **options)
    arrays = (jnp.asarray(scores, dtype), *map(jnp.asarray, labels))
    found = jax.jit(lambda *given: of_jax(*given, **options))(*arrays)
    equal(found, wanted)
    mapped = jax.vmap(lambda *given: of_jax(*given, **options))(*arrays)
    posteriors = getattr(mapped, "posteriors", None)
    if posteriors is not None:  # their first axis is that of arcs
        grouped = (posteriors.big_blank.swapaxes(0, 1), posteriors.duration.swapaxes(0, 1))
        mapped = mapped._replace(posteriors=(*posteriors[:2], *grouped))
    equal(mapped, wanted)


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


def test_results_of_divergences() -> None:
    wanted = warpalign.transport.sinkhorn_divergence(
        tensor(X, "float32"), tensor(Y, "float32"), epsilon=0.5, return_result=True
    )
    found = jax.jit(lambda x, y: wj.sinkhorn_divergence(x, y, epsilon=0.5, return_result=True))(
        jnp.asarray(X, "float32"), jnp.asarray(Y, "float32")
    )
    equal(found, wanted)
    assert bool(found.converged.all())


def test_dropout_of_the_joint_network() -> None:
    """The mask is the key's: value and gradient belong together, and another key has another mask."""
    encoder, predictor = jnp.ones((2, 6, 8)), jnp.ones((2, 4, 8))
    labels = jnp.ones((2, 3), int)

    def loss(weight: Any, seed: int) -> Any:
        joint = wj.JointWeights(weight, activation="tanh")
        return wj.transducer_loss_from_joint(
            encoder, predictor, labels, joint, dropout=0.5, key=jax.random.key(seed)
        )

    with jax.enable_x64(True):
        encoder, predictor = encoder.astype("float64"), predictor.astype("float64")
        weight = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)))
        check_grads(lambda w: loss(w, 1), (weight,), 1, ["rev"], rtol=1e-5)
        assert loss(weight, 1) == loss(weight, 1) != loss(weight, 2)
