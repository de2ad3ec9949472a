"""Autograd of the raw operators.

The gradients of every pair's value come from the same call as the value: a loss is one number per pair, so that
backward only scales them. First derivatives only: a second differentiation raises instead of taking the saved gradients
for constants. Compiled graphs are the exception: torch.compile has no double backward, and depending on the graph it says
so or takes the first derivatives for constants, for torch's own functions too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

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
    if _is_traced():
        return function.apply(*arguments)
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]


def _is_traced() -> bool:
    """Under torch.compile or a torch.func transform, where only saved tensors may be kept between forward and backward."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def _is_batched(tensor: Tensor) -> bool:
    """A backward for many grad_outputs at once (is_grads_batched, or vmap): then nothing can be written in place."""
    batched: bool = _is_traced() or torch._C._functorch.is_legacy_batchedtensor(tensor)
    return batched


def _keywords(settings: tuple[Any, ...]) -> dict[str, Any]:
    """Settings go through Function.apply as a plain tuple, which torch.compile of vmap understands; a NamedTuple or
    variable arguments it does not."""
    return dict(zip(Settings._fields, settings, strict=True))


def _along_batch(factor: Tensor, like: Tensor) -> Tensor:
    return factor.view(-1, *(1,) * (like.dim() - 1))


class _Scale(torch.autograd.Function):
    """gradient[b] * factor[b]; inputs (through which the gradient depends on them) only carry the graph on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(factor: Tensor, gradient: Tensor, *inputs: Tensor) -> Tensor:
        return gradient * _along_batch(factor, gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("warpalign: second derivatives of soft-DTW are not available")


def _scaled(factor: Tensor, gradient: Tensor, *inputs: Tensor) -> Any:
    # Without a graph there is nothing to guard; in a compiled one the guard would be traced away.
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return gradient * _along_batch(factor, gradient)
    return _apply(_Scale, factor, gradient, *inputs)


def _front(tensor: Tensor | None, dim: Dim, size: int) -> Tensor | None:
    """The vmapped axis in front, expanded where the tensor has none, and folded into the batch."""
    if tensor is None:
        return None
    tensor = tensor.movedim(dim, 0) if dim is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
    return tensor.flatten(0, 1)


def _front_contiguous(tensor: Tensor | None, dim: Dim, size: int) -> Tensor | None:
    """As _front; contiguous, as the operators want all but series: folding one into many only repeats it by stride 0."""
    folded = _front(tensor, dim, size)
    return None if folded is None else folded.contiguous()


def _unfold(tensors: tuple[Tensor, ...], size: int) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
    """Batches folded by _front apart again; what was not asked for stays empty."""
    apart = tuple(t.unflatten(0, (size, -1)) if t.numel() or t.dim() > 1 else t for t in tensors)
    return apart, tuple(0 if a is not t else None for a, t in zip(apart, tensors, strict=True))


class _Series(torch.autograd.Function):
    """(value, grad_x, grad_y, grad_gamma, alignment) of series; without alignment the last one is empty."""

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        gammas: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool, bool],
        needs_alignment: bool,
        cost_kind: int,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        keywords = _keywords(settings)
        if not (gammas is None and x_mask is None and y_mask is None and cost_kind == 0):
            keywords |= {
                "gammas": gammas,
                "needs_grad_gamma": needs[2],
                "cost_kind": cost_kind,
                "x_mask": x_mask,
                "y_mask": y_mask,
            }
        if needs_alignment:
            result: tuple[Tensor, ...] = _ops.alignment(
                x, y, x_lengths, y_lengths, gamma, needs[0], needs[1], **keywords
            )
            return result
        result = _ops.series(x, y, x_lengths, y_lengths, gamma, needs[0], needs[1], **keywords)
        return *result, x.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tensors, rest = inputs[:7], inputs[7:]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        if _is_traced():
            ctx.gradients = None
            ctx.save_for_backward(*tensors, *output[1:4])
        else:
            ctx.gradients = output[1:4]
            ctx.save_for_backward(*tensors)
            ctx.rest = rest

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        tensors, traced = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        needed = ctx.needs_input_grad[:3]
        inputs = [t for t in tensors[:3] if t is not None]
        none = (None,) * (len(ctx.needs_input_grad) - 3)
        grads, ctx.gradients = traced or ctx.gradients, None
        if not grads:  # a second backward through the same graph
            with torch.no_grad():
                gamma, needs, _, cost_kind, settings = ctx.rest
                arguments = (*tensors, gamma, needs, False, cost_kind, settings)
                grads = _Series.forward(*arguments)[1:4]
        if not (traced or torch.is_grad_enabled() or _is_batched(grad_value)):
            # Nobody else has these gradients: scaled where they are, a step holds them once.
            scaled = (
                grad.mul_(_along_batch(grad_value, grad)) if wanted else None
                for grad, wanted in zip(grads, needed, strict=True)
            )
            return *scaled, *none
        return *(
            _scaled(grad_value, grad, *inputs) if wanted else None
            for grad, wanted in zip(grads, needed, strict=True)
        ), *none

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        x: Tensor,
        y: Tensor,
        gammas: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool, bool],
        needs_alignment: bool,
        cost_kind: int,
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        rest = (gammas, x_lengths, y_lengths, x_mask, y_mask)
        folded = (
            *(_front(t, d, size) for t, d in zip((x, y), in_dims[:2], strict=True)),
            *(_front_contiguous(t, d, size) for t, d in zip(rest, in_dims[2:7], strict=True)),
        )
        # Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted.
        needs = (
            needs[0] or x.requires_grad,
            needs[1] or y.requires_grad,
            needs[2] or (gammas is not None and gammas.requires_grad),
        )
        result = _apply(_Series, *folded, gamma, needs, needs_alignment, cost_kind, settings)
        return _unfold(result, size)


class _Cost(torch.autograd.Function):
    """(value, alignment, grad_gamma) of cost matrices; the alignment is the gradient."""

    @staticmethod
    def forward(
        cost: Tensor,
        gammas: Tensor | None,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        keywords = _keywords(settings)
        if gammas is not None:
            keywords |= {"gammas": gammas, "needs_grad_gamma": needs[1]}
        result: tuple[Tensor, ...] = _ops.cost_matrix(cost, n_lengths, m_lengths, gamma, needs[0], **keywords)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:2], *output[1:])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        cost, gammas, *grads = ctx.saved_tensors
        inputs = (cost,) if gammas is None else (cost, gammas)
        return (
            *(
                _scaled(grad_value, grad, *inputs) if needed else None
                for grad, needed in zip(grads, ctx.needs_input_grad[:2], strict=True)
            ),
            *(None,) * (len(ctx.needs_input_grad) - 2),
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Dim, ...],
        cost: Tensor,
        gammas: Tensor | None,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        rest = (gammas, n_lengths, m_lengths)
        folded = (
            _front(cost, in_dims[0], size),
            *(_front_contiguous(t, d, size) for t, d in zip(rest, in_dims[1:4], strict=True)),
        )
        needs = (
            needs[0] or cost.requires_grad,
            needs[1] or (gammas is not None and gammas.requires_grad),
        )
        return _unfold(_apply(_Cost, *folded, gamma, needs, settings), size)


class _Subsequence(torch.autograd.Function):
    """(value, grad_x, grad_y, alignment, end_values) of x sought within y."""

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool],
        needs_alignment: bool,
        cost_kind: int,
        step_penalty: float,
    ) -> tuple[Tensor, ...]:
        result: tuple[Tensor, ...] = _ops.subsequences(
            x,
            y,
            x_lengths,
            y_lengths,
            gamma,
            *needs,
            step_penalty=step_penalty,
            cost_kind=cost_kind,
            needs_alignment=needs_alignment,
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:2], *output[1:3])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        x, y, *grads = ctx.saved_tensors
        return (
            *(
                _scaled(grad_value, grad, x, y) if needed else None
                for grad, needed in zip(grads, ctx.needs_input_grad[:2], strict=True)
            ),
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
        needs: tuple[bool, bool],
        *rest: Any,
    ) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip((x, y), in_dims[:2], strict=True)),
            *(
                _front_contiguous(t, d, size)
                for t, d in zip((x_lengths, y_lengths), in_dims[2:4], strict=True)
            ),
        )
        needs = (needs[0] or x.requires_grad, needs[1] or y.requires_grad)
        return _unfold(_apply(_Subsequence, *folded, gamma, needs, *rest), size)


class Series(NamedTuple):
    """What the operators of series take, as they take it."""

    x: Tensor
    y: Tensor
    x_lengths: Tensor | None
    y_lengths: Tensor | None
    x_mask: Tensor | None
    y_mask: Tensor | None


def series(
    of: Series, gamma: float | Tensor, cost_kind: int, settings: Settings, with_alignment: bool
) -> tuple[Tensor, Tensor]:
    """Value and alignment (empty if not wanted); gamma is a number, or (B,) in the series' dtype."""
    x, y = _traceable(of.x), _traceable(of.y)
    rest = of.x_lengths, of.y_lengths, of.x_mask, of.y_mask
    gamma, gammas = _split(gamma)
    needs = (_needs_grad(x), _needs_grad(y), _needs_grad(gammas))
    run = _Series.forward if _is_plain(any(needs)) else partial(_apply, _Series)
    value, *_, alignment = run(x, y, gammas, *rest, gamma, needs, with_alignment, cost_kind, tuple(settings))
    return value, alignment


