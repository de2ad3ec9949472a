"""The sizes that the soft-DTW benchmark covers."""

from __future__ import annotations

from typing import NamedTuple


class Size(NamedTuple):
    """B pairs of series with N and M samples of D features."""

    B: int
    N: int
    M: int
    D: int
    gamma: float = 1.0
    precision: str = "highest"

    @property
    def name(self) -> str:
        how = "" if self.precision == "highest" else f" {self.precision}"
        return f"{self.B}x{self.N}x{self.M}x{self.D}@{self.gamma:g}{how}"

    @property
    def cells(self) -> int:
        return self.B * self.N * self.M


def _square(batch: int, length: int, dim: int, gamma: float = 1.0) -> Size:
    return Size(batch, length, length, dim, gamma)


_ALL = [
    # Sizes that published packages were measured at, and their neighbours.
    *(_square(batch, n, d) for batch in (16, 32) for n in (128, 512, 1024, 2048) for d in (1, 64)),
    _square(512, 64, 2),
    _square(512, 256, 2),
    Size(128, 17, 15, 2),
    # Small gamma, where gradients of differences of large numbers lose their digits.
    _square(32, 512, 64, 0.01),
    _square(1, 1024, 8, 0.1),
    # The length and the number of features, each on its own.
    *(_square(32, n, 128) for n in (64, 128, 256, 512, 1024, 2048)),
    *(_square(32, 256, d) for d in (8, 16, 32, 64, 128, 256, 1024)),
    # Embeddings, cepstral coefficients, mel bands.
    _square(64, 128, 768),
    _square(32, 512, 512),
    _square(32, 750, 13),
    _square(16, 1000, 80),
    # Many short pairs, many pairs, skewed pairs, few long pairs.
    _square(4096, 32, 4),
    _square(2048, 512, 1),
    Size(32, 256, 2048, 16),
    Size(32, 256, 8192, 16),
    _square(4, 8192, 16),
    _square(1, 8192, 16),  # no room in a panel, and few strips: larger crews
    _square(1, 16384, 4),
    # On the matrix units.
    *(
        size._replace(precision=precision)
        for size in (
            *(_square(32, n, 64) for n in (128, 512, 1024, 2048)),
            _square(32, 512, 64, 0.01),
            *(_square(32, 256, d) for d in (8, 16, 32, 256, 1024)),
            _square(64, 128, 768),
            _square(32, 750, 13),
            _square(16, 1000, 80),
            _square(32, 2048, 128),
            Size(32, 256, 2048, 16),
            _square(4, 8192, 16),
        )
        for precision in ("high", "medium")
    ),
]
SIZES: list[Size] = list(dict.fromkeys(_ALL))

QUICK_CELLS = 1_200_000  # --quick keeps the sizes up to this many cells
