"""Second order: gradients that can be differentiated, and the directional derivatives that it takes.

Vector-Jacobian products of gradients are Hessian-vector products, because the Hessian is symmetric: one call of the
operators' forward mode over reverse mode, from the inputs alone. Third derivatives, and second ones by gamma or of hard DTW,
raise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import (
    Dim,
    along_batch,
    apply,
    by_name,
    folded,
    mark_unwanted,
    no_derivative,
    of_inputs,
    only_wanted,
    scaled,
    split,
    unfold,
)
from warpalign._soft_dtw import ops
from warpalign._soft_dtw.inputs import Costs, Pairs
from warpalign._soft_dtw.settings import Settings, as_keywords

_BY_GAMMA = "second derivatives of soft-DTW by gamma"


def check_second_order(gammas: Tensor | None, settings: tuple[Any, ...]) -> None:
    if gammas is None and Settings(*settings).gamma == 0:
        raise no_derivative("second derivatives of hard DTW (gamma = 0)")


class _Jvp(torch.autograd.Function):
    """What has no derivative of its own."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("third derivatives of soft-DTW, and those of its forward mode,")


class SeriesJvp(_Jvp):
    """Derivatives of (value, grad_x, grad_y) along tangents of x and y; None for a tangent: 0."""

    @staticmethod
    def forward(
        x_tangent: Tensor | None,
        y_tangent: Tensor | None,
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gammas: Tensor | None,
        needs: tuple[bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        check_second_order(gammas, settings)
        needs_x, needs_y = needs
        gamma, keywords = as_keywords(settings)
        result: tuple[Tensor, ...] = ops.series_jvp(
            x,
            y,
            x_tangent,
            y_tangent,
            x_lengths,
            y_lengths,
            gamma,
            needs_x,
            needs_y,
            x_mask=x_mask,
            y_mask=y_mask,
            gammas=gammas,
            **keywords,
        )
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(SeriesJvp, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


class _PairGradients(NamedTuple):
    """The gradients of the values, and what they are scaled by."""

    grad_value: Tensor
    grad_x: Tensor
    grad_y: Tensor
    grad_gamma: Tensor


class SeriesGradient(torch.autograd.Function):
    """The gradients of the values, which are there already, times grad_value[b], as a function of x and y."""

    @staticmethod
    def forward(
        grad_value: Tensor,
        grad_x: Tensor,
        grad_y: Tensor,
        grad_gamma: Tensor,
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gammas: Tensor | None,
        wanted: tuple[bool, bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        return scaled(grad_value, (grad_x, grad_y, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        known, rest = split(_PairGradients, inputs)
        pairs, (ctx.wanted, ctx.settings) = split(Pairs, rest)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(known.grad_value, *pairs)
        ctx.save_for_forward(*known, *pairs)
        mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, along_x: Tensor | None, along_y: Tensor | None, along_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        of_known, rest = split(_PairGradients, ctx.needs_input_grad)
        of, _ = split(Pairs, rest)
        if of.gammas or along_gamma is not None:
            raise no_derivative(_BY_GAMMA)
        if along_x is None and along_y is None:
            return of_inputs(ctx)
        grad_value, *tensors = ctx.saved_tensors
        needs = (of.x, of.y)
        value, *bent = apply(SeriesJvp, along_x, along_y, *tensors, needs, ctx.settings)
        x, y = only_wanted(needs, scaled(grad_value, (*bent,), needs))
        by_value = by_name(_PairGradients, grad_value=value if of_known.grad_value else None)
        return of_inputs(ctx, *by_value, *by_name(Pairs, x=x, y=y))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        of_known, rest = split(_PairGradients, tangents)
        along, _ = split(Pairs, rest)
        wants_x, wants_y, wants_gamma = ctx.wanted
        moves = along.x is not None or along.y is not None
        if along.gammas is not None or (wants_gamma and moves):
            raise no_derivative(_BY_GAMMA)
        known, pairs = split(_PairGradients, ctx.saved_tensors)
        grad_value, *gradients = known
        results: tuple[Tensor, ...] = tuple(g.new_zeros(g.shape) for g in gradients)
        if of_known.grad_value is not None:
            results = scaled(of_known.grad_value, (*gradients,), ctx.wanted)
        if moves:
            needs = (wants_x, wants_y)
            _, *bent = apply(SeriesJvp, along.x, along.y, *pairs, needs, ctx.settings)
            *by_series, by_gamma = results
            added = zip(by_series, scaled(grad_value, (*bent,), needs), needs, strict=True)
            results = (*(a + b if want else a for a, b, want in added), by_gamma)
        return only_wanted(ctx.wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(SeriesGradient, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


class CostJvp(_Jvp):
    """Derivatives of (value, alignment) along a tangent of the costs."""

    @staticmethod
    def forward(
        tangent: Tensor,
        cost: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gammas: Tensor | None,
        needs_grad: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        check_second_order(gammas, settings)
        gamma, keywords = as_keywords(settings)
        result: tuple[Tensor, ...] = ops.cost_matrix_jvp(
            cost, tangent, x_lengths, y_lengths, gamma, needs_grad, gammas=gammas, **keywords
        )
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(CostJvp, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


class _CostGradients(NamedTuple):
    """The gradients of the values, and what they are scaled by."""

    grad_value: Tensor
    alignment: Tensor
    grad_gamma: Tensor


class CostGradient(torch.autograd.Function):
    """The alignment, and the gradient by gamma, times grad_value[b], as a function of the costs."""

    @staticmethod
    def forward(
        grad_value: Tensor,
        alignment: Tensor,
        grad_gamma: Tensor,
        cost: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gammas: Tensor | None,
        wanted: tuple[bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        return scaled(grad_value, (alignment, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        known, rest = split(_CostGradients, inputs)
        costs, (ctx.wanted, ctx.settings) = split(Costs, rest)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(known.grad_value, *costs)
        ctx.save_for_forward(*known, *costs)
        mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, along_alignment: Tensor | None, along_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        of_known, rest = split(_CostGradients, ctx.needs_input_grad)
        of, _ = split(Costs, rest)
        if of.gammas or along_gamma is not None:
            raise no_derivative(_BY_GAMMA)
        if along_alignment is None:
            return of_inputs(ctx)
        grad_value, *tensors = ctx.saved_tensors
        value, bent = apply(CostJvp, along_alignment, *tensors, of.cost, ctx.settings)
        (cost,) = only_wanted((of.cost,), scaled(grad_value, (bent,), (of.cost,)))
        by_value = by_name(_CostGradients, grad_value=value if of_known.grad_value else None)
        return of_inputs(ctx, *by_value, *by_name(Costs, cost=cost))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        of_known, rest = split(_CostGradients, tangents)
        along, _ = split(Costs, rest)
        wants_alignment, wants_gamma = ctx.wanted
        if along.gammas is not None or (wants_gamma and along.cost is not None):
            raise no_derivative(_BY_GAMMA)
        known, costs = split(_CostGradients, ctx.saved_tensors)
        grad_value, *gradients = known
        by_cost, by_gamma = (g.new_zeros(g.shape) for g in gradients)
        if of_known.grad_value is not None:
            by_cost, by_gamma = scaled(of_known.grad_value, (*gradients,), ctx.wanted)
        if along.cost is not None and wants_alignment:
            _, bent = apply(CostJvp, along.cost, *costs, True, ctx.settings)
            by_cost = by_cost + bent * along_batch(grad_value, bent)
        return only_wanted(ctx.wanted, (by_cost, by_gamma))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(CostGradient, *folded(inputs, in_dims, info.batch_size)), info.batch_size)
