"""The counting of `make test` reads what ctest and pytest write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run_tests import Counts, read_junit, run_suite, slowest

CTEST = """<testsuite tests="3">
<testcase name="a" status="run"><system-out>[       OK ] a</system-out></testcase>
<testcase name="b" status="fail"><failure message=""/><system-out>[  FAILED  ] b</system-out></testcase>
<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>Skipped: no GPU here</system-out></testcase>
</testsuite>"""

PYTEST = """<testsuites><testsuite tests="4">
<testcase name="a"/>
<testcase name="b"><failure message="x"/><error message="in teardown"/></testcase>
<testcase name="c"><skipped type="pytest.skip" message="needs a CUDA GPU"/></testcase>
<testcase name="d"><skipped type="pytest.skip" message="needs the moon"/></testcase>
</testsuite></testsuites>"""


def test_reports_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(CTEST)
    assert read_junit(report) == Counts(passed=1, failed=1, skipped=1, skipped_without_gpu=1)
    report.write_text(PYTEST)
    assert read_junit(report) == Counts(passed=1, failed=1, skipped=2, skipped_without_gpu=1)


def test_the_slowest_are_named(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
<testcase classname="file" name="a" time="2.04"/><testcase classname="b" name="b" time="30"/><testcase name="c"/>
</testsuite></testsuites>"""
    )
    assert slowest(report, 2) == ["  30.0 s  b", "   2.0 s  file::a"]


def test_a_suite_that_dies_is_a_failure(tmp_path: Path) -> None:
    stale = tmp_path / "report.xml"
    stale.write_text(PYTEST)
    assert run_suite("dead", [sys.executable, "-c", "raise SystemExit(3)"], stale) == Counts(failed=1)


def test_counts_add_up() -> None:
    total = Counts(1, 2, 3, 1) + Counts(10, 20, 30, 2)
    assert total == Counts(11, 22, 33, 3)
    assert str(total) == "11 passed, 22 failed, 33 skipped"


def test_tests_of_one_group_share_a_process(tmp_path: Path) -> None:
    """Two of them once built the wheel in one folder at the same time."""
    pytest.importorskip("xdist")
    shutil.copy(Path(__file__).parents[2] / "conftest.py", tmp_path)
    code = """
import time, pathlib, pytest
@pytest.mark.parametrize("k", range(6))
def test(k, worker_id):
    (pathlib.Path(__file__).with_suffix("") / f"{worker_id} {k}").touch()
    time.sleep(0.1)
"""
    names = ("test_install", "test_other")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.py").write_text(code)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist.plugin",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
    ]
    # Other plugins take seconds to load, in three processes.
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*map(str, command), str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, env=alone
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = {name: [file.name for file in (tmp_path / name).iterdir()] for name in names}
    assert [len(found) for found in files.values()] == [6, 6]
    assert len({file.split()[0] for file in files["test_install"]}) == 1
    assert len({file.split()[0] for found in files.values() for file in found}) == 2
