"""Autograd of soft-DTW between a series and the subsequences of another one: first derivatives alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpalign._core.torch_internals import is_forward_mode, is_second_order
from warpalign._core.transforms import (
    Dim,
    apply,
    folded,
    needs_gradient,
    needs_graph,
    no_derivative,
    of_inputs,
    only_wanted,
    runs_alone,
    scaled,
    traceable,
    unfold,
    wanted_below,
)
from warpalign._soft_dtw import ops
from warpalign._soft_dtw.inputs import Pairs
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

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_derivative("second derivatives of soft_dtw_subsequence")


class _Subsequence(torch.autograd.Function):
    """Pairs -> (value, grad_x, grad_y, alignment, end_values) of x sought within y, without masks and gammas."""

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        needs: tuple[bool, bool],
        needs_alignment: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        needs_x, needs_y = needs
        gamma, keywords = as_keywords(settings)
        result: tuple[Tensor, ...] = ops.subsequences(
            x,
            y,
            x_lengths,
            y_lengths,
            gamma,
            needs_x,
            needs_y,
            needs_alignment=needs_alignment,
            **keywords,
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, *_ = inputs
        _, grad_x, grad_y, alignment, end_values = output
        ctx.mark_non_differentiable(grad_x, grad_y, alignment, end_values)
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(x, y, grad_x, grad_y)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return of_inputs(ctx)
        x, y, *gradients = ctx.saved_tensors
        needs_x, needs_y, *_ = ctx.needs_input_grad
        wanted = (needs_x, needs_y)
        if needs_graph():
            found = apply(_SubsequenceGradient, grad_value, *gradients, wanted, x, y)
        else:
            found = scaled(grad_value, gradients, wanted)
        return of_inputs(ctx, *only_wanted(wanted, found))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        x, y, *_ = inputs
        *tensors, needs, needs_alignment, settings = folded(inputs, in_dims, info.batch_size)
        needs = wanted_below(needs, x, y)
        found = apply(_function(), *tensors, needs, needs_alignment, settings)
        return unfold(found, info.batch_size)


class _SubsequenceForwardMode(_Subsequence):
    """Refuses tangents by name. torch.compile refuses to see a function with jvp."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_derivative("forward-mode derivatives of soft_dtw_subsequence")


def _function() -> type[torch.autograd.Function]:
    if torch.compiler.is_compiling():
        if is_second_order():  # it would take tangents, and the gradient's derivative, for 0
            raise no_derivative(
                "second derivatives and forward mode of soft_dtw_subsequence within torch.compile"
            )
        return _Subsequence
    return _SubsequenceForwardMode if is_forward_mode() else _Subsequence


def subsequence(
    of: Pairs, gamma: float, cost_kind: int, step_penalty: float, with_alignment: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Value, alignment (empty if not wanted) and the values of all ends of x sought within y."""
    x, y = traceable(of.x), traceable(of.y)
    settings = Settings(gamma=gamma, cost_kind=cost_kind, step_penalty=step_penalty)
    needs = (needs_gradient(x), needs_gradient(y))
    run = _Subsequence.forward if runs_alone(any(needs)) else partial(apply, _function())
    value, _, _, alignment, ends = run(
        x, y, of.x_lengths, of.y_lengths, needs, with_alignment, tuple(settings)
    )
    return value, alignment, ends
