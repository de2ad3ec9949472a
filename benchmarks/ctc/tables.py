"""The tables of CTC in the documentation, from result files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, load, markdown, newest, number, origin, times


def shape(row: Row) -> str:
    return " × ".join(str(row[key]) for key in "BTCL")


def loss_table() -> str:
    """Training steps on a GPU beside torch's two implementations."""
    rows = newest(load("nvidia-*/*-ctc.json"), "device", "B", "T", "C", "L", "dtype", "what")
    rows = [row for row in rows if row["op"] == "ctc" and row["what"] == "loss"]
    if not rows:
        return NOTHING
    header = ["B × T × C × L", "dtype", "step in a CUDA graph, ms", "torch, ms", "cuDNN, ms", "faster"]
    header += ["MiB", "torch, MiB", "gradient error", "torch's"]
    body = []
    for row in rows:
        fastest = min(row[key] for key in ("torch_step_ms", "cudnn_step_ms") if row.get(key) is not None)
        body.append(
            [
                *(shape(row), row["dtype"], f"**{number(row['graph_step_ms'])}**"),
                *(number(row["torch_step_ms"]), number(row.get("cudnn_step_ms"))),
                times(fastest / row["graph_step_ms"]),
                *(number(row["mib"]), number(row["torch_mib"]), f"{row['err_g']:.0e}"),
                f"{row['torch_err_g']:.0e}",
            ]
        )
    note = (
        "Logits N(0, 1), full lengths; loss and gradient. torch's losses cannot be captured in a CUDA graph and run eagerly; cuDNN's "
        "form ends at 255 labels. MiB is the peak above logits and gradient. Errors are the largest ones against float64; those of "
        "bfloat16 are the rounding of the gradient."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def align_table() -> str:
    """Forced alignment and monotonic alignment search on a GPU."""
    rows = newest(load("nvidia-*/*-ctc.json"), "device", "B", "T", "C", "L", "dtype", "what")
    rows = [row for row in rows if row["op"] == "ctc" and row["what"] != "loss"]
    if not rows:
        return NOTHING
    header = ["B × T × C × L", "what", "ms", "torchaudio `forced_align`, ms", "faster", "MiB"]
    body = []
    for row in rows:
        ours, theirs = row[f"graph_{row['what']}_ms"], row.get("torchaudio_align_ms")
        body.append(
            [
                *(shape(row), row["what"], f"**{number(ours)}**", number(theirs)),
                *(times(theirs / ours) if theirs else "–", number(row["mib"])),
            ]
        )
    note = "align: `ctc_align`; mas: `monotonic_alignment_search`, of L positions; in a CUDA graph. torchaudio takes one utterance per call."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def cpu_table() -> str:
    """Training steps on one core beside torch."""
    rows = newest(load("*/*-ctc-cpu.json"), "device", "op", "B", "T", "C", "L")
    rows = [row for row in rows if row["op"] == "ctc_loss" and row.get("peer_step_ms")]
    if not rows:
        return NOTHING
    header = ["B × T × C × L", "step, ms", "torch, ms", "faster", "gradient error", "torch's"]
    body = [
        [
            *(shape(row), f"**{number(row['step_ms'])}**", number(row["peer_step_ms"])),
            times(row["peer_step_ms"] / row["step_ms"]),
            *(f"{row['error']:.0e}", f"{row['peer_error']:.0e}"),
        ]
        for row in rows
    ]
    note = "`benchmarks/ctc/cpu_peers.py`: CPU time of one thread, loss and gradient, while other programs used the cores."
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {
    "ctc-gpu": loss_table,
    "ctc-align-gpu": align_table,
    "ctc-cpu": cpu_table,
}


def draw(_: Path) -> list[Path]:
    """CTC has no plots."""
    return []
