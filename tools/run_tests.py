"""Runs the C++ tests (ctest) and the Python tests (pytest) and adds up what they counted.

Usage: run_tests.py BUILD_DIR [PYTEST_ARGUMENT ...]

The last line is `N passed, N failed, N skipped`; the exit code is 0 only if something ran and all passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    skipped_without_gpu: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.skipped + other.skipped,
            self.skipped_without_gpu + other.skipped_without_gpu,
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_junit(path: Path) -> Counts:
    """Counts the cases of a JUnit report, as ctest and pytest write them."""
    counts = Counts()
    for case in ET.parse(path).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        elif skipped is not None:
            counts.skipped += 1
            # pytest gives the reason in the element, ctest only in what GoogleTest printed.
            reason = skipped.get("message", "") + case.findtext("system-out", "")
            counts.skipped_without_gpu += "GPU" in reason or "CUDA" in reason
        else:
            counts.passed += 1
    return counts


def slowest(path: Path, count: int) -> list[str]:
    """The cases of a JUnit report that took longest, as `seconds name`."""
    cases = ET.parse(path).getroot().iter("testcase")
    times = [(float(case.get("time") or 0), "::".join(_names(case))) for case in cases]
    return [f"{seconds:6.1f} s  {name}" for seconds, name in sorted(times, reverse=True)[:count]]


def _names(case: ET.Element) -> list[str]:
    """The file that pytest names, then the case; ctest says the case's name twice."""
    name, group = case.get("name", ""), case.get("classname", "")
    return [name] if group in ("", name) else [group, name]


def run_suite(name: str, command: list[str], report: Path) -> Counts:
    print(f"\n== {name}", flush=True)
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    print(f"{name} took {time.monotonic() - begin:.0f} s")
    counts = read_junit(report) if report.exists() else Counts()
    if report.exists():
        print("The slowest:", *slowest(report, 5), sep="\n")
    if code != 0 and counts.failed == 0:
        print(f"{name} exited with {code}: counted as one failure")
        counts.failed += 1
    return counts


def main(arguments: list[str]) -> int:
    build = Path(arguments[0]).resolve()
    cores = os.cpu_count() or 1
    jobs = str(min(4, cores))
    # The processes share the cores: with more threads than cores, OpenMP's wait for each other at every small operation.
    os.environ.setdefault("OMP_NUM_THREADS", str(cores // int(jobs)))
    os.environ["WARPALIGN_BUILD_DIR"] = str(build)  # tests/install installs from it
    ctest_report, pytest_report = build / "ctest.xml", build / "pytest.xml"
    ctest = ["ctest", "--test-dir", str(build), "-j", jobs, "--output-on-failure", "--no-tests=error"]
    # tests/conftest.py says which tests share a process, and with it what is expensive to make.
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", jobs, *arguments[1:]]
    suites = {
        "C++": run_suite("C++ tests", [*ctest, "--output-junit", str(ctest_report)], ctest_report),
        "Python": run_suite("Python tests", [*pytest, f"--junitxml={pytest_report}"], pytest_report),
    }
    total = sum(suites.values(), Counts())
    print("\n== Summary")
    for name, counts in suites.items():
        print(f"  {name}: {counts}")
    print(f"  {total.skipped_without_gpu} of the skipped tests need a GPU")
    print(total)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
