"""What `make gpu-check` measures of optimal transport."""

from functools import partial

import torch

from benchmarks.harness.kernels import launches
from benchmarks.harness.results import Row
from benchmarks.harness.suite import Suite
from benchmarks.transport.gromov import GROMOV_SIZES, QUICK_GROMOV_SIZES, GromovSize, measure_gromov
from benchmarks.transport.measure import measure, not_reproducible
from benchmarks.transport.normalize import (
    NORMALIZE_SIZES,
    QUICK_NORMALIZE_SIZES,
    NormalizeSize,
    measure_normalize,
)
from benchmarks.transport.sizes import QUICK_SIZES, SIZES, Size


def measure_any(size: Size | GromovSize | NormalizeSize, device: torch.device, budget_s: float) -> Row:
    if isinstance(size, GromovSize):
        return measure_gromov(size, device, budget_s)
    if isinstance(size, NormalizeSize):
        return measure_normalize(size, device, budget_s)
    return measure(size, device, budget_s)


SUITE = Suite(
    name="transport",
    sizes=[*SIZES, *GROMOV_SIZES, *NORMALIZE_SIZES],
    quick_sizes=[*QUICK_SIZES, *QUICK_GROMOV_SIZES, *QUICK_NORMALIZE_SIZES],
    measure=measure_any,
    columns=(
        "solve_ms",
        "graph_solve_ms",
        "read_ms",
        "mib",
        "err_value",
        "err_gradient",
        "loop_ms",
        "graph_loop_ms",
        "compiled_ms",
        "pot_ms",
        "geomloss_ms",
        "flash_ms",
        "ott_ms",
        "steps",
        "rho",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.transport.sanitize",
    launches=partial(launches, "transport"),
    # A warp's lanes read a row, wait for each other, and one of them arrives at the barrier that the next copy into the
    # row's place waits for. racecheck reports races of the reads with the copy, in these functions
    # (docs/developer/kernels/transport_rows.md).
    known_races=("::sums_of<", "ClusterRows<(int)16, (int)384, (int)2, (int)2>::run<"),
)
