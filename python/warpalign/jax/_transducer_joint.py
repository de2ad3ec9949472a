"""The transducer loss of a joint network whose logits are never in memory, for arrays."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.reduction import BatchReduction, check_reduction
from warpalign._core.scalars import Precision, check_count, precision_number
from warpalign._transducer.columns import check_columns
from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import (
    WORKSPACE_LIMIT,
    Settings,
    check_activation,
    check_dropout,
    check_omega,
)
from warpalign.jax._arrays import check_floats, check_lengths
from warpalign.jax._call import call, varying_alike
from warpalign.jax._reduction import reduced
from warpalign.jax._scaling import Wanted, dense, has_gradient, values_of
from warpalign.jax._transducer import check_labels, drawn_utterances


class _Inputs(NamedTuple):
    encoder: Array
    """(B, T, H)"""
    predictor: Array
    """(B, U+1, H)"""
    weight: Array
    """(V + D, H)"""
    bias: Array | None
    targets: Array
    encoder_lengths: Array | None
    target_lengths: Array | None
    without_durations: Array | None
    seed: Array | None
    """(2,) int32: of dropout."""


_DIFFERENTIABLE = _Inputs._fields[:4]


class _Options(NamedTuple):
    """What the operators take besides arrays and the settings of the lattice."""

    activation: int
    tdt: bool
    dropout: float
    workspace_limit: int
    precision: int


class _Settings(NamedTuple):
    options: _Options
    of_lattice: Settings

    def keywords(self) -> dict[str, Any]:
        lattice = self.of_lattice._asdict()
        del lattice["from_log_probs"], lattice["packed"]
        return {**self.options._asdict(), **lattice}


def _call(name: str, settings: _Settings, of: _Inputs, **others: Any) -> tuple[Array, ...]:
    # The gradients of weight and bias are sums over the batch of a call.
    return call(name, in_turn=True, **of._asdict(), **settings.keywords(), **others)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _losses(settings: _Settings, of: _Inputs) -> Array:
    return _call("transducer_joint", settings, of, needs_grad=False)[0]


def _forward(settings: _Settings, primals: _Inputs) -> tuple[Array, Any]:
    of = values_of(primals)
    wanted = Wanted(has_gradient(getattr(primals, name)) for name in _DIFFERENTIABLE)
    losses, saved = _call("transducer_joint", settings, of, needs_grad=any(wanted))
    return losses, (of, saved, wanted) if any(wanted) else None


def _backward(settings: _Settings, kept: Any, grad_loss: Any) -> tuple[_Inputs | None]:
    grad = dense(grad_loss)
    if kept is None or grad is None:
        return (None,)
    of, saved, wanted = kept
    needs = {f"needs_{name}": need for name, need in zip(_DIFFERENTIABLE, wanted, strict=True)}
    found = _call("transducer_joint_gradient", settings, of, saved=saved, grad_loss=grad, **needs)
    gradients = (one if need else None for one, need in zip(found, wanted, strict=True))
    return (_Inputs._make((*gradients, *(None,) * 5)),)


_losses.defvjp(_forward, _backward, symbolic_zeros=True)


def transducer_loss_from_joint(
    encoder_out: Array,
    predictor_out: Array,
    targets: Array,
    joint: JointWeights,
    encoder_lengths: Any = None,
    target_lengths: Any = None,
    *,
    sigma: float = 0.0,
    omega: float = 0.0,
    dropout: float = 0.0,
    key: Array | None = None,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    workspace_limit: int = WORKSPACE_LIMIT,
    precision: Precision = "highest",
    reduction: BatchReduction = "mean",
) -> Array:
    """Transducer loss of a joint network, whose logits are never in memory as a whole; :func:`warpalign.transducer_loss_from_joint`
    for arrays of JAX.

    The joint network is h[t, u] = activation(encoder_out[t] + predictor_out[u]), logits[t, u] = weight h[t, u] + bias. Under
    ``jax.vmap`` calls run one after the other.

    Args:
        encoder_out: (B, T, H), or (T, H) for one utterance: outputs of the encoder; float64, float32, float16 or bfloat16.
        predictor_out: (B, U+1, H), or (U+1, H): outputs of the predictor for the start token and each label, of the dtype of
            encoder_out.
        targets: (B, U) labels, or (U,) for one utterance. Any integer type.
        joint: the output layer, arrays of the dtype of encoder_out, its activation, and which columns are blanks and durations:
            :class:`warpalign.transducer.JointWeights`.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T. Padding is ignored, and its gradient is 0.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that an utterance's loss is plain RNN-T's on the columns of labels, with sigma = 0; only if the
            joint network has durations. Drawn per utterance.
        dropout: the probability that a hidden unit h[t, u, j] becomes 0; the others are divided by 1 - dropout. The forward
            and the backward pass draw the same mask, which is never in memory.
        key: a key of jax.random, for the draws of omega and dropout; needed if either is above 0.
        fastemit_lambda: the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels, the end of an utterance and unknown labels:
            :class:`warpalign.transducer.TransducerPenalties`. None: no penalty.
        clamp: every entry of a loss's gradient with respect to the logits is clipped to [−clamp, clamp]. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        workspace_limit: bytes that a call may allocate, not counting what it keeps for the backward pass and, on a GPU, the list of nodes.
        precision: how a GPU multiplies float32: "highest", "high" or "medium", as in :func:`warpalign.transducer_loss_from_joint`.
        reduction: "none" (B,); "sum"; "mean"; "mean_target"; "mean_volume" or "mean_frame", as in :func:`transducer_loss`.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 arrays, else float32. Differentiable with respect to
        encoder_out, predictor_out, joint.weight and joint.bias.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`transducer_loss`.

    Examples:
        >>> encoder_out, predictor_out = jnp.ones((4, 50, 64)), jnp.ones((4, 11, 64))
        >>> weight, targets = jnp.ones((30, 64)), jnp.ones((4, 10), int)
        >>> def loss(weight):
        ...     return transducer_loss_from_joint(encoder_out, predictor_out, targets, JointWeights(weight))
        >>> jax.grad(loss)(weight).shape
        (30, 64)
    """
    weight, bias = _check_weights(joint)
    columns = check_columns(joint.blank, joint.durations, joint.big_blanks, weight.shape[0], "joint.")
    options = _Options(
        check_activation(joint.activation, "joint.activation"),
        columns.tdt,
        check_dropout(dropout),
        check_count(workspace_limit, "workspace_limit", 0),
        precision_number(precision),
    )
    settings = check_settings(
        columns,
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
    )
    reduction = check_reduction(reduction)
    encoder, predictor, unbatched = _check_outputs(encoder_out, predictor_out, weight)
    for name, array in (("joint.weight", weight), ("joint.bias", bias)):
        if array is not None and array.dtype != encoder.dtype:
            raise TypeError(f"{name}: expected the dtype of encoder_out, {encoder.dtype}, got {array.dtype}")
    batch, frames, states = *encoder.shape[:2], predictor.shape[1]
    if check_omega(omega) > 0 and not columns.tdt:
        raise ValueError(f"omega: expected 0 without durations, got {omega}")
    of_omega, of_dropout = (None, None) if key is None else jax.random.split(key)
    of = _Inputs(
        encoder,
        predictor,
        weight,
        bias,
        check_labels(targets, batch, states, f"predictor_out {predictor_out.shape} has", unbatched),
        check_lengths(encoder_lengths, "encoder_lengths", batch, frames, "T", unbatched=unbatched),
        check_lengths(target_lengths, "target_lengths", batch, states - 1, "U", unbatched=unbatched),
        drawn_utterances(omega, of_omega, batch),
        _seed(options.dropout, of_dropout),
    )
    losses = _losses(_Settings(options, settings), varying_alike(of))
    return reduced(losses, of.encoder_lengths, frames, of.target_lengths, states - 1, reduction, unbatched)


def _seed(dropout: float, key: Array | None) -> Array | None:
    if dropout == 0:
        return None
    if key is None:
        raise ValueError("key: expected a key of jax.random with dropout > 0, got None")
    return jax.lax.bitcast_convert_type(jax.random.bits(key, (2,), jnp.uint32), jnp.int32)


def _check_weights(joint: object) -> tuple[Array, Array | None]:
    if not isinstance(joint, JointWeights):
        remedy = ": write JointWeights(weight, bias)" if isinstance(joint, jax.Array) else ""
        raise TypeError(f"joint: expected JointWeights, got {type(joint).__name__}{remedy}")
    weight = check_floats(joint.weight, "joint.weight", "V, H", (2,), shapes="(V, H)")
    if 0 in weight.shape:
        raise ValueError(f"joint.weight: expected no empty axis in (V, H), got shape {weight.shape}")
    if joint.bias is None:
        return weight, None
    bias = check_floats(joint.bias, "joint.bias", "V", (1,), shapes="(V,)")
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"joint.bias: expected shape ({weight.shape[0]},), by joint.weight, got {bias.shape}"
        )
    return weight, bias


def _check_outputs(encoder_out: object, predictor_out: object, weight: Array) -> tuple[Array, Array, bool]:
    """(B, T, H) and (B, U+1, H), and whether the input was one utterance."""
    encoder = check_floats(encoder_out, "encoder_out", "T, H")
    predictor = check_floats(predictor_out, "predictor_out", "U+1, H")
    unbatched, hidden = encoder.ndim == 2, weight.shape[1]
    axes = "(U+1, H)" if unbatched else "(B, U+1, H)"
    if predictor.dtype != encoder.dtype:
        raise TypeError(
            f"predictor_out: expected the dtype of encoder_out, {encoder.dtype}, got {predictor.dtype}"
        )
    if encoder.shape[-1] != hidden:
        raise ValueError(
            f"encoder_out: expected a last axis of {hidden}, by joint.weight, got shape {encoder.shape}"
        )
    fits = predictor.ndim == encoder.ndim and predictor.shape[-1] == hidden and predictor.shape[-2] > 0
    if not fits or predictor.shape[:-2] != encoder.shape[:-2]:
        raise ValueError(
            f"predictor_out: expected shape {axes} with U+1 of at least 1, by encoder_out of shape {encoder.shape}, "
            f"got shape {predictor.shape}"
        )
    return (encoder[None], predictor[None], True) if unbatched else (encoder, predictor, False)
