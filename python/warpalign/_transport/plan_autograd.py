"""Autograd of what is read off a plan: linear in the plan, whose entries depend on potentials and inputs.

The potentials' own dependence on the inputs is sinkhorn's (autograd.py): both together are the implicit gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import (
    Dim,
    along_batch,
    apply,
    folded,
    needs_gradient,
    no_derivative,
    only_wanted,
    runs_alone,
    unfold,
)
from warpalign._transport import plan_ops
from warpalign._transport.settings import Inputs, Settings, as_keywords

_COUNT = len(Inputs._fields)


class _Gradient(torch.autograd.Function):
    """The derivatives of sum W P by all inputs; W is w, or u vᵀ."""

    @staticmethod
    def forward(
        w: Tensor | None,
        u: Tensor | None,
        v: Tensor | None,
        x: Tensor | None,
        y: Tensor | None,
        cost: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        epsilons: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        f: Tensor,
        g: Tensor,
        needs: tuple[bool, bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        tensors = (x, y, cost, a, b, epsilons, x_lengths, y_lengths, f, g)
        result: tuple[Tensor, ...] = plan_ops.gradient(*tensors, w, u, v, *needs, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of products and entries of a transport plan")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(_Gradient, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


def _of_inputs(
    wanted: tuple[bool, ...],
    factors: tuple[Tensor | None, Tensor | None, Tensor | None],
    tensors: tuple[Tensor | None, ...],
    settings: tuple[Any, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of Inputs, of those that are wanted."""
    if not any(wanted):
        return (None,) * _COUNT
    rows, columns, *found = apply(_Gradient, *factors, *tensors, wanted[:3], settings)
    epsilons = Inputs(*tensors).epsilons
    if epsilons is None:
        epsilon = Settings(*settings).epsilon
        by_f, by_g = rows / epsilon, columns / epsilon
    else:
        by_f, by_g = (t / along_batch(epsilons, t) for t in (rows, columns))
    by_x, by_y, by_cost, by_a, by_b, by_epsilon = found
    gradients = (by_x, by_y, by_cost, by_a, by_b, by_epsilon, rows, columns, by_f, by_g)
    return only_wanted(wanted, gradients)


class _Product(torch.autograd.Function):
    """P v, or Pᵀ v: (B, length, K)."""

    named = "products and entries of a transport plan"

    @staticmethod
    def forward(
        v: Tensor,
        x: Tensor | None,
        y: Tensor | None,
        cost: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        epsilons: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        f: Tensor,
        g: Tensor,
        transposed: bool,
        settings: tuple[Any, ...],
    ) -> Tensor:
        tensors = (x, y, cost, a, b, epsilons, x_lengths, y_lengths, f, g)
        result: Tensor = plan_ops.product(*tensors, v, transposed, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.transposed, ctx.settings = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, *tensors = ctx.saved_tensors
        of_v, *of = ctx.needs_input_grad[: _COUNT + 1]
        by_v = apply(_Product, grad, *tensors, not ctx.transposed, ctx.settings) if of_v else None
        factors = (None, v, grad) if ctx.transposed else (None, grad, v)
        return by_v, *_of_inputs(tuple(of), factors, tuple(tensors), ctx.settings), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, Dim]:
        (result,), (dim,) = unfold(
            (apply(_Product, *folded(inputs, in_dims, info.batch_size)),), info.batch_size
        )
        return result, dim


class _Dense(torch.autograd.Function):
    """The plan (B, N, M)."""

    named = "products and entries of a transport plan"

    @staticmethod
    def forward(
        x: Tensor | None,
        y: Tensor | None,
        cost: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        epsilons: Tensor | None,
        x_lengths: Tensor | None,
        y_lengths: Tensor | None,
        f: Tensor,
        g: Tensor,
        settings: tuple[Any, ...],
    ) -> Tensor:
        tensors = (x, y, cost, a, b, epsilons, x_lengths, y_lengths, f, g)
        result: Tensor = plan_ops.dense(*tensors, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.settings = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = tuple(ctx.needs_input_grad[:_COUNT])
        return *_of_inputs(wanted, (grad, None, None), ctx.saved_tensors, ctx.settings), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, Dim]:
        (result,), (dim,) = unfold(
            (apply(_Dense, *folded(inputs, in_dims, info.batch_size)),), info.batch_size
        )
        return result, dim


def product(v: Tensor, of: Inputs, transposed: bool, settings: Settings) -> Tensor:
    """P v (B, N, K) for v (B, M, K), or transposed; differentiable in v and in the plan's tensors."""
    run = _Product.forward if runs_alone(needs_gradient(v, *of)) else partial(apply, _Product)
    result: Tensor = run(v, *of, transposed, tuple(settings))  # type: ignore[arg-type]
    return result


def dense(of: Inputs, settings: Settings) -> Tensor:
    run = _Dense.forward if runs_alone(needs_gradient(*of)) else partial(apply, _Dense)
    result: Tensor = run(*of, tuple(settings))  # type: ignore[arg-type]
    return result
