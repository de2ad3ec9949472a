#!/usr/bin/env python3
"""Runs soft_dtw_cpu_benchmark several times and keeps the least time of every case: nanoseconds per cell of the CPU path.

Other programs only ever make a run slower, so the least of many short runs is what the machine can do. Writes
benchmarks/results/<cpu>/<date>-<commit>-cells.json.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.results import Row, add_arguments, cpu_name, result_path, rounded, today, write_rows


def measured(program: Path, pattern: str, repetitions: int, min_time: str) -> dict[str, Any]:
    """What one run of the program prints."""
    options = ["--benchmark_format=json", f"--benchmark_filter={pattern}", f"--benchmark_min_time={min_time}"]
    command = [str(program), *options, f"--benchmark_repetitions={repetitions}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def row_of(run: dict[str, Any], isa: str) -> Row:
    """From a name such as value/float32/N:2048/D:1/threads:1/band:64/pairs:1/real_time; without a band it is -1."""
    what, dtype, *rest = run["run_name"].split("/")
    numbers = dict(re.findall(r"(\w+):(-?\d+)", "/".join(rest)))
    length, threads, radius, pairs = (int(numbers[key]) for key in ("N", "threads", "band", "pairs"))
    row: Row = {
        "op": "soft_dtw",
        "device": cpu_name(),
        "isa": isa,
        "what": what,
        "dtype": dtype,
        "B": pairs,
    }
    row |= {"N": length, "M": length, "D": int(numbers["D"]), "gamma": 1.0, "threads": threads}
    return row | {"radius": None if radius < 0 else radius, "ns_per_cell": run["ns_per_cell"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "program", type=Path, help="build/bench/benchmarks/soft_dtw_cpu_benchmark (make bench)"
    )
    parser.add_argument(
        "--filter", default="N:2048/.*threads:1/", help="regex of cases (default: %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of the program (default: 3)")
    parser.add_argument("--repetitions", type=int, default=5, help="of each case in a run (default: 5)")
    parser.add_argument("--min-time", default="0.1", help="of a repetition, as the program takes it")
    add_arguments(parser)
    arguments = parser.parse_args()
    least: dict[str, Row] = {}
    for _ in range(arguments.runs):
        try:
            answer = measured(arguments.program, arguments.filter, arguments.repetitions, arguments.min_time)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            print(f"cpu_cells: {arguments.program}: {error}", file=sys.stderr)
            return 2
        for run in answer["benchmarks"]:
            if run["run_type"] != "iteration":
                continue
            row = row_of(run, answer["context"]["instruction set"])
            best = least.setdefault(run["run_name"], row)
            best["ns_per_cell"] = min(best["ns_per_cell"], row["ns_per_cell"])
    target, commit = result_path(arguments, cpu_name(), "-cells")
    rows = [
        {**row, "ns_per_cell": rounded(row["ns_per_cell"]), "commit": commit, "date": today()}
        for row in least.values()
    ]
    for name, row in zip(least, rows, strict=True):
        print(f"{name:70} {row['ns_per_cell']:>8} ns")
    write_rows(rows, target)
    print(f"{len(rows)} rows, in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
