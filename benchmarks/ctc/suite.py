"""What `make gpu-check` measures of CTC losses, alignments, decoding and monotonic alignment search."""

from functools import partial

from benchmarks.ctc.measure import measure, not_reproducible
from benchmarks.ctc.sizes import QUICK_SIZES, SIZES
from benchmarks.harness.kernels import launches
from benchmarks.harness.suite import Suite

SUITE = Suite(
    name="ctc",
    sizes=SIZES,
    quick_sizes=QUICK_SIZES,
    measure=measure,
    columns=(
        "forward_ms",
        "step_ms",
        "graph_forward_ms",
        "graph_step_ms",
        "copy_ms",
        "mib",
        "err_loss",
        "err_g",
        "torch_step_ms",
        "torch_mib",
        "torch_err_g",
        "cudnn_step_ms",
        "cudnn_err_g",
        "align_ms",
        "graph_align_ms",
        "torchaudio_align_ms",
        "mas_ms",
        "graph_mas_ms",
        "beam_ms",
        "graph_beam_ms",
        "greedy_ms",
        "graph_greedy_ms",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.ctc.sanitize",
    launches=partial(launches, "ctc"),
)
