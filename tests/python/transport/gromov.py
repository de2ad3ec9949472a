"""Gromov-Wasserstein transport as the tests call it: with an epsilon and a seed unless a test has its own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from warpalign.transport import (
    GromovResult,
    gromov_wasserstein,
    gromov_wasserstein_sampled,
)

DEFAULTS: dict[str, Any] = {"epsilon": 1e-3, "generator": 0}


def solve_exact(*points: Tensor | None, **options: Any) -> GromovResult:
    return gromov_wasserstein(*points, **DEFAULTS | options)


def solve_sampled(*points: Tensor | None, **options: Any) -> GromovResult:
    return gromov_wasserstein_sampled(*points, **DEFAULTS | options)
