#!/usr/bin/env python3
"""Everything that a GPU machine has to say about warpalign: build, tests, sanitizer, determinism, timings.

Needs Python with torch, numpy and pytest, CMake and nvcc, and no network. Writes one JSON file of flat rows,
benchmarks/results/<gpu>/<date>-<commit>.json, and prints a short table last. What it measures of an operator is
described by benchmarks/<operator>/suite.py. A step that fails is recorded and the others still run; the exit
status is then 1. The whole output of a test run or a sanitizer that fails is kept in a folder beside the JSON file. With --device cpu the same steps run on the CPU, as far as they exist there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script and with -m alike

from benchmarks.harness import suite as suites  # noqa: E402
from benchmarks.harness.results import (  # noqa: E402
    ROOT,
    Row,
    add_arguments,
    device_name,
    result_path,
    rounded,
    stamp,
    write_rows,
)
from benchmarks.harness.sanitizer import MORE_SANITIZERS, SANITIZERS, sanitizer  # noqa: E402
from benchmarks.harness.sanitizer_cases import run  # noqa: E402
from benchmarks.harness.steps import PYTHON, check, command, keep, last_line, tail  # noqa: E402
from benchmarks.harness.suite import Size, Suite  # noqa: E402
from benchmarks.harness.timing import framework_step_ms  # noqa: E402

LIBRARIES = PYTHON / "warpalign" / "lib"
BUILD = ROOT / "build" / "gpu-check"
ROOMY_KIB = 163  # KiB of shared memory that a block of an A100 can have


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    known = suites.operators("suite")
    parser.add_argument(
        "--suite",
        type=lambda names: names.split(","),
        default=known,
        metavar="NAME,...",
        help=f"only these operators, of {', '.join(known)} (default: all)",
    )
    parser.add_argument("--rows", default="", metavar="REGEX", help="only sizes whose name matches")
    parser.add_argument("--quick", action="store_true", help="small sizes, fewer runs")
    parser.add_argument(
        "--no-build", action="store_true", help=f"use what is in {LIBRARIES.relative_to(ROOT)}"
    )
    parser.add_argument("--skip-tests", action="store_true")
    parser.add_argument("--skip-sanitizer", action="store_true")
    parser.add_argument("--all-sanitizers", action="store_true", help=f"also {' and '.join(MORE_SANITIZERS)}")
    parser.add_argument("--skip-table", action="store_true")
    parser.add_argument(
        "--sweep", action="store_true", help="also times over every length: a minute for an operator"
    )
    add_arguments(parser)
    arguments = parser.parse_args()
    for name in arguments.suite:
        if name not in known:
            parser.error(f"--suite: expected names out of {', '.join(known)}, got {name}")
    return arguments


def build(device: torch.device) -> Row:
    """The PyTorch libraries for this device's own architecture, installed beside the Python sources."""
    start = time.perf_counter()
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DWARPALIGN_BUILD_TORCH=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    if shutil.which("ninja"):
        options += ["-G", "Ninja"]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        options += ["-DWARPALIGN_CUDA=ON", f"-DWARPALIGN_CUDA_ARCHITECTURES={major}{minor}-real"]
    else:
        options += ["-DWARPALIGN_CUDA=OFF"]
    steps = [
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), *options],
        ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)],
        ["cmake", "--install", str(BUILD), "--component", "python", "--prefix", str(PYTHON)],
    ]
    for step in steps:
        status, output = command(step, 300)
        if status != 0:
            tail(output)
            return check("build", "failed", f"{' '.join(step[:2])}: exit status {status}", start)
    return check("build", "passed", options[-1].removeprefix("-DWARPALIGN_"), start)


def python_tests(device: torch.device, operators: list[str], logs: Path) -> Row:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        marks = "gpu" if device.type == "cuda" else "not gpu"
        folders = [f"tests/python/{name}" for name in ("core", *operators)]
        arguments = ["-m", "pytest", "-q", "-m", marks, *folders, "-p", "no:cacheprovider"]
        if importlib.util.find_spec("xdist"):
            arguments += ["-n", str(max(1, min(14, (os.cpu_count() or 1) - 2)))]
        # Several processes: a pool of threads in each would leave the references in Python no core.
        arguments += [f"--junitxml={report}"]
        status, output = command([sys.executable, *arguments], 400, OMP_NUM_THREADS="1")
        if not report.exists():
            tail(output)
            return check("pytest", "failed", f"exit status {status}: {last_line(output)}", start)
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    count = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    if status not in (0, 5):  # 5: no test has the mark
        tail(output)
        keep(output, logs / "pytest.txt")
    bad = count["failures"] + count["errors"]
    detail = f"{count['tests'] - bad - count['skipped']} passed, {bad} failed, {count['skipped']} skipped"
    return check("pytest", "passed" if status == 0 else "skipped" if status == 5 else "failed", detail, start)


