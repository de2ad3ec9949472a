"""Autograd of the joint's operators.

The first operator returns the losses and what their gradients need; the second one computes the logits again, and makes
the gradients that are needed. Gradients are not differentiated further. Under vmap each sample is a call: weights, and
the gradients by them, belong to one sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import (
    Dim,
    apply,
    may_write_in_place,
    needs_gradient,
    no_derivative,
    of_each,
    runs_alone,
    traceable,
)
from warpalign._transducer import joint_ops
from warpalign._transducer.settings import Settings


class JointInputs(NamedTuple):
    """What the operators take, as they take it."""

    encoder: Tensor
    """(B, T, H)."""
    predictor: Tensor
    """(B, U+1, H)."""
    weight: Tensor
    """(V + D, H), contiguous."""
    bias: Tensor | None
    """(V + D,), contiguous."""
    targets: Tensor
    """(B, U) or (sum U_b,), int32."""
    encoder_lengths: Tensor | None
    target_lengths: Tensor | None
    without_durations: Tensor | None
    """(B,), bool."""
    seed: Tensor | None
    """(), int64: of dropout."""
    band: Tensor | None = None
    """(B, T), int32, contiguous: the first state of each frame's band."""


_COUNT = len(JointInputs._fields)


class JointSettings(NamedTuple):
    """What the operators take besides their tensors."""

    activation: int
    tdt: bool
    dropout: float
    workspace_limit: int
    precision: int
    """The place in `Precision`."""
    band_states: int
    """The states of a frame in the band; 0 without a band."""
    of_lattice: Settings


def _as_keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    activation, tdt, dropout, workspace_limit, precision, band_states, of_lattice = settings
    keywords = dict(zip(Settings._fields, of_lattice, strict=True))
    del keywords["from_log_probs"], keywords["packed"]
    return {
        "activation": activation,
        "tdt": tdt,
        "dropout": dropout,
        "workspace_limit": workspace_limit,
        "precision": precision,
        "band_states": band_states,
        **keywords,
    }


class _JointGradient(torch.autograd.Function):
    """Gradients by encoder, predictor, weight and bias; those that are not needed are empty."""

    @staticmethod
    def forward(
        grad_loss: Tensor,
        saved: Tensor,
        encoder: Tensor,
        predictor: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        encoder_lengths: Tensor | None,
        target_lengths: Tensor | None,
        without_durations: Tensor | None,
        seed: Tensor | None,
        band: Tensor | None,
        needs: tuple[bool, ...],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        inputs = (
            encoder,
            predictor,
            weight,
            bias,
            targets,
            encoder_lengths,
            target_lengths,
            without_durations,
            seed,
            band,
        )
        result: tuple[Tensor, Tensor, Tensor, Tensor] = joint_ops.gradient(
            *inputs, saved, grad_loss, *needs, **_as_keywords(settings)
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of the transducer losses")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        return of_each(_JointGradient, info.batch_size, in_dims, arguments)


class _JointLoss(torch.autograd.Function):
    """(loss, saved)."""

    named = "the transducer losses"

    @staticmethod
    def forward(
        encoder: Tensor,
        predictor: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        encoder_lengths: Tensor | None,
        target_lengths: Tensor | None,
        without_durations: Tensor | None,
        seed: Tensor | None,
        band: Tensor | None,
        needs_grad: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        inputs = (
            encoder,
            predictor,
            weight,
            bias,
            targets,
            encoder_lengths,
            target_lengths,
            without_durations,
            seed,
            band,
        )
        result: tuple[Tensor, Tensor] = joint_ops.loss(*inputs, needs_grad, **_as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:_COUNT], output[1])
        ctx.settings = inputs[_COUNT + 1]

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * (_COUNT - 2)
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            given = zip(ctx.saved_tensors[:4], ctx.needs_input_grad[:4], strict=True)
            return *(torch.zeros_like(t) if wanted else None for t, wanted in given), *none
        *inputs, saved = ctx.saved_tensors
        needs = tuple(ctx.needs_input_grad[:4])
        if not may_write_in_place(grad_loss):
            grads = apply(_JointGradient, grad_loss, saved, *inputs, needs, ctx.settings)
        else:
            grads = joint_ops.gradient(*inputs, saved, grad_loss, *needs, **_as_keywords(ctx.settings))
        return *(g if need else None for g, need in zip(grads, needs, strict=True)), *none

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        inputs, (needs_grad, settings) = arguments[:_COUNT], arguments[_COUNT:]
        needs_grad = needs_grad or any(t is not None and t.requires_grad for t in inputs[:4])
        return of_each(_JointLoss, info.batch_size, in_dims, (*inputs, needs_grad, settings))


def joint_losses(inputs: JointInputs, settings: JointSettings) -> Tensor:
    """(B,) losses, differentiable by encoder, predictor, weight and bias."""
    plain = (*settings[:-1], tuple(settings.of_lattice))
    if torch.compiler.is_compiling():
        encoder, predictor, weight = map(traceable, inputs[:3])
        bias = None if inputs.bias is None else traceable(inputs.bias)
        inputs = inputs._replace(encoder=encoder, predictor=predictor, weight=weight, bias=bias)
    needs = needs_gradient(*inputs[:4])
    if runs_alone(needs):
        loss: Tensor = joint_ops.loss(*inputs, False, **_as_keywords(plain))[0]
    else:
        loss = apply(_JointLoss, *inputs, needs, plain)[0]
    return loss
