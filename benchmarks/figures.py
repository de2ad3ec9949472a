"""The source of every measured figure in the sentences of README.md and docs/, by page, in the page's order.

`at` is one number of a result file, relative to benchmarks/results; text and number must agree to the digits that the page
shows. `Given` is a number that is no measurement: it names the file that sets it and what that file says. Tables of
measurements are written by benchmarks/report.py. docs/developer/kernels/ and docs/developer/libraries.md are records of development:
their figures are those that the runs they describe gave, and are not looked up.

    python -m benchmarks.figures    says what does not agree, and exits with 1
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

from benchmarks.harness.figures import Given, at, faults, rows_of
from benchmarks.harness.results import ROOT
from benchmarks.recurrent.tables import newest_steps
from benchmarks.soft_dtw.cpu_tables import size_of
from benchmarks.soft_dtw.tables import gpu_rows, panel_option_rows

Named = list[tuple[str, float | Given]]

FULL = "nvidia-h200/2026-11-23-4fe2db0.json"
TRANSPORT = "nvidia-h200/2026-11-30-d32bbdf3.json"
OPTIONS = "nvidia-h200/2026-11-24-d8a14d3-options.json"
MAP = "nvidia-h200/2026-11-23-ca709d5-lstm-map.json"
JOINT = "nvidia-h200/2026-11-29-791a4a14-transducer-joint-gpu.json"
DELAYS = "nvidia-h200/2026-11-29-791a4a14-recogniser-delays.json"
JOINT_CPU = "amd-epyc-avx-512/2026-11-23-50e806f821-transducer-joint-cpu.json"
SECOND_ORDER = "amd-epyc-avx2/2026-11-24-044d36ac4b-second-order.json"
TRELLIS = "amd-epyc-avx-512/2026-11-28-e28fef0fd7-ctc-trellis.json"
WHEEL = "amd-epyc-avx-512/2026-11-29-a3099e90-wheel.json"
BANDS = "nvidia-h200/2026-11-29-ec595c3764-bands.json"
DDP = "nvidia-h200/2026-11-29-089971fdc6-ddp.json"
KEPT_BYTES = Given("src/transport/cpu_problem.h", "kMostKeptBytes = std::int64_t{1} << 28")
STEP_COSTS = Given("python/warpalign/_transport/gromov_anchors.py", "_SHARED_BYTES = 1 << 29")


def pages() -> list[Path]:
    """The pages whose figures are looked up: all but the records of development."""
    docs = [
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.parent.name != "kernels" and page.name != "libraries.md"
    ]
    return [ROOT / "README.md", *docs]


def _sampled(column: str, points: int) -> float:
    return at(TRANSPORT, "transport", column, method="landmark", N=points)


def _banded(options: str) -> float:
    return at(BANDS, "narrow_bands", "step_ms", B=32, N=2048, D=1, options=options)


def _efficiency(pairs: int, length: int) -> float:
    return at(DDP, "ddp_training", "efficiency", processes=2, B=pairs, N=length)


def _sinkhorn_iteration(dtype: str) -> float:
    problem = {"N": 10001, "dtype": dtype, "kind": "balanced", "updates": "alternating", "half": False}
    return at(TRANSPORT, "transport", "solve_ms", **problem, iterations=100) / 100


def _stored(column: str) -> float:
    """Of the divergence of 12 000 points with 128 features, with stored costs."""
    return at(TRANSPORT, "transport", column, D=128, stored=True)


def _computed(column: str) -> float:
    """Of the same divergence, without them."""
    return at(TRANSPORT, "transport", column, D=128, precision="highest", stored=False)


def _gain_of_binary16() -> float:
    """By how much less time costs in binary16 take."""
    problem = {"N": 10001, "dtype": "float32", "kind": "balanced", "updates": "alternating"}
    half, single = (at(TRANSPORT, "transport", "solve_ms", **problem, half=half) for half in (True, False))
    return 1 - half / single


def _stored_beside_ott() -> float:
    return _stored("ott_ms") / _stored("solve_ms")


def _option(case: str) -> float:
    """How much longer a step of 32 pairs of 2048 x 2048 with one feature takes."""
    size = {"B": 32, "n": 2048, "D": 1}
    return at(OPTIONS, "soft_dtw_options", "step_ms", case=case, **size) / at(
        OPTIONS, "soft_dtw_options", "step_ms", case="none", **size
    )


def _many_features(features: int) -> float:
    """How much faster a step in a CUDA graph is than softdtw-cuda-torch's."""
    size = {"B": 32, "N": 256, "M": 256, "D": features, "precision": "highest"}
    return at(FULL, "soft_dtw", "softdtw_cuda_torch_graph_step_ms", **size) / at(
        FULL, "soft_dtw", "graph_step_ms", **size
    )


def _largest_gain_of_high() -> float:
    highest, high = (
        {size_of(row)[:5]: row["graph_step_ms"] for row in gpu_rows(name) if row["D"] >= 17}
        for name in ("highest", "high")
    )
    return float(max(1 - high[size] / highest[size] for size in highest.keys() & high.keys()))


