"""Autograd of the raw operators.

The gradients of every pair's value come from the same call as the value: a loss is one number per pair, so that
backward only scales them. Where that is differentiated again, and in forward mode, the operators' directional derivatives
follow: second derivatives are vector-Jacobian products of gradients, and as the Hessian is symmetric those are Hessian-vector
products, computed from the inputs alone. Third derivatives, and second ones by gamma, of hard DTW and of subsequences raise.
So nothing is ever taken for a constant that is none, but in compiled graphs: torch.compile has no double backward, and
depending on the graph it says so or takes the first derivatives for constants, for torch's own functions too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

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
    """Under torch.compile, a torch.func transform or in forward mode: only saved tensors may be kept between forward and
    backward, and nothing be written in place."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _is_forward_mode()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_second_order() -> bool:
    """Within forward mode, or torch.func.grad of torch.func.grad."""
    stack = torch._C._functorch.get_interpreter_stack() or []
    grads = [level for level in stack if level.key() == torch._C._functorch.TransformType.Grad]
    return forward_ad._current_level >= 0 or len(grads) > 1


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _is_forward_mode() -> bool:
    """Inputs may carry tangents, of torch.func.jvp or of torch.autograd.forward_ad."""
    return forward_ad._current_level >= 0


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


def _scaled(factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]) -> tuple[Tensor, ...]:
    """gradient[b] * factor[b]; empty where it is not wanted."""
    return tuple(
        gradient * _along_batch(factor, gradient) if want else gradient.new_empty(0)
        for gradient, want in zip(gradients, wanted, strict=True)
    )


