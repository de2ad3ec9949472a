"""Times every size of the tables in two checkouts, in one lease of a GPU, without the packages they are compared with.

    python -m benchmarks.before_after BEFORE --commits 26c3f95 1234567 [--suite soft_dtw,transport] [--runs 2]

BEFORE is the folder of another checkout with its libraries in python/warpalign/lib/; the other one is this. Each run is
a process of its own in one of the two folders, and the folders take turns. A row's times are those of its calls inside a
CUDA graph (of searches and Gromov-Wasserstein, which captures parts of a call itself: eager), medians of the calls that
fit `--budget`. Runs after the first one take only rows whose times differ by more than 3 %, of both folders; the least of
the runs counts. The LSTM's rows are those of its table and of its map. Prints the geometric mean of after / before of
each operator and the rows that differ by more than 7 %, and writes
benchmarks/results/<gpu>/<date>-<commit>-before-after.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, os.getcwd())  # the checkout that is measured

from benchmarks.harness import suite as suites  # noqa: E402
from benchmarks.harness import timing  # noqa: E402
from benchmarks.harness.results import (  # noqa: E402
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)

TOLD = 0.07
AGAIN = 0.03  # Rows that differ by more are timed again.
EAGER = ("_Problem.run", "DecodeProblem.search")  # calls that are timed in eager mode
# What a row measures beside our own times, and what stands in its place.
SKIPPED: dict[str, dict[str, Any]] = {
    "soft_dtw.measure": {"errors": {}, "peer_steps": {}},
    "transducer.measure": {"peer": {}, "Problem.errors": {"err_loss": None, "err_g": None}},
    "transducer.joint": {"JointProblem.errors": {}},
    "transducer.decode": {"DecodeProblem.loop": [], "DecodeProblem.torchaudio": None},
    "transport.measure": {"peers": {}, "Problem.value_error": None},
    "transport.gromov": {"_Problem.pot_ms": {}, "_Problem.rho": 1.0},
    "recurrent.measure": {"Problem.theirs": None, "Problem.errors": {}},
    "ctc.measure": {"peers": {}},
}

Times = dict[str, float]


def skip(operator: str) -> None:
    """Replaces what takes time and is no time of ours, in the operator's modules that this checkout has."""
    for name, parts in SKIPPED.items():
        if name.startswith(operator):
            with suppress(ImportError):
                module = import_module(f"benchmarks.{name}")
                for path, value in parts.items():
                    *owner, attribute = path.split(".")
                    place: Any = getattr(module, owner[0]) if owner else module
                    setattr(place, attribute, lambda *_, value=value, **__: value)


def sizes(operator: str) -> Iterator[Any]:
    """The table's sizes; of the LSTM, the map's too."""
    yield from suites.load(operator).sizes
    if operator == "recurrent":
        yield from import_module("benchmarks.recurrent.map").SIZES


def taken(name: str, arguments: argparse.Namespace) -> bool:
    """Whether `--only` and `--without` leave the row in."""
    only, without = (
        [part for part in parts.split(",") if part] for parts in (arguments.only, arguments.without)
    )
    return (not only or any(part in name for part in only)) and not any(part in name for part in without)


def collect(arguments: argparse.Namespace) -> None:
    """Writes {operator and size and number of the call: ms} of this checkout, of the rows in the file `--names`, if any."""
    device, budget_s = torch.device("cuda"), arguments.budget
    asked: list[str] | None = json.loads(arguments.names.read_text()) if arguments.names.exists() else None
    found: Times = {}
    name, calls = "", 0

    def keep(time_ms: Callable[..., float]) -> Callable[..., float]:
        def timed(run: Callable[[], Any], *_: Any) -> float:
            nonlocal calls
            calls += 1
            key = f"{name} {calls}"
            found[key] = time_ms(run, device, budget_s)
            return found[key]

        return timed

    eager, timing.graph_ms = keep(timing.median_ms), keep(timing.graph_ms)
    timing.eager_ms = lambda run, *rest: (
        eager(run) if getattr(run, "__qualname__", "").endswith(EAGER) else 1e-3
    )
    timing.peak_mib = lambda *_: 0.0
    for operator in arguments.suite.split(","):
        if not Path("benchmarks", operator, "suite.py").is_file():
            continue  # an operator that the other checkout lacks
        measure = suites.load(operator).measure
        skip(operator)
        for size in dict.fromkeys(sizes(operator)):
            name, calls = f"{operator} {size.name}", 0
            if not taken(name, arguments) or (asked is not None and name not in asked):
                continue
            try:
                measure(size, device, budget_s)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
    arguments.collect.write_text(json.dumps(found))


