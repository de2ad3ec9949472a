"""Autograd of the operator `lstm`: registered with torch for what is traced, and a function for eager calls.

Gradients of gradients are made of torch's own operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from warpalign._core.torch_internals import (
    below_autograd,
    is_legacy_batched,
    is_transforming,
    keeps_graph,
    with_legacy_batch,
    without_legacy_batch,
)
from warpalign._recurrent import ops
from warpalign._recurrent.composite import Derivable, Others, per_cell_of, second_derivatives


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    x, weights, *optional = inputs[: len(ops.INPUTS)]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.save_for_backward(x, *weights, *optional, output[0], output[-1])
    ctx.weights, ctx.want_states = len(weights), inputs[len(ops.INPUTS) + 1]
    ctx.settings = keyword_only_inputs


def _contiguous(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.contiguous()


def gradients_of(ctx: Any, backward: Any, grads: tuple[Tensor | None, ...], others: int) -> tuple[Any, ...]:
    """The gradients by x, weights, h0, c0 and `others` more inputs, which have none.

    ctx has saved the operator's tensors, and behind them what only `backward` needs.
    """
    by_x, by_weight, by_h0, by_c0, *_ = ctx.needs_input_grad
    found = _gradients(ctx, backward, grads, (by_x, by_h0, by_c0, *by_weight))
    of_x, of_h0, of_c0, *of_weights = found
    return of_x, of_weights, of_h0, of_c0, *(None,) * others


def _gradients(
    ctx: Any, backward: Any, grads: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients by x, h0, c0 and every weight, None where they are not needed."""
    x, *saved = ctx.saved_tensors
    weights, optional = saved[: ctx.weights], saved[ctx.weights :]
    y, h_n, c_n, h_all, c_all = (_contiguous(g) for g in grads[:5])
    if not ctx.want_states:  # these outputs are empty tensors
        h_all = c_all = None
    settings, wanted = ctx.settings, (*needs[:3], any(needs[3:]))
    has_bias = settings.get("bias", True)
    by_x, by_h0, by_c0, by_weights = backward(
        x, weights, *optional, y, h_n, c_n, h_all, c_all, *wanted, **settings
    )
    found: list[Tensor | None] = [by_x, by_h0, by_c0]
    per_weight = iter(by_weights)
    per_cell = per_cell_of(settings)
    for n in range(ctx.weights):
        # Both biases have one gradient. Each gets a tensor of its own, as autograd may keep and change it.
        is_second_bias = has_bias and n % per_cell == 3
        previous = found[-1] if is_second_bias and wanted[3] else None
        found.append(next(per_weight, None) if previous is None else previous.clone())
    return [gradient if need else None for gradient, need in zip(found, needs, strict=True)]


def _backward_for(grads: Sequence[Tensor | None]) -> Any:
    is_batch = any(g is not None and is_legacy_batched(g) for g in grads)
    return _backward_of_batched if is_batch else ops.backward


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return gradients_of(ctx, _backward_for(grads), grads, 7)


def _each(size: int, function: Any, given: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """The results of `function` for every sample, stacked in front: tensors and lists of tensors as `given` has them."""

    def sample(one: Any, dim: Any, n: int) -> Any:
        if isinstance(one, list):
            return [sample(o, None if dim is None else dim[k], n) for k, o in enumerate(one)]
        return one if dim is None else one.select(dim, n).contiguous()

    results = [
        function(*(sample(one, dim, n) for one, dim in zip(given, dims, strict=True))) for n in range(size)
    ]
    return [
        [torch.stack(list(tensors)) for tensors in zip(*of_samples, strict=True)]
        if isinstance(of_samples[0], list)
        else torch.stack(list(of_samples))
        for of_samples in zip(*results, strict=True)
    ]


def _backward_of_samples(info: Any, in_dims: Any, *given: Any, **settings: Any) -> tuple[Any, Any]:
    """The rule of torch.func.vmap: one backward pass for each sample, as the weights' gradients are sums over the batch."""
    found = _each(info.batch_size, partial(ops.backward, **settings), given, in_dims)
    return tuple(found), tuple([0] * len(one) if isinstance(one, list) else 0 for one in found)


def _backward_of_batched(*given: Any, **settings: Any) -> tuple[Any, ...]:
    """The same for torch.autograd.grad(..., is_grads_batched=True), which batches incoming gradients alone."""
    level, size, plain, dims = 0, 0, [], []
    for one in given:
        level_of_one, tensor = (None, one)
        if isinstance(one, Tensor) and is_legacy_batched(one):
            level_of_one, tensor = without_legacy_batch(one)
            level, size = level_of_one, tensor.shape[0]
        plain.append(tensor)
        dims.append(None if level_of_one is None else 0)
    found = _each(size, partial(ops.backward, **settings), plain, dims)
    return tuple(
        [with_legacy_batch(t, level) for t in one] if isinstance(one, list) else with_legacy_batch(one, level)
        for one in found
    )


class EagerLSTM(torch.autograd.Function):
    """The operator where nothing is traced, at a third of the host's time: what is registered with torch takes its arguments
    apart as trees, in Python, in every call."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor | None, c0: Tensor | None, others: Any, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        """others: (lengths, row_starts, resets, seed), want_states and the settings that differ from the operator's own or all.

        Returns all results but the tape.
        """
        optional, ctx.want_states, ctx.settings = others
        with below_autograd():
            *results, tape = ops.lstm(
                x, weights, h0, c0, *optional, None, ctx.want_states, True, **ctx.settings
            )
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *weights, h0, c0, *optional, results[0], tape)
        ctx.weights = len(weights)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        of_x, of_h0, of_c0, _, *of_weights = ctx.needs_input_grad
        backward = _backward_for(grads)
        # Without retain_graph nobody reads the tape again, and gradients may take its place. But a batch of gradients does.
        if backward is ops.backward and not keeps_graph() and not is_transforming():
            backward = ops.backward_
        # A graph of the gradients is the registered operator's part.
        with nullcontext() if torch.is_grad_enabled() else below_autograd():
            found = _gradients(ctx, backward, grads, (of_x, of_h0, of_c0, *of_weights))
        return *found[:3], None, *found[3:]


def _setup_second(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    x, weights, h0, c0, lengths, row_starts, resets, _, _, _, *incoming = inputs[:15]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(lengths, row_starts, resets, x, h0, c0, *weights, *incoming)
    ctx.weights, ctx.wanted, ctx.settings = len(weights), inputs[15:19], keyword_only_inputs


def _second(ctx: Any, *grads: Any) -> tuple[Any, ...]:
    """The derivatives of the gradients, by those of the same gradients made of torch's own operations."""
    lengths, row_starts, resets, x, h0, c0, *rest = ctx.saved_tensors
    given = Derivable(x, h0, c0, rest[: ctx.weights], rest[ctx.weights :])
    *by_states, by_weights = (g if wanted else None for g, wanted in zip(grads, ctx.wanted, strict=True))
    count = ctx.weights - (ctx.weights // per_cell_of(ctx.settings) if ctx.settings["bias"] else 0)
    gradients = [*by_states, *(by_weights or [None] * count)]
    found = second_derivatives(given, gradients, Others(lengths, row_starts, resets), ctx.settings)
    return found.x, found.weights, found.h0, found.c0, *(None,) * 6, *found.incoming, *(None,) * 4


torch.library.register_autograd("warpalign::lstm", _backward, setup_context=_setup_context)
torch.library.register_autograd("warpalign::lstm_backward", _second, setup_context=_setup_second)
torch.library.register_vmap("warpalign::lstm_backward", _backward_of_samples)
