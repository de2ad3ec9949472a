"""The JAX functions under JAX's transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import warpalign.jax as wj  # noqa: E402
from tests.python.helpers import in_a_new_process  # noqa: E402
from tests.python.jax.cases import CASES  # noqa: E402

# Of each operator, a function whose inputs all have the batch axis first.
BATCHED = [
    "soft_dtw",
    "soft_dtw_cost",
    "ctc_loss",
    "transducer_loss",
    "tdt_loss",
    "sinkhorn",
]


def arrays_of(name: str, dtype: str = "float32") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    case = CASES[name]
    return tuple(jnp.asarray(one, dtype) for one in case.inputs), tuple(map(jnp.asarray, case.labels))


def of_one(name: str) -> Any:
    """The function of single elements: it gives them a batch axis of 1."""

    def function(*arrays: Any) -> Any:
        return CASES[name].of_jax(*(one[None] for one in arrays))[0]

    return function


def equal(one: Any, other: Any) -> None:
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.mark.parametrize("name", BATCHED)
def test_vmap_is_one_call_on_the_whole_batch(name: str) -> None:
    """Value and gradient, each way round, and nested: bitwise those of the batch."""
    inputs, labels = arrays_of(name)
    argnums = tuple(range(len(inputs)))

    def found(function: Any, wrap: Any = lambda function: function) -> Any:
        """Values, and gradients with a factor for each element."""

        def total(*arrays: Any) -> Any:
            return (function(*arrays) * jnp.arange(1, 4)).sum()

        return wrap(function)(*inputs, *labels), wrap(jax.grad(total, argnums))(*inputs, *labels)

    def nested(*arrays: Any) -> Any:
        return jax.vmap(jax.vmap(of_one(name)))(*(one[None] for one in arrays))[0]

    whole = found(CASES[name].of_jax)
    equal(found(jax.vmap(of_one(name))), whole)
    equal(found(jax.vmap(of_one(name)), jax.jit), whole)
    equal(found(nested), whole)
    # The gradients of the elements, under vmap.
    apart = jax.vmap(jax.grad(of_one(name), argnums))(*inputs, *labels)
    scaled = [g * jnp.arange(1, 4).reshape(3, *[1] * (g.ndim - 1)).astype(g.dtype) for g in apart]
    for one, other in zip(scaled, whole[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)


def test_vmap_calls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of the batch, the program has one call."""
    inputs, labels = arrays_of("ctc_loss")
    text = str(
        jax.make_jaxpr(jax.vmap(jax.vmap(of_one("ctc_loss"))))(*(one[None] for one in inputs + labels))
    )
    assert text.count("ffi_call") == 1
    assert "scan" not in text and "while" not in text


def test_vmap_over_one_side() -> None:
    x, y = arrays_of("soft_dtw band")[0]
    found = jax.vmap(lambda one: wj.soft_dtw(x[0], one), out_axes=0)(y)
    equal(found, wj.soft_dtw(x[:1], y))


def test_vmap_over_what_a_batch_shares() -> None:
    """A prior of labels for each call: the calls run in turn."""
    (logits,), (labels, *_) = arrays_of("ctc_loss")
    priors = jnp.stack([jnp.zeros(9), jnp.linspace(-1, 0, 9)])
    found = jax.vmap(lambda prior: wj.ctc_loss(logits, labels, label_prior=prior))(priors)
    equal(found, jnp.stack([wj.ctc_loss(logits, labels, label_prior=prior) for prior in priors]))


