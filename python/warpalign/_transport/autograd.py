"""Autograd of the raw operator.

The gradients of every problem's value come from the same call as the value, by the envelope theorem. A value is one
number per problem, so backward only scales them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.torch_internals import is_forward_mode, is_transforming
from warpalign._core.transforms import (
    Dim,
    apply,
    by_name,
    folded,
    needs_graph,
    no_derivative,
    of_inputs,
    only_wanted,
    scaled,
    split,
    unfold,
)
from warpalign._transport import ops
from warpalign._transport.settings import Inputs, Settings, as_keywords


class Solution(NamedTuple):
    """What the operator returns."""

    value: Tensor
    linear: Tensor
    f: Tensor
    g: Tensor
    shift: Tensor
    """(B,): lambda, 0 unless transport is partial."""
    iterations: Tensor
    error: Tensor
    grad_x: Tensor
    grad_y: Tensor
    grad_cost: Tensor
    grad_a: Tensor
    grad_b: Tensor
    grad_epsilon: Tensor

    @property
    def gradients(self) -> tuple[Tensor, ...]:
        """Those of the value, in the order of DIFFERENTIABLE."""
        return self[7:]


DIFFERENTIABLE = ("x", "y", "cost", "a", "b", "epsilons")


class _Gradient(torch.autograd.Function):
    """Gradients times grad_value[b]; the inputs, on which they depend, only carry the graph on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        factor: Tensor,
        grad_x: Tensor,
        grad_y: Tensor,
        grad_cost: Tensor,
        grad_a: Tensor,
        grad_b: Tensor,
        grad_epsilon: Tensor,
        wanted: tuple[bool, ...],
        x: Tensor | None,
        y: Tensor | None,
        cost: Tensor | None,
        a: Tensor | None,
        b: Tensor | None,
        epsilons: Tensor | None,
    ) -> tuple[Tensor, ...]:
        return scaled(factor, (grad_x, grad_y, grad_cost, grad_a, grad_b, grad_epsilon), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of sinkhorn")


class _Sinkhorn(torch.autograd.Function):
    """Inputs -> Solution, of which the value has a gradient."""

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
        f0: Tensor | None,
        g0: Tensor | None,
        needs: tuple[bool, bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        tensors = (x, y, cost, a, b, epsilons, x_lengths, y_lengths, f0, g0)
        result: tuple[Tensor, ...] = ops.sinkhorn(*tensors, *needs, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        given, _ = split(Inputs, inputs)
        _, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        gradients = Solution(*output).gradients
        ctx.save_for_backward(*gradients, *given[: len(DIFFERENTIABLE)])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return of_inputs(ctx)
        count = len(DIFFERENTIABLE)
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint allows no more
        gradients, given = saved[:count], saved[count:]
        wanted = tuple(ctx.needs_input_grad[:count])
        if needs_graph():
            found = apply(_Gradient, grad_value, *gradients, wanted, *given)
        else:
            found = scaled(grad_value, gradients, wanted)
        named = dict(zip(DIFFERENTIABLE, only_wanted(wanted, found), strict=True))
        return of_inputs(ctx, *by_name(Inputs, **named))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        given, _ = split(Inputs, inputs)
        tensors, (needs, settings) = split(Inputs, folded(inputs, in_dims, info.batch_size))
        # Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted.
        wanted = zip(needs, (given.x, given.y, given.cost), strict=True)
        needs = tuple(need or (t is not None and t.requires_grad) for need, t in wanted)
        return unfold(apply(_Sinkhorn, *tensors, needs, settings), info.batch_size)


def sinkhorn(of: Inputs, settings: Settings) -> Solution:
    """The solution; its value is differentiable in the first six inputs."""
    of = Inputs(*(None if t is None else _traceable(t) for t in of))
    wanted = [_needs_grad(getattr(of, name)) for name in DIFFERENTIABLE]
    # Neither autograd nor a torch.func transform has anything to see: the operator alone.
    plain = not (any(wanted) or is_transforming() or is_forward_mode())
    run: Any = _Sinkhorn.forward if plain else partial(apply, _Sinkhorn)
    return Solution(*run(*of, tuple(wanted[:3]), tuple(settings)))


def _traceable(tensor: Tensor) -> Tensor:
    """While torch.compile traces torch.func.grad, its input says that it requires no gradient; a view of it tells right."""
    return tensor.view_as(tensor) if torch.compiler.is_compiling() else tensor


def _needs_grad(tensor: Tensor | None) -> bool:
    return tensor is not None and torch.is_grad_enabled() and tensor.requires_grad
