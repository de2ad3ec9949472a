"""Second order: gradients that can be differentiated, and the directional derivatives that it takes.

Vector-Jacobian products of gradients are Hessian-vector products, because the Hessian is symmetric: one call of the
operators' forward mode over reverse mode, from the inputs alone. Third derivatives, and second ones by gamma or of hard DTW,
raise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import (
    Dim,
    along_batch,
    apply,
    folded,
    mark_unwanted,
    no_derivative,
    only_wanted,
    scaled,
    unfold,
)
from warpalign._soft_dtw import ops
from warpalign._soft_dtw.settings import as_keywords


def check_second_order(gammas: Tensor | None, gamma: float) -> None:
    if gammas is None and gamma == 0:
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
        x: Tensor,
        y: Tensor,
        x_tangent: Tensor | None,
        y_tangent: Tensor | None,
        gammas: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gamma: float,
        needs: tuple[bool, bool],
        cost_kind: int,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        check_second_order(gammas, gamma)
        result: tuple[Tensor, ...] = ops.series_jvp(
            x,
            y,
            x_tangent,
            y_tangent,
            x_lengths,
            y_lengths,
            gamma,
            *needs,
            **as_keywords(settings),
            gammas=gammas,
            cost_kind=cost_kind,
            x_mask=x_mask,
            y_mask=y_mask,
        )
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        tensors = folded(inputs[:9], in_dims[:9], size, strided=4)
        return unfold(apply(SeriesJvp, *tensors, *inputs[9:]), size)


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
        gammas: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        wanted: tuple[bool, bool, bool],
        gamma: float,
        cost_kind: int,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        return scaled(grad_value, (grad_x, grad_y, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *inputs[4:11])
        ctx.save_for_forward(*inputs[:11])
        ctx.wanted, *ctx.rest = inputs[11:]
        mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, grad_grad_x: Tensor | None, grad_grad_y: Tensor | None, grad_grad_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        needs_value, needs_x, needs_y, needs_gamma = (ctx.needs_input_grad[k] for k in (0, 4, 5, 6))
        if needs_gamma or grad_grad_gamma is not None:
            raise no_derivative("second derivatives of soft-DTW by gamma")
        none = (None,) * len(ctx.needs_input_grad)
        if grad_grad_x is None and grad_grad_y is None:
            return none
        grad_value, x, y, *tensors = ctx.saved_tensors
        gamma, cost_kind, settings = ctx.rest
        value, *gradients = apply(
            SeriesJvp,
            x,
            y,
            grad_grad_x,
            grad_grad_y,
            *tensors,
            gamma,
            (needs_x, needs_y),
            cost_kind,
            settings,
        )
        needs = (needs_x, needs_y)
        by_series = only_wanted(needs, scaled(grad_value, (*gradients,), needs))
        return value if needs_value else None, None, None, None, *by_series, *none[6:]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        if tangents[6] is not None or (ctx.wanted[2] and not (tangents[4] is None and tangents[5] is None)):
            raise no_derivative("second derivatives of soft-DTW by gamma")
        grad_value, grad_x, grad_y, grad_gamma, x, y, *tensors = ctx.saved_tensors
        gamma, cost_kind, settings = ctx.rest
        wanted = ctx.wanted
        results: tuple[Tensor, ...] = tuple(g.new_zeros(g.shape) for g in (grad_x, grad_y, grad_gamma))
        if tangents[0] is not None:
            results = scaled(tangents[0], (grad_x, grad_y, grad_gamma), wanted)
        if tangents[4] is not None or tangents[5] is not None:
            needs = wanted[:2]
            _, *bent = apply(SeriesJvp, x, y, *tangents[4:6], *tensors, gamma, needs, cost_kind, settings)
            added = scaled(grad_value, (*bent,), needs)
            results = (
                *(a + b if want else a for a, b, want in zip(results, added, needs, strict=False)),
                results[2],
            )
        return only_wanted(wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        tensors = folded(inputs[:11], in_dims[:11], size, strided=6)
        return unfold(apply(SeriesGradient, *tensors, *inputs[11:]), size)


class CostJvp(_Jvp):
    """Derivatives of (value, alignment) along a tangent of the costs."""

    @staticmethod
    def forward(
        cost: Tensor,
        tangent: Tensor,
        gammas: Tensor | None,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        gamma: float,
        needs_grad: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        check_second_order(gammas, gamma)
        result: tuple[Tensor, ...] = ops.cost_matrix_jvp(
            cost, tangent, n_lengths, m_lengths, gamma, needs_grad, **as_keywords(settings), gammas=gammas
        )
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        tensors = folded(inputs[:5], in_dims[:5], size, strided=2)
        return unfold(apply(CostJvp, *tensors, *inputs[5:]), size)


class CostGradient(torch.autograd.Function):
    """The alignment, and the gradient by gamma, times grad_value[b], as a function of the costs."""

    @staticmethod
    def forward(
        grad_value: Tensor,
        alignment: Tensor,
        grad_gamma: Tensor,
        cost: Tensor,
        gammas: Tensor | None,
        n_lengths: Tensor | None,
        m_lengths: Tensor | None,
        wanted: tuple[bool, bool],
        gamma: float,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        return scaled(grad_value, (alignment, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *inputs[3:7])
        ctx.save_for_forward(*inputs[:7])
        ctx.wanted, *ctx.rest = inputs[7:]
        mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, grad_alignment: Tensor | None, grad_grad_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        needs_value, needs_cost, needs_gamma = (ctx.needs_input_grad[k] for k in (0, 3, 4))
        if needs_gamma or grad_grad_gamma is not None:
            raise no_derivative("second derivatives of soft-DTW by gamma")
        none = (None,) * len(ctx.needs_input_grad)
        if grad_alignment is None:
            return none
        grad_value, cost, *tensors = ctx.saved_tensors
        gamma, settings = ctx.rest
        value, bent = apply(CostJvp, cost, grad_alignment, *tensors, gamma, needs_cost, settings)
        by_cost = only_wanted((needs_cost,), scaled(grad_value, (bent,), (needs_cost,)))
        return value if needs_value else None, None, None, *by_cost, *none[4:]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        if tangents[4] is not None or (ctx.wanted[1] and tangents[3] is not None):
            raise no_derivative("second derivatives of soft-DTW by gamma")
        grad_value, alignment, grad_gamma, cost, *tensors = ctx.saved_tensors
        gamma, settings = ctx.rest
        results: tuple[Tensor, ...] = tuple(g.new_zeros(g.shape) for g in (alignment, grad_gamma))
        if tangents[0] is not None:
            results = scaled(tangents[0], (alignment, grad_gamma), ctx.wanted)
        if tangents[3] is not None and ctx.wanted[0]:
            _, bent = apply(CostJvp, cost, tangents[3], *tensors, gamma, True, settings)
            results = (results[0] + bent * along_batch(grad_value, bent), results[1])
        return only_wanted(ctx.wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        tensors = folded(inputs[:7], in_dims[:7], size, strided=4)
        return unfold(apply(CostGradient, *tensors, *inputs[7:]), size)
