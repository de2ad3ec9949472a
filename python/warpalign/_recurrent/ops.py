"""The LSTM's operators, and the shapes of what they return, for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless

INPUTS = ("x", "weights", "h0", "c0", "lengths", "row_starts", "resets", "seed")


_MOST_CHUNKS = 4
"""`kMostChunks` of the C++ core."""


class Sizes:
    """The extents that follow from the tensors of a call."""

    def __init__(
        self,
        x: Tensor,
        weights: list[Tensor],
        c0: Tensor | None,
        row_starts: Tensor | None,
        *,
        batch: int = 0,
        bidirectional: bool = False,
        bias: bool = True,
        projection: bool = False,
        layer_norm: bool = False,
        float32_cell: bool = False,
        recompute: bool = False,
        **others: object,
    ) -> None:
        self.per_cell = 2 + 2 * bias + projection + 4 * layer_norm
        self.directions = 2 if bidirectional else 1
        self.cells = len(weights) // self.per_cell
        self.hidden, self.output = weights[1].shape[0] // 4, weights[1].shape[1]
        self.bias, self.layer_norm, self.recompute = bias, layer_norm, recompute
        self.rows = x.shape[:-1]
        self.batch = x.shape[1] if row_starts is None else batch
        self.input, self.projection = x.shape[-1], projection
        wide = float32_cell if c0 is None else c0.dtype == torch.float32
        half = x.dtype in (torch.float16, torch.bfloat16)
        self.cell_dtype = torch.float32 if half and wide else x.dtype

    def packed_bytes(self, x: Tensor) -> Any:
        """`lstm_packed_bytes` of the C++ core."""
        if x.is_cuda:
            hh = 4 * self.hidden * _whole(self.output, x)
            hr = self.output * _whole(self.hidden, x) if self.projection else 0
            return self.cells * (_aligned(hh * x.itemsize) + _aligned(hr * x.itemsize))
        size = 8 if x.dtype == torch.float64 else 4
        hidden = (self.hidden + 15) // 16 * 16
        entries = 0
        for cell in range(self.cells):
            width = self.input if cell < self.directions else self.output * self.directions
            entries += 4 * hidden * (width + self.output + 1)
            entries += (self.output + 63) // 64 * 64 * self.hidden if self.projection else 0
            entries += 10 * hidden if self.layer_norm else 0
        return entries * size

    def tape_bytes(self, x: Tensor) -> Any:
        """`lstm_tape_bytes` of the C++ core."""
        size = 8 if x.dtype == torch.float64 else 4
        rows = self.rows[0] if len(self.rows) == 1 else self.rows[0] * self.rows[1]
        norms = _aligned(rows * 3 * size) if self.layer_norm else 0
        below = self.cells - self.directions  # h of the last layer is y
        if self.recompute and not x.is_cuda:
            states = _whole_panels(self.output) + _whole_panels(self.hidden)
            return self.cells * (_MOST_CHUNKS - 1) * self.batch * states * size
        if self.recompute:
            kept_c = _aligned((_MOST_CHUNKS - 1) * self.batch * self.hidden * size)
            return self.cells * kept_c + below * _aligned(rows * self.output * x.itemsize)
        if x.is_cuda:
            widths = [4 * self.hidden, self.hidden]
            widths += [4 * self.hidden, 4 * self.hidden, self.hidden] if self.layer_norm else []
            cell = sum(_aligned(rows * width * x.itemsize) for width in widths)
            return self.cells * (cell + norms) + below * _aligned(rows * self.output * x.itemsize)
        hidden, output = _whole_panels(self.hidden), _whole_panels(self.output)
        cell = rows * (14 if self.layer_norm else 5) * hidden * size
        return self.cells * (cell + norms) + below * rows * output * size


def _aligned(size: Any) -> Any:
    """Bytes of an array of the C++ core's arena."""
    return (size + 63) // 64 * 64


def _whole_panels(entries: Any) -> Any:
    """Entries of a row of the C++ core's CPU path."""
    return (entries + 15) // 16 * 16


def _whole(entries: Any, x: Tensor) -> Any:
    """Entries of a row of whole pieces of 16 bytes."""
    piece = 16 // x.itemsize
    return (entries + piece - 1) // piece * piece


@torch.library.register_fake("warpalign::lstm")  # type: ignore[untyped-decorator]
def _(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    row_starts: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    packed: Tensor | None,
    want_states: bool,
    want_tape: bool,
    **settings: Any,
) -> tuple[Tensor, ...]:
    given = {
        "h0": h0,
        "c0": c0,
        "lengths": lengths,
        "row_starts": row_starts,
        "resets": resets,
        "seed": seed,
        "packed": packed,
    }
    check_devices("x", x=x, **given, **{f"weights[{n}]": w for n, w in enumerate(weights)})
    s = Sizes(x, weights, c0, row_starts, **settings)
    cell = x.new_empty(0, dtype=s.cell_dtype)
    return (
        x.new_empty(*s.rows, s.directions * s.output),
        x.new_empty(s.cells, s.batch, s.output),
        cell.new_empty(s.cells, s.batch, s.hidden),
        empty_unless(want_states, x, s.cells, *s.rows, s.output),
        empty_unless(want_states, cell, s.cells, *s.rows, s.hidden),
        x.new_empty(s.tape_bytes(x) if want_tape else 0, dtype=torch.uint8),
    )


@torch.library.register_fake("warpalign::lstm_stream_")  # type: ignore[untyped-decorator]
def _(
    x: Tensor, weights: list[Tensor], h: Tensor, c: Tensor, packed: Tensor | None, **settings: Any
) -> Tensor:
    s = Sizes(x, weights, c, None, **settings)
    return x.new_empty(*s.rows, s.directions * s.output)


@torch.library.register_fake("warpalign::lstm_pack")  # type: ignore[untyped-decorator]
def _(weights: list[Tensor], **settings: Any) -> Tensor:
    x = weights[0].new_empty(1, 0, weights[0].shape[1])
    bytes_ = Sizes(x, weights, None, None, **settings).packed_bytes(x)
    return x.new_empty(bytes_, dtype=torch.uint8)


@torch.library.register_fake("warpalign::lstm_backward")  # type: ignore[untyped-decorator]
def gradient_shapes(
    x: Tensor,
    weights: list[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    row_starts: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    y: Tensor,
    tape: Tensor,
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
    s = Sizes(x, weights, c0, row_starts, **settings)
    cell = x.new_empty(0, dtype=s.cell_dtype)
    by_weights = [w.new_empty(w.shape) for n, w in enumerate(weights) if not (s.bias and n % s.per_cell == 3)]
    return (
        empty_unless(want_x, x, *x.shape),
        empty_unless(want_h0, x, s.cells, s.batch, s.output),
        empty_unless(want_c0, cell, s.cells, s.batch, s.hidden),
        by_weights if want_weights else [],
    )


torch.library.register_fake("warpalign::lstm_backward_")(gradient_shapes)
lstm = torch.ops.warpalign.lstm.default
stream_ = torch.ops.warpalign.lstm_stream_.default
pack = torch.ops.warpalign.lstm_pack.default
backward = torch.ops.warpalign.lstm_backward.default
backward_ = torch.ops.warpalign.lstm_backward_.default