def _joint(column: str, dtype: str = "bfloat16", family: str = "rnnt", frames: int = 400) -> float:
    problem = {"T": frames, "V": 1024, "dtype": dtype, "family": family, "ragged": False, "align": False}
    return at(JOINT, "transducer", column, **problem, H=640, beams=0)


def _earlier(setting: str) -> float:
    """By how much labels come before those of the models without FastEmit and without a delay penalty, in seconds."""
    delays = [
        [float(row["delay_ms"]) for row in rows_of(DELAYS, "transducer_recogniser_tuned", family=family)]
        for family in ("RNN-T", setting)
    ]
    return mean(delays[0]) / 1000 - mean(delays[1]) / 1000


def _joint_cpu(column: str) -> float:
    return at(JOINT_CPU, "transducer_joint", column, B=16, dtype="float32")


def _lstm() -> list[float]:
    """Steps in 16-bit types by cuDNN's, the least first."""
    rows = [row for size, row in newest_steps().items() if size.dtype.endswith("float16")]
    return sorted(
        row["graph_step_ms"] / row["cudnn_graph_step_ms"] for row in rows if row["cudnn_graph_step_ms"]
    )


def _lstm_losses() -> list[float]:
    """By how much less time cuDNN takes where it is faster, the least first."""
    rows = rows_of(MAP, "lstm_map")
    pairs = [(row.get(name), row.get(f"cudnn_{name}")) for row in rows for name in ("ms", "ms_tf32")]
    ratios = [cudnn / ours for ours, cudnn in pairs if ours and cudnn]
    if len(ratios) != 309:
        raise ValueError(f"{MAP}: docs/benchmarks.md says 309 comparisons, there are {len(ratios)}")
    return sorted(1 - ratio for ratio in ratios if ratio < 1)


def _product(dtype: str) -> list[float]:
    """Hessian-vector products by first-order steps on a CPU, the least first."""
    rows = rows_of(SECOND_ORDER, "soft_dtw_second_order", dtype=dtype)
    return sorted(row["product_ns"] / row["step_ns"] for row in rows)


def _limits() -> Named:
    losses, lstm = _lstm_losses(), _lstm()
    if len(losses) != 5:
        raise ValueError(
            f"{MAP}: docs/benchmarks.md says that cuDNN is faster in five cases, it is in {len(losses)}"
        )
    few_bytes = Given("tuning/soft_dtw.json", '{"9.0": 268435456}')
    shared = Given("src/soft_dtw/cuda/call/cuda_call.cu", "and 83")
    return [
        ("40 %", Given("benchmarks/soft_dtw/training_impact.py", "forecasts the last 40 %")),
        ("8 %", _gain_of_binary16()),
        ("39 MiB", _computed("mib")),
        ("185 ms", _computed("solve_ms")),
        ("53.5 ms", _stored("solve_ms")),
        ("650 MiB", _stored("mib")),
        ("1.8 times", _stored_beside_ott()),
        ("37 ms", _sampled("solve_ms", 4000)),
        ("14 MiB", _sampled("mib", 4000)),
        ("0.46 s", _sampled("solve_ms", 50000)),
        ("130 MiB", _sampled("mib", 50000)),
        ("1.8 times", max(row["graph_step_ms"] / none for row, none in panel_option_rows())),
        ("1.4 times", _option("step_penalty")),
        ("2.5 times", max(_option(case) for case in ("l1", "euclidean", "missing steps"))),
        ("10 %", Given("docs/benchmarks.md", "[band of 10 %]")),
        ("45 %", 1 - _banded("band of 10 %") / _banded("none")),
        ("256 MiB", few_bytes),
        ("6.5 times", _many_features(128)),
        ("2.4 times", _many_features(1024)),
        ("17 %", _largest_gain_of_high()),
        ("83 KiB", shared),
        ("6.6 ms", _joint("step_ms")),
        ("124 MiB", _joint("mib")),
        ("7.2 ms", _joint("materialised_step_ms")),
        ("3.1 GiB", _joint("materialised_mib")),
        ("24 ms", _joint("step_ms", frames=1500)),
        ("39 ms", _joint("materialised_step_ms", frames=1500)),
        ("16 GiB", _joint("materialised_mib", frames=1500)),
        ("10.4 ms", _joint("step_ms", family="multi_blank")),
        ("7.8 ms", _joint("materialised_step_ms", family="multi_blank")),
        ("26 ms", _joint("step_ms", "float32")),
        ("55 ms", _joint("materialised_step_ms", "float32")),
        ("0.17 ms", _sinkhorn_iteration("float32")),
        ("0.56 ms", _sinkhorn_iteration("float64")),
        ("15 %", lstm[0]),
        ("99 %", lstm[-1]),
        ("15 %", losses[-1]),
        ("1.5 %", losses[0]),
        ("1.8 %", losses[-2]),
    ]


