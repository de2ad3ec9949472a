"""What `make gpu-check` measures of the transducer losses and of decoding."""

from functools import partial

from benchmarks.harness.kernels import launches
from benchmarks.harness.suite import Suite
from benchmarks.transducer.measure import measure, not_reproducible
from benchmarks.transducer.sizes import QUICK_SIZES, SIZES

SUITE = Suite(
    name="transducer",
    sizes=SIZES,
    quick_sizes=QUICK_SIZES,
    measure=measure,
    columns=(
        "forward_ms",
        "step_ms",
        "graph_forward_ms",
        "graph_step_ms",
        "high_step_ms",
        "copy_ms",
        "mib",
        "inplace_mib",
        "err_loss",
        "err_g",
        "torchaudio_step_ms",
        "torchaudio_mib",
        "materialised_step_ms",
        "materialised_mib",
        "chunks_step_ms",
        "chunks_mib",
        "align_ms",
        "posteriors_ms",
        "graph_align_ms",
        "graph_posteriors_ms",
        "decode_ms",
        "decode_graph_ms",
        "loop_ms",
        "torchaudio_decode_ms",
    ),
    not_reproducible=not_reproducible,
    sanitizer="benchmarks.transducer.sanitize",
    launches=partial(launches, "transducer"),
)
