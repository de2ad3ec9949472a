"""The command line of a benchmark whose rows come one at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch

from benchmarks.harness.results import Row, add_arguments, device_name, result_path, stamp, write_rows


def write_table(
    description: str | None, op: str, suffix: str, rows: Callable[[torch.device, bool], Iterator[Row]]
) -> None:
    """Prints each row and writes the file again with it, so that a program that is stopped leaves what it has measured.

    Args:
        op: what the rows are called in result files.
        suffix: the end of the file's name, such as "-bands".
        rows: of a device, and of few and small sizes if the second argument is true.
    """
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="few and short series")
    add_arguments(parser)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = device_name(device)
    target, commit = result_path(arguments, name, suffix)
    written: list[Row] = []
    for row in rows(device, arguments.quick):
        print(row, flush=True)
        written.append({"op": op, "device": name} | row | stamp(commit))
        write_rows(written, target)
