"""The transducer's tables by name: training steps of the losses, next to published packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin, times

KEYS = ("device", "B", "T", "U", "V", "dtype", "family", "ragged")
FAMILIES = {
    "rnnt": "RNN-T",
    "multi_blank": "big blanks 2, 4, 8",
    "tdt": "TDT 0 … 4",
    "penalties": "RNN-T, penalties",
}

# The sizes that docs/benchmarks.md shows: B, T, V, dtype, family.
SHORT = {
    (16, 400, 1024, "float32", "rnnt"),
    (16, 400, 1024, "float16", "rnnt"),
    (16, 400, 1024, "float32", "multi_blank"),
    (16, 400, 1024, "float32", "tdt"),
    (16, 400, 29, "float32", "rnnt"),
    (8, 1500, 512, "float32", "rnnt"),
    (64, 150, 5000, "float32", "rnnt"),
    (2, 3000, 64, "float32", "rnnt"),
}


def loss_rows(pattern: str) -> list[Row]:
    """The newest step of each size whose logits are given, of equal lengths."""
    rows = [
        row for row in tables.load(pattern) if row["op"] == "transducer" and row.get("step_ms") and "B" in row
    ]
    rows = [
        row for row in rows if not (row.get("H") or row.get("beams") or row.get("align") or row["ragged"])
    ]
    return newest(rows, *KEYS)


def shape_cells(row: Row) -> list[str]:
    return [f"{row['B']}×{row['T']}×{row['U'] + 1}×{row['V']}", row["dtype"], FAMILIES[row["family"]]]


def faster(row: Row, peer: str) -> list[str]:
    """The peer's time, and how often ours goes into it."""
    return [number(row.get(peer)), times(row[peer] / row["step_ms"]) if row.get(peer) else "–"]


def gpu_table() -> str:
    """Training steps on a GPU next to torchaudio."""
    rows = [
        row
        for row in loss_rows("nvidia-*/*.json")
        if (row["B"], row["T"], row["V"], row["dtype"], row["family"]) in SHORT
    ]
    if not rows:
        return NOTHING
    header = ["logits", "dtype", "arcs", "step, ms", "in a graph", "torchaudio, ms", "faster"]
    header += ["MiB, in place", "torchaudio, MiB"]
    body = [
        [
            *shape_cells(row),
            f"**{number(row['step_ms'])}**",
            number(row.get("graph_step_ms")),
            *faster(row, "torchaudio_step_ms"),
            f"**{number(row.get('inplace_mib'))}**",
            number(row.get("torchaudio_mib")),
        ]
        for row in rows
    ]
    note = (
        "A training step: forward, sum, backward to the logits, eager, median; torchaudio's rnnt_loss in the same run. "
        "MiB: the most memory above the logits; ours with the gradient in the logits' place."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def cpu_table() -> str:
    """Training steps on one core next to torchaudio and Transformers."""
    rows = loss_rows("amd-*/*-transducer-cpu.json")
    if not rows:
        return NOTHING
    header = ["logits", "dtype", "arcs", "step, ms", "best peer, ms", "faster"]
    body = [
        [*shape_cells(row), f"**{number(row['step_ms'])}**", *faster(row, "peer_step_ms")] for row in rows
    ]
    note = (
        "CPU time of one thread, the least of the runs of `benchmarks/transducer/cpu_peers.py`, with the page faults of a "
        "fresh gradient. Peers: torchaudio's rnnt_loss, and for TDT Transformers' tdt_loss where it was installed."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {"transducer-gpu": gpu_table, "transducer-cpu": cpu_table}


def draw(folder: Path) -> list[Path]:  # noqa: ARG001  the protocol of benchmarks.report
    """No pictures."""
    return []
