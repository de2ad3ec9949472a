"""The sizes that the transport benchmark covers."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Size(NamedTuple):
    """B problems of N and M points: given costs (B, N, M) where D is 0, else points of D features."""

    B: int
    N: int
    M: int
    D: int = 0
    dtype: str = "float32"
    iterations: int = 100
    kind: str = "balanced"
    updates: str = "alternating"
    epsilon_start: float = 0.0  # 0: no annealing
    gradient: bool = False
    precision: str = "highest"
    half: bool = False  # given costs are float16
    divergence: bool = False  # sinkhorn_divergence, three problems of points, in the place of sinkhorn
    stored: bool = False  # costs of points are stored

    @property
    def name(self) -> str:
        how = "" if self.kind == "balanced" else f" {self.kind}"
        how += "" if self.updates == "alternating" else f" {self.updates}"
        how += " annealed" if self.epsilon_start else ""
        how += " gradient" if self.gradient else ""
        how += "" if self.precision == "highest" else f" {self.precision}"
        how += " half" if self.half else ""
        how += " divergence" if self.divergence else ""
        how += " stored" if self.stored else ""
        source = f"D{self.D}" if self.D else "dense"
        return f"{self.B}x{self.N}x{self.M} {source} {self.dtype} {self.iterations}it{how}"

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


_LARGE = Size(1, 10001, 12001)
_POINTS = Size(
    1,
    10000,
    10000,
    64,
    iterations=1,
    updates="symmetric",
    epsilon_start=64.0,
    gradient=True,
    precision="medium",
)
_DIVERGENCE = Size(1, 6000, 6000, 3, iterations=50, updates="symmetric", gradient=True, divergence=True)
SIZES: list[Size] = [
    # Costs given: the same sizes that a straightforward torch loop was measured at.
    _LARGE,
    Size(1, 5001, 6001),
    Size(1, 2000, 2500),
    Size(1, 1024, 1024),
    _LARGE._replace(dtype="float64"),
    _LARGE._replace(kind="unbalanced"),
    _LARGE._replace(kind="partial"),
    _LARGE._replace(updates="symmetric"),
    _LARGE._replace(half=True),
    Size(1, 20000, 25000, iterations=20),
    Size(256, 64, 64),
    Size(64, 500, 500),
    Size(512, 64, 64, iterations=50, gradient=True),
    Size(64, 300, 400, iterations=50, gradient=True),
    # Points: an annealed symmetric solve with gradients, and fixed iterations.
    _POINTS._replace(N=2000, M=2000),  # the largest one that geomloss is run on
    _POINTS._replace(N=5000, M=5000),
    _POINTS._replace(N=5000, M=5000, precision="high"),
    _POINTS,
    _POINTS._replace(precision="high"),
    _POINTS._replace(N=50000, M=50000),
    _POINTS._replace(N=50000, M=50000, precision="high"),
    Size(1, 10000, 10000, 64, iterations=20),
    Size(1, 10000, 10000, 64, iterations=20, precision="high"),
    Size(1, 10000, 10000, 64, iterations=20, precision="medium"),
    Size(1, 10000, 10000, 3),
    Size(1, 6000, 6000, 3, iterations=50, updates="symmetric", gradient=True),
    _DIVERGENCE,
    _DIVERGENCE._replace(N=2000, M=2000),
    *(
        _DIVERGENCE._replace(N=count, M=count, D=features, precision=precision)
        for count, features in ((8192, 32), (12000, 128))
        for precision in ("highest", "high")
    ),
    _DIVERGENCE._replace(N=12000, M=12000, D=128, stored=True),
    Size(1, 50000, 50000, 64, iterations=100, precision="medium"),
]
QUICK_SIZES = [
    Size(1, 65, 70, iterations=10),
    Size(3, 65, 70, iterations=10, gradient=True),
    Size(1, 65, 71, iterations=10, half=True),
    Size(2, 65, 70, kind="unbalanced", iterations=10),
    Size(1, 65, 70, 3, kind="partial", iterations=10),
    Size(1, 40, 50, 8, iterations=3, updates="symmetric", epsilon_start=8.0, gradient=True),
    Size(1, 40, 50, 8, iterations=3, precision="medium"),
    Size(1, 40, 50, 3, iterations=3, updates="symmetric", gradient=True, divergence=True),
    Size(1, 40, 50, 9, iterations=3, updates="symmetric", gradient=True, divergence=True, stored=True),
]
