"""The tables of transport in the documentation, from result files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, load, markdown, newest, number, origin


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


TABLES: dict[str, Callable[[], str]] = {"gromov-quality": quality_table}


def draw(folder: Path) -> list[Path]:  # noqa: ARG001  the protocol of benchmarks.report
    """No pictures."""
    return []
