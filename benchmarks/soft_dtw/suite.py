"""What `make gpu-check` measures of soft-DTW."""

from functools import partial

from benchmarks.harness.kernels import launches
from benchmarks.harness.suite import Suite
from benchmarks.soft_dtw import eager_step
from benchmarks.soft_dtw.measure import measure, not_reproducible
from benchmarks.soft_dtw.sizes import QUICK_CELLS, SIZES

SUITE = Suite(
    name="soft_dtw",
    sizes=SIZES,
    quick_sizes=[size for size in SIZES if size.cells <= QUICK_CELLS],
    measure=measure,
    columns=(
        "forward_ms",
        "step_ms",
        "graph_forward_ms",
        "graph_step_ms",
        "mib",
        "err_loss",
        "err_gx",
        "err_gy",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.soft_dtw.sanitize",
    sweep="benchmarks.soft_dtw.sweep",
    launches=partial(launches, "soft_dtw"),
    eager=eager_step.row,
)
