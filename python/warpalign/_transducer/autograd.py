"""Autograd of the raw operators.

The first operator returns the losses and what their gradients need; the second one makes the gradients, each logit's
once, with its upstream factor. The gradients are not differentiated further.
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
from warpalign._core.torch_internals import is_forward_mode, is_transforming
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
from warpalign._transducer import ops
from warpalign._transducer.settings import Settings, as_keywords


class Inputs(NamedTuple):
    """What the operators take, as they take it."""

    logits: Tensor
    """(B, T, U+1, V), or packed (N, V)."""
    duration_logits: Tensor | None
    targets: Tensor
    """(B, U) or (sum U_b,), int32."""
    logit_lengths: Tensor | None
    target_lengths: Tensor | None
    without_durations: Tensor | None
    """(B,), bool."""


_COUNT = len(Inputs._fields)


def _are_joined(left: Tensor, right: Tensor | None) -> bool:
    """Whether both are parts of one tensor, right behind left on the last axis."""
    return (
        right is not None
        and left.dtype == right.dtype
        and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        and left.stride() == right.stride()
        and left.stride(-2) == left.shape[-1] + right.shape[-1]
        and right.storage_offset() == left.storage_offset() + left.shape[-1]
    )


class _Parts(torch.autograd.Function):
    """A tensor's first columns, and the rest of them. Gradients that are parts of one tensor are not copied together."""

    @staticmethod
    def forward(joined: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        return joined[..., :columns], joined[..., columns:]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        left, right = grads
        if torch.is_grad_enabled() or not _are_joined(left, right):
            return torch.cat((left, right), -1), None
        shape = (*left.shape[:-1], left.shape[-1] + right.shape[-1])
        return left.as_strided(shape, left.stride()), None


def parts(joined: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The first columns and the rest, views."""
    if torch.compiler.is_compiling() or is_transforming() or is_forward_mode():
        return joined[..., :columns], joined[..., columns:]
    result: tuple[Tensor, Tensor] = apply(_Parts, joined, columns)
    return result


class _Gradient(torch.autograd.Function):
    """(gradient by logits, by duration logits); the latter is empty without them."""

    @staticmethod
    def forward(
        grad_loss: Tensor,
        saved: Tensor,
        logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        without_durations: Tensor | None,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        inputs = (logits, duration_logits, targets, logit_lengths, target_lengths, without_durations)
        result: tuple[Tensor, Tensor] = ops.gradient(*inputs, saved, grad_loss, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of the transducer losses")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return vmap_gradient(
            _Gradient, "the transducer losses", fold_inputs, info.batch_size, in_dims, arguments
        )


class _Loss(torch.autograd.Function):
    """(loss, saved)."""

    named = "the transducer losses"

    @staticmethod
    def forward(
        logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        without_durations: Tensor | None,
        needs_grad: bool,
        in_place: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        inputs = (logits, duration_logits, targets, logit_lengths, target_lengths, without_durations)
        result: tuple[Tensor, Tensor] = ops.loss(*inputs, needs_grad, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        set_up(ctx, inputs, output, _COUNT)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * (_COUNT + 1)
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            both = zip(ctx.saved_tensors[:2], ctx.needs_input_grad[:2], strict=True)
            return *(torch.zeros_like(tensor) if wanted else None for tensor, wanted in both), *none
        check_in_place(ctx)
        *inputs, saved = ctx.saved_tensors
        if ctx.in_place:

            def write(given: Tensors) -> None:
                ops.gradient_in_place(*given, saved, grad_loss, **as_keywords(ctx.settings))

            return *write_in_place(ctx, write, tuple(inputs), 2), *none
        if not may_write_in_place(grad_loss):
            grads = apply(_Gradient, grad_loss, saved, *inputs, ctx.settings)
        elif not torch.compiler.is_compiling() and _are_joined(inputs[0], inputs[1]):
            joined = ops.gradient_joined(*inputs, saved, grad_loss, **as_keywords(ctx.settings))
            grads = joined[..., : inputs[0].shape[-1]], joined[..., inputs[0].shape[-1] :]
        else:
            grads = ops.gradient(*inputs, saved, grad_loss, **as_keywords(ctx.settings))
        by_logits, by_durations = grads
        wanted = ctx.needs_input_grad
        return by_logits if wanted[0] else None, by_durations if wanted[1] else None, *none

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        *inputs, needs_grad, in_place, settings = arguments
        folded = fold_inputs(tuple(inputs), in_dims[:_COUNT], info.batch_size)
        needs_grad = needs_grad or any(t is not None and t.requires_grad for t in inputs[:2])
        loss, saved = apply(_Loss, *folded, needs_grad, in_place, settings)
        apart, dims = unfold((loss,), info.batch_size)
        return (*apart, saved), (*dims, None)


def losses(inputs: Inputs, settings: Settings, in_place: bool) -> Tensor:
    """(B,) losses, differentiable by both logits."""
    logits, durations, *rest = inputs
    logits, durations = traceable(logits), None if durations is None else traceable(durations)
    needs = needs_gradient(logits, durations)
    if runs_alone(needs):
        loss: Tensor = ops.loss(logits, durations, *rest, False, **as_keywords(settings))[0]
    else:
        loss = apply(_Loss, logits, durations, *rest, needs, in_place, tuple(settings))[0]
    return loss
