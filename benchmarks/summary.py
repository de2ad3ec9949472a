"""The table `summary` and its plot: the median and the range of all committed comparisons, by operator.

README.md, docs/choosing.md and docs/benchmarks.md show them. A comparison is one problem that both packages solved on the same device; where a
problem was measured more than once, the newest row counts, as in the tables of each operator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.ctc.tables import loss_rows as ctc_rows
from benchmarks.harness.results import Row
from benchmarks.harness.tables import OURS, load, markdown, newest, number, times
from benchmarks.recurrent.tables import map_rows
from benchmarks.soft_dtw.cpu_tables import size_of
from benchmarks.soft_dtw.tables import all_peers, gpu_rows, peers_of
from benchmarks.transducer.tables import loss_rows
from benchmarks.transport.tables import package_groups


class Comparison(NamedTuple):
    """What one row of the table says."""

    what: str
    other: str
    short: str
    """The other package's name for the plot."""
    ratios: list[float]
    """The other package's time over this library's, for each problem."""
    rows: list[Row]
    """The rows of this library, which name device, commit and date."""


def soft_dtw() -> Comparison:
    """Training steps in float32 next to the fastest of the packages that ran at each size."""
    peers, ratios, rows = all_peers(), [], []
    for row in gpu_rows():
        if others := peers_of(size_of(row), row["device"], peers):
            ratios.append(others[0]["step_ms"] / row["step_ms"])
            rows.append(row)
    other = "the fastest of softdtw-cuda-torch, soft_dtw_cuda, pysdtw"
    return Comparison("soft-DTW, training step, float32", other, "fastest of three", ratios, rows)


def transducer() -> Comparison:
    """Training steps of the RNN-T loss on given logits."""
    rows = [row for row in loss_rows("nvidia-*/*.json") if row.get("torchaudio_step_ms")]
    ratios = [row["torchaudio_step_ms"] / row["step_ms"] for row in rows]
    return Comparison("RNN-T loss, training step", "torchaudio `rnnt_loss`", "torchaudio", ratios, rows)


def ctc() -> Comparison:
    """Training steps, eager in both packages."""
    rows = [row for row in ctc_rows() if row.get("torch_step_ms")]
    ratios = [
        min(row[key] for key in ("torch_step_ms", "cudnn_step_ms") if row.get(key)) / row["step_ms"]
        for row in rows
    ]
    return Comparison(
        "CTC loss, training step", "torch `ctc_loss`, the faster of its two forms", "torch", ratios, rows
    )


def sinkhorn() -> Comparison:
    """The same number of iterations on given costs."""
    rows = [row for row in load("nvidia-*/*.json") if row["op"] == "transport" and row.get("pot_ms")]
    rows = newest([row for row in rows if "method" not in row], "device", "N", "M", "dtype", "iterations")
    ratios = [row["pot_ms"] / row["solve_ms"] for row in rows]
    return Comparison(
        "Sinkhorn in the log domain, iterations on given costs",
        "POT `sinkhorn_log` on torch",
        "POT",
        ratios,
        rows,
    )


def gradients(on_gpu: bool) -> Comparison:
    """Gradients between points at equal epsilon, objective and accuracy, next to the fastest of the other packages."""
    groups = package_groups(on_gpu)
    ratios = [min(row["ms"] for row in rows.values() if row is not own) / own["ms"] for own, rows in groups]
    other = "the fastest of POT, OTT-JAX, geomloss"
    what = "Sinkhorn between points, gradient at equal accuracy" + ("" if on_gpu else ", one core")
    short = "fastest of three" + ("" if on_gpu else ", one core")
    return Comparison(what, other, short, ratios, [own for own, _ in groups])


def gromov() -> Comparison:
    """Sampled Gromov-Wasserstein and POT's entropic solver at equal epsilon, whose plans have equal distortion."""
    found = newest(load("*/*-gromov-cpu.json"), "impl", "N", "M", "epsilon")
    problem = ("N", "M", "epsilon")
    other = {tuple(row[key] for key in problem): row["seconds"] for row in found if row["impl"] != OURS}
    rows = [row for row in found if row["impl"] == OURS and tuple(row[key] for key in problem) in other]
    ratios = [other[tuple(row[key] for key in problem)] / row["seconds"] for row in rows]
    what = "Gromov–Wasserstein, sampled, equal distortion, one core"
    return Comparison(what, "POT `entropic_gromov_wasserstein`", "POT", ratios, rows)


def lstm() -> Comparison:
    """Forward passes, training steps and streams in CUDA graphs, over the map of shapes; float32 also with TF32 allowed."""
    rows = map_rows()
    pairs = [(row.get(name), row.get(f"cudnn_{name}")) for row in rows for name in ("ms", "ms_tf32")]
    ratios = [cudnn / own for own, cudnn in pairs if own and cudnn]
    return Comparison(
        "LSTM, forward pass or training step in a CUDA graph",
        "cuDNN (`torch.nn.LSTM`)",
        "cuDNN",
        ratios,
        rows,
    )


def summary_table() -> str:
    """One row per comparison."""
    found = comparisons()
    header = ["operator", "compared with", "device", "problems", "faster: median", "range"]
    body = [
        [
            *(one.what, one.other, ", ".join(sorted({row["device"] for row in one.rows}))),
            *(str(len(one.ratios)), f"**{times(median(one.ratios))}**"),
            f"{number(min(one.ratios), 2)} to {times(max(one.ratios))}",
        ]
        for one in found
    ]
    rows = [row for one in found for row in one.rows]
    dates = sorted({row["date"] for row in rows})
    note = "The range covers every problem in the result files that both packages ran."
    return f"{markdown(header, body)}\n\n{note} torch {max(row['torch'] for row in rows)}, {dates[0]} to {dates[-1]}."


def comparisons() -> list[Comparison]:
    """In the table's order."""
    return [
        *(soft_dtw(), ctc(), transducer(), sinkhorn()),
        *(gradients(on_gpu=True), gradients(on_gpu=False), gromov(), lstm()),
    ]


def speedups() -> str:
    """The link to the plot."""
    return "![Ratio of the other package's time to warpalign's, one point per problem](images/speedups.png)"


def draw(folder: Path) -> list[Path]:
    """One row of points per comparison: every ratio, and the median."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = comparisons()
    figure, axis = plt.subplots(figsize=(8, 4), constrained_layout=True)
    for place, one in enumerate(found):
        ratios = sorted(one.ratios)
        heights = [place + 0.3 * (k % 7 - 3) / 3 for k in range(len(ratios))]
        axis.plot(ratios, heights, "o", markersize=3, alpha=0.5, color="#0072B2")
        axis.plot([median(ratios)] * 2, [place - 0.4, place + 0.4], color="#D55E00", linewidth=2)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_yticks(range(len(found)), [f"{one.what.split(',')[0]}\nvs. {one.short}" for one in found])
    axis.set(xscale="log", xlabel="time of the other package / time of warpalign (line: median)")
    ticks = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 400]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.invert_yaxis()
    path = folder / "speedups.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return [path]


TABLES: dict[str, Callable[[], str]] = {"summary": summary_table, "speedups": speedups}
