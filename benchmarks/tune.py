#!/usr/bin/env python3
"""Derives an operator's thresholds again, on this machine, and writes them to tuning/<operator>.json.

    make tune OPERATOR=soft_dtw [ONLY=name,...] [TUNE_ARGS="--dry-run"]
    python -m benchmarks.tune --operator soft_dtw [--only name,...] [--device cuda|cpu] [--dry-run]

Each threshold is forced, so that problems on both sides of it go both ways, and are timed in turn. The value that loses
least is written for this class of devices: a GPU's compute capability, a CPU's instruction set. Where the present value
loses nothing it stays. A machine without a GPU derives the thresholds of CPUs alone, and says so. Every time is a row of
benchmarks/results/<machine>/<date>-<commit>-tuning-<operator>.json. docs/developer/tuning.md explains the files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

from benchmarks.harness.kernels import launches
from benchmarks.harness.results import (
    ROOT,
    Row,
    add_arguments,
    device_name,
    result_path,
    stamp,
    today,
    write_rows,
)
from benchmarks.harness.thresholds import forced
from benchmarks.harness.timing import median_ms
from benchmarks.harness.tuning import (
    Choice,
    Crossing,
    Decision,
    Machine,
    Probe,
    Problem,
    Run,
    Times,
    decide_choice,
    decide_crossing,
    found_quantity,
    rows_of,
    sides,
    timed_in_turn,
)

sys.path.insert(0, str(ROOT / "tools"))
import make_tuning  # noqa: E402

FOLDER = ROOT / "tuning"
BUDGET_S = 0.02  # of one of the times
MOST_LOAD = 0.5  # of other programs, where a CPU is measured


def class_of(device: torch.device) -> str:
    """The key of this device's values: "9.0", or "avx2"."""
    if device.type == "cuda":
        return ".".join(map(str, torch.cuda.get_device_capability(device)))
    known = {"AVX512": "avx512", "AVX2": "avx2"}
    return known.get(torch.backends.cpu.get_cpu_capability(), "baseline")


def probes_of(operator: str) -> dict[str, Probe]:
    """benchmarks/<operator>/tuning.py: a probe for each threshold."""
    probes: dict[str, Probe] = import_module(f"benchmarks.{operator}.tuning").PROBES
    return probes


def captured(run: Run) -> tuple[torch.cuda.CUDAGraph, object]:
    """A call as a CUDA graph, and its results, which the graph writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return graph, results


class Tuner:
    """Measures thresholds of one operator on one device."""

    def __init__(self, operator: str, device: torch.device, budget_s: float = BUDGET_S) -> None:
        self.operator, self.device, self.budget_s = operator, device, budget_s
        self.machine = Machine.of(device)

    def forced(self, values: Mapping[str, int]) -> Any:
        return forced(self.operator, values, self.device.type)

    def launched(self, run: Run, values: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """The kernels that a call launches, with how often."""
        before = launches(self.operator)
        with self.forced(values):
            run()
        return tuple(
            (name, count - before[name])
            for name, count in launches(self.operator).items()
            if count > before[name]
        )

    def timer(self, problem: Problem, run: Run, values: Mapping[str, int]) -> Callable[[], float]:
        """() -> the median time of a call with forced thresholds, in ms; on a GPU of a graph's replay."""
        if self.device.type == "cuda" and problem.has_graph:
            with self.forced(values):
                graph, results = captured(run)
            return lambda _=results: median_ms(graph.replay, self.device, self.budget_s)  # type: ignore[misc]

        def time_call() -> float:
            with self.forced(values):
                return median_ms(run, self.device, self.budget_s)

        return time_call

    def quantity(self, name: str, probe: Crossing, problem: Problem, run: Run) -> float | None:
        if problem.quantity is not None:
            return problem.quantity
        return found_quantity(lambda value: self.launched(run, {**probe.also, name: value}), probe.at_most)

    def times(self, name: str, probe: Probe) -> list[Times]:
        """The times of every problem that the threshold decides about."""
        problems = [(problem, problem.make(self.device)) for problem in probe.problems(self.machine)]
        if isinstance(probe, Choice):
            known: list[tuple[Problem, Run, float]] = [(problem, run, 0.0) for problem, run in problems]
            values: Sequence[int] = probe.values
        else:
            found = [(problem, run, self.quantity(name, probe, problem, run)) for problem, run in problems]
            known = [(problem, run, quantity) for problem, run, quantity in found if quantity is not None]
            if not known:
                raise RuntimeError(f"{name}: decides about none of its problems on this device")
            values = sides([quantity for _, _, quantity in known], probe.at_most)
        measured = []
        for problem, run, quantity in known:
            timers = {value: self.timer(problem, run, {**probe.also, name: value}) for value in values}
            measured.append(Times(problem.name, quantity, timed_in_turn(timers)))
        return measured

    def decide(self, name: str, probe: Probe, was: int) -> tuple[Decision, list[Row]]:
        if isinstance(probe, Choice) and was not in probe.values:
            raise RuntimeError(f"{name}: the probe's values have to contain the present one, {was}")
        measured = self.times(name, probe)
        if isinstance(probe, Choice):
            decision = decide_choice(measured, was)
        else:
            decision = decide_crossing(measured, was, probe.at_most)
        return decision, rows_of(self.operator, name, measured)