_XU = Given("docs/topics/recogniser.md", "over 90 and 139 % faster on two data sets")


def _recogniser() -> Named:
    return [
        ("90 %", _XU),
        ("139 %", _XU),
        ("20 ms", Given("examples/recognise_speech_steps/corpus.py", "seconds of a frame: 20 ms")),
        ("80 %", Given("examples/recognise_speech_steps/model.py", "Blanks then have 80 % of")),
        ("39 ms", _earlier("delay penalty 0.001")),
        ("167 ms", _earlier("FastEmit 0.03")),
        ("211 ms", _earlier("FastEmit 0.1")),
    ]


def _choosing() -> Named:
    return [
        ("1 %", Given("docs/choosing.md", "errors of at most 1 %, or an equal objective")),
        (
            "1 %",
            Given("docs/choosing.md", "fastest method and setting whose gradient has an error of at"),
        ),
        ("1.8 times", _stored_beside_ott()),
        ("2 %", _lstm_losses()[-2]),
    ]


def named() -> dict[str, Named]:
    """The figures of every page that has any."""
    floats, doubles = _product("float32"), _product("float64")
    exact = {"method": "exact", "N": 4000, "iterations": 5, "precision": "medium"}
    return {
        "README.md": [("1.8 times", _stored_beside_ott())],
        "docs/choosing.md": _choosing(),
        "docs/developer/architecture.md": [
            ("2.20 s", _joint_cpu("step_ms")),
            ("2.56 s", _joint_cpu("materialised_step_ms")),
            ("64 minutes", at(WHEEL, "wheel", "cpu_s")),
            ("45 MB", at(WHEEL, "wheel", "wheel_bytes")),
        ],
        "docs/benchmarks.md": _limits(),
        "docs/developer/tuning.md": [("3 %", Given("benchmarks/harness/tuning.py", "GAIN = 0.03"))],
        "docs/howto/forced-alignment.md": [
            ("20 ms", Given("examples/align_speech_steps/model.py", "seconds of a frame of logits: 20 ms")),
            ("55 ms", at(TRELLIS, "ctc_trellis", "trellis_ms", T=1500, L=300)),
            ("0.40 ms", at(TRELLIS, "ctc_trellis", "align_ms", T=1500, L=300)),
            ("0.76 s", at(TRELLIS, "ctc_trellis", "trellis_ms", T=15000, L=3000)),
            ("24 ms", at(TRELLIS, "ctc_trellis", "align_ms", T=15000, L=3000)),
            ("172 MiB", at(TRELLIS, "ctc_trellis", "trellis_mib", T=15000, L=3000)),
        ],
        "docs/howto/gromov.md": [
            ("512 MiB", STEP_COSTS),
            ("512 MiB", STEP_COSTS),
            ("43 ms", at(TRANSPORT, "transport", "solve_ms", **exact)),
        ],
        "docs/howto/transport.md": [
            ("54 ms", _stored("solve_ms")),
            ("185 ms", _computed("solve_ms")),
            ("256 MiB", KEPT_BYTES),
        ],
        "docs/howto/transducer.md": [
            ("128 MiB", Given("python/warpalign/_transducer/settings.py", "WORKSPACE_LIMIT = 128 * 2**20")),
        ],
        "docs/howto/second-order.md": [
            ("1.6 times", doubles[0]),
            ("2.4 times", doubles[-1]),
            ("3.9 times", floats[0]),
            ("5.6 times", floats[-1]),
            (
                "90 times",
                at(OPTIONS, "soft_dtw_options", "product_ms", n=2048, D=1)
                / at(OPTIONS, "soft_dtw_options", "step_ms", case="none", n=2048, D=1),
            ),
        ],
        "docs/numerics.md": [
            ("100 times", Given("docs/numerics.md", "exceed 100 times the distance of aligned steps")),
            ("256 MiB", Given("src/transport/cpu_problem.h", "kMostKeptBytes = std::int64_t{1} << 28")),
        ],
        "docs/support.md": [
            ("94 %", _efficiency(256, 512)),
            ("98 %", _efficiency(32, 512)),
            ("76 %", _efficiency(32, 2048)),
        ],
        "docs/topics/recogniser.md": _recogniser(),
        "docs/topics/speech.md": [
            ("1 %", Given("docs/topics/speech.md", "gamma from 1 % to 10 % of the mean cost")),
            ("10 %", Given("docs/topics/speech.md", "gamma from 1 % to 10 % of the mean cost")),
        ],
    }


def all_faults() -> list[str]:
    """What does not agree on any page."""
    known, told = named(), []
    for page in pages():
        name = str(page.relative_to(ROOT))
        told += faults(name, page.read_text(), known.pop(name, []))
    return [*told, *(f"benchmarks/figures.py: there is no page {name}" for name in known)]


def main() -> int:
    told = all_faults()
    for fault in told:
        print(fault)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
