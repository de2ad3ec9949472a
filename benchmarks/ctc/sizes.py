"""The sizes that the CTC benchmark covers: those of speech, of characters, of text recognition, and of long recordings."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Size(NamedTuple):
    """B utterances of T frames, C classes and L labels.

    what: "loss", "align", "mas" with L positions and no classes, "beam" with a beam of L, or "greedy".
    """

    B: int
    T: int
    C: int
    L: int
    dtype: str = "float32"
    what: str = "loss"

    @property
    def name(self) -> str:
        return f"{self.B}x{self.T}x{self.C}x{self.L} {self.dtype} {self.what}"

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


LOSSES = [
    Size(32, 400, 1024, 100),
    Size(8, 1500, 32, 300),
    Size(64, 200, 5000, 40),
    Size(16, 1000, 128, 200),
    Size(256, 128, 64, 30),
    Size(2, 12000, 32, 3000),
]
SIZES = [
    *LOSSES,
    *(size._replace(dtype="bfloat16") for size in LOSSES[:5]),
    *(Size(1, T, 32, L, what="align") for T, L in ((1500, 300), (15000, 3500), (60000, 15000))),
    Size(32, 400, 1024, 100, what="align"),
    *(Size(32, T, 0, S, what="mas") for T, S in ((512, 128), (2048, 512))),
    *(Size(32, 400, 1024, K, what="beam") for K in (8, 16)),
    Size(8, 1500, 32, 32, what="beam"),
    *(Size(B, T, C, 1, what="greedy") for B, T, C in ((32, 400, 1024), (8, 1500, 32))),
]
QUICK_SIZES = [
    Size(3, 40, 12, 9),
    Size(2, 33, 300, 12, "bfloat16"),
    Size(2, 40, 12, 9, what="align"),
    Size(2, 40, 0, 9, what="mas"),
    Size(2, 20, 12, 5, what="beam"),
    Size(2, 20, 12, 1, what="greedy"),
]
