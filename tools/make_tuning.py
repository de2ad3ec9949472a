#!/usr/bin/env python3
"""Writes src/<operator>/tuning.h and api_tuning.cpp from tuning/<operator>.json, for every operator.

    python tools/make_tuning.py [--check]

The sources are committed, so that a build needs no Python. --check changes nothing and exits with 1 where one of them is
not what its JSON file gives. docs/developer/tuning.md explains the files.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("cuda", "cpu")
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")  # in the order of cpu::Isa
KEYS = {"name", "unit", "decides", "command", "values"}
LARGEST = 2**31 - 1
LONGEST_NAME = 63
WIDTH = 110  # of a line of C++

Entry = dict[str, Any]
Tuning = dict[str, list[Entry]]


def device_class(kind: str, key: str) -> int:
    """The number that C++ knows a class of devices by: 10 major + minor of "9.0", cpu::Isa of "avx2"."""
    if kind == "cpu":
        if key not in INSTRUCTION_SETS:
            raise ValueError(f"expected an instruction set out of {', '.join(INSTRUCTION_SETS)}, got {key!r}")
        return INSTRUCTION_SETS.index(key)
    if not re.fullmatch(r"\d+\.\d", key):
        raise ValueError(f"expected a compute capability such as '9.0', got {key!r}")
    return int(key.replace(".", ""))


def value_for(kind: str, entry: Entry, wanted: int) -> int:
    """The entry's value for a class: that of the highest class which is not above it, else of the lowest one."""
    known = {device_class(kind, key): value for key, value in entry["values"].items()}
    below = [number for number in known if number <= wanted]
    return int(known[max(below) if below else min(known)])


def check_entry(operator: str, kind: str, entry: Entry) -> None:
    """Raises ValueError where an entry lacks something or has what nothing reads."""
    name = entry.get("name", "")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > LONGEST_NAME:
        raise ValueError(f"name: expected a C++ name of at most {LONGEST_NAME} small letters, got {name!r}")
    if set(entry) - {"measured"} != KEYS:
        raise ValueError(
            f"{name}: expected the keys {', '.join(sorted(KEYS))}, got {', '.join(sorted(entry))}"
        )
    expected = f"make tune OPERATOR={operator} ONLY={name}"
    if entry["command"] != expected:
        raise ValueError(f"{name}: expected the command {expected!r}, got {entry['command']!r}")
    if not entry["values"]:
        raise ValueError(f"{name}: expected a value for one class of devices at least")
    for key, value in entry["values"].items():
        device_class(kind, key)
        if type(value) is not int or not -LARGEST <= value <= LARGEST:
            raise ValueError(f"{name}: expected an integer of 32 bits for {key}, got {value!r}")
    if not set(entry.get("measured", {})) <= set(entry["values"]):
        raise ValueError(f"{name}: measured names a class that values does not have")


def read(path: Path) -> Tuning:
    """An operator's thresholds. Raises ValueError, which names the file, where it is not in order."""
    tuning: Tuning = json.loads(path.read_text())
    try:
        if not set(tuning) <= set(KINDS) or not any(tuning.values()):
            raise ValueError(f"expected lists called {' and '.join(KINDS)}, got {', '.join(tuning)}")
        entries = [(kind, entry) for kind in KINDS for entry in tuning.get(kind, [])]
        for kind, entry in entries:
            check_entry(path.stem, kind, entry)
        names = [entry["name"] for _, entry in entries]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"expected each name once, got {', '.join(sorted(twice))} more often")
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return tuning


def write(path: Path, tuning: Tuning) -> None:
    """The file again: a key a line, in the order of the dictionaries, and a table of values on one line."""
    text = json.dumps(tuning, indent=2, ensure_ascii=False)
    text = re.sub(r"\{\s+([^{}\[\]]*?)\s+\}", _on_one_line, text)
    path.write_text(text + "\n")


def _on_one_line(found: re.Match[str]) -> str:
    if '"name"' in found[1]:
        return found[0]
    return "{" + re.sub(r"\s*\n\s*", " ", found[1]) + "}"


def comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=f"{indent}// ", subsequent_indent=f"{indent}// ")


