"""The LSTM's table by name: training steps next to cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import tables
from benchmarks.harness.results import Row
from benchmarks.harness.tables import NOTHING, markdown, newest, number, origin, times
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
    header += ["MiB", "cuDNN, MiB", "commit"]
    body = [
        [
            f"{size.T}×{size.B}×{size.I}×{size.H}",
            *(layers(size), size.dtype, number(row["step_ms"]), f"**{number(row['graph_step_ms'])}**"),
            *(number(row["cudnn_step_ms"]), number(row["cudnn_graph_step_ms"])),
            times(row["cudnn_graph_step_ms"] / row["graph_step_ms"]),
            *(f"**{number(row.get('mib'))}**", number(row.get("cudnn_mib")), f"`{row['commit']}`"),
        ]
        for size, row in shown
    ]
    note = (
        "A training step: forward, sum, backward to the input and the weights, median; torch.nn.LSTM in the same "
        "run. A stream has one step and no gradients. MiB: the most memory above inputs and weights, without gradients."
    )
    return f"{markdown(header, body)}\n\n{origin([row for _, row in shown])}. {note}"


TABLES: dict[str, Callable[[], str]] = {"lstm-gpu": gpu_table}


def draw(folder: Path) -> list[Path]:  # noqa: ARG001  the protocol of benchmarks.report
    """No pictures."""
    return []
