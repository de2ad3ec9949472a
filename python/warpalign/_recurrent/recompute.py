"""The LSTM without a tape: the states of every 32 steps are kept, and the backward pass makes the rest again.

The operators are those of :mod:`warpalign._recurrent.ops`, called for a chunk of steps at a time. Between the passes a call
keeps h and c before each chunk. The backward pass has the tape of one chunk at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._recurrent import ops
from warpalign._recurrent.autograd import gradients_of, no_second

STEPS = 32
"""Of a chunk."""

_INPUTS, _, _rest = str(ops.lstm._schema).partition("(")[2].partition(", Tensor? packed")
_SETTINGS = _rest.partition("*, ")[2].partition(")")[0]
_LIBRARY = torch.library.Library("warpalign", "FRAGMENT")
# kept_h (K, L D, B, P) and kept_c (K, L D, B, H): the states before each chunk but the first.
_LIBRARY.define(
    f"lstm_without_tape({_INPUTS}, bool want_states, *, {_SETTINGS}) -> "
    "(Tensor y, Tensor h_n, Tensor c_n, Tensor h_all, Tensor c_all, Tensor kept_h, Tensor kept_c)"
)
_LIBRARY.define(
    f"lstm_without_tape_backward({_INPUTS}, Tensor kept_h, Tensor kept_c, Tensor? grad_y, Tensor? grad_h_n, "
    "Tensor? grad_c_n, Tensor? grad_h_all, Tensor? grad_c_all, bool want_x, bool want_h0, bool want_c0, bool want_weights, "
    f"*, {_SETTINGS}) -> (Tensor grad_x, Tensor grad_h0, Tensor grad_c0, Tensor[] grad_weights)"
)


def _is_whole(row_starts: Tensor | None, resets: Tensor | None, settings: dict[str, Any]) -> bool:
    """Whether all steps are one chunk.

    A chunk is a call of its own. So all steps are one where a call looks at its first state again, at the numbers of its steps,
    where rows have two orders of steps, and where only a device knows which rows are a step's.
    """
    chances = ("dropout", "zoneout_hidden", "zoneout_cell")
    draws = settings.get("training", False) and any(settings.get(name, 0) > 0 for name in chances)
    return row_starts is not None or resets is not None or settings.get("bidirectional", False) or draws


def _chunks(steps: int) -> list[slice]:
    return [slice(begin, min(begin + STEPS, steps)) for begin in range(0, steps, STEPS)]


def _is_half(x: Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)


def _lengths_of(lengths: Tensor | None, steps: slice) -> Tensor | None:
    return None if lengths is None else (lengths - steps.start).clamp(0, steps.stop - steps.start)


def _wide(c: Tensor | None, x: Tensor) -> Tensor | None:
    """c as it goes from chunk to chunk: float32 for half types."""
    return c.float() if c is not None and _is_half(x) else c


def _check_lengths(lengths: Tensor | None, steps: int) -> None:
    """What the operator checks on a CPU, before chunks change the lengths."""
    if lengths is None or lengths.is_cuda:
        return
    wrong = (lengths < 0) | (lengths > steps)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(f"lengths: expected between 0 and T, got {int(lengths[at])} at index {at}")


def _shapes(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    row_starts: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    want_states: bool,
    **settings: Any,
) -> tuple[Tensor, ...]:
    """The results of the forward pass, with nothing in them."""
    s = ops.Sizes(x, weights, c0, row_starts, **settings)
    cell = x.new_empty(0, dtype=s.cell_dtype)
    kept: Any = 0 if _is_whole(row_starts, resets, settings) else (x.shape[0] - 1) // STEPS
    return (
        x.new_empty(*s.rows, s.directions * s.output),
        x.new_empty(s.cells, s.batch, s.output),
        cell.new_empty(s.cells, s.batch, s.hidden),
        empty_unless(want_states, x, s.cells, *s.rows, s.output),
        empty_unless(want_states, cell, s.cells, *s.rows, s.hidden),
        x.new_empty(kept, s.cells, s.batch, s.output),
        x.new_empty(kept, s.cells, s.batch, s.hidden, dtype=torch.float32 if _is_half(x) else x.dtype),
    )


def _forward(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    row_starts: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    want_states: bool,
    **settings: Any,
) -> tuple[Tensor, ...]:
    check_devices("x", x=x, h0=h0, c0=c0, lengths=lengths, row_starts=row_starts, resets=resets, seed=seed)
    given = (x, weights, h0, c0, lengths, row_starts, resets, seed)
    results = _shapes(*given, want_states, **settings)
    y, h_n, c_n, h_all, c_all, kept_h, kept_c = results
    if kept_h.shape[0] == 0:
        whole = ops.lstm(*given, None, want_states, False, **settings)
        return *whole[:5], kept_h, kept_c
    _check_lengths(lengths, x.shape[0])
    h: Any = h0
    c: Any = _wide(c0, x)
    settings = settings | {"float32_cell": _is_half(x)}
    for k, steps in enumerate(_chunks(x.shape[0])):
        if k > 0:
            kept_h[k - 1], kept_c[k - 1] = h, c
        part = (x[steps], weights, h, c, _lengths_of(lengths, steps), None, None, seed)
        y[steps], h, c, h_part, c_part, _ = ops.lstm(*part, None, want_states, False, **settings)
        if want_states:
            h_all[:, steps], c_all[:, steps] = h_part, c_part
    h_n.copy_(h)
    c_n.copy_(c)
    return results


def _backward(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    row_starts: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    kept_h: Tensor,
    kept_c: Tensor,
    grad_y: Tensor | None,
    grad_h_n: Tensor | None,
    grad_c_n: Tensor | None,
    grad_h_all: Tensor | None,
    grad_c_all: Tensor | None,
    want_x: bool,
    want_h0: bool,
    want_c0: bool,
    want_weights: bool,
    **settings: Any,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    given = (x, weights, h0, c0, lengths, row_starts, resets, seed)
    if kept_h.shape[0] == 0:
        y, *_, tape = ops.lstm(*given, None, False, True, **settings)
        grads = (grad_y, grad_h_n, grad_c_n, grad_h_all, grad_c_all)
        whole: tuple[Tensor, Tensor, Tensor, list[Tensor]] = ops.backward(
            *given, y, tape, *grads, want_x, want_h0, want_c0, want_weights, **settings
        )
        return whole
    cell_dtype = ops.Sizes(x, weights, c0, row_starts, **settings).cell_dtype
    settings = settings | {"float32_cell": _is_half(x)}
    grad_x = empty_unless(want_x, x, *x.shape)
    by_h, by_c = grad_h_n, _wide(grad_c_n, x)
    sums: list[Tensor] = []
    for k, steps in reversed(list(enumerate(_chunks(x.shape[0])))):
        h, c = (kept_h[k - 1], kept_c[k - 1]) if k > 0 else (h0, _wide(c0, x))
        part = (x[steps], weights, h, c, _lengths_of(lengths, steps), None, None, seed)
        y, *_, tape = ops.lstm(*part, None, False, True, **settings)
        of_y = None if grad_y is None else grad_y[steps]
        of_h, of_c = (None if g is None else g[:, steps].contiguous() for g in (grad_h_all, grad_c_all))
        by_x, by_h, by_c, by_weights = ops.backward(
            *part,
            y,
            tape,
            of_y,
            by_h,
            by_c,
            of_h,
            _wide(of_c, x),
            want_x,
            want_h0 or k > 0,
            want_c0 or k > 0,
            want_weights,
            **settings,
        )
        if want_x:
            grad_x[steps] = by_x
        if not sums:
            sums = [g.float() if _is_half(x) else g for g in by_weights]
        else:
            for total, one in zip(sums, by_weights, strict=True):
                total.add_(one)
    assert by_h is not None and by_c is not None
    return grad_x, by_h, by_c.to(cell_dtype), [g.to(x.dtype) for g in sums]


def _setup_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    x, weights, *optional = inputs[: len(ops.INPUTS)]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[5:])
    ctx.save_for_backward(x, *weights, *optional, *output[5:])
    ctx.weights, ctx.want_states = len(weights), inputs[len(ops.INPUTS)]
    ctx.settings = keyword_only_inputs


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return gradients_of(ctx, torch.ops.warpalign.lstm_without_tape_backward.default, grads, 5)


_LIBRARY.impl("lstm_without_tape", _forward, "CompositeExplicitAutograd")
_LIBRARY.impl("lstm_without_tape_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("warpalign::lstm_without_tape", _shapes, lib=_LIBRARY)
# kept_h and kept_c are in the place of y and the tape.
torch.library.register_fake("warpalign::lstm_without_tape_backward", ops.gradient_shapes, lib=_LIBRARY)
torch.library.register_autograd(
    "warpalign::lstm_without_tape", _gradients, setup_context=_setup_context, lib=_LIBRARY
)
torch.library.register_autograd("warpalign::lstm_without_tape_backward", no_second, lib=_LIBRARY)
lstm_without_tape = torch.ops.warpalign.lstm_without_tape.default
