"""Autograd of the raw operators.

The gradients of every problem's value come from the same call as the value, by the envelope theorem. Potentials and
linear are derivatives of the value too (warpalign/sinkhorn.h): their vector-Jacobian products, and those of the
gradients, are one call of sinkhorn_jvp, because second derivatives are symmetric. That call is not differentiated.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.series import widened
from warpalign._core.torch_internals import is_forward_mode, is_second_order
from warpalign._core.transforms import (
    Dim,
    apply,
    by_name,
    folded,
    mark_unwanted,
    needs_gradient,
    needs_graph,
    no_derivative,
    of_inputs,
    only_wanted,
    runs_alone,
    scaled,
    split,
    traceable,
    unfold,
)
from warpalign._transport import ops
from warpalign._transport.settings import Inputs, Settings, as_keywords

DIFFERENTIABLE = Inputs._fields[:6]
_COUNT = len(DIFFERENTIABLE)


class Solution(NamedTuple):
    """What the operator returns. The first four are differentiable."""

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


class Solved(NamedTuple):
    """The tensors of a problem with its solution as f0 and g0, and its shift: what sinkhorn_jvp takes."""

    x: Tensor | None
    y: Tensor | None
    cost: Tensor | None
    a: Tensor | None
    b: Tensor | None
    epsilons: Tensor | None
    x_lengths: Tensor | None
    y_lengths: Tensor | None
    f: Tensor
    g: Tensor
    shift: Tensor


class Tangents(NamedTuple):
    """Directions; None: 0."""

    x: Tensor | None = None
    y: Tensor | None = None
    cost: Tensor | None = None
    a: Tensor | None = None
    b: Tensor | None = None
    epsilons: Tensor | None = None
    log_scale: Tensor | None = None
    f: Tensor | None = None
    g: Tensor | None = None


class Moved(NamedTuple):
    """The derivatives of a solution along tangents."""

    value: Tensor
    linear: Tensor
    f: Tensor
    g: Tensor
    grad_x: Tensor
    grad_y: Tensor
    grad_cost: Tensor
    grad_a: Tensor
    grad_b: Tensor
    grad_epsilon: Tensor

    @property
    def gradients(self) -> tuple[Tensor, ...]:
        return self[4:]


class _Jvp(torch.autograd.Function):
    """Tangents and Solved -> Moved."""

    @staticmethod
    def forward(
        x_tangent: Tensor | None,
        y_tangent: Tensor | None,
        cost_tangent: Tensor | None,
        a_tangent: Tensor | None,
        b_tangent: Tensor | None,
        epsilon_tangent: Tensor | None,
        log_scale_tangent: Tensor | None,
        f_tangent: Tensor | None,
        g_tangent: Tensor | None,
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
        shift: Tensor,
        needs: tuple[bool, bool, bool],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        rows = (a_tangent, b_tangent, epsilon_tangent, log_scale_tangent, f_tangent, g_tangent)
        tangents = (
            x_tangent,
            y_tangent,
            None if cost_tangent is None else widened(cost_tangent),
            *(None if t is None else t.contiguous() for t in rows),
        )
        solved = (x, y, cost, a, b, epsilons, x_lengths, y_lengths, f, g, shift)
        result: tuple[Tensor, ...] = ops.sinkhorn_jvp(*solved, *tangents, *needs, **as_keywords(settings))
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative(
            "third derivatives of sinkhorn's value, and second ones of its potentials and linear,"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(_Jvp, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


def _moved(along: Tangents, solved: Solved, wanted: tuple[bool, ...], settings: tuple[Any, ...]) -> Moved:
    return Moved(*apply(_Jvp, *along, *solved, tuple(wanted[:3]), settings))


class _Gradient(torch.autograd.Function):
    """The gradients of the values, which are there already, times grad_value[b], as a function of the inputs."""

    @staticmethod
    def forward(
        grad_value: Tensor,
        grad_x: Tensor,
        grad_y: Tensor,
        grad_cost: Tensor,
        grad_a: Tensor,
        grad_b: Tensor,
        grad_epsilon: Tensor,
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
        shift: Tensor,
        wanted: tuple[bool, ...],
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        gradients = (grad_x, grad_y, grad_cost, grad_a, grad_b, grad_epsilon)
        return scaled(grad_value, gradients, wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        grad_value, *rest = inputs
        ctx.wanted, ctx.settings = rest[-2:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad_value, *rest[_COUNT:-2])
        ctx.save_for_forward(*inputs[:-2])
        mark_unwanted(ctx, output)

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(t is None for t in along):
            return of_inputs(ctx)
        grad_value, *solved = ctx.saved_tensors
        of_value, *of = ctx.needs_input_grad
        wanted = tuple(of[_COUNT : 2 * _COUNT])
        # Every problem's tangents are scaled by its own upstream factor afterwards: all is linear in them.
        moved = _moved(Tangents(*along), Solved(*solved), wanted, ctx.settings)
        found = only_wanted(wanted, scaled(grad_value, moved.gradients, wanted))
        return of_inputs(ctx, moved.value if of_value else None, *(None,) * _COUNT, *found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        along_value, *rest = tangents
        along = Tangents(*rest[_COUNT : 2 * _COUNT])
        grad_value, *saved = ctx.saved_tensors
        gradients, solved = tuple(saved[:_COUNT]), Solved(*saved[_COUNT:])
        results = tuple(g.new_zeros(g.shape) for g in gradients)
        if along_value is not None:
            results = scaled(along_value, gradients, ctx.wanted)
        if any(t is not None for t in along):
            moved = _moved(along, solved, ctx.wanted, ctx.settings)
            bent = scaled(grad_value, moved.gradients, ctx.wanted)
            results = tuple(
                one + other if want else one
                for one, other, want in zip(results, bent, ctx.wanted, strict=True)
            )
        return only_wanted(ctx.wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return unfold(apply(_Gradient, *folded(inputs, in_dims, info.batch_size)), info.batch_size)


class _Sinkhorn(torch.autograd.Function):
    """Inputs -> Solution."""

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
        given, (_, ctx.settings) = split(Inputs, inputs)
        solution = Solution(*output)
        ctx.mark_non_differentiable(*output[4:])
        ctx.set_materialize_grads(False)  # else zeros for what is not differentiable
        solved = (*given[:8], solution.f, solution.g, solution.shift)
        ctx.save_for_backward(*solution.gradients, *solved)

    @staticmethod
    def backward(
        ctx: Any,
        grad_value: Tensor | None,
        grad_linear: Tensor | None,
        grad_f: Tensor | None,
        grad_g: Tensor | None,
        *_: Any,
    ) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint allows no more
        gradients, solved = saved[:_COUNT], Solved(*saved[_COUNT:])
        wanted = tuple(ctx.needs_input_grad[:_COUNT])
        found: tuple[Tensor | None, ...] = (None,) * _COUNT
        if grad_value is not None:
            if needs_graph():
                of_value = apply(_Gradient, grad_value, *gradients, *solved, wanted, ctx.settings)
            else:
                of_value = scaled(grad_value, gradients, wanted)
            found = only_wanted(wanted, of_value)
        forces = Tangents(log_scale=grad_linear, f=grad_f, g=grad_g)
        if any(t is not None for t in forces):
            moved = only_wanted(wanted, _moved(forces, solved, wanted, ctx.settings).gradients)
            found = tuple(
                other if one is None or other is None else one + other
                for one, other in zip(found, moved, strict=True)
            )
        return of_inputs(ctx, *by_name(Inputs, **dict(zip(DIFFERENTIABLE, found, strict=True))))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        given, _ = split(Inputs, inputs)
        tensors, (needs, settings) = split(Inputs, folded(inputs, in_dims, info.batch_size))
        # Inside grad(vmap(...)) only the tensors under the vmapped ones know that a gradient is wanted.
        wanted = zip(needs, (given.x, given.y, given.cost), strict=True)
        needs = tuple(need or (t is not None and t.requires_grad) for need, t in wanted)
        return unfold(apply(_function(), *tensors, needs, settings), info.batch_size)


class _SinkhornForwardMode(_Sinkhorn):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Sinkhorn.setup_context(ctx, inputs, output)
        given, _ = split(Inputs, inputs)
        solution = Solution(*output)
        ctx.save_for_forward(*given[:8], solution.f, solution.g, solution.shift)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        along = Tangents(*tangents[:_COUNT])
        moved = _moved(along, Solved(*ctx.saved_tensors), (False,) * _COUNT, ctx.settings)
        return moved.value, moved.linear, moved.f, moved.g, *(None,) * 9


def _function() -> type[torch.autograd.Function]:
    """The function to apply, the one with a rule for forward mode where that is needed."""
    if torch.compiler.is_compiling():
        if is_second_order():  # it would take tangents, and the gradient's derivative, for 0
            raise no_derivative("second derivatives and forward mode of sinkhorn within torch.compile")
        return _Sinkhorn
    return _SinkhornForwardMode if is_forward_mode() else _Sinkhorn


def sinkhorn(of: Inputs, settings: Settings) -> Solution:
    """The solution; value, linear, f and g are differentiable in the first six inputs."""
    views = Inputs(*(None if t is None else traceable(t) for t in of))
    of = views._replace(  # what is one tensor stays one
        y=views.x if of.y is of.x else views.y,
        b=views.a if of.b is of.a else views.b,
        y_lengths=views.x_lengths if of.y_lengths is of.x_lengths else views.y_lengths,
    )
    wanted = [needs_gradient(getattr(of, name)) for name in DIFFERENTIABLE]
    run: Any = _Sinkhorn.forward if runs_alone(any(wanted)) else partial(apply, _function())
    return Solution(*run(*of, tuple(wanted[:3]), tuple(settings)))
