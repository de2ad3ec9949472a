"""Autograd of CTC's loss with the last layer within it.

The first operator returns the losses and what their gradients need; the second one makes the logits again, and the gradients
that are needed. Gradients are not differentiated further. Under vmap each sample is a call: a weight, and the gradient by
it, belong to one sample.
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
from warpalign._ctc import head_ops


class HeadInputs(NamedTuple):
    """What the operators take, as they take it."""

    encoder: Tensor
    """(B, T, H), contiguous."""
    weight: Tensor
    """(C, H)."""
    bias: Tensor | None
    """(C,)."""
    targets: Tensor
    """(B, U), int32 or int64."""
    encoder_lengths: Tensor | None
    target_lengths: Tensor | None
    label_prior: Tensor | None
    """(C,)."""


class HeadSettings(NamedTuple):
    """What the operators take besides their tensors."""

    workspace_limit: int
    blank: int
    star: int


_COUNT = len(HeadInputs._fields)


def _as_keywords(settings: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(HeadSettings._fields, settings, strict=True))


class _HeadGradient(torch.autograd.Function):
    """Gradients by encoder, weight and bias; those that are not needed are empty."""

    @staticmethod
    def forward(
        grad_loss: Tensor,
        encoder: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        encoder_lengths: Tensor | None,
        target_lengths: Tensor | None,
        loss: Tensor,
        posteriors: Tensor,
        first_labels: Tensor,
        next_labels: Tensor,
        log_sums: Tensor,
        log_sums_of_others: Tensor,
        needs: tuple[bool, ...],
        settings: tuple[int, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs = (encoder, weight, bias, targets, encoder_lengths, target_lengths)
        kept = (loss, posteriors, first_labels, next_labels, log_sums, log_sums_of_others)
        result: tuple[Tensor, Tensor, Tensor] = head_ops.gradient(
            *inputs, *kept, grad_loss, *needs, **_as_keywords(settings)
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of ctc_loss_from_encoder")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        return of_each(_HeadGradient, info.batch_size, in_dims, arguments)


class _HeadLoss(torch.autograd.Function):
    """(loss, and what the gradient is made of)."""

    named = "ctc_loss_from_encoder"

    @staticmethod
    def forward(
        encoder: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        encoder_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        needs_grad: bool,
        settings: tuple[int, ...],
    ) -> tuple[Tensor, ...]:
        inputs = (encoder, weight, bias, targets, encoder_lengths, target_lengths, label_prior)
        result: tuple[Tensor, ...] = head_ops.loss(*inputs, needs_grad, **_as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[: _COUNT - 1], *output)
        ctx.settings = inputs[_COUNT + 1]

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * (_COUNT - 1)
        needs = tuple(ctx.needs_input_grad[:3])
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            given = zip(ctx.saved_tensors[:3], needs, strict=True)
            return *(torch.zeros_like(t) if wanted else None for t, wanted in given), *none
        if may_write_in_place(grad_loss):
            keywords = _as_keywords(ctx.settings)
            grads = head_ops.gradient(*ctx.saved_tensors, grad_loss, *needs, **keywords)
        else:
            grads = apply(_HeadGradient, grad_loss, *ctx.saved_tensors, needs, ctx.settings)
        return *(g if need else None for g, need in zip(grads, needs, strict=True)), *none

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        inputs, (needs_grad, settings) = arguments[:_COUNT], arguments[_COUNT:]
        needs_grad = needs_grad or any(t is not None and t.requires_grad for t in inputs[:3])
        return of_each(_HeadLoss, info.batch_size, in_dims, (*inputs, needs_grad, settings))


def head_losses(inputs: HeadInputs, settings: HeadSettings) -> Tensor:
    """(B,) losses, inf where there is no path; differentiable with respect to encoder, weight and bias."""
    if torch.compiler.is_compiling():
        bias = None if inputs.bias is None else traceable(inputs.bias)
        inputs = inputs._replace(
            encoder=traceable(inputs.encoder), weight=traceable(inputs.weight), bias=bias
        )
    needs = needs_gradient(*inputs[:3])
    if runs_alone(needs):
        loss: Tensor = head_ops.loss(*inputs, False, **_as_keywords(settings))[0]
    else:
        loss = apply(_HeadLoss, *inputs, needs, tuple(settings))[0]
    return loss
