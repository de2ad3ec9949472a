"""The sizes that the LSTM benchmark covers."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Size(NamedTuple):
    """T steps of B rows of I features; H hidden units, P projected ones (0: none), a stack of `layers`."""

    T: int
    B: int
    I: int  # noqa: E741
    H: int
    layers: int = 1
    dirs: int = 1
    P: int = 0
    dtype: str = "bfloat16"
    activation: str = "soft"
    options: str = ""
    """Names of `OPTIONS` with blanks between them, or `STREAM`, or `FORWARD`. In sanitizer cases `medium` is a precision."""

    @property
    def name(self) -> str:
        projection = f" P{self.P}" if self.P else ""
        way = "x2" if self.dirs == 2 else ""
        how = f" {self.activation}" + (f" {self.options}" if self.options else "")
        return f"{self.T}x{self.B}x{self.I}x{self.H}{projection} L{self.layers}{way} {self.dtype}{how}"

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


OPTIONS = ("", "layer_norm", "zoneout", "weight_dropout", "lengths", "recompute")
STREAM = "stream"
"""The option of a row that measures one step of an `LSTMStream`, which has no backward pass."""
FORWARD = "forward"
"""The option of a row of the map that measures the forward pass alone, which then makes no tape."""
_MAIN = Size(512, 8, 512, 512)
_PLAIN = [
    Size(256, 1, 512, 512),
    _MAIN,
    Size(512, 64, 512, 512),
    Size(512, 64, 256, 256),
    Size(512, 64, 1024, 1024),
    Size(1024, 16, 768, 768),
    Size(512, 32, 240, 1024, 2),
    Size(256, 128, 1024, 1024),
    Size(256, 512, 1024, 1024),
    Size(100, 32, 512, 512, 2),
    Size(512, 32, 512, 512, 2, 2),
    Size(256, 32, 2048, 1024, 6),
    Size(512, 32, 240, 1536, 2),
]
SIZES: list[Size] = [
    *(size._replace(dtype=dtype) for size in _PLAIN for dtype in ("bfloat16", "float16")),
    *(
        Size(1, 1, hidden, hidden, layers, dtype="float16", options=STREAM)
        for hidden, layers in ((512, 2), (1024, 8))
    ),
    Size(512, 8, 512, 512, 6),
    Size(256, 1, 512, 512, 6),
    *(size._replace(dtype="float32") for size in _PLAIN[:2]),
    _MAIN._replace(activation="hard"),
    *(_MAIN._replace(options=options) for options in OPTIONS[1:]),
    Size(512, 64, 512, 512, options="lengths"),
    Size(512, 64, 512, 512, options="recompute"),
    Size(512, 16, 640, 2048, 2, P=640),
]
QUICK_SIZES = [
    Size(1, 2, 8, 8, 2, dtype="float32", options=STREAM),
    Size(5, 3, 8, 20, dtype="float32"),
    Size(4, 2, 8, 12, 2, 2, dtype="bfloat16", activation="hard"),
    Size(4, 2, 8, 12, P=5, dtype="float32", options="layer_norm"),
    Size(4, 3, 8, 12, dtype="float16", options="lengths"),
    Size(40, 2, 8, 12, dtype="float32", options="recompute"),
]
