"""An operator's small cases under a tool of compute-sanitizer, in several processes."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness.results import Row
from benchmarks.harness.steps import check, command, keep, last_line, tail
from benchmarks.harness.suite import Suite

SANITIZERS = ("memcheck", "racecheck")
MORE_SANITIZERS = ("initcheck", "synccheck")
LIMITS_S = {"racecheck": 540}
PROCESSES = 5  # at once, each with a part of the cases
LIMIT_S = 150  # seconds for a run of any other sanitizer tool
REFUSED = r"Device not supported|Unable to find injection library|not supported on this"


def sanitizer(tool: str, suite: Suite, logs: Path) -> Row:
    """Small shapes of every kernel of an operator under one tool."""
    start = time.perf_counter()
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        return check(tool, "skipped", "compute-sanitizer was not found", start, suite.name)
    with ThreadPoolExecutor(PROCESSES) as pool:
        ran = list(pool.map(lambda part: run_part(program, tool, suite, part), range(1, PROCESSES + 1)))
    output = "".join(text for _, text in ran)
    if re.search(REFUSED, output):
        return check(tool, "skipped", "compute-sanitizer does not work on this machine", start, suite.name)
    status, told = judge(tool, suite, ran)
    if status != "passed":
        tail(output, 40)
        keep(output, logs / f"{tool}-{suite.name}.txt")
    return check(tool, status, told, start, suite.name)


def run_part(program: str, tool: str, suite: Suite, part: int) -> tuple[int, str]:
    """One process with its part of the cases: exit status and output."""
    race = tool == "racecheck"
    # racecheck ends with an exception at kernels of bulk copies that it leaves out. So it looks at every kernel.
    options = [] if race else ["--kernel-name", "kernel_substring=warpalign", "--error-exitcode", "99"]
    script = [sys.executable, "-m", suite.sanitizer, "--part", f"{part}/{PROCESSES}"]
    return command(
        [program, "--tool", tool, *options, "--print-limit", "100000" if race else "5", *script],
        LIMITS_S.get(tool, LIMIT_S),
        SANITIZER=tool,
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",  # every tensor is its own allocation: memcheck then sees its end
    )


def judge(tool: str, suite: Suite, ran: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """ "passed" or "failed", and what is told of all processes. One without a summary has seen nothing."""
    summaries: list[str] = []
    for part, (status, output) in enumerate(ran, 1):
        found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        summaries += found[-1:]
        if status != 0 and found and tool != "racecheck":
            return "failed", found[-1]
        if status != 0 or not found:
            which = f"process {part} of {len(ran)}: " if len(ran) > 1 else ""
            late = f"stopped after {LIMITS_S.get(tool, LIMIT_S)} s"
            return "failed", which + (late if status == 124 else f"exit status {status}: {last_line(output)}")
    if tool != "racecheck":
        return "passed", summaries[-1]
    told, is_clean = races("".join(output for _, output in ran), suite.known_races)
    return "passed" if is_clean else "failed", told


def races(output: str, known: Sequence[str]) -> tuple[str, bool]:
    """What racecheck reports of whose kernels, and whether nothing is ours but what is known to be false."""
    reports = re.findall(r"= (?:Error|Warning): Race reported between .*", output)
    ours = [report for report in reports if "warpalign" in report]
    false = [report for report in ours if any(name in report for name in known)]
    told = [f"{len(ours) - len(false)} reports of our kernels"]
    told += [f"{len(false)} known to be false"] if false else []
    told += [f"{len(reports) - len(ours)} of cuBLAS' and PyTorch's own"]
    return ", ".join(told), len(ours) == len(false)
