"""Autograd of the raw operators.

The first operator returns the losses and what their gradients need; the second one makes the gradient, each logit's once,
with its upstream factor. Gradients are not differentiated further.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.torch_internals import is_forward_mode, is_transforming
from warpalign._core.transforms import Dim, apply, may_write_in_place, no_derivative, unfold
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
    ) -> Tensor:
        inputs = (logits, targets, logit_lengths, target_lengths, label_prior)
        result: Tensor = ops.gradient(*inputs, saved, grad_loss, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of ctc_loss")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Dim, ...], grad_loss: Tensor, saved: Tensor, *rest: Any
    ) -> tuple[Tensor, Dim]:
        size = info.batch_size
        factors = grad_loss.movedim(in_dims[0], 0) if in_dims[0] is not None else grad_loss.expand(size, -1)
        if in_dims[1] is not None:
            raise no_derivative("gradients of ctc_loss under a vmap that does not hold its forward")
        if any(dim is not None for dim in in_dims[2 : 2 + _COUNT]):
            # _Loss.vmap has folded the same inputs: what it has saved is of one batch.
            inputs = fold_inputs(rest[:_COUNT], in_dims[2 : 2 + _COUNT], size)
            gradient = apply(_Gradient, factors.flatten(), saved, *inputs, rest[_COUNT])
            return gradient.unflatten(0, (size, -1)), 0
        # Many upstream factors for one forward: a call for each.
        return torch.stack([apply(_Gradient, factor, saved, *rest) for factor in factors]), 0


class _Loss(torch.autograd.Function):
    """(loss, saved)."""

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
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:_COUNT], output[1])
        ctx.in_place, ctx.settings = inputs[_COUNT + 1 :]
        ctx.is_used = False

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        none = (None,) * (_COUNT + 2)
        if grad_loss is None:  # an operation after the loss has no gradient to hand on
            return torch.zeros_like(ctx.saved_tensors[0]), *none
        if ctx.in_place and ctx.is_used:  # before torch sees that the logits have changed
            raise RuntimeError(
                "inplace_grad: expected one backward pass, as the gradient took the logits' memory, got a second one"
            )
        if ctx.in_place and torch.is_grad_enabled():
            raise RuntimeError("inplace_grad: expected a backward pass without create_graph, got one with it")
        *inputs, saved = ctx.saved_tensors
        if ctx.in_place:
            ctx.is_used = True
            with torch.no_grad():
                given = [None if t is None else t.detach() for t in inputs]
                ops.gradient_in_place(*given, saved, grad_loss, **as_keywords(ctx.settings))
            torch.autograd.graph.increment_version(inputs[0])
            return given[0], *none
        if may_write_in_place(grad_loss):
            return ops.gradient(*inputs, saved, grad_loss, **as_keywords(ctx.settings)), *none
        return apply(_Gradient, grad_loss, saved, *inputs, ctx.settings), *none

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        logits: Tensor,
        targets: Tensor,
        logit_lengths: Tensor | None,
        target_lengths: Tensor | None,
        label_prior: Tensor | None,
        needs_grad: bool,
        in_place: bool,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        given = (logits, targets, logit_lengths, target_lengths, label_prior)
        folded = fold_inputs(given, in_dims[:_COUNT], size)
        loss, saved = apply(_Loss, *folded, needs_grad or logits.requires_grad, in_place, settings)
        apart, dims = unfold((loss,), size)
        return (*apart, saved), (*dims, None)


def fold_inputs(
    tensors: tuple[Tensor | None, ...], in_dims: tuple[Dim, ...], size: int
) -> tuple[Tensor | None, ...]:
    """Each tensor's vmapped axis in front and folded into the batch. Logits that have none are repeated by stride 0."""
    *batched, prior = tensors
    if in_dims[_COUNT - 1] is not None:
        raise no_derivative("priors of labels under a vmap over them")

    def fold(tensor: Tensor | None, dim: Dim) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        batch = front.flatten(0, 1)
        return batch if tensor.is_floating_point() else batch.contiguous()

    return *(fold(tensor, dim) for tensor, dim in zip(batched, in_dims[: _COUNT - 1], strict=True)), prior


def losses(inputs: Inputs, settings: Settings, in_place: bool) -> Tensor:
    """(B,) losses, differentiable with respect to the logits."""
    logits, *rest = inputs
    # While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right.
    logits = logits.view_as(logits) if torch.compiler.is_compiling() else logits
    needs = torch.is_grad_enabled() and logits.requires_grad
    if not (needs or is_transforming() or is_forward_mode()):
        # Neither autograd nor a torch.func transform has anything to see: the operator alone.
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
        folded = fold_inputs(given, in_dims[:_COUNT], info.batch_size)
        return unfold(apply(Untracked, *folded, name, settings), info.batch_size)


def untracked(name: str, inputs: Inputs, settings: Settings) -> tuple[Tensor, ...]:
    """What the operator of this name returns. The results are not differentiable."""
    logits, *rest = inputs
    logits = logits.detach()
    if is_transforming() or is_forward_mode():
        result: tuple[Tensor, ...] = apply(Untracked, logits, *rest, name, tuple(settings))
        return result
    result = getattr(ops, name)(logits, *rest, **as_keywords(settings))
    return result
