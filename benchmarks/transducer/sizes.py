"""The sizes that the transducer benchmark covers."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tests.python.transducer.reference import Options

FAMILIES = {
    "rnnt": Options(blank=0),
    "multi_blank": Options(blank=0, big_blanks=((2, 1), (4, 2), (8, 3)), sigma=0.05),
    "tdt": Options(blank=0, durations=(0, 1, 2, 3, 4), sigma=0.05),
    "penalties": Options(blank=0, delay=0.01, eos=4, eos_penalty=0.1),
}
FIRST_LABEL = 4  # no blank of any family


class Size(NamedTuple):
    """B utterances of T frames and U labels; logits (B, T, U+1, V), given, or (H > 0) from a joint network of H hidden
    numbers. beams > 0: they are decoded, by greedy search (1) or by a beam of so many. align: they are aligned."""

    B: int
    T: int
    U: int
    V: int
    dtype: str = "float32"
    family: str = "rnnt"
    ragged: bool = False
    H: int = 0
    beams: int = 0
    align: bool = False

    @property
    def name(self) -> str:
        how = ("" if self.family == "rnnt" else f" {self.family}") + (" ragged" if self.ragged else "")
        how += f" joint H {self.H}" if self.H else ""
        how += {0: "", 1: " greedy"}.get(self.beams, f" beam {self.beams}") + (" align" if self.align else "")
        return f"{self.B}x{self.T}x{self.U + 1}x{self.V} {self.dtype}{how}"

    @property
    def options(self) -> Options:
        return FAMILIES[self.family]

    @property
    def columns(self) -> int:
        """Columns of the logits: one per label, and one per duration of TDT."""
        return self.V + len(self.options.durations or ())

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def logits(self) -> int:
        return self.B * self.T * (self.U + 1) * self.V


_MIDDLE = Size(16, 400, 100, 1024)
SIZES: list[Size] = [
    # Sizes that published packages were measured at.
    _MIDDLE,
    Size(16, 200, 50, 512),
    Size(8, 1500, 300, 512),
    Size(64, 150, 40, 5000),
    _MIDDLE._replace(dtype="float16"),
    Size(8, 1500, 300, 512, "float16"),
    # The number of labels on its own, with odd ones, and long lattices.
    *(_MIDDLE._replace(V=v) for v in (29, 128, 1025, 4096)),
    Size(8, 200, 50, 16385, "bfloat16"),
    Size(2, 3000, 1500, 64),
    Size(16, 1500, 300, 1024, "float16"),
    _MIDDLE._replace(dtype="bfloat16"),
    _MIDDLE._replace(ragged=True),
    # Families and penalties.
    *(_MIDDLE._replace(family=family) for family in ("multi_blank", "tdt", "penalties")),
    # The lattice alone, nearly.
    _MIDDLE._replace(V=8),
    Size(1, 3000, 600, 8),
    # Fused with the joint network.
    *(_MIDDLE._replace(dtype=dtype, H=640) for dtype in ("bfloat16", "float16", "float32")),
    *(_MIDDLE._replace(dtype="bfloat16", family=family, H=640) for family in ("multi_blank", "tdt")),
    _MIDDLE._replace(dtype="bfloat16", ragged=True, H=640),
    Size(8, 1500, 300, 1024, "bfloat16", H=640),
    Size(8, 400, 100, 8193, "bfloat16", H=512),
    Size(12, 350, 80, 1025, H=512),
    Size(10, 500, 110, 1025, H=700),
    Size(8, 260, 60, 4096, H=700),
    *(Size(6, 300, 50, 4096, dtype, H=512) for dtype in ("float32", "bfloat16", "float16")),
]
SIZES += [_MIDDLE._replace(family=family, align=True) for family in ("rnnt", "multi_blank", "tdt")]
SIZES.append(Size(8, 1500, 300, 512, align=True))
DECODED = [Size(16, 400, 100, 1024, H=640), Size(1, 400, 100, 1024, H=640), Size(64, 100, 40, 128, H=128)]
DECODED += [DECODED[0]._replace(family=family) for family in ("multi_blank", "tdt")]
SIZES += [size._replace(beams=beams) for size in DECODED for beams in (1, 4)]
QUICK_SIZES = [
    Size(2, 50, 20, 128),
    Size(2, 40, 10, 29, "float16"),
    Size(2, 50, 20, 128, family="tdt"),
    Size(2, 50, 20, 128, family="multi_blank", ragged=True),
    Size(2, 50, 20, 128, H=64),
    Size(2, 50, 20, 128, H=64, beams=1),
    *(Size(2, 50, 20, 128, family=family, H=64, beams=1) for family in ("multi_blank", "tdt")),
    Size(2, 50, 20, 128, align=True),
]
