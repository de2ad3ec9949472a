"""What the autograd functions share: how they are applied, and vmapped axes folded into the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from warpalign._core.torch_internals import (
    apply_unbound,
    compiler_is_loaded,
    is_forward_mode,
    is_legacy_batched,
    is_transforming,
)

Dim = int | None
Function = TypeVar("Function", bound=Callable[..., Any])


def not_compiled(function: Function) -> Function:
    """A function that runs eagerly within torch.compile, as what it does depends on values that the compiler does not see.

    torch.compiler.disable imports the compiler, which takes longer than the whole package. So a call disables it, once somebody
    has imported it.
    """

    @functools.wraps(function)
    def eager(*arguments: Any, **keywords: Any) -> Any:
        if not compiler_is_loaded():
            return function(*arguments, **keywords)
        return torch.compiler.disable(function)(*arguments, **keywords)

    return eager  # type: ignore[return-value]


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """function.apply, and at every eager call less than half of its time.

    Function.apply binds its arguments to the signature of forward before it does what is called here, which only
    torch.func transforms and torch.compile need.
    """
    return function.apply(*arguments) if is_traced() else apply_unbound(function, *arguments)


def is_traced() -> bool:
    """Under torch.compile, a torch.func transform or in forward mode: only saved tensors may be kept between forward and
    backward, and nothing be written in place."""
    return torch.compiler.is_compiling() or is_transforming() or is_forward_mode()


def is_batched(tensor: Tensor) -> bool:
    """A backward for many grad_outputs at once (is_grads_batched, or vmap): then nothing can be written in place."""
    return is_traced() or is_legacy_batched(tensor)


def along_batch(factor: Tensor, like: Tensor) -> Tensor:
    return factor.view(-1, *(1,) * (like.dim() - 1))


def scaled(factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> tuple[Tensor, ...]:
    """gradient[b] * factor[b]; empty where it is not wanted."""
    return tuple(
        gradient * along_batch(factor, gradient) if want else gradient.new_empty(0)
        for gradient, want in zip(gradients, wanted, strict=True)
    )


def scaled_in_place(
    factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    return tuple(
        gradient.mul_(along_batch(factor, gradient)) if want else None
        for gradient, want in zip(gradients, wanted, strict=True)
    )


def only_wanted(wanted: tuple[bool, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return tuple(t if want else None for t, want in zip(tensors, wanted, strict=True))


def mark_unwanted(ctx: Any, gradients: tuple[Tensor, ...]) -> None:
    empty = (gradient for gradient, want in zip(gradients, ctx.wanted, strict=True) if not want)
    ctx.mark_non_differentiable(*empty)


def needs_graph() -> bool:
    """Whether a gradient is to be differentiable in its turn; a compiled graph would only trace that away."""
    return (torch.is_grad_enabled() or is_forward_mode()) and not torch.compiler.is_compiling()


def no_derivative(what: str) -> NotImplementedError:
    return NotImplementedError(f"warpalign: {what} are not available")


def folded(
    inputs: tuple[Tensor | None, ...], in_dims: tuple[Dim, ...], size: int, strided: int
) -> tuple[Tensor | None, ...]:
    """Inputs of a vmapped function, each with its vmapped axis in front and folded into the batch.

    One that has no such axis is repeated by stride 0. Only the first `strided` ones (the series) stay so, or otherwise
    strided: the operators want the others contiguous.
    """

    def fold(tensor: Tensor | None, dim: Dim, contiguous: bool) -> Tensor | None:
        if tensor is None:
            return None
        front = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        batch = front.flatten(0, 1)
        return batch.contiguous() if contiguous else batch

    pairs = zip(inputs, in_dims, strict=True)
    return tuple(fold(tensor, dim, k >= strided) for k, (tensor, dim) in enumerate(pairs))


def unfold(tensors: tuple[Tensor, ...], size: int) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """What folded() made one batch apart again; what was not asked for stays empty."""
    apart = tuple(t.unflatten(0, (size, -1)) if t.numel() or t.dim() > 1 else t for t in tensors)
    return apart, tuple(0 if a is not t else None for a, t in zip(apart, tensors, strict=True))