def cpp_tests() -> Row:
    """The C++ tests of any build folder that has them: the programs themselves, which need no CMake to run.

    Not those that run kernels on a CPU: they say nothing about this GPU.
    """
    start = time.perf_counter()
    found = (ROOT / "build").glob("*/tests/cpp/*_test")
    programs = sorted(program for program in found if not program.name.startswith("simt_"))
    if not programs:
        return check("C++ tests", "skipped", "no build folder with C++ tests", start)
    passed = failed = 0
    with ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 1) // 4))) as pool:
        results = list(pool.map(lambda program: command([str(program), "--gtest_brief=1"], 120), programs))
    for status, output in results:
        ran = re.search(r"(\d+) tests? from \d+ test suites? ran", output)
        good = re.search(r"\[  PASSED  \] (\d+) test", output)
        passed += int(good[1]) if good else 0
        if status != 0 or not ran:
            failed += max(1, len(re.findall(r"^\[  FAILED  \] \S+ \(", output, re.MULTILINE)))
            tail(output)
    detail = f"{passed} passed, {failed} failed, {len(programs)} programs"
    return check("C++ tests", "failed" if failed else "passed", detail, start)


def determinism(device: torch.device, runs: int, suite: Suite) -> Row:
    start = time.perf_counter()
    try:
        different = suite.not_reproducible(device, runs)
    except RuntimeError as error:
        return check("determinism", "failed", str(error).splitlines()[0][:200], start, suite.name)
    detail = ", ".join(different) or f"{runs} runs of value and gradients, bit by bit"
    return check("determinism", "failed" if different else "passed", detail, start, suite.name)


def shared_kib(device: torch.device) -> int:
    """The most shared memory of a block."""
    properties = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin) // 1024  # type: ignore[attr-defined]


def kernels(suite: Suite, device: torch.device) -> list[Row]:
    """Whether the table and the sanitizer's cases, run here once more, have launched every kernel of the library.

    The row has their names: `unreached` by anything, a failure; `unmeasured`, launched by no size of the table. A
    device with less shared memory than an A100 cannot launch all of them.
    """
    if suite.launches is None:
        return []
    start = time.perf_counter()
    by_table = suite.launches()
    try:
        wrong = run(importlib.import_module(suite.sanitizer).cases(device))
    except RuntimeError as error:
        return [check("kernels", "failed", str(error).splitlines()[0][:200], start, suite.name)]
    counts = suite.launches()
    unreached = [name for name, count in counts.items() if count == 0]
    unmeasured = [name for name, count in by_table.items() if count == 0]
    detail = f"{len(counts)} kernels, {len(unreached)} unreached, {len(unmeasured)} unmeasured, {wrong} cases wrong"
    can_reach_all = shared_kib(device) >= ROOMY_KIB
    bad = wrong or not counts or (unreached and can_reach_all)
    status = "failed" if bad else "skipped" if unreached else "passed"
    row = check("kernels", status, detail, start, suite.name)
    tail("\n".join(f"unreached: {name}" for name in unreached))
    return [row | {"unreached": "; ".join(unreached), "unmeasured": "; ".join(unmeasured)}]


def table(
    suite: Suite,
    sizes: list[Size],
    device: torch.device,
    name: str,
    budget_s: float,
    record: Callable[[Row], None],
) -> list[Row]:
    rows: list[Row] = []
    for position, size in enumerate(sizes, 1):
        start = time.perf_counter()
        row: Row = {"op": suite.name, **size._asdict()}
        row.setdefault("dtype", "float32")
        row["device"] = name
        try:
            row |= suite.measure(size, device, budget_s)
        except (RuntimeError, ValueError, TypeError) as error:
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        if device.type == "cuda":
            torch.cuda.empty_cache()
        rows.append(row)
        record(row)
        told = row.get("error") or ", ".join(f"{key} {row.get(key)}" for key in suite.columns[:2])
        print(
            f"[{position}/{len(sizes)}] {size.name:22} {told}  ({time.perf_counter() - start:.1f} s)",
            flush=True,
        )
    return rows


