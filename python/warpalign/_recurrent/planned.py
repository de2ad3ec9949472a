"""Calls of modules without options of a call: at small sizes a step is mostly its way through Python."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import is_autocast
from warpalign._core.torch_internals import apply_unbound, below_autograd
from warpalign._core.transforms import is_traced
from warpalign._recurrent import ops
from warpalign._recurrent.autograd import EagerLSTM
from warpalign._recurrent.settings import Options, precision_of_torch


class Plan(NamedTuple):
    """What does not change from call to call."""

    names: tuple[str, ...]
    """The parameters' names, in the operator's order."""
    fixed: dict[str, Any]
    """The settings that differ from the operator's defaults: each one that is passed takes time."""
    draws_masks: bool
    """Whether a training call does."""
    follows_torch: bool
    """Whether the precision is that of torch's own float32 products when a call is made."""

    def settings(self) -> dict[str, Any]:
        """Of a call that is made now."""
        precision = precision_of_torch() if self.follows_torch else 0
        return self.fixed | {"precision": precision} if precision else self.fixed


def changed(options: Options) -> dict[str, Any]:
    """The options that differ from the operator's defaults, which are those of :class:`Options`; no precision that torch says."""
    defaults = Options()._asdict()
    return {
        name: value
        for name, value in options._asdict().items()
        if value != defaults[name] and value is not None
    }


def call_without_gradients(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    packed: Tensor | None,
    settings: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, h_n, c_n) of the operator."""
    with nullcontext() if torch.compiler.is_compiling() else below_autograd():
        y, h_n, c_n, *_ = ops.lstm(
            x, weights, h0, c0, None, None, None, None, packed, False, False, **settings
        )
    return y, h_n, c_n


def advance(
    x: Tensor, weights: list[Tensor], h: Tensor, c: Tensor, packed: Tensor, settings: dict[str, Any]
) -> Tensor:
    """y of the operator, which updates h and c in place."""
    y: Tensor
    if torch.compiler.is_compiling():
        y = ops.stream_(x, weights, h, c, packed, **settings)
        return y
    with below_autograd():
        y = ops.stream_(x, weights, h, c, packed, **settings)
    # A graph that has saved the state from before must not take this one for it.
    torch.autograd.graph.increment_version((h, c))
    return y


def is_refusal(error: Exception) -> bool:
    """Whether an error is about an argument: from the operator's checks, from torch's of its schema, or for want of a device.

    Anything else, such as memory that is not there or a fault of the device, would meet a second call as well.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return (
        not isinstance(error, RuntimeError)
        or isinstance(error, NotImplementedError)
        or "xpected" in str(error)
    )


def run_planned(
    module: Any, input: object, hx: object, batch_first: bool = False
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(output, h_n, c_n) of a batch of sequences, or None where the long way has to be taken.

    The operator checks sizes, dtypes and devices by itself. Where it refuses, the long way says which argument is wrong.
    """
    if is_traced():
        return None
    plan: Plan = module._plan
    if module.training and (plan.draws_masks or getattr(module, "dropout", 0) > 0):
        return None
    if type(input) is not Tensor or input.dim() != 3 or is_autocast(input):
        return None
    h0 = c0 = None
    if hx is not None:
        if type(hx) is not tuple or len(hx) != 2:
            return None
        h0, c0 = hx
        if not isinstance(h0, Tensor) or not isinstance(c0, Tensor):
            return None
    weights = [getattr(module, name) for name in plan.names]
    x = input.transpose(0, 1) if batch_first else input
    tensors = (x, h0, c0, *weights)
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    try:
        if needs_grad:
            others = ((None, None, None, None), False, plan.settings())
            y, h_n, c_n, *_ = apply_unbound(EagerLSTM, x, h0, c0, others, *weights)
        else:
            y, h_n, c_n = call_without_gradients(x, weights, h0, c0, None, plan.settings())
    except (RuntimeError, TypeError, ValueError) as error:
        if not is_refusal(error):
            raise
        return None
    return y.transpose(0, 1) if batch_first else y, h_n, c_n
