"""Autograd of the raw operators.

The gradients of every pair's value come from the same call as the value. A loss is one number per pair, so backward only
scales them; second_order.py differentiates that again. Nothing is taken for a constant that is none, but in compiled
graphs: torch.compile has no double backward, and depending on the graph it says so or takes the first derivatives for
constants, for torch's own functions too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpalign._core.series import is_half, widened
from warpalign._core.torch_internals import (
    apply_unbound,
    is_forward_mode,
    is_second_order,
)
from warpalign._core.transforms import (
    Dim,
    apply,
    by_name,
    folded,
    is_traced,
    may_write_in_place,
    needs_gradient,
    needs_graph,
    no_derivative,
    of_inputs,
    only_wanted,
    runs_alone,
    scaled,
    scaled_in_place,
    split,
    traceable,
    unfold,
    wanted_below,
)
from warpalign._soft_dtw import ops
from warpalign._soft_dtw.inputs import Costs, Pairs
from warpalign._soft_dtw.second_order import CostGradient, CostJvp, SeriesGradient, SeriesJvp
from warpalign._soft_dtw.settings import Settings, as_keywords


def _run(
    of: Pairs, needs: tuple[bool, bool, bool], with_alignment: bool, settings: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    """(value, grad_x, grad_y, grad_gamma), and the alignment if it is wanted."""
    needs_x, needs_y, needs_gamma = needs
    gamma, keywords = as_keywords(settings)
    if not (of.gammas is None and of.x_mask is None and of.y_mask is None):
        keywords |= {"gammas": of.gammas, "needs_grad_gamma": needs_gamma}
        keywords |= {"x_mask": of.x_mask, "y_mask": of.y_mask}
    operator = ops.alignment if with_alignment else ops.series
    result: tuple[Tensor, ...] = operator(
        of.x, of.y, of.x_lengths, of.y_lengths, gamma, needs_x, needs_y, **keywords
    )
    return result


class _EagerValue(torch.autograd.Function):
    """The value of _Series or _Cost where nothing is traced, at half of the host's time.

    Its context is not set up after forward, and it has no outputs that only a trace must see. `others` has the call's
    tensors, `run(of)` for the value and the gradients by the tensors before, and `differentiate(grad_value, gradients,
    of, wanted)`.
    """

    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor | None, third: Tensor | None, others: Any) -> Tensor:
        of, ctx.run, ctx.differentiate = others
        value: Tensor
        value, *ctx.gradients = ctx.run(of)
        ctx.kind, ctx.wanted, ctx.dtype = type(of), len(ctx.gradients), first.dtype
        ctx.save_for_backward(*of)
        return value

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[: ctx.wanted]
        others = (None,) * (4 - ctx.wanted)
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None and may_write_in_place(grad_value):
            # Nobody else has these gradients: scaled where they are, a step holds them once.
            return *scaled_in_place(grad_value, gradients, wanted, ctx.dtype), *others
        of = ctx.kind(*ctx.saved_tensors)
        if gradients is None:  # a second backward through the same graph
            with torch.no_grad():
                _, *gradients = ctx.run(of)
        return *ctx.differentiate(grad_value, tuple(gradients), of, wanted), *others


class _Series(torch.autograd.Function):
    """Pairs -> (value, grad_x, grad_y, grad_gamma, alignment); without alignment the last one is empty."""

    @staticmethod
    def forward(
        x: Tensor,
        y: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        x_mask: Tensor | None,
        y_mask: Tensor | None,
        gammas: Tensor | None,
        needs: tuple[bool, bool, bool],
        with_alignment: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        of = Pairs(x, y, x_lengths, y_lengths, x_mask, y_mask, gammas)
        result = _run(of, needs, with_alignment, settings)
        return result if with_alignment else (*result, x.new_empty(0))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pairs, (_, _, ctx.settings) = split(Pairs, inputs)
        _, *gradients, alignment = output
        ctx.mark_non_differentiable(*gradients, alignment)
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*pairs, *gradients)  # a trace only knows of tensors that are saved

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return of_inputs(ctx)
        # saved_tensors are read once: torch.utils.checkpoint allows no more.
        pairs, gradients = split(Pairs, ctx.saved_tensors)
        of, _ = split(Pairs, ctx.needs_input_grad)
        wanted = (of.x, of.y, of.gammas)
        grad_x, grad_y, grad_gammas = _gradients(grad_value, gradients, pairs, wanted, ctx.settings)
        return of_inputs(ctx, *by_name(Pairs, x=grad_x, y=grad_y, gammas=grad_gammas))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        given, _ = split(Pairs, inputs)
        pairs, (needs, *rest) = split(Pairs, folded(inputs, in_dims, info.batch_size))
        needs = wanted_below(needs, given.x, given.y, given.gammas)
        return unfold(apply(_forward_mode_of(_Series), *pairs, needs, *rest), info.batch_size)


def _gradients(
    grad_value: Tensor,
    gradients: tuple[Tensor, ...],
    of: Pairs,
    wanted: tuple[bool, ...],
    settings: tuple[Any, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients times grad_value in tensors of their own, with a graph where that is needed."""
    if needs_graph():
        of = _widened(of)  # second derivatives are made in float32
        return only_wanted(wanted, apply(SeriesGradient, grad_value, *gradients, *of, wanted, settings))
    return only_wanted(wanted, scaled(grad_value, gradients, wanted))