def length_sweep(suite: Suite, device: torch.device, commit: str, out: Path, quick: bool) -> Row:
    """Its own program and file: 1200 rows would drown the others."""
    start = time.perf_counter()
    assert suite.sweep is not None
    script = [sys.executable, "-m", suite.sweep, "--device", str(device)]
    options = ["--commit", commit, "--out", str(out), *(["--quick"] if quick else [])]
    status, output = command([*script, *options], 150)
    if status != 0:
        tail(output)
    detail = last_line(output).partition(", in ")[0]
    return check("sweep", "failed" if status else "passed", detail, start, suite.name)


def print_table(suite: Suite, sizes: list[Size], rows: list[Row]) -> None:
    width = max((len(size.name) for size in sizes), default=0) + 1
    columns = [name.removesuffix("_ms") for name in suite.columns]
    print("\n" + f"{suite.name:{width}}" + "".join(f"{name:>14}" for name in columns))
    for size, row in zip(sizes, rows, strict=True):
        cells = ("-" if row.get(key) is None else f"{row[key]:.3g}" for key in suite.columns)
        print(
            f"{size.name:{width}}"
            + "".join(f"{cell:>14}" for cell in cells)
            + ("  !" if "error" in row else "")
        )


def print_checks(rows: list[Row]) -> None:
    """One line for each step that is no measurement; failures last, where they are read."""
    checks = [row for row in rows if row["op"] == "check"]
    print("\nsteps")
    for row in sorted(checks, key=lambda row: row["status"] == "failed"):
        print(
            f"{row['name']:14}{row.get('suite', ''):12}{row['status']:9}{row['seconds']:>6.0f} s  {row['detail'][:70]}"
        )


def main() -> int:
    arguments = parse_arguments()
    try:
        device = torch.device(arguments.device)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        print(
            f"gpu_check: {str(error).splitlines()[0]} (--device cpu runs what the CPU can)", file=sys.stderr
        )
        return 2
    cuda = device.type == "cuda"
    name = device_name(device)
    target, commit = result_path(arguments, name)
    logs = target.with_suffix("")
    print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, commit {commit}", flush=True)
    rows: list[Row] = []

    def record(*new: Row) -> None:  # after every step, so that a run that is cut short leaves its results
        rows.extend({**row, **stamp(commit)} for row in new)
        write_rows(rows, target)

    if not arguments.no_build:
        record(build(device))
    try:
        chosen = [suites.load(operator) for operator in arguments.suite]
    except (ImportError, OSError) as error:
        record(check("import", "failed", str(error).splitlines()[0][:200], time.perf_counter()))
        return 1
    if not arguments.skip_tests:
        record(python_tests(device, arguments.suite, logs), cpp_tests())
    if cuda and not arguments.skip_sanitizer:
        for suite in chosen:
            for tool in SANITIZERS + (MORE_SANITIZERS if arguments.all_sanitizers else ()):
                record(sanitizer(tool, suite, logs))
    for suite in chosen:
        record(determinism(device, 5 if arguments.quick else 100, suite))
    measured: list[tuple[Suite, list[Size], list[Row]]] = []
    if not arguments.skip_table:
        budget_s = 0.1 if arguments.quick else 0.4
        overhead = rounded(framework_step_ms(device, budget_s))
        record({"op": "framework_step", "device": name, "step_ms": overhead})
        for suite in chosen:
            sizes = suite.quick_sizes if arguments.quick else suite.sizes
            wanted = [size for size in sizes if re.search(arguments.rows, size.name)]
            measured.append((suite, wanted, table(suite, wanted, device, name, budget_s, record)))
            if cuda and suite.eager and not arguments.rows:
                record({"op": f"{suite.name}_eager", "device": name, **suite.eager(device)})
    for suite in chosen if cuda else ():
        record(*kernels(suite, device))
    for suite in chosen:
        if arguments.sweep and suite.sweep is not None:
            record(length_sweep(suite, device, commit, arguments.out.absolute(), arguments.quick))
    if measured:
        print(f"\nA step through an autograd.Function that computes nothing: {overhead} ms")
    for suite, sizes, found in measured:
        print_table(suite, sizes, found)
    print_checks(rows)
    failed = [row for row in rows if row.get("status") == "failed" or "error" in row]
    print(f"\n{len(rows)} rows, {len(failed)} with a failure, in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
