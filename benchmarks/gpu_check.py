#!/usr/bin/env python3
"""Everything that a GPU machine has to say about warpalign: build, tests, sanitizer, determinism, timings.

Needs Python with torch, numpy and pytest, CMake and nvcc, and no network. Writes one JSON file of flat rows,
benchmarks/results/<gpu>/<date>-<commit>.json, and prints a short table last. A step that fails is recorded
and the others still run; the exit status is then 1. With --device cpu the same steps run on the CPU, as far
as they exist there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

from results import RESULTS, ROOT, Row, cpu_name, current_commit, rounded, slug, stamp, today, write_rows
from soft_dtw_rows import QUICK_CELLS, SIZES, Size

PYTHON = ROOT / "python"
LIBRARIES = PYTHON / "warpalign" / "lib"
BUILD = ROOT / "build" / "gpu-check"
SANITIZERS = ("memcheck", "racecheck")
MORE_SANITIZERS = ("initcheck", "synccheck")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:N or cpu")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only sizes whose BxNxMxD@gamma matches")
    parser.add_argument("--quick", action="store_true", help="small sizes, fewer runs")
    parser.add_argument(
        "--no-build", action="store_true", help=f"use what is in {LIBRARIES.relative_to(ROOT)}"
    )
    parser.add_argument("--skip-tests", action="store_true")
    parser.add_argument("--skip-sanitizer", action="store_true")
    parser.add_argument("--all-sanitizers", action="store_true", help=f"also {' and '.join(MORE_SANITIZERS)}")
    parser.add_argument("--skip-table", action="store_true")
    parser.add_argument("--sweep", action="store_true", help="also benchmarks/soft_dtw_sweep.py: a minute")
    parser.add_argument("--commit", default=None, help="name of the commit, where there is no git checkout")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="results folder (default: benchmarks/results)"
    )
    return parser.parse_args()


def command(arguments: list[str], limit_s: float, **environment: str) -> tuple[int, str]:
    """Runs a command with the package on its path: exit status (124: too slow, 127: missing) and output."""
    paths = [str(PYTHON), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment}
    try:
        done = subprocess.run(
            arguments,
            cwd=ROOT,
            env=environment,
            timeout=limit_s,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        return 124, (output.decode(errors="replace") if isinstance(output, bytes) else output)
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout


def check(name: str, status: str, detail: str, start: float) -> Row:
    """One row about a step that is no measurement; status: passed, failed or skipped."""
    seconds = time.perf_counter() - start
    print(f"{name:14} {status:8} {detail}  ({seconds:.0f} s)", flush=True)
    return {"op": "check", "name": name, "status": status, "detail": detail, "seconds": rounded(seconds, 3)}


def last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def tail(output: str, count: int = 25) -> None:
    print("\n".join("    " + line for line in output.splitlines()[-count:]), flush=True)


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
        options += ["-DWARPALIGN_CUDA=ON", f"-DWARPALIGN_CUDA_ARCHITECTURES={major}{minor}"]
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


def python_tests(device: torch.device) -> Row:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        marks = "gpu" if device.type == "cuda" else "not gpu"
        arguments = ["-m", "pytest", "-q", "-m", marks, "tests/python", "-p", "no:cacheprovider"]
        if importlib.util.find_spec("xdist"):
            arguments += ["-n", str(min(8, os.cpu_count() or 1))]
        status, output = command([sys.executable, *arguments, f"--junitxml={report}"], 400)
        if not report.exists():
            tail(output)
            return check("pytest", "failed", f"exit status {status}: {last_line(output)}", start)
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    count = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    if status not in (0, 5):  # 5: no test has the mark
        tail(output)
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
    for program in programs:
        status, output = command([str(program), "--gtest_brief=1"], 120)
        ran = re.search(r"(\d+) tests? from \d+ test suites? ran", output)
        good = re.search(r"\[  PASSED  \] (\d+) test", output)
        passed += int(good[1]) if good else 0
        if status != 0 or not ran:
            failed += max(1, len(re.findall(r"^\[  FAILED  \] \S+ \(", output, re.MULTILINE)))
            tail(output)
    detail = f"{passed} passed, {failed} failed, {len(programs)} programs"
    return check("C++ tests", "failed" if failed else "passed", detail, start)


def sanitizer(tool: str) -> Row:
    """Small shapes of every kernel under one tool of compute-sanitizer."""
    start = time.perf_counter()
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        return check(tool, "skipped", "compute-sanitizer was not found", start)
    script = [sys.executable, str(ROOT / "benchmarks" / "sanitize_small.py")]
    status, output = command(
        [program, "--tool", tool, "--error-exitcode", "99", "--print-limit", "5", *script],
        150,
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",  # every tensor is its own allocation: memcheck then sees its end
    )
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
    if re.search(r"Device not supported|Unable to find injection library|not supported on this", output):
        return check(tool, "skipped", "compute-sanitizer does not work on this machine", start)
    if status != 0:
        tail(output, 40)
        return check(
            tool, "failed", summary[-1] if summary else f"exit status {status}: {last_line(output)}", start
        )
    return check(tool, "passed", summary[-1] if summary else "no error", start)


def determinism(device: torch.device, runs: int) -> Row:
    from soft_dtw_table import not_reproducible

    start = time.perf_counter()
    try:
        different = not_reproducible(device, runs)
    except RuntimeError as error:
        return check("determinism", "failed", str(error).splitlines()[0][:200], start)
    detail = f"{runs} runs of value and gradients, bit by bit"
    return check("determinism", "failed" if different else "passed", ", ".join(different) or detail, start)


def table(sizes: list[Size], device: torch.device, name: str, budget_s: float) -> list[Row]:
    from soft_dtw_table import framework_step_ms, measure

    rows: list[Row] = []
    overhead = framework_step_ms(device, budget_s)
    rows.append({"op": "framework_step", "device": name, "step_ms": rounded(overhead)})
    for position, size in enumerate(sizes, 1):
        start = time.perf_counter()
        row: Row = {"op": "soft_dtw", **size._asdict(), "dtype": "float32"}
        row["device"] = name
        try:
            row |= measure(size, device, budget_s)
        except (RuntimeError, ValueError, TypeError) as error:
            row["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        if device.type == "cuda":
            torch.cuda.empty_cache()
        rows.append(row)
        told = row.get("error") or f"step {row['step_ms']} ms"
        print(
            f"[{position}/{len(sizes)}] {size.name:22} {told}  ({time.perf_counter() - start:.1f} s)",
            flush=True,
        )
    return rows


def length_sweep(device: torch.device, commit: str, out: Path, quick: bool) -> Row:
    """Its own program and file: 1200 rows would drown the others."""
    start = time.perf_counter()
    script = [sys.executable, str(ROOT / "benchmarks" / "soft_dtw_sweep.py"), "--device", str(device)]
    options = ["--commit", commit, "--out", str(out), *(["--quick"] if quick else [])]
    status, output = command([*script, *options], 150)
    if status != 0:
        tail(output)
    return check("sweep", "failed" if status else "passed", last_line(output).partition(", in ")[0], start)


def print_table(rows: list[Row]) -> None:
    columns = (
        "forward_ms",
        "step_ms",
        "graph_forward_ms",
        "graph_step_ms",
        "mib",
        "err_loss",
        "err_gx",
        "err_gy",
    )
    print("\n" + f"{'BxNxMxD@gamma':22}" + "".join(f"{name.removesuffix('_ms'):>14}" for name in columns))
    for row in rows:
        if row["op"] == "framework_step":
            print(f"{'an empty Function':22}{'':14}{row['step_ms']:>14}")
        if row["op"] == "soft_dtw":
            name = Size(*(row[field] for field in Size._fields)).name
            cells = ("-" if row.get(key) is None else f"{row[key]:.3g}" for key in columns)
            print(f"{name:22}" + "".join(f"{cell:>14}" for cell in cells) + ("  !" if "error" in row else ""))


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
    name = torch.cuda.get_device_name(device) if cuda else cpu_name()
    commit = arguments.commit or current_commit()
    target = arguments.out / slug(name) / f"{today()}-{commit}.json"
    print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, commit {commit}", flush=True)
    rows: list[Row] = []

    def record(*new: Row) -> None:  # after every step, so that a run that is cut short leaves its results
        rows.extend({**row, **stamp(commit)} for row in new)
        write_rows(rows, target)

    if not arguments.no_build:
        record(build(device))
    sys.path[:0] = [str(PYTHON)]
    try:
        importlib.import_module("warpalign")
    except (ImportError, OSError) as error:
        record(check("import", "failed", str(error).splitlines()[0][:200], time.perf_counter()))
        return 1
    if not arguments.skip_tests:
        record(python_tests(device), cpp_tests())
    if cuda and not arguments.skip_sanitizer:
        for tool in SANITIZERS + (MORE_SANITIZERS if arguments.all_sanitizers else ()):
            record(sanitizer(tool))
    record(determinism(device, 5 if arguments.quick else 100))
    if not arguments.skip_table:
        wanted = [size for size in SIZES if re.search(arguments.rows, size.name)]
        if arguments.quick:
            wanted = [size for size in wanted if size.cells <= QUICK_CELLS]
        record(*table(wanted, device, name, 0.1 if arguments.quick else 0.4))
    if arguments.sweep:
        record(length_sweep(device, commit, arguments.out.absolute(), arguments.quick))
    print_table(rows)
    failed = [row for row in rows if row.get("status") == "failed" or "error" in row]
    print(f"\n{len(rows)} rows, {len(failed)} with a failure, in {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
