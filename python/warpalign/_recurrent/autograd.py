"""Autograd of the operator `lstm`: registered with torch for what is traced, and a function for eager calls.

The gradients are not differentiated further.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from warpalign._core.torch_internals import below_autograd, is_legacy_batched, keeps_graph
from warpalign._core.transforms import no_derivative
from warpalign._recurrent import ops


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
    per_cell = 2 + 2 * has_bias + settings.get("projection", False) + 4 * settings.get("layer_norm", False)
    for n in range(ctx.weights):
        # Both biases have one gradient. Each gets a tensor of its own, as autograd may keep and change it.
        is_second_bias = has_bias and n % per_cell == 3
        previous = found[-1] if is_second_bias and wanted[3] else None
        found.append(next(per_weight, None) if previous is None else previous.clone())
    return [gradient if need else None for gradient, need in zip(found, needs, strict=True)]


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return gradients_of(ctx, ops.backward, grads, 7)


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
        # Without retain_graph nobody reads the tape again, and gradients may take its place. But a batch of gradients does.
        is_last = not keeps_graph() and not any(g is not None and is_legacy_batched(g) for g in grads)
        backward = ops.backward_ if is_last else ops.backward
        # A graph of the gradients refuses to be differentiated, which is the registered operator's part.
        with nullcontext() if torch.is_grad_enabled() else below_autograd():
            found = _gradients(ctx, backward, grads, (of_x, of_h0, of_c0, *of_weights))
        return *found[:3], None, *found[3:]


def no_second(ctx: Any, *grads: Any) -> Any:
    raise no_derivative("second derivatives of the LSTM")


torch.library.register_autograd("warpalign::lstm", _backward, setup_context=_setup_context)
torch.library.register_autograd("warpalign::lstm_backward", no_second)
