"""Autograd of the operator `lstm`, registered with torch: weights are a list, which autograd.Function has no place for.

The gradients are not differentiated further.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import no_derivative
from warpalign._recurrent import ops


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    x, weights, *optional = inputs[: len(ops.INPUTS)]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.save_for_backward(x, *weights, *optional, output[-1])
    ctx.weights, ctx.want_states = len(weights), inputs[len(ops.INPUTS) + 1]
    ctx.settings = keyword_only_inputs


def _contiguous(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.contiguous()


def gradients_of(ctx: Any, backward: Any, grads: tuple[Tensor | None, ...], others: int) -> tuple[Any, ...]:
    """The gradients by x, weights, h0, c0 and `others` more inputs, which have none.

    ctx has saved the operator's tensors, and behind them what only `backward` needs.
    """
    x, *saved = ctx.saved_tensors
    weights, optional = saved[: ctx.weights], saved[ctx.weights :]
    y, h_n, c_n, h_all, c_all = (_contiguous(g) for g in grads[:5])
    if not ctx.want_states:  # these outputs are empty tensors
        h_all = c_all = None
    by_weight = ctx.needs_input_grad[1]
    wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[2], ctx.needs_input_grad[3], any(by_weight))
    given = (y, h_n, c_n, h_all, c_all)
    by_x, by_h0, by_c0, by_weights = backward(x, weights, *optional, *given, *wanted, **ctx.settings)
    per_weight = iter(by_weights)
    settings = ctx.settings
    per_cell = 2 + 2 * settings["bias"] + settings["projection"] + 4 * settings["layer_norm"]
    all_weights: list[Tensor | None] = []
    for n in range(ctx.weights if wanted[3] else 0):
        # Both biases have one gradient. Each gets a tensor of its own, as autograd may keep and change it.
        is_second_bias = settings["bias"] and n % per_cell == 3
        previous = all_weights[-1] if is_second_bias else None
        all_weights.append(next(per_weight) if previous is None else previous.clone())
    of_weights = (
        [g if want else None for g, want in zip(all_weights, by_weight, strict=True)]
        if wanted[3]
        else [None] * ctx.weights
    )
    return (
        by_x if wanted[0] else None,
        of_weights,
        by_h0 if wanted[1] else None,
        by_c0 if wanted[2] else None,
        *(None,) * others,
    )


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return gradients_of(ctx, ops.backward, grads, 7)


def no_second(ctx: Any, *grads: Any) -> Any:
    raise no_derivative("second derivatives of the LSTM")


torch.library.register_autograd("warpalign::lstm", _backward, setup_context=_setup_context)
torch.library.register_autograd("warpalign::lstm_backward", no_second)
