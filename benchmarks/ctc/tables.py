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
    rows = loss_rows()
    if not rows:
        return NOTHING
    header = ["B × T × C × L", "dtype", "step, ms", "in a graph", "torch, ms", "cuDNN, ms", "faster"]
    header += ["MiB", "torch, MiB", "gradient error", "torch's"]
    body = []
    for row in rows:
        fastest = min(row[key] for key in ("torch_step_ms", "cudnn_step_ms") if row.get(key) is not None)
        body.append(
            [
                *(shape(row), row["dtype"], f"**{number(row['step_ms'])}**", number(row["graph_step_ms"])),
                *(number(row["torch_step_ms"]), number(row.get("cudnn_step_ms"))),
                times(fastest / row["step_ms"]),
                *(number(row["mib"]), number(row["torch_mib"]), f"{row['err_g']:.0e}"),
                f"{row['torch_err_g']:.0e}",
            ]
        )
    note = (
        'Logits N(0, 1), full lengths; loss and gradient, eager but for the column "in a graph". torch has the lengths on the host, '
        "with which a CUDA graph cannot capture its losses; cuDNN supports at most 255 labels. MiB is the peak above logits and gradient. Errors are the largest absolute errors relative to float64; those of "
        "bfloat16 are the rounding of the gradient."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


def align_table() -> str:
    """Forced alignment, monotonic alignment search and decoding on a GPU."""
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
    note = "align: `ctc_align`; mas: `monotonic_alignment_search` of L positions; beam: `ctc_beam_decode` with a beam of L; greedy: `ctc_greedy_decode`; all in a CUDA graph. torchaudio aligns one utterance per call."
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


def loss_rows() -> list[Row]:
    """The newest training steps on a GPU."""
    rows = newest(load("nvidia-*/*-ctc.json"), "device", "B", "T", "C", "L", "dtype", "what")
    return [row for row in rows if row["op"] == "ctc" and row["what"] == "loss"]


def plot() -> str:
    """The link to the plot."""
    return "![Time of a CTC training step with warpalign, torch and cuDNN, by size of the logits](images/ctc.png)"


def decode_table() -> str:
    """Beam searches on one core beside other packages."""
    rows = newest(load("*/*-ctc-cpu.json"), "device", "op", "B", "T", "C", "K")
    rows = [row for row in rows if row["op"] == "ctc_decode"]
    if not rows:
        return NOTHING
    header = [
        "T × C",
        "beam",
        "`ctc_beam_decode`, ms",
        "flashlight, ms",
        "fast_ctc_decode, ms",
        "pyctcdecode, ms",
    ]
    names = ("flashlight", "fast_ctc_decode", "pyctcdecode")
    body = [
        [
            *(f"{row['T']} × {row['C']}", str(row["K"]), f"**{number(row['beam_ms'])}**"),
            *(number(row.get(f"{name}_ms")) for name in names),
        ]
        for row in rows
    ]
    if not all(row.get(f"{name}_equal", True) for row in rows for name in names):
        raise ValueError("searches have found different labels: their times do not compare")
    note = (
        "`benchmarks/ctc/cpu_peers.py`: CPU time of one thread, one utterance without a language model, frames that are sure of one "
        "class, while other programs used the cores. flashlight looks at K + 2 classes of a frame, fast_ctc_decode at those above 0.1 / C, "
        "pyctcdecode at those that its defaults keep; warpalign at all. All find the same labels."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {
    "ctc-plot": plot,
    "ctc-gpu": loss_table,
    "ctc-align-gpu": align_table,
    "ctc-cpu": cpu_table,
    "ctc-decode-cpu": decode_table,
}


def draw(folder: Path) -> list[Path]:
    """Training steps in float32, eager in all packages."""
    from benchmarks.harness.plots import bars

    rows = [row for row in loss_rows() if row["dtype"] == "float32"]
    if not rows:
        return []
    columns = {"warpalign": "step_ms", "torch": "torch_step_ms", "torch with cuDNN": "cudnn_step_ms"}
    times_of = {name: [row.get(key) for row in rows] for name, key in columns.items()}
    title = f"CTC loss and gradient, B × T × C × L, float32, eager, {rows[0]['device']}"
    return [bars(folder / "ctc.png", [shape(row) for row in rows], times_of, title, "ms")]
