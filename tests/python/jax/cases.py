"""Calls of the JAX functions, and the same calls of the PyTorch functions, on the device that JAX has by default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

import warpalign
import warpalign.jax as wj


class Case(NamedTuple):
    of_jax: Callable[..., Any]
    of_torch: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    """float64; every one is differentiated."""
    labels: tuple[np.ndarray, ...] = ()
    """Further inputs: integers and bools."""


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


DEVICE = "cuda" if jax.default_backend() == "gpu" else "cpu"
X, Y = _random(3, 14, 2), _random(3, 17, 2)
N, M = np.array([14, 9, 1]), np.array([5, 17, 11])
LABELS = np.random.default_rng(1).integers(1, 8, (3, 5))
LOGITS, JOINT = _random(3, 20, 9), _random(3, 7, 6, 9)
FRAMES, COUNTS = np.array([20, 12, 15]), np.array([5, 2, 0])
MASK = np.random.default_rng(2).random((3, 14)) < 0.2
WEIGHTS = np.full((3, 14), 1 / 14)
ENCODER, PREDICTOR, WEIGHT, BIAS = _random(3, 7, 5), _random(3, 6, 5), _random(9, 5), _random(9)
JOINT_FRAMES = np.array([7, 3, 5])


def pairs(name: str, **options: Any) -> Case:
    def run(function: Any, of: Any, arrays: Any) -> Any:
        x, y, gamma, n, m, mask = arrays
        return function(x, y, gamma=gamma, x_lengths=n, y_lengths=m, x_mask=mask, **options)

    return both("soft_dtw", run, (X, Y, np.array([0.5, 1.0, 2.0])), (N, M, MASK))


def both(
    name: str, run: Callable[..., Any], inputs: tuple[np.ndarray, ...], labels: tuple[np.ndarray, ...] = ()
) -> Case:
    """run(function, package, arrays)."""
    return Case(
        lambda *arrays: run(getattr(wj, name), jnp, arrays),
        lambda *arrays: run(getattr(warpalign, name), torch, arrays),
        inputs,
        labels,
    )


def _sinkhorn(**options: Any) -> Callable[..., Any]:
    def run(function: Any, of: Any, arrays: Any) -> Any:
        x, y, a, epsilon = arrays
        return function(x, y, a=a, epsilon=epsilon, **options).value

    return run


def _potentials(function: Any, of: Any, arrays: Any) -> Any:
    x, y, a, epsilon = arrays
    result = function(x, y, a=a, epsilon=epsilon, rho_b=1.0, tol=1e-9, max_iter=500)
    return result.linear + (result.f * 0.1).sum(-1) + (result.g**2).sum(-1)


def _plan(function: Any, of: Any, arrays: Any) -> Any:
    x, y, a, epsilon = arrays
    result = function(x, y, a=a, epsilon=epsilon, tol=1e-9, max_iter=500)
    plan = result.plan
    return (plan @ y).sum((1, 2)) + ((plan.T @ x) ** 2).sum((1, 2)) + (plan.to_dense() ** 2).sum((1, 2))


def _from_joint(options: dict[str, Any] | None = None, **network: Any) -> Callable[..., Any]:
    def run(function: Any, of: Any, arrays: Any) -> Any:
        encoder, predictor, weight, bias, labels, frames, counts = arrays
        joint = warpalign.JointWeights(weight, bias, **network)
        return function(
            encoder, predictor, labels % 5, joint, frames, counts, reduction="none", **options or {}
        )

    return run


JOINT_INPUTS = (ENCODER, PREDICTOR, WEIGHT, BIAS)
JOINT_LABELS = (LABELS, JOINT_FRAMES, COUNTS)
TRANSPORT = (X, Y, WEIGHTS, np.array([0.5, 1.0, 2.0]))
CASES: dict[str, Case] = {
    "soft_dtw": pairs("soft_dtw", cost="l1", step_penalty=0.25),
    "soft_dtw band": both(
        "soft_dtw",
        lambda f, _, a: f(a[0], a[1], gamma=0.1, bandwidth=4, band="slanted", normalize=True),
        (X, Y),
    ),
    "soft_dtw single": both("soft_dtw", lambda f, _, a: f(a[0][0], a[1][0], gamma=0.0)[None], (X, Y)),
    "soft_dtw one to many": both("soft_dtw", lambda f, _, a: f(a[0][:1], a[1]), (X, Y)),
    "soft_dtw_cost": both(
        "soft_dtw_cost",
        lambda f, _, a: f(a[0], gamma=0.3, x_lengths=a[1], y_lengths=a[2]),
        (_random(3, 14, 17),),
        (N, M),
    ),
    "soft_dtw_alignment": both(
        "soft_dtw_alignment", lambda f, _, a: f(a[0], a[1], gamma=0.3, x_lengths=a[2]).value, (X, Y), (N,)
    ),
    "dtw_path": both(
        "dtw_path",
        lambda f, _, a: f(a[0], a[1], cost="l1", x_lengths=a[2], y_lengths=a[3], step_penalty=0.25).value,
        (X, Y),
        (N, M),
    ),
    "cdist_soft_dtw": both(
        "cdist_soft_dtw",
        lambda f, _, a: f(a[0], a[1], gamma=0.5, x_lengths=a[2], x_mask=a[3], block_size=2).ravel(),
        (X, Y[:2]),
        (N, MASK),
    ),
    "cdist_soft_dtw of one set": both(
        "cdist_soft_dtw",
        lambda f, _, a: f(a[0], gamma=0.5, x_lengths=a[1], normalize=True, block_size=4).ravel(),
        (_random(5, 14, 2),),
        (np.array([14, 9, 1, 5, 7]),),
    ),
    "ctc_loss": both(
        "ctc_loss",
        lambda f, _, a: f(a[0], a[1], a[2], a[3], reduction="none"),
        (LOGITS,),
        (LABELS, FRAMES, COUNTS),
    ),
    "ctc_loss options": both(
        "ctc_loss",
        lambda f, of, a: f(
            a[0],
            a[1],
            blank=-1,
            star=3,
            label_prior=of.zeros_like(a[0][0, 0]) + 0.1,
            zero_infinity=True,
            reduction="mean_target",
        )[None],
        (LOGITS,),
        (LABELS,),
    ),
    "forward_sum_loss": both(
        "forward_sum_loss",
        lambda f, _, a: f(a[0], a[1], a[2], -0.5, reduction="none"),
        (LOGITS,),
        (np.array([9, 4, 1]), FRAMES),
    ),
    "transducer_loss": both(
        "transducer_loss",
        lambda f, _, a: f(a[0], a[1], a[2], a[3], blank=0, reduction="none", fastemit_lambda=0.1),
        (JOINT,),
        (LABELS, np.array([7, 3, 5]), COUNTS),
    ),
    "transducer_loss options": both(
        "transducer_loss",
        lambda f, _, a: f(
            a[0],
            a[1] % 5,
            a[2],
            a[3],
            big_blanks=(2, 3),
            sigma=0.05,
            clamp=0.5,
            penalties=warpalign.TransducerPenalties(delay_penalty=0.01),
            reduction="mean_volume",
        )[None],
        (JOINT,),
        (LABELS, np.array([7, 3, 5]), COUNTS),
    ),
    "tdt_loss": both(
        "tdt_loss",
        lambda f, _, a: f(a[0], None, a[1] % 5, durations=(0, 1, 2), sigma=0.05, reduction="none"),
        (JOINT,),
        (LABELS,),
    ),
    "transducer_loss_from_joint": both(
        "transducer_loss_from_joint", _from_joint(activation="tanh"), JOINT_INPUTS, JOINT_LABELS
    ),
    "transducer_loss_from_joint options": both(
        "transducer_loss_from_joint",
        _from_joint({"sigma": 0.05, "zero_infinity": True}, durations=(0, 1, 2)),
        JOINT_INPUTS,
        JOINT_LABELS,
    ),
    "sinkhorn": both("sinkhorn", _sinkhorn(), TRANSPORT),
    "sinkhorn options": both(
        "sinkhorn",
        _sinkhorn(cost="l1", rho_a=2.0, rho_b=0.5, annealing=5.0, reference="counting", updates="symmetric"),
        TRANSPORT,
    ),
    "sinkhorn costs": both(
        "sinkhorn",
        lambda f, _, a: f(cost_matrix=a[0] ** 2, epsilon=0.5, x_lengths=a[1], y_lengths=a[2], mass=0.7).value,
        (_random(3, 14, 17),),
        (N, M),
    ),
    "sinkhorn_divergence": both(
        "sinkhorn_divergence", lambda f, _, a: f(a[0], a[1], epsilon=a[2]), (X, Y, np.array([0.5, 1.0, 2.0]))
    ),
    "sinkhorn_divergence options": both(
        "sinkhorn_divergence",
        lambda f, _, a: f(
            a[0],
            a[1],
            a=a[2],
            epsilon=0.5,
            rho=2.0,
            cost="l1",
            x_lengths=a[3],
            annealing=5.0,
            reduction="mean",
        )[None],
        (X, Y, np.abs(_random(3, 14))),
        (N,),
    ),
    "sinkhorn potentials": both("sinkhorn", _potentials, TRANSPORT),
    "sinkhorn plan": both("sinkhorn", _plan, TRANSPORT),
}


def in_jax(name: str, dtype: str) -> tuple[np.ndarray, ...]:
    """The value and its gradients, jitted, with an upstream factor for each element. Needs x64 for float64."""
    case = CASES[name]
    inputs = tuple(jnp.asarray(one, dtype) for one in case.inputs)
    labels = tuple(jnp.asarray(one) for one in case.labels)

    def function(*arrays: jax.Array) -> Any:
        return case.of_jax(*arrays, *labels)

    value, pullback = jax.vjp(jax.jit(function), *inputs)
    return tuple(np.asarray(one, np.float64) for one in (value, *pullback(_factors(jnp, value))))


def in_torch(name: str, dtype: str) -> tuple[np.ndarray, ...]:
    case = CASES[name]
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": DEVICE, "requires_grad": True}
    inputs = [torch.tensor(one, **options) for one in case.inputs]
    value = case.of_torch(*inputs, *(torch.tensor(one, device=DEVICE) for one in case.labels))
    gradients = torch.autograd.grad(value, inputs, _factors(torch, value).to(DEVICE))
    return tuple(one.detach().double().cpu().numpy() for one in (value, *gradients))


def _factors(of: Any, value: Any) -> Any:
    return of.arange(1, value.shape[0] + 1, dtype=value.dtype) / 4