def tune(tuner: Tuner, entries: Sequence[dict[str, Any]], probes: Mapping[str, Probe], key: str) -> list[Row]:
    """Measures every entry, prints a line for each, and writes its value into the entry. Returns all times."""
    kind = tuner.device.type
    rows: list[Row] = []
    for entry in entries:
        name, probe = entry["name"], probes[entry["name"]]
        was = make_tuning.value_for(kind, entry, make_tuning.device_class(kind, key))
        if probe.needs_threads and tuner.machine.threads < 2:
            print(f"{name:28} {was:>10}  skipped: needs two threads or more", flush=True)
            continue
        decision, times = tuner.decide(name, probe, was)
        rows += times
        rows.append(
            {
                "op": "tuning",
                "operator": tuner.operator,
                "threshold": name,
                "was": was,
                "value": decision.value,
                "why": decision.why,
            }
        )
        print(f"{name:28} {was:>10} -> {decision.value:<10} {decision.why}", flush=True)
        entry["values"][key] = decision.value
        entry.setdefault("measured", {})[key] = f"{device_name(tuner.device)}, {today()}"
    return rows


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    known = sorted(path.stem for path in FOLDER.glob("*.json"))
    parser.add_argument("--operator", required=True, choices=known)
    parser.add_argument(
        "--only", type=lambda names: names.split(","), metavar="NAME,...", help="these thresholds"
    )
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], action="append", help="default: each that is here"
    )
    parser.add_argument("--dry-run", action="store_true", help="measure and print, but write no thresholds")
    parser.add_argument("--busy", action="store_true", help="measure a CPU though other programs use it")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds of one time")
    add_arguments(parser)
    return parser.parse_args()


def measure(arguments: argparse.Namespace, kind: str, entries: list[dict[str, Any]]) -> None:
    """Thresholds of one kind of device, and their times into a file."""
    device = torch.device(kind)
    tuner = Tuner(arguments.operator, device, arguments.budget)
    rows = tune(tuner, entries, probes_of(arguments.operator), class_of(device))
    machine = device_name(device)
    out, commit = result_path(arguments, machine, f"-tuning-{arguments.operator}")
    write_rows([row | stamp(commit) | {"device": machine} for row in rows], out)
    print(f"times: {out}", flush=True)


def obstacle(kind: str, load: float, busy: bool) -> str | None:
    """Why this machine cannot measure a kind of device."""
    if kind == "cuda" and not torch.cuda.is_available():
        return "this machine has no GPU"
    if kind == "cpu" and load > MOST_LOAD and not busy:
        return (
            f"the load is {load:.1f}, and times beside other programs mislead (--busy measures all the same)"
        )
    return None


def main() -> int:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    path = FOLDER / f"{arguments.operator}.json"
    tuning = make_tuning.read(path)
    names = {entry["name"]: kind for kind, entries in tuning.items() for entry in entries}
    if unknown := sorted(set(arguments.only or []) - set(names)):
        print(f"tune: {arguments.operator} has no threshold {', '.join(unknown)}; it has {', '.join(names)}")
        return 2
    measured = 0
    for kind in arguments.device or ["cuda", "cpu"]:
        entries = [
            entry for entry in tuning.get(kind, []) if not arguments.only or entry["name"] in arguments.only
        ]
        if entries and (why := obstacle(kind, load, arguments.busy)):
            print(f"tune: {why}: left out {', '.join(entry['name'] for entry in entries)}", flush=True)
        elif entries:
            measure(arguments, kind, entries)
            measured += len(entries)
    if measured and not arguments.dry_run:
        make_tuning.write(path, tuning)
        subprocess.run([sys.executable, str(ROOT / "tools" / "make_tuning.py")], check=True)
        print(f"thresholds: {path}; build again to use them")
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
