"""Tables in Markdown from result files. Where a size was measured more than once, the newest row counts."""

from __future__ import annotations

import re

from benchmarks.harness.results import RESULTS, Row, read_rows

OURS = "warpalign"
NOTHING = "Not measured yet."
_NUMBER = re.compile(r"[*–−-]*[\d–.]|$")  # how a cell of a number begins


def load(pattern: str) -> list[Row]:
    """Rows of all files that match, the oldest first."""
    rows = [row for path in sorted(RESULTS.glob(pattern)) for row in read_rows(path)]
    return sorted(rows, key=lambda row: (row["date"], row.get("time", "")))


def newest(rows: list[Row], *keys: str) -> list[Row]:
    """The last of the rows that agree in `keys`. A value that is missing is the same as False or 0."""
    return list({tuple(row.get(key) or None for key in keys): row for row in rows}.values())


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits without an exponent."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and value >= 1 else f"{value:.3f}" if "e" in text else text


def power(value: float | None) -> str:
    return "–" if value is None else f"{value:.0e}".replace("e-0", "e-")


def times(value: float) -> str:
    """A ratio of two times: "12 x"."""
    return f"{value:.0f} ×" if value >= 10 else f"{value:.1f} ×"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Columns of numbers are aligned on the right, all others on the left."""
    lines = ["| " + " | ".join(header) + " |"]
    numbers = [all(_NUMBER.match(row[k]) for row in rows) for k in range(len(header))]
    lines.append("|" + "".join(" ---: |" if right else " --- |" for right in numbers))
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def origin(rows: list[Row]) -> str:
    """Where the numbers come from, for the line under a table; torch is not always part of it. The result files name the commits."""
    devices = ", ".join(sorted({row["device"] for row in rows}))
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    torch = f"torch {max(row['torch'] for row in rows)}, " if "torch" in rows[0] else ""
    return f"{devices}, {torch}{when}"


def check_table() -> str:
    """The newest result of every step of `gpu_check.py` that is no measurement."""
    rows = [row for row in load("nvidia-*/*.json") if row["op"] == "check"]
    # Once there was one operator, and its rows did not name it.
    rows = list({(row["name"], row.get("suite", "soft_dtw")): row for row in rows}.values())
    if not rows:
        return NOTHING
    body = [
        [
            f"{row['name']}, {row['suite']}" if "suite" in row else row["name"],
            *(row["status"], row["detail"], f"`{row['commit']}`", row["date"]),
        ]
        for row in rows
    ]
    return markdown(["check", "status", "detail", "commit", "date"], body)


def jax_table() -> str:
    """`warpalign.jax` beside other packages for JAX."""
    rows = newest(load("*/*-jax.json"), "device", "job", "other")
    if not rows:
        return NOTHING
    header = [
        "device",
        "loss",
        "compared with",
        "warpalign, ms",
        "other, ms",
        "faster",
        "difference of gradients",
    ]
    body = [
        [
            *(row["device"], row["job"], f"`{row['other']}`" if row["other"] == "lax.scan" else row["other"]),
            *(f"**{number(row['ms'])}**", number(row["other_ms"]), times(row["other_ms"] / row["ms"])),
            power(row["gradient_difference"]),
        ]
        for row in rows
    ]
    note = (
        "`benchmarks/jax_packages.py`: one jitted `value_and_grad` with the time of its call, float32, median of ten. `lax.scan`: "
        "the recursion over anti-diagonals in JAX. Difference: relative L2, to the other package's gradient. Both sides of a "
        "Sinkhorn row run 100 iterations from points."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}, JAX {max(row['jax'] for row in rows)}. {note}"
