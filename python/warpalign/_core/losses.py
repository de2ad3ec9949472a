"""Shared by the autograd functions of losses that overwrite their logits with the gradient on request (inplace_grad).

Such a loss has two functions: one returns (loss, saved), the other makes the gradients from saved and the upstream factors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import Dim, apply, no_derivative, unfold

Tensors = tuple[Tensor | None, ...]
Fold = Callable[[Tensors, tuple[Dim, ...], int], Tensors]


def fold_inputs(tensors: Tensors, in_dims: tuple[Dim, ...], size: int) -> Tensors:
    """Each tensor's vmapped axis in front and folded into the batch. Logits that have none are repeated by stride 0."""

    def fold(tensor: Tensor | None, dim: Dim) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        batch = front.flatten(0, 1)
        return batch if tensor.is_floating_point() else batch.contiguous()

    return tuple(fold(tensor, dim) for tensor, dim in zip(tensors, in_dims, strict=True))


def set_up(ctx: Any, inputs: Any, output: Any, count: int) -> None:
    """setup_context of the loss. inputs: `count` tensors, needs_grad, in_place and the settings."""
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
    ctx.save_for_backward(*inputs[:count], output[1])
    ctx.in_place, ctx.settings = inputs[count + 1 :]
    ctx.is_used = False


def check_in_place(ctx: Any) -> None:
    """Raises, before torch sees that the logits have changed, if backward must not overwrite them."""
    if ctx.in_place and ctx.is_used:
        raise RuntimeError(
            "inplace_grad: expected one backward pass, as the gradient took the logits' memory, got a second one"
        )
    if ctx.in_place and torch.is_grad_enabled():
        raise RuntimeError("inplace_grad: expected a backward pass without create_graph, got one with it")


def write_in_place(ctx: Any, write: Callable[[Tensors], None], inputs: Tensors, logits: int) -> Tensors:
    """Overwrites the logits, the first `logits` of inputs, with their gradients by write(inputs), and returns these."""
    ctx.is_used = True
    with torch.no_grad():
        given = tuple(None if tensor is None else tensor.detach() for tensor in inputs)
        write(given)
    for tensor in inputs[:logits]:
        if tensor is not None:
            torch.autograd.graph.increment_version(tensor)
    return given[:logits]


def vmap_gradient(
    function: type[torch.autograd.Function],
    of: str,
    fold: Fold,
    size: int,
    in_dims: tuple[Dim, ...],
    arguments: tuple[Any, ...],
) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """vmap of the gradient's function, which returns a tuple.

    arguments: grad_loss, saved, the loss's tensors and its settings; of: the loss, for the error.
    """
    grad_loss, saved, *inputs, settings = arguments
    factors = grad_loss.movedim(in_dims[0], 0) if in_dims[0] is not None else grad_loss.expand(size, -1)
    if in_dims[1] is not None:
        raise no_derivative(f"gradients of {of} under a vmap that does not hold the forward pass")
    if any(dim is not None for dim in in_dims[2:-1]):
        # The vmap of the loss has folded the same inputs: what it has saved is of one batch.
        folded = fold(tuple(inputs), in_dims[2:-1], size)
        return unfold(apply(function, factors.flatten(), saved, *folded, settings), size)
    # Many upstream factors for one forward pass: a call for each.
    results = [apply(function, factor, saved, *inputs, settings) for factor in factors]
    stacked = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)