def cost_matrix(
    cost: Tensor,
    n_lengths: Tensor | None,
    m_lengths: Tensor | None,
    gamma: float | Tensor,
    settings: Settings,
    with_alignment: bool = False,
) -> tuple[Tensor, Tensor]:
    """Value and alignment (empty if neither it nor a gradient is wanted) of cost matrices."""
    cost = _traceable(cost)
    gamma, gammas = _split(gamma)
    needs = (_needs_grad(cost), _needs_grad(gammas))
    run = _Cost.forward if _is_plain(any(needs)) else partial(_apply, _Cost)
    value, alignment, _ = run(
        cost, gammas, n_lengths, m_lengths, gamma, (needs[0] or with_alignment, needs[1]), tuple(settings)
    )
    return value, alignment


def subsequence(
    of: Series, gamma: float, cost_kind: int, step_penalty: float, with_alignment: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Value, alignment (empty if not wanted) and the values of all ends of x sought within y."""
    x, y = _traceable(of.x), _traceable(of.y)
    needs = (_needs_grad(x), _needs_grad(y))
    run = _Subsequence.forward if _is_plain(any(needs)) else partial(_apply, _Subsequence)
    value, _, _, alignment, ends = run(
        x, y, of.x_lengths, of.y_lengths, gamma, needs, with_alignment, cost_kind, step_penalty
    )
    return value, alignment, ends


def _split(gamma: float | Tensor) -> tuple[float, Tensor | None]:
    """The operators' gamma, and their gammas, which take its place."""
    return (1.0, _traceable(gamma)) if isinstance(gamma, Tensor) else (gamma, None)


def _traceable(tensor: Tensor) -> Tensor:
    """While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right.

    Without the view the compiled gradient would silently be wrong.
    """
    return tensor.view_as(tensor) if torch.compiler.is_compiling() else tensor


def _needs_grad(tensor: Tensor | None) -> bool:
    return tensor is not None and torch.is_grad_enabled() and tensor.requires_grad


def _is_plain(needs_grad: bool) -> bool:
    """Neither autograd nor a torch.func transform has anything to see: the operator alone, at a third of the time."""
    return not (needs_grad or torch._C._are_functorch_transforms_active())
