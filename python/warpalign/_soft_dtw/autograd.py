"""Autograd of the raw operators.

The gradients of every pair's value come from the same call as the value: a loss is one number per pair, so that
backward only scales them; how that is differentiated again is second_order.py's part. Nothing is taken for a constant that
is none, but in compiled graphs: torch.compile has no double backward, and depending on the graph it says so or takes the
first derivatives for constants, for torch's own functions too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.torch_internals import is_forward_mode, is_second_order, is_transforming
from warpalign._core.transforms import (
    Dim,
    apply,
    folded,
    is_batched,
    is_traced,
    needs_graph,
    no_derivative,
    only_wanted,
    scaled,
    scaled_in_place,
    unfold,
)
from warpalign._soft_dtw import ops
from warpalign._soft_dtw.second_order import CostGradient, CostJvp, SeriesGradient, SeriesJvp
from warpalign._soft_dtw.settings import Settings, as_keywords


class _SubsequenceGradient(torch.autograd.Function):
    """Gradients times grad_value[b]; the inputs, on which they depend, only carry the graph on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        factor: Tensor, grad_x: Tensor, grad_y: Tensor, wanted: tuple[bool, bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        return scaled(factor, (grad_x, grad_y), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of soft_dtw_subsequence")


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
        keywords = as_keywords(settings)
        if not (gammas is None and x_mask is None and y_mask is None and cost_kind == 0):
            keywords |= {
                "gammas": gammas,
                "needs_grad_gamma": needs[2],
                "cost_kind": cost_kind,
                "x_mask": x_mask,
                "y_mask": y_mask,
            }
        if needs_alignment:
            result: tuple[Tensor, ...] = ops.alignment(
                x, y, x_lengths, y_lengths, gamma, needs[0], needs[1], **keywords
            )
            return result
        result = ops.series(x, y, x_lengths, y_lengths, gamma, needs[0], needs[1], **keywords)
        return *result, x.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tensors, rest = inputs[:7], inputs[7:]
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.rest = rest
        if is_traced():
            ctx.gradients = None
            ctx.save_for_backward(*tensors, *output[1:4])
        else:
            ctx.gradients = output[1:4]
            ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint allows no more
        tensors, traced = saved[:7], saved[7:]
        gamma, needs, _, cost_kind, settings = ctx.rest
        wanted = ctx.needs_input_grad[:3]
        none = (None,) * (len(ctx.needs_input_grad) - 3)
        grads, ctx.gradients = traced or ctx.gradients, None
        if not grads:  # a second backward through the same graph
            with torch.no_grad():
                arguments = (*tensors, gamma, needs, False, cost_kind, settings)
                grads = _Series.forward(*arguments)[1:4]
        if needs_graph():
            arguments = (grad_value, *grads, *tensors, wanted, gamma, cost_kind, settings)
            return *only_wanted(wanted, apply(SeriesGradient, *arguments)), *none
        if traced or is_batched(grad_value):
            return *only_wanted(wanted, scaled(grad_value, grads, wanted)), *none
        # Nobody else has these gradients: scaled where they are, a step holds them once.
        return *scaled_in_place(grad_value, grads, wanted), *none

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
        given = (x, y, gammas, x_lengths, y_lengths, x_mask, y_mask)
        tensors = folded(given, in_dims[:7], size, strided=2)
        # Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted.
        needs = (
            needs[0] or x.requires_grad,
            needs[1] or y.requires_grad,
            needs[2] or (gammas is not None and gammas.requires_grad),
        )
        function = _forward_mode_of(_Series)
        result = apply(function, *tensors, gamma, needs, needs_alignment, cost_kind, settings)
        return unfold(result, size)


class _SeriesForwardMode(_Series):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Series.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:7])

    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, y: Tensor | None, gammas: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if gammas is not None:
            raise no_derivative("derivatives of soft-DTW by gamma in forward mode")
        gamma, _, _, cost_kind, settings = ctx.rest
        tensors = ctx.saved_tensors
        arguments = (*tensors[:2], x, y, *tensors[2:], gamma, (False, False), cost_kind, settings)
        return apply(SeriesJvp, *arguments)[0], None, None, None, None


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
        keywords = as_keywords(settings)
        if gammas is not None:
            keywords |= {"gammas": gammas, "needs_grad_gamma": needs[1]}
        result: tuple[Tensor, ...] = ops.cost_matrix(cost, n_lengths, m_lengths, gamma, needs[0], **keywords)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*inputs[:4], *output[1:])
        ctx.rest = inputs[4:]

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint allows no more
        tensors, grads = saved[:4], saved[4:]
        gamma, _, settings = ctx.rest
        wanted = ctx.needs_input_grad[:2]
        if needs_graph():
            gradients = apply(CostGradient, grad_value, *grads, *tensors, wanted, gamma, settings)
        else:
            gradients = scaled(grad_value, grads, wanted)
        return *only_wanted(wanted, gradients), *(None,) * (len(ctx.needs_input_grad) - 2)

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
        tensors = folded((cost, gammas, n_lengths, m_lengths), in_dims[:4], size, strided=1)
        needs = (
            needs[0] or cost.requires_grad,
            needs[1] or (gammas is not None and gammas.requires_grad),
        )
        return unfold(apply(_forward_mode_of(_Cost), *tensors, gamma, needs, settings), size)


class _CostForwardMode(_Cost):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Cost.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:4])

    @staticmethod
    def jvp(ctx: Any, cost: Tensor | None, gammas: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if gammas is not None:
            raise no_derivative("derivatives of soft-DTW by gamma in forward mode")
        gamma, _, settings = ctx.rest
        tensors = ctx.saved_tensors
        value, _ = apply(CostJvp, tensors[0], cost, *tensors[1:], gamma, False, settings)
        return value, None, None


def _forward_mode_of(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The function to apply, the one with a rule for forward mode where that is needed."""
    if torch.compiler.is_compiling():
        if is_second_order():  # it would take tangents, and the gradient's derivative, for 0
            raise no_derivative("second derivatives and forward mode of soft-DTW within torch.compile")
        return function
    if not is_forward_mode():
        return function
    return _SeriesForwardMode if function is _Series else _CostForwardMode


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
        result: tuple[Tensor, ...] = ops.subsequences(
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
        wanted = ctx.needs_input_grad[:2]
        if needs_graph():
            gradients = apply(_SubsequenceGradient, grad_value, *grads, wanted, x, y)
        else:
            gradients = scaled(grad_value, (*grads,), wanted)
        return *only_wanted(wanted, gradients), *(None,) * (len(ctx.needs_input_grad) - 2)

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
        tensors = folded((x, y, x_lengths, y_lengths), in_dims[:4], size, strided=2)
        needs = (needs[0] or x.requires_grad, needs[1] or y.requires_grad)
        return unfold(apply(_Subsequence, *tensors, gamma, needs, *rest), size)


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
    run = _Series.forward if _is_plain(any(needs)) else partial(apply, _forward_mode_of(_Series))
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
    run = _Cost.forward if _is_plain(any(needs)) else partial(apply, _forward_mode_of(_Cost))
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
    run = _Subsequence.forward if _is_plain(any(needs)) else partial(apply, _Subsequence)
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
    return not (needs_grad or is_transforming() or is_forward_mode())