class _SeriesForwardMode(_Series):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Series.setup_context(ctx, inputs, output)
        pairs, _ = split(Pairs, inputs)
        ctx.save_for_forward(*pairs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        along, _ = split(Pairs, tangents)
        if along.gammas is not None:
            raise no_derivative("derivatives of soft-DTW by gamma in forward mode")
        pairs, _ = split(Pairs, ctx.saved_tensors)
        value, *_ = apply(SeriesJvp, along.x, along.y, *pairs, (False, False), ctx.settings)
        return value, None, None, None, None


class _Cost(torch.autograd.Function):
    """Costs -> (value, alignment, grad_gamma); the alignment is the gradient."""

    @staticmethod
    def forward(
        cost: Tensor,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        gammas: Tensor | None,
        needs: tuple[bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        needs_cost, needs_gamma = needs
        gamma, keywords = as_keywords(settings)
        if gammas is not None:
            keywords |= {"gammas": gammas, "needs_grad_gamma": needs_gamma}
        result: tuple[Tensor, ...] = ops.cost_matrix(
            cost, x_lengths, y_lengths, gamma, needs_cost, **keywords
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        costs, (_, ctx.settings) = split(Costs, inputs)
        _, alignment, grad_gamma = output
        ctx.mark_non_differentiable(alignment, grad_gamma)
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        ctx.save_for_backward(*costs, alignment, grad_gamma)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return of_inputs(ctx)
        # saved_tensors are read once: torch.utils.checkpoint allows no more.
        costs, gradients = split(Costs, ctx.saved_tensors)
        of, _ = split(Costs, ctx.needs_input_grad)
        wanted = (of.cost, of.gammas)
        grad_cost, grad_gammas = _cost_gradients(grad_value, gradients, costs, wanted, ctx.settings)
        return of_inputs(ctx, *by_name(Costs, cost=grad_cost, gammas=grad_gammas))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        given, _ = split(Costs, inputs)
        costs, (needs, settings) = split(Costs, folded(inputs, in_dims, info.batch_size))
        needs = wanted_below(needs, given.cost, given.gammas)
        return unfold(apply(_forward_mode_of(_Cost), *costs, needs, settings), info.batch_size)


def _run_costs(of: Costs, needs: tuple[bool, bool], settings: tuple[Any, ...]) -> tuple[Tensor, ...]:
    return _Cost.forward(*of, needs, settings)


def _cost_gradients(
    grad_value: Tensor,
    gradients: tuple[Tensor, ...],
    of: Costs,
    wanted: tuple[bool, ...],
    settings: tuple[Any, ...],
) -> tuple[Tensor | None, ...]:
    """As _gradients()."""
    if needs_graph():
        return only_wanted(wanted, apply(CostGradient, grad_value, *gradients, *of, wanted, settings))
    return only_wanted(wanted, scaled(grad_value, gradients, wanted))


class _CostForwardMode(_Cost):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Cost.setup_context(ctx, inputs, output)
        costs, _ = split(Costs, inputs)
        ctx.save_for_forward(*costs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        along, _ = split(Costs, tangents)
        if along.gammas is not None:
            raise no_derivative("derivatives of soft-DTW by gamma in forward mode")
        costs, _ = split(Costs, ctx.saved_tensors)
        value, _ = apply(CostJvp, along.cost, *costs, False, ctx.settings)
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


def series(of: Pairs, gamma: float | Tensor, cost_kind: int, settings: Settings) -> Tensor:
    """Values; gamma is a number, or (B,) in the series' dtype. Series of half types have values in float32."""
    if is_half(of.x) and is_traced():
        of = _widened(of)
    of, needs, given = _prepared(of, gamma, cost_kind, settings)
    value: Tensor
    if runs_alone(any(needs)):
        value, *_ = _run(of, needs, False, given)
    elif is_traced():
        value, *_ = apply(_forward_mode_of(_Series), *of, needs, False, given)
    else:
        run = partial(_run, needs=needs, with_alignment=False, settings=given)
        value = apply_unbound(
            _EagerValue, of.x, of.y, of.gammas, (of, run, partial(_gradients, settings=given))
        )
    return value


def series_and_alignment(
    of: Pairs, gamma: float | Tensor, cost_kind: int, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Values and alignments (B, N, M)."""
    of, needs, given = _prepared(of, gamma, cost_kind, settings)
    if runs_alone(any(needs)):
        value, *_, alignment = _run(of, needs, True, given)
    else:
        value, *_, alignment = apply(_forward_mode_of(_Series), *of, needs, True, given)
    return value, alignment


def _prepared(
    of: Pairs, gamma: float | Tensor, cost_kind: int, settings: Settings
) -> tuple[Pairs, tuple[bool, bool, bool], tuple[Any, ...]]:
    """The pairs with their gammas, which of the gradients are wanted, and all settings."""
    gamma, gammas = _split_gamma(gamma)
    if gammas is not None or torch.compiler.is_compiling():
        of = of._replace(x=traceable(of.x), y=traceable(of.y), gammas=gammas)
    if gamma != settings.gamma or cost_kind != settings.cost_kind:
        settings = settings._replace(gamma=gamma, cost_kind=cost_kind)
    return of, (needs_gradient(of.x), needs_gradient(of.y), needs_gradient(gammas)), tuple(settings)


def cost_matrix(
    of: Costs, gamma: float | Tensor, settings: Settings, with_alignment: bool = False
) -> tuple[Tensor, Tensor]:
    """Value and alignment (empty if neither it nor a gradient is wanted) of cost matrices."""
    gamma, gammas = _split_gamma(gamma)
    of = of._replace(cost=traceable(of.cost), gammas=gammas)
    needs_cost, needs_gamma = needs_gradient(of.cost), needs_gradient(gammas)
    is_plain = runs_alone(needs_cost or needs_gamma)
    needs, given = (needs_cost or with_alignment, needs_gamma), tuple(settings._replace(gamma=gamma))
    if not (is_plain or with_alignment or is_traced()):
        calls = partial(_run_costs, needs=needs, settings=given), partial(_cost_gradients, settings=given)
        value = apply_unbound(_EagerValue, of.cost, gammas, None, (of, *calls))
        return value, value.new_empty(0)
    run = _Cost.forward if is_plain else partial(apply, _forward_mode_of(_Cost))
    value, alignment, _ = run(*of, needs, given)
    return value, alignment


def _widened(of: Pairs) -> Pairs:
    return of._replace(x=widened(of.x), y=widened(of.y))


def _split_gamma(gamma: float | Tensor) -> tuple[float, Tensor | None]:
    """The operators' gamma, and their gammas, which take its place."""
    return (1.0, traceable(gamma)) if isinstance(gamma, Tensor) else (gamma, None)
