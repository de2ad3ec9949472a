"""The tables of transport in the documentation, from result files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, OURS, load, markdown, newest, number, origin, times


def quality_table() -> str:
    """Sampled and exact Gromov-Wasserstein matchings of a spiral and a Swiss roll, over seeds."""
    rows = newest(load("*/*-gromov-quality-*.json"), "device", "N", "M", "case")
    if not rows:
        return NOTHING
    rows.sort(key=lambda row: (row["device"], row["N"]))
    header = [
        *("device", "points", "gradient, distances, start", "seeds, of which right", "distortion, exactly"),
        *("least signed correlation", "steps", "error of sums", "s"),
    ]
    body = [
        [
            *(row["device"], f"{row['N']} × {row['M']}", row["case"], f"{row['seeds']}, {row['right']}"),
            f"{row['distortion']:.6f} (worst {row['distortion_worst']:.6f})",
            *(f"{row['correlation_worst']:.5f}", most(row), f"{100 * row['off_sums']:.2g} %"),
            number(row["seconds"]),
        ]
        for row in rows
    ]
    note = (
        "Medians over seeds, by `benchmarks/transport/gromov_quality.py`. Distortions are those of the final plan with all "
        "shortest paths, in float64. Right: a signed correlation above 0.99. Seconds are CPU time of all threads on CPUs."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def most(row: Row) -> str:
    """Steps: the median, and the most where that is known."""
    return f"{row['steps']:g}" + (f" (most {row['steps_most']})" if "steps_most" in row else "")


def sinkhorn_cpu_table() -> str:
    """An iteration of Sinkhorn on given costs on one core, beside POT's log domain."""
    rows = newest(load("*/*-transport-cpu.json"), "device", "N", "M", "D", "dtype", "updates")
    rows = [row for row in rows if row.get("pot_ns")]
    if not rows:
        return NOTHING
    header = ["N × M", "dtype", "iteration, ns/element", "POT's sinkhorn_log", "faster"]
    body = [
        [
            *(f"{row['N']} × {row['M']}", row["dtype"], f"**{number(row['iteration_ns'])}**"),
            *(number(row["pot_ns"]), times(row["pot_ns"] / row["iteration_ns"])),
        ]
        for row in rows
    ]
    note = "`benchmarks/transport/cpu_peers.py`: CPU time of one thread, a full iteration of both sides."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def gromov_cpu_table() -> str:
    """Sampled Gromov-Wasserstein on one core, beside POT's entropic solver at the same epsilon."""
    rows = newest(load("*/*-gromov-cpu.json"), "device", "impl", "N", "M", "epsilon")
    if not rows:
        return NOTHING
    problem = ("device", "N", "M", "epsilon")
    peers = {tuple(row[key] for key in problem): row for row in rows if row["impl"] != OURS}
    header = ["points", "ε", "time, s", "MiB", "distortion", "POT: time, s", "MiB", "distortion", "faster"]
    body = []
    for row in (row for row in rows if row["impl"] == OURS):
        peer = peers.get(tuple(row[key] for key in problem))
        cells = [f"{row['N']} × {row['M']}", f"{row['epsilon']:g}", f"**{number(row['seconds'])}**"]
        cells += [f"**{number(row['mib'])}**", f"{row['distortion']:.5f}"]
        cells += (
            [number(peer["seconds"]), number(peer["mib"]), f"{peer['distortion']:.5f}"] if peer else ["–"] * 3
        )
        body.append([*cells, times(peer["seconds"] / row["seconds"]) if peer else "–"])
    note = (
        "`benchmarks/transport/gromov_cpu.py`: a spiral onto a Swiss roll, CPU time of one thread with graphs and shortest "
        "paths, growth of the process's memory, and the exact distortion of the plan. POT's entropic solver makes 20 outer "
        "steps."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def gromov_gpu_table() -> str:
    """Sampled Gromov-Wasserstein on a GPU."""
    rows = [row for row in load("nvidia-*/*.json") if row.get("method") == "landmark"]
    rows = newest(rows, "device", "N", "M")
    if not rows:
        return NOTHING
    header = ["points", "time, ms", "MiB", "signed correlation"]
    body = [
        [
            *(f"{row['N']} × {row['M']}", f"**{number(row['solve_ms'])}**", f"**{number(row['mib'])}**"),
            f"{row['rho']:.4f}",
        ]
        for row in rows
    ]
    note = "From points on the GPU to the plan: landmarks, graphs of 5 neighbours, float32, medians."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {
    "gromov-quality": quality_table,
    "sinkhorn-cpu": sinkhorn_cpu_table,
    "gromov-cpu": gromov_cpu_table,
    "gromov-gpu": gromov_gpu_table,
}


def draw(folder: Path) -> list[Path]:  # noqa: ARG001  the protocol of benchmarks.report
    """No pictures."""
    return []
