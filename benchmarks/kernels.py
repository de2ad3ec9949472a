#!/usr/bin/env python3
"""Writes benchmarks/kernels.json, the list of all CUDA kernels with each operator's budget, from the built library.

    python -m benchmarks.kernels [--check]

A kernel costs seconds of every build, and room in the library, once for each architecture. So a new one is seen in this
file, and the budgets, which are set by hand, bound how many there are. --check changes nothing and exits with 1 where the
list is stale or a budget is exceeded. It needs the CUDA library, but no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TypedDict

from benchmarks.harness.kernels import launches

FILE = Path(__file__).with_name("kernels.json")


class Operator(TypedDict):
    budget: int
    kernels: list[str]


def committed() -> dict[str, Operator]:
    """The list as it is in the repository: operator -> its budget and the names of its kernels."""
    found: dict[str, Operator] = json.loads(FILE.read_text())
    return found


def from_library() -> dict[str, Operator]:
    """The same, with the kernels of the built library."""
    return {
        name: {"budget": operator["budget"], "kernels": sorted(launches(name))}
        for name, operator in committed().items()
    }


def problems() -> list[str]:
    """What is wrong with the committed list, a line each."""
    built, told = from_library(), []
    for name, operator in committed().items():
        added = sorted(set(built[name]["kernels"]) - set(operator["kernels"]))
        gone = sorted(set(operator["kernels"]) - set(built[name]["kernels"]))
        if added or gone:
            told.append(f"{name}: run python -m benchmarks.kernels; added: {added}, gone: {gone}")
        if len(built[name]["kernels"]) > operator["budget"]:
            told.append(f"{name}: {len(built[name]['kernels'])} kernels, budget {operator['budget']}")
    return told


def census_table() -> str:
    """How many kernels each operator has, by the first word of their names."""
    lines = ["| operator | kernels | budget | by name |", "| --- | --- | --- | --- |"]
    for name, operator in committed().items():
        families = Counter(kernel.split(" ")[0].rstrip(",") for kernel in operator["kernels"])
        parts = ", ".join(f"{family} {count}" for family, count in families.most_common())
        lines.append(f"| `{name}` | {len(operator['kernels'])} | {operator['budget']} | {parts} |")
    total = sum(len(operator["kernels"]) for operator in committed().values())
    return "\n".join([*lines, f"| all | {total} | | |"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where it is stale")
    if not parser.parse_args().check:
        FILE.write_text(json.dumps(from_library(), indent=1) + "\n")
    told = problems()
    print("\n".join(told) if told else f"{FILE.name}: in order")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