def test_what_was_saved_for_another_batch_gives_nan() -> None:
    """The parts of a pullback that jax.vmap has made know that they are parts."""
    (logits,), (labels, *_) = arrays_of("ctc_loss")
    _, pullbacks = jax.vmap(lambda one, of: jax.vjp(lambda a: wj.ctc_loss(a, of), one))(logits, labels)
    whole = jax.vmap(lambda pullback: pullback(jnp.float32(1))[0])(pullbacks)
    equal(whole, jax.vmap(jax.grad(wj.ctc_loss))(logits, labels))
    second = jax.tree.map(lambda leaf: leaf[1], pullbacks)
    assert jnp.isnan(second(jnp.float32(1))[0]).any()


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_differences(name: str) -> None:
    if name.startswith("transducer_loss"):
        pytest.skip("clamp and FastEmit change the gradient, and not the loss")
    with jax.enable_x64(True):
        inputs, labels = arrays_of(name, "float64")
        # Weights of balanced transport cannot be moved one by one.
        moved = inputs[:2] if name in ("sinkhorn", "sinkhorn plan") else inputs

        def function(*arrays: Any) -> Any:
            return CASES[name].of_jax(*arrays, *inputs[len(moved) :], *labels)

        check_grads(function, moved, order=1, modes=["rev"], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", BATCHED)
def test_scan_and_checkpoint(name: str) -> None:
    inputs, labels = arrays_of(name)
    function = lambda *arrays: CASES[name].of_jax(*arrays, *labels).sum()  # noqa: E731
    argnums = tuple(range(len(inputs)))
    wanted = jax.grad(function, argnums)(*inputs)
    equal(jax.grad(jax.checkpoint(function), argnums)(*inputs), wanted)

    def steps(*arrays: Any) -> Any:
        return jax.lax.scan(lambda total, _: (total + function(*arrays), None), jnp.float32(0), None, 2)[0]

    for one, other in zip(jax.jit(jax.grad(steps, argnums))(*inputs), wanted, strict=True):
        np.testing.assert_allclose(one, 2 * other, rtol=1e-6)


def test_x64_off_takes_integers_of_any_type() -> None:
    (logits,), (labels, frames, counts) = arrays_of("ctc_loss")
    wanted = wj.ctc_loss(logits, labels, frames, counts)
    for dtype in ("int8", "uint8", "int16", "uint32"):
        equal(wj.ctc_loss(logits, labels.astype(dtype), frames.astype(dtype), counts.tolist()), wanted)


def test_threads_make_no_difference() -> None:
    """Large enough to share out; XLA's pool has as many threads as the machine has cores."""
    x = jax.random.normal(jax.random.key(0), (64, 60, 3))
    equal(
        jax.jit(wj.soft_dtw)(x, x[::-1]),
        jax.jit(lambda a, b: jax.lax.map(lambda pair: wj.soft_dtw(*pair), (a, b)))(x, x[::-1]),
    )


def test_values_that_only_a_call_sees() -> None:
    inputs, labels = arrays_of("soft_dtw")
    with pytest.raises(Exception, match="x_lengths: expected between 1 and N, got 50 at index 1"):
        wj.soft_dtw(*inputs[:2], x_lengths=jnp.array([1, 50, 2])).block_until_ready()


def test_importing_needs_no_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import jax.numpy as jnp, warpalign.jax, warpalign
print(float(warpalign.jax.soft_dtw(jnp.zeros((3, 2)), jnp.ones((3, 2)), gamma=0.0)), warpalign.__version__ != "")
"""
    assert in_a_new_process(code) == "6.0 True\n"


def test_shard_map_over_two_devices() -> None:
    """Each device has its part of the batch: bitwise the results of the whole batch."""
    code = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import warpalign.jax as wj
mesh = Mesh(np.array(jax.devices("cpu")), ("batch",))
x, y = jax.random.normal(jax.random.key(0), (2, 4, 10, 2))
logits, labels = jax.random.normal(jax.random.key(1), (4, 12, 6)), jnp.ones((4, 3), int)
functions = [
    (lambda x, y: wj.soft_dtw(x, y, gamma=0.1), (x, y)),
    (lambda x, y: wj.sinkhorn(x, y, epsilon=0.5).value, (x, y)),
    (lambda logits, labels: wj.ctc_loss(logits, labels, reduction="none"), (logits, labels)),
]
for function, arrays in functions:
    parts = jax.shard_map(function, mesh=mesh, in_specs=(P("batch"),) * 2, out_specs=P("batch"))
    for one in (function, parts):
        gradient = jax.jit(jax.value_and_grad(lambda *given: one(*given).sum()))(*arrays)
        if one is function:
            wanted = gradient
    assert all((a == b).all() for a, b in zip(gradient[1:], wanted[1:]))
    assert len(jax.jit(parts)(*arrays).sharding.device_set) == 2
print("ok")
"""
    assert in_a_new_process(code).endswith("ok\n")
