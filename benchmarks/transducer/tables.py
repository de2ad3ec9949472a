"""The transducer's tables by name: training steps of the losses, next to published packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin, times
from benchmarks.transducer.recogniser import tables as recogniser

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


def shown_rows() -> list[Row]:
    """The training steps on a GPU that docs/benchmarks.md shows."""
    return [
        row
        for row in loss_rows("nvidia-*/*.json")
        if (row["B"], row["T"], row["V"], row["dtype"], row["family"]) in SHORT
    ]


def gpu_table() -> str:
    """Training steps on a GPU next to torchaudio."""
    rows = shown_rows()
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
        "A training step: forward pass, sum, backward pass to the logits; eager, median; torchaudio's rnnt_loss in the same run. "
        "MiB: peak memory above the logits; for warpalign with the gradient in place of the logits."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def joint_table() -> str:
    """Training steps on a GPU of losses fused with their joint network, next to logits in memory."""
    rows = [
        row
        for row in tables.load("nvidia-*/*.json")
        if row["op"] == "transducer" and row.get("H") and not row.get("beams")
    ]
    rows = newest(rows, *KEYS, "H")
    if not rows:
        return NOTHING
    header = ["logits", "H", "dtype", "arcs", "step, ms", "in a graph", "logits in memory, ms", "faster"]
    header += ["MiB", "logits in memory, MiB"]
    body = []
    for row in rows:
        logits, dtype, arcs = shape_cells(row)
        body.append(
            [
                logits,
                str(row["H"]),
                dtype,
                f"{arcs}{', ragged' if row['ragged'] else ''}",
                f"**{number(row['step_ms'])}**",
                number(row.get("graph_step_ms")),
                *faster(row, "materialised_step_ms"),
                f"**{number(row['mib'])}**",
                number(row.get("materialised_mib")),
            ]
        )
    note = (
        "A training step: forward pass, sum, backward pass to encoder, predictor, weight and bias; eager, median. Logits in memory: a "
        "linear layer of torch and warpalign's loss with its gradient in place of the logits. MiB: peak memory above inputs and "
        "gradients."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def cpu_table() -> str:
    """Training steps on one core next to torchaudio and Transformers."""
    rows = loss_rows("amd-*/*-transducer-cpu.json")
    if not rows:
        return NOTHING
    header = ["logits", "dtype", "arcs", "step, ms", "best baseline, ms", "faster"]
    body = [
        [*shape_cells(row), f"**{number(row['step_ms'])}**", *faster(row, "peer_step_ms")] for row in rows
    ]
    note = (
        "CPU time of one thread, the minimum over the runs of `benchmarks/transducer/cpu_peers.py`, including the page faults of a "
        "new gradient. Baselines: torchaudio's rnnt_loss, and for TDT Transformers' tdt_loss."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def plot() -> str:
    """The link to the plot."""
    return "![Time of an RNN-T training step with warpalign and torchaudio, by size of the logits](images/transducer.png)"


def decode_table() -> str:
    """Searches of random models by families, beside a loop in torch."""
    rows = [row for row in tables.load("nvidia-*/*-decode.json") if row["op"] == "transducer_decode"]
    rows = newest(rows, "device", "B", "T", "U", "V", "H", "family", "beams")
    if not rows:
        return NOTHING
    if any("error" in row for row in rows):
        raise ValueError("a search has found other labels than the loop: their times do not compare")
    header = [
        "B×T×V×H",
        "arcs",
        "labels",
        "frames visited",
        "search",
        "ms",
        "in a graph",
        "loop, ms",
        "faster",
    ]
    body = [
        [
            f"{row['B']}×{row['T']}×{row['V']}×{row['H']}",
            FAMILIES[row["family"]],
            number(row["labels_found"]),
            "–" if row.get("visited") is None else f"{100 * row['visited']:.0f} %",
            "greedy" if row["beams"] == 1 else f"beam {row['beams']}",
            number(row["decode_ms"]),
            f"**{number(row['decode_graph_ms'])}**",
            number(row["loop_ms"]),
            times(row["loop_ms"] / row["decode_graph_ms"]) if row["loop_ms"] else "–",
        ]
        for row in rows
    ]
    note = (
        "`benchmarks/transducer/decode.py`: random models of which the blanks' bias decides how many labels an utterance has. Loop: "
        "greedy search in torch that takes every utterance one arc on in each step; it finds the same labels."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {
    "transducer-plot": plot,
    "transducer-gpu": gpu_table,
    "transducer-joint": joint_table,
    "transducer-cpu": cpu_table,
    "transducer-decode": decode_table,
    **recogniser.TABLES,
}


def draw(folder: Path) -> list[Path]:
    """Training steps next to torchaudio's, on given logits; and the study of a recogniser."""
    from benchmarks.harness.plots import bars

    drawn = recogniser.draw(folder)
    rows = [row for row in shown_rows() if row.get("torchaudio_step_ms")]
    if not rows:
        return drawn
    columns = {"warpalign": "step_ms", "torchaudio": "torchaudio_step_ms"}
    times_of = {name: [row.get(key) for row in rows] for name, key in columns.items()}
    problems = [", ".join(shape_cells(row)[:2]) for row in rows]
    title = f"RNN-T loss and gradient on given logits B × T × (U + 1) × V, eager, {rows[0]['device']}"
    return [bars(folder / "transducer.png", problems, times_of, title, "ms"), *drawn]
