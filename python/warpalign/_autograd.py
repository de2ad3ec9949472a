"""Autograd of the raw operators.

The gradients of every pair's value come from the same call as the value: a loss is one number per pair, so that
backward only scales them. First derivatives only: a second differentiation raises instead of taking the saved gradients
for constants. Compiled graphs are the exception: torch.compile has no double backward, and depending on the graph it says
so or takes the first derivatives for constants, for torch's own functions too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpalign import _ops
from warpalign._ops import Settings

Dim = int | None


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """function.apply, and at every eager call less than half of its time.

    Function.apply binds its arguments to the signature of forward before it does what is called here, which only
    torch.func transforms and torch.compile need.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]


def _keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands; a NamedTuple or
    variable arguments it does not."""
    return dict(zip(Settings._fields, settings, strict=True))


class _Scale(torch.autograd.Function):
    """gradient[b] * factor[b]; inputs (through which the gradient depends on them) only carry the graph on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(factor: Tensor, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient * factor.view(-1, 1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("warpalign: second derivatives of soft-DTW are not available")


def _scaled(factor: Tensor, gradient: Tensor, *inputs: Tensor) -> Any:
    # Without a graph there is nothing to guard; in a compiled one the guard would be traced away.
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return gradient * factor.view(-1, 1, 1)
    return _apply(_Scale, factor, gradient, *inputs)


def _front(tensor: Tensor | None, dim: Dim, size: int) -> Tensor | None:
    """The vmapped axis in front, expanded where the tensor has none, and folded into the batch."""
    if tensor is None:
        return None
    tensor = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
    return tensor.flatten(0, 1)


def _front_lengths(lengths: Tensor | None, dim: Dim, size: int) -> Tensor | None:
    """As _front; contiguous, as the operators want lengths: folding one length into many only repeats it by stride 0."""
    folded = _front(lengths, dim, size)
    return None if folded is None else folded.contiguous()


def _unfold(tensors: tuple[Tensor, ...], size: int) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """Batches folded by _front apart again; what was not asked for stays empty."""
    apart = tuple(t.unflatten(0, (size, -1)) if t.numel() or t.dim() > 1 else t for t in tensors)
    return apart, tuple(0 if a is not t else None for a, t in zip(apart, tensors, strict=True))


class _Series(torch.autograd.Function):
    """(value, grad_x, grad_y, alignment) of series; without alignment the last one is empty."""

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gamma: float,
        needs_grad_x: bool,
        needs_grad_y: bool,
        needs_alignment: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        keywords = _keywords(settings)
        if needs_alignment:
            result: tuple[Tensor, ...] = _ops.alignment(
                x, y, x_lengths, y_lengths, gamma, needs_grad_x, needs_grad_y, **keywords
            )
            return result
        result = _ops.series(x, y, x_lengths, y_lengths, gamma, needs_grad_x, needs_grad_y, **keywords)
        return *result, x.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y = inputs[:2]
        _, grad_x, grad_y, alignment = output
        ctx.mark_non_differentiable(grad_x, grad_y, alignment)
        ctx.save_for_backward(x, y, grad_x, grad_y)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, y, grad_x, grad_y = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad[:2]
        return (
            _scaled(grad_value, grad_x, x, y) if needs_x else None,
            _scaled(grad_value, grad_y, x, y) if needs_y else None,
            *(None,) * (len(ctx.needs_input_grad) - 2),
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gamma: float,
        needs_grad_x: bool,
        needs_grad_y: bool,
        needs_alignment: bool,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip((x, y), in_dims[:2], strict=True)),
            *(_front_lengths(t, d, size) for t, d in zip((x_lengths, y_lengths), in_dims[2:4], strict=True)),
        )
        # Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted.
        needs_grad_x = needs_grad_x or x.requires_grad
        needs_grad_y = needs_grad_y or y.requires_grad
        result = _apply(_Series, *folded, gamma, needs_grad_x, needs_grad_y, needs_alignment, settings)
        return _unfold(result, size)


class _Cost(torch.autograd.Function):
    """(value, alignment) of cost matrices; the alignment is the gradient."""

    @staticmethod
    def forward(
        cost: Tensor,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        gamma: float,
        needs_grad: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = _ops.cost_matrix(
            cost, n_lengths, m_lengths, gamma, needs_grad, **_keywords(settings)
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        cost, alignment = ctx.saved_tensors
        return _scaled(grad_value, alignment, cost), *(None,) * (len(ctx.needs_input_grad) - 1)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        cost: Tensor,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        gamma: float,
        needs_grad: bool,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            _front(cost, in_dims[0], size),
            *(_front_lengths(t, d, size) for t, d in zip((n_lengths, m_lengths), in_dims[1:3], strict=True)),
        )
        return _unfold(_apply(_Cost, *folded, gamma, needs_grad or cost.requires_grad, settings), size)


def series(
    x: Tensor,
    y: Tensor,
    x_lengths: Tensor | None,
    y_lengths: Tensor | None,
    gamma: float,
    with_alignment: bool,
    settings: Settings,
) -> tuple[Tensor, Tensor]:
    """Value and alignment (empty if not wanted) of batches that the operators take as they are."""
    x, y = _traceable(x), _traceable(y)
    needs_x, needs_y = _needs_grad(x), _needs_grad(y)
    run = _Series.forward if _is_plain(needs_x or needs_y) else partial(_apply, _Series)
    value, _, _, alignment = run(
        x, y, x_lengths, y_lengths, gamma, needs_x, needs_y, with_alignment, tuple(settings)
    )
    return value, alignment


def cost_matrix(
    cost: Tensor, n_lengths: Tensor | None, m_lengths: Tensor | None, gamma: float, settings: Settings
) -> Tensor:
    """Value of cost matrices."""
    cost = _traceable(cost)
    needs = _needs_grad(cost)
    run = _Cost.forward if _is_plain(needs) else partial(_apply, _Cost)
    value: Tensor = run(cost, n_lengths, m_lengths, gamma, needs, tuple(settings))[0]
    return value


def _traceable(tensor: Tensor) -> Tensor:
    """While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right.

    Without the view the compiled gradient would silently be wrong.
    """
    return tensor.view_as(tensor) if torch.compiler.is_compiling() else tensor


def _needs_grad(tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


def _is_plain(needs_grad: bool) -> bool:
    """Neither autograd nor a torch.func transform has anything to see: the operator alone, at a third of the time."""
    return not (needs_grad or torch._C._are_functorch_transforms_active())
