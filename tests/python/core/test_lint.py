"""tools/lint.mk runs mypy and clang-tidy side by side, shows what fails, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

LINT = Path(__file__).parents[3] / "tools" / "lint.mk"
CLANG_TIDY = """#!/bin/sh
echo 21763 warnings generated.
for file; do :; done
case $file in bad*) echo $file:1: error: braces; exit 3;; esac
"""


@pytest.mark.parametrize("mypy", ["true", "echo x.py:1: error: types; false"])
@pytest.mark.parametrize("bad", [(), ("bad.cpp",), ("bad.cpp", "bad2.cpp")])
def test_what_fails_is_shown_and_nothing_else(tmp_path: Path, bad: tuple[str, ...], mypy: str) -> None:
    for name, script in (("mypy", f"#!/bin/sh\n{mypy}\n"), ("clang-tidy", CLANG_TIDY)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    files = " ".join(["a.cpp", *bad, "b.cpp"])
    command = ["make", "-f", str(LINT), "-j2", "-k", "-O", f"tool={tmp_path}", "build=b", f"files={files}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = [f"{file}:1: error: braces" for file in bad]
    expected += ["x.py:1: error: types"] * mypy.endswith("false")
    found = [line for line in done.stdout.splitlines() if "error" in line]
    assert sorted(found) == sorted(expected)
    assert (done.returncode == 0) == (not expected)
    assert ("nothing found" in done.stdout) == (not expected)
