"""Plots of the soft-DTW results: time and memory of a training step against N and D with the peers, time over every N."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

from benchmarks.harness.results import Row

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.axes import Axes  # noqa: E402

OURS = "warpalign"
STYLE = {
    OURS: ("#0072B2", "o"),
    "softdtw-cuda-torch, unfused": ("#D55E00", "s"),
    "softdtw-cuda-torch, fused": ("#E69F00", "D"),
    "soft_dtw_cuda (Maghoumi)": ("#CC79A7", "^"),
    "pysdtw": ("#7F7F7F", "v"),
}
LABELS = {
    "step_ms": "time of a training step (ms)",
    "mib": "peak memory above the inputs (MiB)",
}


def _curve(
    rows: list[Row], column: str, against: str, wanted: Callable[[Row], bool]
) -> list[tuple[int, float]]:
    """Points of one implementation; a size at which it did not run is a gap in the line."""
    points = {row[against]: row[column] or math.nan for row in rows if wanted(row)}
    return sorted(points.items())


def _panel(panel: Axes, rows: list[Row], column: str, against: str, wanted: Callable[[Row], bool]) -> None:
    """One curve per implementation on doubly logarithmic axes."""
    for name, (color, marker) in STYLE.items():
        curve = _curve([row for row in rows if row["impl"] == name], column, against, wanted)
        if any(math.isfinite(value) for _, value in curve):
            ours = name == OURS
            panel.plot(
                *zip(*curve, strict=True),
                color=color,
                marker=marker,
                markersize=6 if ours else 4.5,
                linewidth=2.4 if ours else 1.4,
                label=name,
                zorder=3 if ours else 2,
            )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.grid(True, which="major", color="#E3E5E8", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)
    ticks = sorted({row[against] for row in rows if wanted(row)})
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.minorticks_off()


def draw(ours: list[Row], peers: list[Row], folder: Path) -> list[Path]:
    """soft_dtw_time.png and soft_dtw_memory.png for the device that most of our rows come from."""
    devices = [row["device"] for row in ours]
    device = max(set(devices), key=devices.count)
    rows = [{**row, "impl": OURS} for row in ours if row["precision"] == "highest"] + peers
    rows = [row for row in rows if row["device"] == device and row["gamma"] == 1.0 and row["B"] == 32]
    panels: list[tuple[str, str, str, Callable[[Row], bool]]] = [
        ("32 pairs, D = 1", "N", "N = M (samples)", lambda row: row["N"] == row["M"] and row["D"] == 1),
        ("32 pairs, D = 64", "N", "N = M (samples)", lambda row: row["N"] == row["M"] and row["D"] == 64),
        ("32 pairs, 256 x 256", "D", "D (features)", lambda row: row["N"] == row["M"] == 256),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for column, name in (("step_ms", "time"), ("mib", "memory")):
        figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for panel, (title, against, label, wanted) in zip(axes, panels, strict=True):
            _panel(panel, rows, column, against, wanted)
            panel.set_title(title, loc="left", fontweight="bold", fontsize=11)
            panel.set_xlabel(label)
        axes[0].set_ylabel(LABELS[column])
        handles = {
            label: handle
            for panel in axes
            for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        names = [name for name in STYLE if name in handles]
        figure.legend(
            [handles[name] for name in names],
            names,
            loc="outside lower center",
            ncols=len(names),
            frameon=False,
        )
        figure.suptitle(f"Soft-DTW, float32, {device}", x=0.01, ha="left", fontsize=10, color="#555555")
        path = folder / f"soft_dtw_{name}.png"
        figure.savefig(path, dpi=130)
        plt.close(figure)
        paths.append(path)
    return paths


def draw_sweep(rows: list[Row], folder: Path) -> Path:
    """soft_dtw_sweep.png: times inside a CUDA graph over every length."""
    features = sorted({row["D"] for row in rows})
    figure, axes = plt.subplots(
        1, len(features), figsize=(6 * len(features), 3.8), layout="constrained", squeeze=False
    )
    for panel, dim in zip(axes[0], features, strict=True):
        for column, label, color in (
            ("graph_step_ms", "training step", "#0072B2"),
            ("graph_forward_ms", "forward", "#009E73"),
        ):
            curve = [(row["N"], row.get(column) or math.nan) for row in rows if row["D"] == dim]
            panel.plot(*zip(*sorted(curve), strict=True), color=color, linewidth=1.2, label=label)
        panel.set_title(f"{rows[0]['B']} pairs, D = {dim}", loc="left", fontweight="bold", fontsize=11)
        panel.set_xlabel("N = M (samples)")
        panel.set_ylim(bottom=0)
        panel.grid(True, color="#E3E5E8", linewidth=0.8)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("time inside a CUDA graph (ms)")
    axes[0, 0].legend(frameon=False, loc="upper left")
    figure.suptitle(
        f"Soft-DTW, float32, {rows[0]['device']}, every length",
        x=0.01,
        ha="left",
        fontsize=10,
        color="#555555",
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "soft_dtw_sweep.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path
