"""The LSTM's table by name: training steps next to cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin, power, times
from benchmarks.recurrent.sizes import STREAM, Size

# The sizes that docs/benchmarks.md shows.
SHORT = [
    Size(512, 8, 512, 512),
    Size(512, 8, 512, 512, dtype="float16"),
    Size(512, 64, 512, 512),
    Size(512, 64, 1024, 1024),
    Size(100, 32, 512, 512, 2),
    Size(512, 32, 512, 512, 2, 2),
    Size(256, 32, 2048, 1024, 6),
    Size(512, 8, 512, 512, 6),
    Size(512, 16, 640, 2048, 2, P=640),
    Size(1, 1, 1024, 1024, 8, dtype="float16", options=STREAM),
]


def size_of(row: Row) -> Size:
    return Size(*(row[name] for name in Size._fields))


def layers(size: Size) -> str:
    """A stack in words."""
    extra = [f"projection {size.P}"] if size.P else []
    extra += ["two directions"] if size.dirs == 2 else []
    extra += ["a stream"] if size.options == STREAM else []
    return ", ".join([str(size.layers), *extra])


def newest_steps() -> dict[Size, Row]:
    """The newest row of each size that was measured next to cuDNN."""
    rows = [
        row
        for row in tables.load("nvidia-*/*.json")
        if row["op"] == "recurrent" and row.keys() >= {*Size._fields, "cudnn_graph_step_ms"}
    ]
    return {size_of(row): row for row in newest(rows, "device", *Size._fields)}


def gpu_table() -> str:
    """Training steps on a GPU next to cuDNN's."""
    known = newest_steps()
    shown = [(size, known[size]) for size in SHORT if size in known]
    if not shown:
        return NOTHING
    header = ["T×B×I×H", "layers", "dtype", "step, ms", "in a graph", "cuDNN, ms", "in a graph", "faster"]
    header += ["MiB", "cuDNN, MiB"]
    body = [
        [
            f"{size.T}×{size.B}×{size.I}×{size.H}",
            *(layers(size), size.dtype, number(row["step_ms"]), f"**{number(row['graph_step_ms'])}**"),
            *(number(row["cudnn_step_ms"]), number(row["cudnn_graph_step_ms"])),
            times(row["cudnn_graph_step_ms"] / row["graph_step_ms"]),
            *(f"**{number(row.get('mib'))}**", number(row.get("cudnn_mib"))),
        ]
        for size, row in shown
    ]
    note = (
        "A training step: forward pass, sum, backward pass to the input and the weights; median; torch.nn.LSTM in the same "
        "run. A stream has one step and no gradients. MiB: peak memory above inputs and weights, without gradients."
    )
    return f"{markdown(header, body)}\n\n{origin([row for _, row in shown])}. {note}"


def hard_table() -> str:
    """Training steps with hard gates next to the loop in torch."""
    rows = [row for row in tables.load("nvidia-*/*-lstm-hard.json") if row["op"] == "lstm_hard"]
    if not rows:
        return NOTHING
    rows = newest(rows, "device", *Size._fields)
    header = ["T×B×I×H", "layers", "dtype", "step, ms", "in a graph", "soft gates, in a graph", "loop, ms"]
    header += ["loop, in a graph", "faster", "error of y", "of the loop", "error of dR", "of the loop"]
    body = [
        [
            f"{row['T']}×{row['B']}×{row['I']}×{row['H']}",
            *(
                str(row["layers"]),
                row["dtype"],
                number(row["step_ms"]),
                f"**{number(row['graph_step_ms'])}**",
            ),
            *(number(row[f"{name}_ms"]) for name in ("soft_graph_step", "plain_step", "plain_graph_step")),
            times(row["plain_graph_step_ms"] / row["graph_step_ms"]),
            *(power(row[name]) for name in ("err_y", "plain_err_y", "err_gr", "plain_err_gr")),
        ]
        for row in rows
    ]
    note = (
        "A training step as above. Loop: the same equations step by step in torch, which has no LSTM with hard gates. Errors: relative "
        "L2, of y and of the gradient with respect to the recurrent weights, against the loop in float64."
    )
    return f"{markdown(header, body)}\n\n{origin(rows)}. {note}{_rails_note()}"


def _rails_note() -> str:
    """Which errors come from numbers on the other side of a rail."""
    rows = tables.load("nvidia-*/*-lstm-hard-rails.json")
    return "".join(
        f" {row['T']}×{row['B']}×{row['I']}×{row['H']} in float32: in {row['sequences_apart']} of {row['B']} sequences rounding carries "
        "one number of a gate over a rail, where its derivative jumps. With these numbers on the same side in the loop, or "
        f"without these sequences, the error of the gradient with respect to x is {power(row['err_gx_moved'])} in place of "
        f"{power(row['err_gx'])}."
        for row in newest(rows, "device", *Size._fields)
        if row["sequences_apart"]
    )


def map_rows() -> list[Row]:
    """The newest map of shapes: forward passes, training steps and streams in CUDA graphs."""
    rows = tables.load("nvidia-*/*-lstm-map.json")
    return [row for row in rows if row["commit"] == rows[-1]["commit"]]


def plot() -> str:
    """The link to the plot."""
    return "![Ratio of cuDNN's time to warpalign's for LSTMs, against cuDNN's time, one point per shape](images/lstm.png)"


TABLES: dict[str, Callable[[], str]] = {"lstm-plot": plot, "lstm-gpu": gpu_table, "lstm-hard": hard_table}


def draw(folder: Path) -> list[Path]:
    """cuDNN's time over this library's, for every shape of the map."""
    from benchmarks.harness.plots import ratios

    groups = {
        "float32": ("float32", "ms"),
        "float32, TF32 allowed": ("float32", "ms_tf32"),
        "float16": ("float16", "ms"),
        "bfloat16": ("bfloat16", "ms"),
    }
    rows, points = map_rows(), {}
    for name, (dtype, key) in groups.items():
        pairs = [
            (row[f"cudnn_{key}"], row[key])
            for row in rows
            if row["dtype"] == dtype and row.get(f"cudnn_{key}")
        ]
        if pairs:
            points[name] = ([cudnn for cudnn, _ in pairs], [cudnn / own for cudnn, own in pairs])
    if not points:
        return []
    title = f"LSTM: forward passes, training steps and single steps in CUDA graphs, {rows[0]['device']}"
    labels = ("time of cuDNN (ms)", "time of cuDNN / time of warpalign")
    return [ratios(folder / "lstm.png", points, title, labels)]
