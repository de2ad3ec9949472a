"""Autograd of the raw operators.

The first operator returns the losses and what their gradients need; the second one makes the gradient, each logit's once,
with its upstream factor. Gradients are not differentiated further.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.losses import (
    Tensors,
    check_in_place,
    fold_inputs,
    set_up,
    vmap_gradient,
    write_in_place,
)
from warpalign._core.transforms import (
    Dim,
    apply,
    may_write_in_place,
    needs_gradient,
    no_derivative,
    runs_alone,
    traceable,
    unfold,
)
from warpalign._ctc import ops
from warpalign._ctc.settings import Settings, as_keywords


class Inputs(NamedTuple):
    """What the operators take, as they take it."""

    logits: Tensor
    """(B, T, C)."""
    targets: Tensor
    """(B, U) or (sum U_b,), int32 or int64."""
    logit_lengths: Tensor | None
    target_lengths: Tensor | None
    label_prior: Tensor | None
    """(C,)."""


_COUNT = len(Inputs._fields)


class _Gradient(torch.autograd.Function):
    """(gradient with respect to logits,)."""

    @staticmethod
    def forward(
        grad_loss: Tensor,
        saved: Tensor,
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor]:
        inputs = (logits, targets, logit_lengths, target_lengths, label_prior)
        return (ops.gradient(*inputs, saved, grad_loss, **as_keywords(settings)),)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of ctc_loss")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return vmap_gradient(_Gradient, "ctc_loss", _fold, info.batch_size, in_dims, arguments)


class _Loss(torch.autograd.Function):
    """(loss, saved)."""

    named = "ctc_loss and forward_sum_loss"

    @staticmethod
    def forward(
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        needs_grad: bool,
        in_place: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        inputs = (logits, targets, logit_lengths, target_lengths, label_prior)
        result: tuple[Tensor, Tensor] = ops.loss(*inputs, needs_grad, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        set_up(ctx, inputs, output, _COUNT)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * (_COUNT + 2)
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            return torch.zeros_like(ctx.saved_tensors[0]), *none
        check_in_place(ctx)
        *inputs, saved = ctx.saved_tensors
        keywords = as_keywords(ctx.settings)
        if ctx.in_place:

            def write(given: Tensors) -> None:
                ops.gradient_in_place(*given, saved, grad_loss, **keywords)

            return *write_in_place(ctx, write, tuple(inputs), 1), *none
        if may_write_in_place(grad_loss):
            return ops.gradient(*inputs, saved, grad_loss, **keywords), *none
        return *apply(_Gradient, grad_loss, saved, *inputs, ctx.settings), *none

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        *inputs, needs_grad, in_place, settings = arguments
        folded = _fold(tuple(inputs), in_dims[:_COUNT], info.batch_size)
        loss, saved = apply(_Loss, *folded, needs_grad or inputs[0].requires_grad, in_place, settings)
        apart, dims = unfold((loss,), info.batch_size)
        return (*apart, saved), (*dims, None)


def _fold(tensors: Tensors, in_dims: tuple[Dim, ...], size: int) -> Tensors:
    """As fold_inputs(), with the prior, which all utterances share, as it is."""
    *batched, prior = tensors
    if in_dims[_COUNT - 1] is not None:
        raise no_derivative("priors of labels under a vmap over them")
    return *fold_inputs(tuple(batched), in_dims[: _COUNT - 1], size), prior


def losses(inputs: Inputs, settings: Settings, in_place: bool) -> Tensor:
    """(B,) losses, differentiable with respect to the logits."""
    logits, *rest = inputs
    logits = traceable(logits)
    needs = needs_gradient(logits)
    if runs_alone(needs):
        loss: Tensor = ops.loss(logits, *rest, False, **as_keywords(settings))[0]
    else:
        loss = apply(_Loss, logits, *rest, needs, in_place, tuple(settings))[0]
    return loss


class Untracked(torch.autograd.Function):
    """An operator whose results are not differentiable, for torch.func. name: its attribute in ops."""

    @staticmethod
    def forward(
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        name: str,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        inputs = (logits, targets, logit_lengths, target_lengths, label_prior)
        result: tuple[Tensor, ...] = getattr(ops, name)(*inputs, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * (_COUNT + 2)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        name: str,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        given = (logits, targets, logit_lengths, target_lengths, label_prior)
        folded = _fold(given, in_dims[:_COUNT], info.batch_size)
        return unfold(apply(Untracked, *folded, name, settings), info.batch_size)


def untracked(name: str, inputs: Inputs, settings: Settings) -> tuple[Tensor, ...]:
    """What the operator of this name returns. The results are not differentiable."""
    logits, *rest = inputs
    logits = logits.detach()
    if not runs_alone(False):
        result: tuple[Tensor, ...] = apply(Untracked, logits, *rest, name, tuple(settings))
        return result
    result = getattr(ops, name)(logits, *rest, **as_keywords(settings))
    return result
