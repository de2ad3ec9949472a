"""Tables of language models in decoding by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin

MODELS = {"none": "none", "trigrams": "100 000 n-grams", "lstm": "LSTM of 512 units"}


def rows_of(op: str, *keys: str, on_gpu: bool = True) -> list[Row]:
    rows = [row for row in tables.load("*/*-ngram.json") if row["op"] == op]
    return newest([row for row in rows if row["device"].startswith("NVIDIA") == on_gpu], *keys)


def step_table() -> str:
    """One step of a language model on a GPU, and on a core of a CPU."""
    keys = ("kind", "V", "N", "dense")
    rows, of_cpu = (rows_of("ngram_step", *keys, on_gpu=on_gpu) for on_gpu in (True, False))
    if not rows:
        return NOTHING
    on_cpu = {tuple(row[key] for key in keys): row for row in of_cpu}
    if not all(row["equal"] for row in rows):
        raise ValueError("two ways to read a table differ: their times do not compare")
    header = [
        "model",
        "labels",
        "hypotheses",
        "complete rows, MiB",
        "step, µs",
        "in a graph",
        "plain, µs",
        "in a graph",
    ]
    header += ["CPU, µs", "plain, µs"]
    names = {"trigrams": "trigrams, 100 000", "phrases": "phrases, 1000"}
    body = [
        [
            *(names[row["kind"]], str(row["V"]), str(row["N"]), number(row["dense_mib"])),
            *(number(1e3 * row["step_ms"]), f"**{number(1e3 * row['graph_step_ms'])}**"),
            *(number(1e3 * row["plain_step_ms"]), number(1e3 * row["graph_plain_step_ms"])),
            *cpu_columns(on_cpu.get(tuple(row[key] for key in keys))),
        ]
        for row in rows
    ]
    note = (
        "`benchmarks/decoding/ngram.py`: a label of each hypothesis is read, and all labels are scored. Plain: the same table by a search "
        "among the sorted n-grams for every label, in torch. CPU: time of one thread, while other programs used the cores."
    )
    return f"{markdown(header, body)}\n\n{origin([*rows, *of_cpu])}. {note}"


def cpu_columns(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "–", "–"
    return f"**{number(1e3 * row['step_ms'])}**", number(1e3 * row["plain_step_ms"])


def search_table() -> str:
    """Searches with and without language models on a GPU."""
    rows = rows_of("fused_decode", "model", "cuda_graph", "B", "T", "V", "H")
    if not rows:
        return NOTHING
    of = {(row["B"], row["T"], row["V"], row["model"], row["cuda_graph"]): row for row in rows}
    captured = {key[:4]: row for key, row in of.items() if key[4]}
    header = [
        "B×T×V",
        "language model",
        "transducer, beam 4, ms",
        "in a graph",
        "greedy, ms",
        "in a graph",
        "CTC, beam 8, ms",
    ]
    body = [
        [
            f"{key[0]}×{key[1]}×{key[2]}",
            MODELS[key[3]],
            *(number(row["beam_ms"]), f"**{number(captured[key[:4]]['beam_ms'])}**"),
            *(number(row["greedy_ms"]), f"**{number(captured[key[:4]]['greedy_ms'])}**"),
            number(row["ctc_ms"]),
        ]
        for key, row in of.items()
        if not key[4]
    ]
    note = (
        "`benchmarks/decoding/ngram.py`: random models, a weight of 0.3. With a language model CTC's search takes a step of the host for "
        "each frame."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}"


TABLES: dict[str, Callable[[], str]] = {"ngram-steps": step_table, "fused-decoding": search_table}


def draw(folder: Path) -> list[Path]:
    """No plots."""
    return []
