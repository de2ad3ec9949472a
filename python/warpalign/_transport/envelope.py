"""Values whose first derivatives are known when they are computed (envelope theorem)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import apply, no_derivative


class _Value(torch.autograd.Function):
    """A value (B,) whose gradients with respect to some inputs are there already; they are not differentiated, as the plan would move."""

    @staticmethod
    def forward(value: Tensor, what: str, *gradients_and_inputs: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.what = inputs[1]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        count = len(saved) // 2
        return None, None, *(None,) * count, *apply(_Gradient, grad, ctx.what, *saved)


class _Gradient(torch.autograd.Function):
    """The gradients, times grad[b]. The inputs are here so that a second derivative is refused."""

    @staticmethod
    def forward(grad: Tensor, what: str, *gradients_and_inputs: Tensor) -> tuple[Tensor, ...]:
        gradients = gradients_and_inputs[: len(gradients_and_inputs) // 2]
        return tuple(grad.view(-1, *[1] * (t.dim() - 1)) * t for t in gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.what = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative(f"second derivatives of {ctx.what}")


class _Undifferentiable(torch.autograd.Function):
    """A tensor that depends on inputs, without derivatives with respect to them."""

    @staticmethod
    def forward(tensor: Tensor, what: str, *inputs: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.what = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise no_derivative(f"derivatives of {ctx.what}")


def once_differentiable(value: Tensor, inputs: tuple[Tensor | None, ...], what: str) -> Tensor:
    """The value (B,) with its first derivatives with respect to the inputs (B, ...), computed now.

    Args:
        what: the value, as an error names it.
    """
    wanted = _wanted(inputs)
    if not wanted:
        return value.detach()
    found = torch.autograd.grad(value.sum(), wanted, retain_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
    return apply(_Value, value.detach(), what, *gradients, *wanted)  # type: ignore[no-any-return]


def undifferentiable(tensor: Tensor, inputs: tuple[Tensor | None, ...], what: str) -> Tensor:
    """The tensor, whose backward to the inputs raises NotImplementedError instead of giving no gradient."""
    wanted = _wanted(inputs)
    if not wanted:
        return tensor
    return apply(_Undifferentiable, tensor, what, *wanted)  # type: ignore[no-any-return]


def _wanted(inputs: tuple[Tensor | None, ...]) -> list[Tensor]:
    return [t for t in inputs if t is not None and t.requires_grad and torch.is_grad_enabled()]
