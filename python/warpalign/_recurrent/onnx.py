"""The LSTM as ONNX's, for torch.onnx's exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warpalign._recurrent import ops

_UNSUPPORTED = ("projection", "layer_norm", "activation", "zoneout_hidden", "zoneout_cell", "training")


def onnx_translations() -> dict[Any, Callable[..., Any]]:
    """The translation of this package's LSTM for torch.onnx.export: as ONNX's operator LSTM.

    A soft :class:`LSTM` of any number of layers and directions in evaluation mode, with hx and ``lengths`` from 1 to T. Projections,
    hard activations, layer norm, zoneout, resets, packed input and all states are not in ONNX's operator: the exporter
    raises an error that names them. Needs the package onnxscript.

    Returns:
        ``custom_translation_table`` of torch.onnx.export with ``dynamo=True``.

    Raises:
        ModuleNotFoundError: onnxscript is not installed.
    """
    import onnxscript  # noqa: F401  that it is missing shows here, and not within the exporter

    return {ops.lstm: _lstm}


def _lstm(
    x: Any,
    weights: Any,
    h0: Any = None,
    c0: Any = None,
    lengths: Any = None,
    row_starts: Any = None,
    resets: Any = None,
    seed: Any = None,
    packed: Any = None,
    want_states: bool = False,
    want_tape: bool = False,
    *,
    bidirectional: bool = False,
    bias: bool = True,
    **settings: Any,
) -> tuple[Any, ...]:
    """The operator `lstm`. ONNX has (D, 4H, I) weights with gates in the order i, o, f, g, and y as (T, D, B, H)."""
    refused = [name for name in _UNSUPPORTED if settings.get(name)]
    refused += [
        name for name, given in (("packed input", row_starts), ("resets", resets)) if given is not None
    ]
    refused += ["return_all_states"] if want_states else []
    if refused:
        raise NotImplementedError(
            f"onnx_translations: expected a soft LSTM without options, got {refused[0]}, which ONNX's LSTM does not have"
        )

    from onnxscript import opset18 as op

    def numbers(*values: int) -> Any:
        return op.Constant(value_ints=list(values))

    def stacked(tensors: list[Any]) -> Any:
        return op.Concat(*(op.Unsqueeze(t, numbers(0)) for t in tensors), axis=0)

    directions, per_cell = (2 if bidirectional else 1), (4 if bias else 2)
    hidden = int(weights[1].shape[1])
    order = numbers(*range(hidden), *range(3 * hidden, 4 * hidden), *range(hidden, 3 * hidden))
    sequence, h_n, c_n = x, [], []
    for first in range(0, len(weights) // per_cell, directions):
        cells = [weights[per_cell * n : per_cell * (n + 1)] for n in range(first, first + directions)]
        span = (numbers(first), numbers(first + directions), numbers(0))
        both = (
            [op.Concat(op.Gather(c[2], order), op.Gather(c[3], order), axis=0) for c in cells] if bias else []
        )
        y, h, c = op.LSTM(
            sequence,
            stacked([op.Gather(c[0], order) for c in cells]),
            stacked([op.Gather(c[1], order) for c in cells]),
            stacked(both) if bias else None,
            lengths,
            None if h0 is None else op.Slice(h0, *span),
            None if c0 is None else op.Slice(c0, *span),
            direction="bidirectional" if bidirectional else "forward",
            hidden_size=hidden,
        )
        sequence = op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), numbers(0, 0, directions * hidden))
        h_n.append(h)
        c_n.append(c)
    # All states and the tape, which nobody reads.
    empty = [op.ConstantOfShape(numbers(0)) for _ in range(3)]
    return sequence, op.Concat(*h_n, axis=0), op.Concat(*c_n, axis=0), *empty
