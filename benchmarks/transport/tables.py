"""The tables of transport in the documentation, from result files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, OURS, load, markdown, newest, number, origin, times
from benchmarks.transport import size_tables


def quality_table() -> str:
    """Sampled and exact Gromov-Wasserstein matchings of a spiral and a Swiss roll, over seeds."""
    rows = newest(load("*/*-gromov-quality-*.json"), "device", "N", "M", "case")
    if not rows:
        return NOTHING
    rows.sort(key=lambda row: (row["device"], row["N"]))
    header = [
        *("device", "points", "gradient, distances, start", "seeds, correct", "exact distortion"),
        *("least signed correlation", "steps", "error of marginals", "s"),
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
        "`benchmarks/transport/gromov_quality.py`, medians over seeds. The exact distortion is that of the final plan with all "
        "shortest paths, in float64. Correct: a signed correlation above 0.99. Seconds on CPUs are CPU time of all threads."
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
    note = (
        "`benchmarks/transport/cpu_peers.py`: CPU time of one thread; an iteration updates both potentials."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def gromov_cpu_table() -> str:
    """Sampled Gromov-Wasserstein on one core, beside POT's entropic solver at the same epsilon."""
    rows = newest(load("*/*-gromov-cpu.json"), "impl", "N", "M", "epsilon")
    if not rows:
        return NOTHING
    problem = ("N", "M", "epsilon")
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
        "`benchmarks/transport/gromov_cpu.py`: a spiral and a Swiss roll; CPU time of one thread including graphs and shortest "
        "paths, growth of the memory of the process, and the exact distortion of the plan. POT's entropic solver runs 20 outer "
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
    note = "The whole solve from points on the GPU to the plan, with landmarks and graphs of 5 neighbours; float32, median."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def package_groups(on_gpu: bool) -> list[tuple[Row, dict[str, Row]]]:
    """Problems that several packages solved at equal accuracy, each with the newest row by package."""
    keys = ("device", "N", "M", "D", "epsilon_share")
    found: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in newest(load("*/*-transport-packages.json"), *keys, "impl"):
        if row["device"].startswith("NVIDIA") == on_gpu:
            found.setdefault(tuple(row[key] for key in keys), {})[row["impl"]] = row
    return [(rows[OURS], rows) for rows in found.values() if OURS in rows and len(rows) > 1]


def packages_table() -> str:
    """The gradient of entropic transport between points, beside other packages at equal epsilon, objective and accuracy."""
    groups = package_groups(on_gpu=True) + package_groups(on_gpu=False)
    if not groups:
        return NOTHING
    header = ["device", "points", "D", "ε / mean cost", *(f"{name}, ms" for name in PACKAGES)]

    def cell(own: Row, row: Row | None) -> str:
        if row is None:
            return "–"
        return (
            f"**{number(own['ms'])}**"
            if row is own
            else f"{number(row['ms'])} ({times(row['ms'] / own['ms'])})"
        )

    body = [
        [
            *(own["device"], f"{own['N']} × {own['M']}", str(own["D"]), f"{own['epsilon_share']:g}"),
            *(cell(own, rows.get(name)) for name in PACKAGES),
        ]
        for own, rows in groups
    ]
    rows = [row for _, group in groups for row in group.values()]
    note = (
        "`benchmarks/transport/packages.py`: the gradient of the regularised cost with respect to the points, squared distances, "
        "float32. For each package the fastest of its methods and settings (warpalign: also `precision`) whose gradient has a relative "
        "error of at most 1 %; in parentheses the ratio to warpalign. –: not within 20 s, or not measured. One core of the CPU (CPU time), or a GPU."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def plot() -> str:
    """The link to the plot."""
    return "![Time of the gradient of entropic transport with warpalign, POT, OTT-JAX and geomloss, by number of points](images/transport.png)"


PACKAGES = [OURS, "POT", "OTT-JAX", "geomloss", "geomloss, KeOps"]

TABLES: dict[str, Callable[[], str]] = {
    **size_tables.TABLES,
    "transport-plot": plot,
    "transport-packages": packages_table,
    "gromov-quality": quality_table,
    "sinkhorn-cpu": sinkhorn_cpu_table,
    "gromov-cpu": gromov_cpu_table,
    "gromov-gpu": gromov_gpu_table,
}


def draw(folder: Path) -> list[Path]:
    """Gradients of all packages at equal accuracy."""
    from benchmarks.harness.plots import bars

    groups = package_groups(on_gpu=True) + package_groups(on_gpu=False)
    groups = [(own, rows) for own, rows in groups if own["epsilon_share"] == 0.05]
    if not groups:
        return []
    problems = [
        f"{own['device'].split()[-1] if 'NVIDIA' in own['device'] else 'one core'}: {own['N']} × {own['M']}, D = {own['D']}"
        for own, _ in groups
    ]
    times_of = {name: [rows[name]["ms"] if name in rows else None for _, rows in groups] for name in PACKAGES}
    title = "Gradient of entropic transport at equal accuracy, ε = 0.05 times the mean cost"
    return [bars(folder / "transport.png", problems, times_of, title, "ms")]
