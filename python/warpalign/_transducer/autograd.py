"""Autograd of the raw operators.

The first operator returns the losses and what their gradients need; the second one makes the gradients, each logit's
once, with its upstream factor. The gradients are not differentiated further.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.torch_internals import is_forward_mode, is_transforming
from warpalign._core.transforms import Dim, apply, may_write_in_place, no_derivative, unfold
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
        info: Any, in_dims: tuple[Dim, ...], grad_loss: Tensor, saved: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        factors = grad_loss.movedim(in_dims[0], 0) if in_dims[0] is not None else grad_loss.expand(size, -1)
        if in_dims[1] is not None:
            raise no_derivative(
                "gradients of the transducer losses under a vmap that does not hold their forward"
            )
        if any(dim is not None for dim in in_dims[2:8]):
            # _Loss.vmap has folded the same inputs: what it has saved is of one batch.
            inputs = fold_inputs(rest[:6], in_dims[2:8], size)
            by_logits, by_durations = apply(_Gradient, factors.flatten(), saved, *inputs, rest[6])
            return unfold((by_logits, by_durations), size)
        # Many upstream factors for one forward: a call for each.
        results = [apply(_Gradient, factor, saved, *rest) for factor in factors]
        return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0, 0)


class _Loss(torch.autograd.Function):
    """(loss, saved)."""

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
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:6], output[1])
        ctx.in_place, ctx.settings = inputs[7:]
        ctx.is_used = False

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * 7
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            both = zip(ctx.saved_tensors[:2], ctx.needs_input_grad[:2], strict=True)
            return *(torch.zeros_like(tensor) if wanted else None for tensor, wanted in both), *none
        if ctx.in_place:
            if ctx.is_used:
                raise RuntimeError(
                    "inplace_grad: expected one backward pass, as the gradient took the logits' memory, got a second one"
                )
            if torch.is_grad_enabled():
                raise RuntimeError(
                    "inplace_grad: expected a backward pass without create_graph, got one with it"
                )
        *inputs, saved = ctx.saved_tensors
        if ctx.in_place:
            ctx.is_used = True
            with torch.no_grad():
                given = [None if t is None else t.detach() for t in inputs]
                ops.gradient_in_place(*given, saved, grad_loss, **as_keywords(ctx.settings))
            for tensor in inputs[:2]:
                if tensor is not None:
                    torch.autograd.graph.increment_version(tensor)
            return given[0], given[1], *none
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
        info: Any,
        in_dims: tuple[Dim, ...],
        logits: Tensor,
        duration_logits: Tensor | None,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        without_durations: Tensor | None,
        needs_grad: bool,
        in_place: bool,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        given = (logits, duration_logits, targets, logit_lengths, target_lengths, without_durations)
        folded = fold_inputs(given, in_dims[:6], size)
        needs_grad = needs_grad or any(t is not None and t.requires_grad for t in (logits, duration_logits))
        loss, saved = apply(_Loss, *folded, needs_grad, in_place, settings)
        apart, dims = unfold((loss,), size)
        return (*apart, saved), (*dims, None)


def fold_inputs(
    tensors: tuple[Tensor | None, ...], in_dims: tuple[Dim, ...], size: int
) -> tuple[Tensor | None, ...]:
    """Each tensor's vmapped axis in front and folded into the batch. Logits that have none are repeated by stride 0."""

    def fold(tensor: Tensor | None, dim: Dim) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        batch = front.flatten(0, 1)
        return batch if tensor.is_floating_point() else batch.contiguous()

    return tuple(fold(tensor, dim) for tensor, dim in zip(tensors, in_dims, strict=True))


def losses(inputs: Inputs, settings: Settings, in_place: bool) -> Tensor:
    """(B,) losses, differentiable by both logits."""
    logits, durations, *rest = inputs
    logits, durations = _traceable(logits), None if durations is None else _traceable(durations)
    needs = any(t is not None and torch.is_grad_enabled() and t.requires_grad for t in (logits, durations))
    if not (needs or is_transforming() or is_forward_mode()):
        # Neither autograd nor a torch.func transform has anything to see: the operator alone.
        loss: Tensor = ops.loss(logits, durations, *rest, False, **as_keywords(settings))[0]
    else:
        loss = apply(_Loss, logits, durations, *rest, needs, in_place, tuple(settings))[0]
    return loss


def _traceable(tensor: Tensor) -> Tensor:
    """While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right."""
    return tensor.view_as(tensor) if torch.compiler.is_compiling() else tensor