def struct(kind: str, entries: list[Entry]) -> list[str]:
    """The type of a row, its rows, the list of fields, and the function that finds a device's row."""
    row = {"cuda": "CudaTuning", "cpu": "CpuTuning"}[kind]
    of_class = {"cuda": "DeviceTraits::compute_capability", "cpu": "a cpu::Isa"}[kind]
    lines = [f"struct {row} {{", f"  int device_class;  // {of_class}"]
    for entry in entries:
        lines += comment(f"{entry['decides']} Unit: {entry['unit']}.", "  ")
        lines.append(f"  int {entry['name']};")
    lines += ["};", f"inline constexpr {row} k{row}s[] = {{"]
    classes = sorted({device_class(kind, key) for entry in entries for key in entry["values"]})
    for number in classes:
        lines += ["    {", f"        .device_class = {number},"]
        lines += [f"        .{entry['name']} = {value_for(kind, entry, number)}," for entry in entries]
        lines.append("    },")
    lines += ["};", f"inline TuningField<{row}> {kind}_tuning_fields[] = {{"]
    lines += [f'    {{"{entry["name"]}", &{row}::{entry["name"]}}},' for entry in entries]
    argument = {"cuda": "const cuda::DeviceTraits& device", "cpu": "cpu::Isa isa"}[kind]
    number_of = {"cuda": "device.compute_capability", "cpu": "static_cast<int>(isa)"}[kind]
    lines += ["};", f"inline {row} {kind}_tuning({argument}) {{"]
    lines += [f"  return tuned(k{row}s, {kind}_tuning_fields, {number_of});", "}"]
    return lines


def header(operator: str, tuning: Tuning) -> str:
    """src/<operator>/tuning.h."""
    kinds = [kind for kind in KINDS if tuning.get(kind)]
    includes = {"cuda": '#include "cuda/launch/device.h"', "cpu": '#include "cpu/isa.h"'}
    lines = [
        f"// Made by tools/make_tuning.py from tuning/{operator}.json: change that file, and run `make tuning`.",
        "#pragma once",
        "",
        '#include "core/tuning.h"',
        *sorted(includes[kind] for kind in kinds),
        "",
        f"namespace warpalign::detail::{operator} {{",
    ]
    for kind in kinds:
        lines += ["", *struct(kind, tuning[kind])]
    lines += ["", f"}}  // namespace warpalign::detail::{operator}"]
    return "\n".join(lines) + "\n"


def source(operator: str, tuning: Tuning) -> str:
    """src/<operator>/api_tuning.cpp: the functions of the public header."""
    lists = [f"detail::{operator}::{kind}_tuning_fields" for kind in KINDS if tuning.get(kind)]
    lines = [
        f"// Made by tools/make_tuning.py from tuning/{operator}.json: change that file, and run `make tuning`.",
        f'#include "{operator}/tuning.h"',
        '#include "warpalign/tuning.h"',
        "",
        "namespace warpalign {",
        "",
        f"bool {operator}_threshold(int index, Threshold* out) {{",
        *call("detail::read_threshold", ["index", "out", *lists]),
        "}",
        "",
        f"bool force_{operator}_threshold(const char* name, int value) {{",
        *call("detail::force_threshold", ["name", "value", *lists]),
        "}",
        "",
        "}  // namespace warpalign",
    ]
    return "\n".join(lines) + "\n"


def call(function: str, arguments: list[str]) -> list[str]:
    """`return function(arguments);`, broken as clang-format breaks it."""
    begin = f"  return {function}("
    return textwrap.wrap(
        f"{', '.join(arguments)});", WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin)
    )


def outputs(root: Path = ROOT) -> dict[Path, str]:
    """Every file that is made, with its contents."""
    made: dict[Path, str] = {}
    for path in sorted((root / "tuning").glob("*.json")):
        folder, tuning = root / "src" / path.stem, read(path)
        made[folder / "tuning.h"] = header(path.stem, tuning)
        made[folder / "api_tuning.cpp"] = source(path.stem, tuning)
    return made


def stale(root: Path = ROOT) -> list[str]:
    """The files that are not what their JSON file gives, or that no JSON file gives."""
    made = outputs(root)
    wrong = {path for path, text in made.items() if not path.is_file() or path.read_text() != text}
    for name in ("tuning.h", "api_tuning.cpp"):
        wrong |= {
            path
            for path in (root / "src").glob(f"*/{name}")
            if path not in made and path.parent.name != "core"
        }
    return sorted(str(path.relative_to(root)) for path in wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 where a file is stale"
    )
    if not parser.parse_args().check:
        for path, text in outputs().items():
            path.write_text(text)
    wrong = stale()
    print(
        "\n".join(f"{path}: run make tuning" for path in wrong)
        if wrong
        else "tuning: generated files in order"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
