"""What `make gpu-check` measures of the LSTM."""

from functools import partial

from benchmarks.harness.kernels import launches
from benchmarks.harness.suite import Suite
from benchmarks.recurrent.measure import measure, not_reproducible
from benchmarks.recurrent.sizes import QUICK_SIZES, SIZES

SUITE = Suite(
    name="recurrent",
    sizes=SIZES,
    quick_sizes=QUICK_SIZES,
    measure=measure,
    columns=(
        "forward_ms",
        "step_ms",
        "graph_step_ms",
        "mib",
        "cudnn_step_ms",
        "cudnn_graph_step_ms",
        "cudnn_mib",
        "ratio",
        "err_y",
        "err_gr",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.recurrent.sanitize",
    launches=partial(launches, "recurrent"),
)
