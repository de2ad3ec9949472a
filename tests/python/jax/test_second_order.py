"""Forward mode and second derivatives of the JAX functions, and errors where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import torch  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import warpalign  # noqa: E402
import warpalign.jax as wj  # noqa: E402
from tests.python.jax.cases import DEVICE, LABELS, LOGITS, MASK, M, N, X, Y  # noqa: E402

SMALL = {"x": X[:2, :4], "y": Y[:2, :5]}
COSTS = X[:, :4, :1] + Y[:, None, :5, 0]
RANDOM_SETS = np.random.default_rng(0).normal(size=(2, 3, 4, 1))
# Functions of (B, ...) arrays with a value (B,), and their arrays. Weights of balanced transport cannot be moved one by one.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "soft_dtw": (lambda f, x, y: f.soft_dtw(x, y, gamma=0.7), (SMALL["x"], SMALL["y"])),
    "soft_dtw options": (
        lambda f, x, y: f.soft_dtw(
            x, y, gamma=0.7, cost="huber", step_penalty=0.1, bandwidth=2, normalize=True
        ),
        (SMALL["x"], SMALL["y"]),
    ),
    "soft_dtw_cost": (lambda f, cost: f.soft_dtw_cost(cost, gamma=0.7), (COSTS,)),
    "sinkhorn": (
        lambda f, x, y: f.sinkhorn(x, y, epsilon=0.7, tol=1e-12, max_iter=3000).value,
        (SMALL["x"], SMALL["y"]),
    ),
    "sinkhorn unbalanced": (
        lambda f, x, y, a: (
            f.sinkhorn(x, y, a=a, epsilon=0.7, rho_a=1.0, rho_b=2.0, tol=1e-12, max_iter=3000).value
        ),
        (SMALL["x"], SMALL["y"], np.full((2, 4), 0.25)),
    ),
    "sinkhorn costs": (
        lambda f, cost: f.sinkhorn(cost_matrix=cost, epsilon=0.7, tol=1e-12, max_iter=3000).value,
        (COSTS,),
    ),
    "sinkhorn_divergence": (
        lambda f, x, y: f.sinkhorn_divergence(x, y, epsilon=0.7, tol=1e-12, max_iter=3000),
        (SMALL["x"], SMALL["y"]),
    ),
}
POTENTIALS: Callable[..., Any] = lambda x, y: (  # noqa: E731
    lambda r: r.linear + (r.f**2).sum(-1) + r.g.sum(-1)
)(wj.sinkhorn(x, y, epsilon=0.7, rho_a=2.0, rho_b=1.0, tol=1e-12, max_iter=3000))


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """A number, which weighs the elements of the batch."""
    return lambda *arrays: (function(*arrays) * jnp.arange(1.0, 1 + len(arrays[0]))).sum()


def close(found: Any, wanted: Any, **options: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), **options)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_against_differences(name: str) -> None:
    run, arrays = FUNCTIONS[name]
    with jax.enable_x64(True):
        inputs = tuple(map(jnp.asarray, arrays))
        modes = ["fwd", "rev"] if "sinkhorn" not in name or "divergence" in name else ["rev"]
        function = total(lambda *given: run(wj, *given))
        check_grads(function, inputs, order=2, modes=modes, rtol=2e-4, atol=2e-4)
        check_grads(function, inputs, order=1, modes=["fwd"], rtol=2e-4, atol=2e-4)


def test_potentials_and_best_paths_in_forward_mode() -> None:
    with jax.enable_x64(True):
        paths = total(lambda x, y: wj.dtw_path(x, y, step_penalty=0.3).value)
        check_grads(paths, tuple(map(jnp.asarray, SMALL.values())), order=1, rtol=2e-4, atol=2e-4)
        check_grads(total(POTENTIALS), tuple(map(jnp.asarray, SMALL.values())), order=1, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians_are_those_of_torch(name: str) -> None:
    """Under jit, eagerly, and as a reverse-mode Jacobian of the gradient."""
    run, arrays = FUNCTIONS[name]

    def of_torch(*tensors: torch.Tensor) -> torch.Tensor:
        value = run(warpalign, *tensors)
        return (value * torch.arange(1, 1 + len(value), device=DEVICE)).sum()

    tensors = tuple(torch.tensor(one, device=DEVICE) for one in arrays)
    wanted = torch.autograd.functional.hessian(of_torch, tensors)
    wanted = [part.cpu() for row in wanted for part in row]
    with jax.enable_x64(True):
        inputs, places = tuple(map(jnp.asarray, arrays)), tuple(range(len(arrays)))
        function = total(lambda *given: run(wj, *given))
        close(jax.hessian(function, places)(*inputs), wanted, rtol=1e-6, atol=1e-9)
        close(jax.jit(jax.hessian(function, places))(*inputs), wanted, rtol=1e-6, atol=1e-9)
        twice = jax.jit(jax.jacrev(jax.grad(function, places), places))
        close(twice(*inputs), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["soft_dtw", "soft_dtw_cost", "sinkhorn", "sinkhorn_divergence"])
def test_hessians_of_single_elements(name: str) -> None:
    """jax.vmap of jax.hessian is one Hessian-vector product for each direction, on the whole batch."""
    run, arrays = FUNCTIONS[name]
    with jax.enable_x64(True):
        inputs = tuple(map(jnp.asarray, arrays))
        of_one = lambda *given: run(wj, *(one[None] for one in given))[0]  # noqa: E731
        found = jax.vmap(jax.hessian(of_one))(*inputs)
        for k, one in enumerate(found):
            close(one, jax.hessian(of_one)(*(array[k] for array in inputs)), rtol=1e-6, atol=1e-10)
        text = str(jax.make_jaxpr(jax.vmap(jax.hessian(of_one)))(*inputs))
        assert "while" not in text and "scan" not in text


@pytest.mark.parametrize("function", [jax.checkpoint, jax.jit], ids=["checkpoint", "jit"])
def test_hessian_vector_products(function: Any) -> None:
    """Each order of modes, with lengths and masks, in a scan and under jax.checkpoint."""
    with jax.enable_x64(True):
        x, y = jnp.asarray(X), jnp.asarray(Y)
        options = {"gamma": 0.5, "x_lengths": N, "y_lengths": M, "x_mask": MASK}
        loss = function(lambda x: (wj.soft_dtw(x, y, **options) ** 2).sum())
        steps = lambda x: jax.lax.scan(lambda sum_, _: (sum_ + loss(x), None), 0.0, None, 2)[0] / 2  # noqa: E731
        found = [
            jax.jvp(jax.grad(loss), (x,), (x,))[1],
            jax.grad(lambda z: jax.jvp(loss, (z,), (x,))[1])(x),
            jax.grad(lambda z: jnp.vdot(jax.grad(loss)(z), x))(x),
            jax.jvp(jax.grad(steps), (x,), (x,))[1],
        ]
        for one in found[1:]:
            close(one, found[0], rtol=1e-9, atol=1e-12)


def test_tables_of_all_pairs() -> None:
    """In blocks, which the backward pass computes again: forward mode, and reverse mode of it, are those of all pairs at once."""
    with jax.enable_x64(True):
        x, y = jnp.asarray(RANDOM_SETS[0]), jnp.asarray(RANDOM_SETS[1])
        blocks = lambda x: (wj.cdist_soft_dtw(x, y, gamma=0.7, block_size=2) ** 2).sum()  # noqa: E731

        def at_once(x: Any) -> Any:
            return (jax.vmap(lambda a: jax.vmap(lambda b: wj.soft_dtw(a, b, gamma=0.7))(y))(x) ** 2).sum()

        close(jax.jacrev(jax.jacfwd(blocks))(x), jax.hessian(at_once)(x), rtol=1e-9, atol=1e-9)
        close(jax.jvp(blocks, (x,), (x,)), jax.jvp(at_once, (x,), (x,)), rtol=1e-12)
        with pytest.raises(ValueError, match="cannot be differentiated"):
            jax.hessian(blocks)(x)


def test_reverse_mode_of_a_value_solves_no_linear_system() -> None:
    x, y = jnp.asarray(X), jnp.asarray(Y)

    def value(x: Any) -> Any:
        return wj.sinkhorn(x, y, epsilon=0.5).value.sum()

    calls = ("= ffi_call[", "= warpalign_symmetric_map[")
    for function, wanted in (
        (value, [1, 0]),
        (lambda x: POTENTIALS(x, y).sum(), [1, 1]),
        (lambda x: wj.soft_dtw(x, y).sum(), [1, 0]),
    ):
        text = str(jax.make_jaxpr(jax.grad(function))(x))
        assert [text.count(one) for one in calls] == wanted


def test_one_side_moves_and_the_other_is_differentiated() -> None:
    with jax.enable_x64(True):
        x, y = map(jnp.asarray, SMALL.values())
        loss = lambda x, y: (wj.soft_dtw(x, y, gamma=0.7) ** 2).sum()  # noqa: E731
        mixed = jax.jacfwd(jax.grad(loss), 1)(x, y)
        close(mixed, jax.jacrev(jax.grad(loss), 1)(x, y), rtol=1e-9, atol=1e-12)
        other = jax.jacfwd(jax.grad(loss, 1))(x, y)
        close(mixed, jnp.moveaxis(other, (0, 1, 2), (3, 4, 5)), rtol=1e-9, atol=1e-12)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "hard DTW": (
        lambda: jax.hessian(lambda x: wj.soft_dtw(x, Y[0], gamma=0.0))(jnp.asarray(X[0])),
        r"second derivatives of hard DTW \(gamma = 0\)",
    ),
    "gamma": (
        lambda: jax.hessian(lambda gamma: wj.soft_dtw(jnp.asarray(X), jnp.asarray(Y), gamma=gamma).sum())(
            jnp.float32(1.0)
        ),
        "second derivatives of soft-DTW by gamma",
    ),
    "third": (
        lambda: jax.grad(lambda c: jax.hessian(lambda d: wj.soft_dtw_cost(d).sum())(c).sum())(
            jnp.ones((2, 2))
        ),
        "third derivatives of soft-DTW",
    ),
    "potentials": (
        lambda: jax.hessian(lambda x: POTENTIALS(x, jnp.asarray(Y)).sum())(jnp.asarray(X)),
        "second derivatives of Sinkhorn's potentials",
    ),
    "plan": (
        lambda: jax.hessian(
            lambda x: (wj.sinkhorn(x, jnp.asarray(Y), epsilon=0.5).plan.to_dense() ** 2).sum()
        )(jnp.asarray(X)),
        "second derivatives of",
    ),
    "ctc_loss": (
        lambda: jax.grad(lambda z: (jax.grad(wj.ctc_loss)(z, LABELS) ** 2).sum())(jnp.asarray(LOGITS)),
        "second derivatives of ctc_loss",
    ),
    "transducer_loss": (
        lambda: jax.grad(lambda z: (jax.grad(wj.transducer_loss)(z, LABELS[:1, :1]) ** 2).sum())(
            jnp.ones((1, 4, 2, 9))
        ),
        "second derivatives of the transducer losses",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_derivatives_that_are_not_available_raise(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=message):
        call()


def test_forward_mode_of_losses_of_labels_raises() -> None:
    logits = jnp.asarray(LOGITS, jnp.float32)
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda z: wj.ctc_loss(z, LABELS), (logits,), (logits,))
