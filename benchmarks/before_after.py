"""Times every size of the tables in two checkouts, in one lease of a GPU, without the packages they are compared with.

    python -m benchmarks.before_after BEFORE --commits 26c3f95 1234567 [--suite soft_dtw,transport] [--runs 2]

BEFORE is the folder of another checkout with its libraries in python/warpalign/lib/; the other one is this. Each run is
a process of its own in one of the two folders, and the folders take turns. A row's times are those of its calls inside a
CUDA graph (of searches and Gromov-Wasserstein, which captures parts of a call itself: eager), the least of the runs.
The LSTM's rows are those of its table and of its map. Prints the geometric mean of after / before of each operator and
the rows that differ by more than 7 %, and writes benchmarks/results/<gpu>/<date>-<commit>-before-after.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
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


def collect(operators: list[str], path: Path) -> None:
    """Writes {operator and size and number of the call: ms} of this checkout."""
    device, budget_s = torch.device("cuda"), 0.02
    found: Times = {}
    name, calls = "", 0
    measured = timing.graph_ms

    def keep(time_ms: Callable[..., float]) -> Callable[..., float]:
        def timed(run: Callable[[], Any], *_: Any) -> float:
            nonlocal calls
            calls += 1
            key = f"{name} {calls}"
            found[key] = time_ms(run, device, budget_s)
            return found[key]

        return timed

    eager, in_graph = keep(timing.eager_ms), keep(measured)
    timing.graph_ms = in_graph
    timing.eager_ms = lambda run, *rest: (
        eager(run) if getattr(run, "__qualname__", "").endswith(EAGER) else 1e-3
    )
    timing.peak_mib = lambda *_: 0.0
    for operator in operators:
        try:
            measure = suites.load(operator).measure
        except ImportError:
            continue  # an operator that the other checkout lacks
        skip(operator)
        for size in dict.fromkeys(sizes(operator)):
            name, calls = f"{operator} {size.name}", 0
            try:
                measure(size, device, budget_s)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
    path.write_text(json.dumps(found))


def least(folder: Path, runs: list[Times], operators: str) -> Times:
    """One more run in this folder; the least of all."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "times.json"
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--collect",
            str(path),
            "--suite",
            operators,
        ]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "python"), str(folder)])}
        subprocess.run(command, cwd=folder, env=environment, check=True)
        runs.append(json.loads(path.read_text()))
    return {key: min(run[key] for run in runs if key in run) for run in runs for key in run}


def report(before: Times, after: Times) -> list[Row]:
    """Prints what changed and returns the rows."""
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
    rows.sort(key=lambda row: (row["op"], row["size"]))
    for operator in dict.fromkeys(row["op"] for row in rows):
        ratios = {row["size"]: row["after_ms"] / row["before_ms"] for row in rows if row["op"] == operator}
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"{operator}: {len(ratios)} rows, geometric mean of after / before {mean:.3f}")
        for size, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
            if abs(ratio - 1) > TOLD:
                print(f"  {ratio:.2f}  {size}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("before", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--commits", nargs=2, metavar=("BEFORE", "AFTER"), default=["before", "after"])
    parser.add_argument("--suite", default=",".join(suites.operators("suite")), help="operators, by commas")
    parser.add_argument("--runs", type=int, default=2, help="of each checkout (default: 2)")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments.suite.split(","), arguments.collect)
        return
    if arguments.before is None or not (arguments.before / "python" / "warpalign" / "lib").is_dir():
        parser.error("BEFORE: expected a checkout with python/warpalign/lib/")
    path, _ = result_path(arguments, device_name(torch.device("cuda")), "-before-after")
    runs: tuple[list[Times], list[Times]] = ([], [])
    times: list[Times] = [{}, {}]
    for _ in range(arguments.runs):
        for i, folder in enumerate((arguments.before.resolve(), Path.cwd())):
            times[i] = least(folder, runs[i], arguments.suite)
    about: Row = {"device": torch.cuda.get_device_name(), "before": arguments.commits[0]}
    write_rows([row | about | stamp(arguments.commits[1]) for row in report(*times)], path)
    print(path)


if __name__ == "__main__":
    main()