def _scaled_in_place(
    factor: Tensor, gradients: tuple[Tensor, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    return tuple(
        gradient.mul_(_along_batch(factor, gradient)) if want else None
        for gradient, want in zip(gradients, wanted, strict=True)
    )


def _only(wanted: tuple[bool, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return tuple(t if want else None for t, want in zip(tensors, wanted, strict=True))


def _mark_unwanted(ctx: Any, gradients: tuple[Tensor, ...]) -> None:
    empty = (gradient for gradient, want in zip(gradients, ctx.wanted, strict=True) if not want)
    ctx.mark_non_differentiable(*empty)


def _needs_graph() -> bool:
    """Whether a gradient is to be differentiable in its turn; a compiled graph would only trace that away."""
    return (torch.is_grad_enabled() or _is_forward_mode()) and not torch.compiler.is_compiling()


def _no_derivative(what: str) -> NotImplementedError:
    return NotImplementedError(f"warpalign: {what} are not available")


def _check_second_order(table: Tensor, gammas: Tensor | None, gamma: float) -> None:
    if table.is_cuda:
        raise _no_derivative("second derivatives of soft-DTW on CUDA")
    if gammas is None and gamma == 0:
        raise _no_derivative("second derivatives of hard DTW (gamma = 0)")


class _SubsequenceGradient(torch.autograd.Function):
    """Gradients times grad_value[b]; the inputs, on which they depend, only carry the graph on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        factor: Tensor, grad_x: Tensor, grad_y: Tensor, wanted: tuple[bool, bool], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        return _scaled(factor, (grad_x, grad_y), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _no_derivative("second derivatives of soft_dtw_subsequence")


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


class _SeriesJvp(torch.autograd.Function):
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
        _check_second_order(x, gammas, gamma)
        result: tuple[Tensor, ...] = _ops.series_jvp(
            x,
            y,
            x_tangent,
            y_tangent,
            x_lengths,
            y_lengths,
            gamma,
            *needs,
            **_keywords(settings),
            gammas=gammas,
            cost_kind=cost_kind,
            x_mask=x_mask,
            y_mask=y_mask,
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _no_derivative("third derivatives of soft-DTW, and those of its forward mode,")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip(inputs[:4], in_dims[:4], strict=True)),
            *(_front_contiguous(t, d, size) for t, d in zip(inputs[4:9], in_dims[4:9], strict=True)),
        )
        return _unfold(_apply(_SeriesJvp, *folded, *inputs[9:]), size)


class _SeriesGradient(torch.autograd.Function):
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
        return _scaled(grad_value, (grad_x, grad_y, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *inputs[4:11])
        ctx.save_for_forward(*inputs[:11])
        ctx.wanted, *ctx.rest = inputs[11:]
        _mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, grad_grad_x: Tensor | None, grad_grad_y: Tensor | None, grad_grad_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        needs_value, needs_x, needs_y, needs_gamma = (ctx.needs_input_grad[k] for k in (0, 4, 5, 6))
        if needs_gamma or grad_grad_gamma is not None:
            raise _no_derivative("second derivatives of soft-DTW by gamma")
        none = (None,) * len(ctx.needs_input_grad)
        if grad_grad_x is None and grad_grad_y is None:
            return none
        grad_value, x, y, *tensors = ctx.saved_tensors
        gamma, cost_kind, settings = ctx.rest
        value, *gradients = _apply(
            _SeriesJvp,
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
        by_series = _only(needs, _scaled(grad_value, (*gradients,), needs))
        return value if needs_value else None, None, None, None, *by_series, *none[6:]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        if tangents[6] is not None or (ctx.wanted[2] and not (tangents[4] is None and tangents[5] is None)):
            raise _no_derivative("second derivatives of soft-DTW by gamma")
        grad_value, grad_x, grad_y, grad_gamma, x, y, *tensors = ctx.saved_tensors
        gamma, cost_kind, settings = ctx.rest
        wanted = ctx.wanted
        results: tuple[Tensor, ...] = tuple(g.new_zeros(g.shape) for g in (grad_x, grad_y, grad_gamma))
        if tangents[0] is not None:
            results = _scaled(tangents[0], (grad_x, grad_y, grad_gamma), wanted)
        if tangents[4] is not None or tangents[5] is not None:
            needs = wanted[:2]
            _, *bent = _apply(_SeriesJvp, x, y, *tangents[4:6], *tensors, gamma, needs, cost_kind, settings)
            added = _scaled(grad_value, (*bent,), needs)
            results = (
                *(a + b if want else a for a, b, want in zip(results, added, needs, strict=False)),
                results[2],
            )
        return _only(wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip(inputs[:6], in_dims[:6], strict=True)),
            *(_front_contiguous(t, d, size) for t, d in zip(inputs[6:11], in_dims[6:11], strict=True)),
        )
        return _unfold(_apply(_SeriesGradient, *folded, *inputs[11:]), size)


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
        ctx.rest = rest
        if _is_traced():
            ctx.gradients = None
            ctx.save_for_backward(*tensors, *output[1:4])
        else:
            ctx.gradients = output[1:4]
            ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        tensors, traced = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        gamma, needs, _, cost_kind, settings = ctx.rest
        wanted = ctx.needs_input_grad[:3]
        none = (None,) * (len(ctx.needs_input_grad) - 3)
        grads, ctx.gradients = traced or ctx.gradients, None
        if not grads:  # a second backward through the same graph
            with torch.no_grad():
                arguments = (*tensors, gamma, needs, False, cost_kind, settings)
                grads = _Series.forward(*arguments)[1:4]
        if _needs_graph():
            arguments = (grad_value, *grads, *tensors, wanted, gamma, cost_kind, settings)
            return *_only(wanted, _apply(_SeriesGradient, *arguments)), *none
        if traced or _is_batched(grad_value):
            return *_only(wanted, _scaled(grad_value, grads, wanted)), *none
        # Nobody else has these gradients: scaled where they are, a step holds them once.
        return *_scaled_in_place(grad_value, grads, wanted), *none

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
        function = _forward_mode_of(_Series)
        result = _apply(function, *folded, gamma, needs, needs_alignment, cost_kind, settings)
        return _unfold(result, size)


class _SeriesForwardMode(_Series):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Series.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:7])

    @staticmethod
    def jvp(ctx: Any, x: Tensor | None, y: Tensor | None, gammas: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if gammas is not None:
            raise _no_derivative("derivatives of soft-DTW by gamma in forward mode")
        gamma, _, _, cost_kind, settings = ctx.rest
        tensors = ctx.saved_tensors
        arguments = (*tensors[:2], x, y, *tensors[2:], gamma, (False, False), cost_kind, settings)
        return _apply(_SeriesJvp, *arguments)[0], None, None, None, None


class _CostJvp(torch.autograd.Function):
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
        _check_second_order(cost, gammas, gamma)
        result: tuple[Tensor, ...] = _ops.cost_matrix_jvp(
            cost, tangent, n_lengths, m_lengths, gamma, needs_grad, **_keywords(settings), gammas=gammas
        )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _no_derivative("third derivatives of soft-DTW, and those of its forward mode,")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip(inputs[:2], in_dims[:2], strict=True)),
            *(_front_contiguous(t, d, size) for t, d in zip(inputs[2:5], in_dims[2:5], strict=True)),
        )
        return _unfold(_apply(_CostJvp, *folded, *inputs[5:]), size)


class _CostGradient(torch.autograd.Function):
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
        return _scaled(grad_value, (alignment, grad_gamma), wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *inputs[3:7])
        ctx.save_for_forward(*inputs[:7])
        ctx.wanted, *ctx.rest = inputs[7:]
        _mark_unwanted(ctx, output)

    @staticmethod
    def backward(
        ctx: Any, grad_alignment: Tensor | None, grad_grad_gamma: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        needs_value, needs_cost, needs_gamma = (ctx.needs_input_grad[k] for k in (0, 3, 4))
        if needs_gamma or grad_grad_gamma is not None:
            raise _no_derivative("second derivatives of soft-DTW by gamma")
        none = (None,) * len(ctx.needs_input_grad)
        if grad_alignment is None:
            return none
        grad_value, cost, *tensors = ctx.saved_tensors
        gamma, settings = ctx.rest
        value, bent = _apply(_CostJvp, cost, grad_alignment, *tensors, gamma, needs_cost, settings)
        by_cost = _only((needs_cost,), _scaled(grad_value, (bent,), (needs_cost,)))
        return value if needs_value else None, None, None, *by_cost, *none[4:]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
        if tangents[4] is not None or (ctx.wanted[1] and tangents[3] is not None):
            raise _no_derivative("second derivatives of soft-DTW by gamma")
        grad_value, alignment, grad_gamma, cost, *tensors = ctx.saved_tensors
        gamma, settings = ctx.rest
        results: tuple[Tensor, ...] = tuple(g.new_zeros(g.shape) for g in (alignment, grad_gamma))
        if tangents[0] is not None:
            results = _scaled(tangents[0], (alignment, grad_gamma), ctx.wanted)
        if tangents[3] is not None and ctx.wanted[0]:
            _, bent = _apply(_CostJvp, cost, tangents[3], *tensors, gamma, True, settings)
            results = (results[0] + bent * _along_batch(grad_value, bent), results[1])
        return _only(ctx.wanted, results)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        size = info.batch_size
        folded = (
            *(_front(t, d, size) for t, d in zip(inputs[:4], in_dims[:4], strict=True)),
            *(_front_contiguous(t, d, size) for t, d in zip(inputs[4:7], in_dims[4:7], strict=True)),
        )
        return _unfold(_apply(_CostGradient, *folded, *inputs[7:]), size)


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
        ctx.save_for_backward(*inputs[:4], *output[1:])
        ctx.rest = inputs[4:]

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_value is None:
            return (None,) * len(ctx.needs_input_grad)
        tensors, grads = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        gamma, _, settings = ctx.rest
        wanted = ctx.needs_input_grad[:2]
        if _needs_graph():
            scaled = _apply(_CostGradient, grad_value, *grads, *tensors, wanted, gamma, settings)
        else:
            scaled = _scaled(grad_value, grads, wanted)
        return *_only(wanted, scaled), *(None,) * (len(ctx.needs_input_grad) - 2)

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
        return _unfold(_apply(_forward_mode_of(_Cost), *folded, gamma, needs, settings), size)


class _CostForwardMode(_Cost):
    """With a rule for forward mode, which torch.compile refuses to see."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _Cost.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:4])

    @staticmethod
    def jvp(ctx: Any, cost: Tensor | None, gammas: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if gammas is not None:
            raise _no_derivative("derivatives of soft-DTW by gamma in forward mode")
        gamma, _, settings = ctx.rest
        tensors = ctx.saved_tensors
        value, _ = _apply(_CostJvp, tensors[0], cost, *tensors[1:], gamma, False, settings)
        return value, None, None


def _forward_mode_of(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The function to apply, the one with a rule for forward mode where that is needed."""
    if torch.compiler.is_compiling():
        if _is_second_order():  # it would take tangents, and the gradient's derivative, for 0
            raise _no_derivative("second derivatives and forward mode of soft-DTW within torch.compile")
        return function
    if not _is_forward_mode():
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
        wanted = ctx.needs_input_grad[:2]
        if _needs_graph():
            scaled = _apply(_SubsequenceGradient, grad_value, *grads, wanted, x, y)
        else:
            scaled = _scaled(grad_value, (*grads,), wanted)
        return *_only(wanted, scaled), *(None,) * (len(ctx.needs_input_grad) - 2)

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
    run = _Series.forward if _is_plain(any(needs)) else partial(_apply, _forward_mode_of(_Series))
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
    run = _Cost.forward if _is_plain(any(needs)) else partial(_apply, _forward_mode_of(_Cost))
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
    return not (needs_grad or torch._C._are_functorch_transforms_active() or _is_forward_mode())