def row_of(key: str) -> str:
    """The operator and the size of a key, without the number of the call."""
    return key.rsplit(" ", 1)[0]


def run_once(folder: Path, names: set[str] | None, arguments: argparse.Namespace) -> Times:
    """Times of one process in this folder; of all rows where `names` is None."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        path, asked = Path(place) / "times.json", Path(place) / "names.json"
        if names is not None:
            asked.write_text(json.dumps(sorted(names)))
        options = {
            "--collect": path,
            "--names": asked,
            "--suite": arguments.suite,
            "--budget": arguments.budget,
        }
        options |= {"--only": arguments.only, "--without": arguments.without}
        command = [sys.executable, str(Path(__file__).resolve())]
        command += [f"{name}={value}" for name, value in options.items()]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "python"), str(folder)])}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        found: Times = json.loads(path.read_text())
    print(f"{folder.name}: {len(found)} times in {time.monotonic() - started:.0f} s", flush=True)
    return found


def measure_both(folders: tuple[Path, Path], arguments: argparse.Namespace) -> Iterator[tuple[Times, Times]]:
    """The least times so far of the rows that both checkouts have, after each run of both."""
    before = run_once(folders[0], None, arguments)
    after = run_once(folders[1], set(map(row_of, before)), arguments)
    yield before, after
    for _ in range(arguments.runs - 1):
        apart = {
            row_of(key) for key in before.keys() & after.keys() if abs(after[key] / before[key] - 1) > AGAIN
        }
        for folder, times in zip(folders, (before, after), strict=True):
            for key, value in run_once(folder, apart, arguments).items():
                times[key] = min(value, times.get(key, value))
        yield before, after


def rows_of(before: Times, after: Times) -> list[Row]:
    """A row for each time that both checkouts have."""
    rows: list[Row] = []
    for key in before.keys() & after.keys():
        operator, size = key.split(" ", 1)
        rows.append(
            {
                "op": f"{operator}_before_after",
                "size": size,
                "before_ms": rounded(before[key]),
                "after_ms": rounded(after[key]),
            }
        )
    return sorted(rows, key=lambda row: (row["op"], row["size"]))


def report(rows: list[Row]) -> None:
    """Prints what changed."""
    for operator in dict.fromkeys(row["op"] for row in rows):
        ratios = {row["size"]: row["after_ms"] / row["before_ms"] for row in rows if row["op"] == operator}
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"{operator}: {len(ratios)} rows, geometric mean of after / before {mean:.3f}")
        for size, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
            if abs(ratio - 1) > TOLD:
                print(f"  {ratio:.2f}  {size}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("before", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--commits", nargs=2, metavar=("BEFORE", "AFTER"), default=["before", "after"])
    parser.add_argument("--suite", default=",".join(suites.operators("suite")), help="operators, by commas")
    parser.add_argument("--runs", type=int, default=2, help="of each checkout (default: 2)")
    parser.add_argument(
        "--budget", type=float, default=0.02, help="seconds of a time's calls (default: 0.02)"
    )
    parser.add_argument(
        "--without", default="", help="rows with one of these in their names are left out, by commas"
    )
    parser.add_argument("--only", default="", help="rows with one of these in their names alone, by commas")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--names", type=Path, help=argparse.SUPPRESS)
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments)
        return
    if arguments.before is None or not (arguments.before / "python" / "warpalign" / "lib").is_dir():
        parser.error("BEFORE: expected a checkout with python/warpalign/lib/")
    path, _ = result_path(arguments, device_name(torch.device("cuda")), "-before-after")
    about: Row = {"device": torch.cuda.get_device_name(), "before": arguments.commits[0]}
    rows: list[Row] = []
    for before, after in measure_both((arguments.before.resolve(), Path.cwd()), arguments):
        rows = rows_of(before, after)
        write_rows([row | about | stamp(arguments.commits[1]) for row in rows], path)
    report(rows)
    print(path)


if __name__ == "__main__":
    main()
