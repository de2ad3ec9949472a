"""The JAX functions under JAX's transformations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import warpalign.jax as wj  # noqa: E402
from tests.python.helpers import in_a_new_process  # noqa: E402
from tests.python.jax.cases import CASES, DEVICE  # noqa: E402

# Of each operator, a function whose inputs all have the batch axis first.
BATCHED = [
    "soft_dtw",
    "soft_dtw_cost",
    "dtw_path",
    "ctc_loss",
    "forward_sum_loss",
    "transducer_loss",
    "tdt_loss",
    "sinkhorn",
    "sinkhorn_divergence",
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


def nearly(one: Any, other: Any) -> None:
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


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
    # The divergence's gradients are sums, in whose order XLA is free.
    same = nearly if name == "sinkhorn_divergence" else equal
    same(found(jax.vmap(of_one(name)), jax.jit), whole)
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
    """The parts of a pullback that jax.vmap has made know that they are parts: on a GPU a gradient may be 0, too."""
    (logits,), (labels, *_) = arrays_of("ctc_loss")
    _, pullbacks = jax.vmap(lambda one, of: jax.vjp(lambda a: wj.ctc_loss(a, of), one))(logits, labels)
    whole = jax.vmap(lambda pullback: pullback(jnp.float32(1))[0])(pullbacks)
    equal(whole, jax.vmap(jax.grad(wj.ctc_loss))(logits, labels))
    second = jax.tree.map(lambda leaf: leaf[1], pullbacks)
    (gradient,) = second(jnp.float32(1))
    assert jnp.isnan(gradient).any() or (DEVICE == "cuda" and not gradient.any())


@pytest.mark.parametrize("name", CASES)
def test_gradients_against_differences(name: str) -> None:
    if name in ("transducer_loss", "transducer_loss options"):
        pytest.skip("clamp and FastEmit change the gradient, and not the loss")
    with jax.enable_x64(True):
        inputs, labels = arrays_of(name, "float64")
        # Weights of balanced transport cannot be moved one by one.
        moved = inputs[:2] if name in ("sinkhorn", "sinkhorn plan") else inputs

        def function(*arrays: Any) -> Any:
            return CASES[name].of_jax(*arrays, *inputs[len(moved) :], *labels)

        check_grads(function, moved, order=1, modes=["rev"], rtol=2e-4, atol=2e-4)


STEPS = [*BATCHED, "cdist_soft_dtw", "transducer_loss_from_joint", "sinkhorn plan"]


@pytest.mark.parametrize("name", STEPS)
def test_scan_and_checkpoint(name: str) -> None:
    inputs, labels = arrays_of(name)
    function = lambda *arrays: CASES[name].of_jax(*arrays, *labels).sum()  # noqa: E731
    argnums = tuple(range(len(inputs)))
    wanted = jax.grad(function, argnums)(*inputs)
    equal(jax.grad(jax.checkpoint(function), argnums)(*inputs), wanted)

    def steps(*arrays: Any) -> Any:
        return jax.lax.scan(lambda total, _: (total + function(*arrays), None), jnp.float32(0), None, 2)[0]

    nearly(jax.jit(jax.grad(steps, argnums))(*inputs), [2 * one for one in wanted])


@pytest.mark.parametrize("name", STEPS)
def test_donated_buffers(name: str) -> None:
    """A step that overwrites what it is given: bitwise the same, and the buffers are gone."""
    inputs, labels = arrays_of(name)
    argnums = tuple(range(len(inputs)))

    def step(*arrays: Any) -> Any:
        gradients = jax.grad(lambda *given: CASES[name].of_jax(*given, *labels).sum(), argnums)(*arrays)
        return [one - 0.1 * gradient for one, gradient in zip(arrays, gradients, strict=True)]

    wanted = jax.jit(step)(*inputs)
    given = [one.copy() for one in inputs]
    equal(jax.jit(step, donate_argnums=argnums)(*given), wanted)
    assert all(one.is_deleted() for one in given)


@pytest.mark.parametrize("name", STEPS)
def test_nothing_is_copied_to_the_host(name: str) -> None:
    """Also not lengths, which are on the device."""
    inputs, labels = arrays_of(name)

    def step(*arrays: Any) -> Any:
        return jax.value_and_grad(lambda x: CASES[name].of_jax(x, *arrays[1:]).sum())(arrays[0])

    compiled = jax.jit(step)
    jax.block_until_ready(compiled(*inputs, *labels))
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(compiled(*inputs, *labels))


def test_the_joint_network_under_vmap() -> None:
    """Each call has weights of its own, or shares them, and gets its own gradient by them."""
    (encoder, predictor, weight, bias), labels = arrays_of("transducer_loss_from_joint")

    def loss(encoder: Any, predictor: Any, weight: Any, bias: Any, *labels: Any) -> Any:
        arrays = (encoder[None], predictor[None], weight, bias, *(one[None] for one in labels))
        return CASES["transducer_loss_from_joint"].of_jax(*arrays)[0]

    weights = jnp.stack([weight, 2 * weight, -weight])
    for axis, given in ((None, weight), (0, weights)):
        mapped = jax.vmap(jax.value_and_grad(loss, (0, 1, 2, 3)), (0, 0, axis, None, 0, 0, 0))
        found = mapped(encoder, predictor, given, bias, *labels)
        for k in range(3):
            own = given if axis is None else given[k]
            alone = jax.value_and_grad(loss, (0, 1, 2, 3))(
                encoder[k], predictor[k], own, bias, *(one[k] for one in labels)
            )
            equal(jax.tree.map(lambda leaf, k=k: leaf[k], found), alone)


def test_x64_off_takes_integers_of_any_type() -> None:
    (logits,), (labels, frames, counts) = arrays_of("ctc_loss")
    wanted = wj.ctc_loss(logits, labels, frames, counts)
    for dtype in ("int8", "uint8", "int16", "uint32"):
        equal(wj.ctc_loss(logits, labels.astype(dtype), frames.astype(dtype), counts.tolist()), wanted)


def test_threads_make_no_difference() -> None:
    """Large enough to share out; XLA's pool has as many threads as the machine has cores."""
    x = jax.random.normal(jax.random.key(0), (64, 60, 3))
    function = partial(wj.soft_dtw, batch_invariant=True)
    equal(
        jax.jit(function)(x, x[::-1]),
        jax.jit(lambda a, b: jax.lax.map(lambda pair: function(*pair), (a, b)))(x, x[::-1]),
    )


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU clamps lengths")
class Parameter:
    """What libraries of layers wrap an array in: it says by itself which array it is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __jax_array__(self) -> Any:
        return self.array


def test_parameters_of_layers_are_taken() -> None:
    key = jax.random.key(0)
    x, y = jax.random.normal(key, (2, 5, 3)), jax.random.normal(key, (2, 6, 3))
    number = jnp.asarray(0.5)
    for function in (wj.soft_dtw, wj.cdist_soft_dtw):
        found = function(Parameter(x), y, gamma=Parameter(number))
        assert jnp.array_equal(found, function(x, y, gamma=number))
    found = wj.sinkhorn(x, Parameter(y), epsilon=Parameter(number)).value
    assert jnp.array_equal(found, wj.sinkhorn(x, y, epsilon=number).value)
    found = wj.gromov_wasserstein(Parameter(x), y, epsilon=Parameter(number)).value
    assert jnp.array_equal(found, wj.gromov_wasserstein(x, y, epsilon=number).value)
    weight, bias = jax.random.normal(key, (4, 3)), jnp.arange(4.0)

    def loss(weight: Any, bias: Any) -> Any:
        return wj.transducer_loss_from_joint(
            x, y, jnp.ones((2, 5), int), wj.JointWeights(weight, bias, activation="tanh", blank=0)
        )

    assert jnp.array_equal(loss(Parameter(weight), Parameter(bias)), loss(weight, bias))


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
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
import warpalign.jax as wj
mesh = Mesh(np.array(jax.devices("cpu")), ("batch",))
x, y = jax.random.normal(jax.random.key(0), (2, 4, 10, 2))
logits, labels = jax.random.normal(jax.random.key(1), (4, 12, 6)), jnp.ones((4, 3), int)
joint = jax.random.normal(jax.random.key(2), (4, 6, 4, 7))
functions = [
    (lambda x, y: wj.soft_dtw(x, y, gamma=0.1), (x, y)),
    (lambda x, y: wj.dtw_path(x, y).value, (x, y)),
    (lambda x, y: wj.sinkhorn_divergence(x, y, epsilon=0.5), (x, y)),
    (lambda x, y: wj.sinkhorn(x, y, epsilon=0.5, tol=0.0, max_iter=50).f.sum(1), (x, y)),
    (lambda x, y: wj.sinkhorn(x, y, epsilon=0.5).value, (x, y)),
    (lambda logits, labels: wj.ctc_loss(logits, labels, reduction="none"), (logits, labels)),
    (lambda logits, labels: wj.transducer_loss(logits, labels, reduction="none"), (joint, labels)),
    (lambda logits, labels: wj.tdt_loss(logits, None, labels, durations=(0, 1), reduction="none"), (joint, labels)),
]
for function, arrays in functions:
    parts = jax.shard_map(function, mesh=mesh, in_specs=(P("batch"),) * 2, out_specs=P("batch"))
    for one in (function, parts):
        gradient = jax.jit(jax.value_and_grad(lambda *given: one(*given).sum()))(*arrays)
        if one is function:
            wanted = gradient
    assert all((a == b).all() for a, b in zip(gradient[1:], wanted[1:]))
    assert len(jax.jit(parts)(*arrays).sharding.device_set) == 2

def curvature(x, y):
    return jax.jvp(jax.grad(lambda z: wj.soft_dtw(z, y, gamma=0.1).sum()), (x,), (x,))[1]
parts = jax.shard_map(curvature, mesh=mesh, in_specs=(P("batch"),) * 2, out_specs=P("batch"))
assert (jax.jit(parts)(x, y) == jax.jit(curvature)(x, y)).all()

# Every device has the weights, whose gradients are summed up.
encoder, predictor = jax.random.normal(jax.random.key(3), (4, 6, 5)), jax.random.normal(jax.random.key(4), (4, 4, 5))
weight = jax.random.normal(jax.random.key(5), (7, 5))
def losses(encoder, predictor, labels, weight):
    joint = wj.JointWeights(weight, activation="tanh")
    return wj.transducer_loss_from_joint(encoder, predictor, labels, joint, reduction="none")
parts = jax.shard_map(losses, mesh=mesh, in_specs=(P("batch"),) * 3 + (P(),), out_specs=P("batch"))
gradients = [
    jax.jit(jax.grad(lambda *given: one(*given).sum(), (0, 1, 3)))(encoder, predictor, labels, weight) for one in (losses, parts)
]
for one, other in zip(*gradients):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
print("ok")
"""
    assert in_a_new_process(code).endswith("ok\n")
