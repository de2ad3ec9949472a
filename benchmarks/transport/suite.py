"""What `make gpu-check` measures of optimal transport."""

from functools import partial

from benchmarks.harness.kernels import launches
from benchmarks.harness.suite import Suite
from benchmarks.transport.measure import measure, not_reproducible
from benchmarks.transport.sizes import QUICK_SIZES, SIZES

SUITE = Suite(
    name="transport",
    sizes=SIZES,
    quick_sizes=QUICK_SIZES,
    measure=measure,
    columns=(
        "solve_ms",
        "graph_solve_ms",
        "read_ms",
        "mib",
        "err_value",
        "loop_ms",
        "pot_ms",
        "geomloss_ms",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.transport.sanitize",
    launches=partial(launches, "transport"),
)
