"""tools/run_commands.py shows what failed, last, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "run_commands.py"


def outcome(*commands: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, TOOL, "2"], input="\n".join(commands), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, [line for line in done.stdout.splitlines() if line]


def test_success_is_one_line() -> None:
    assert outcome("echo 21763 warnings generated. >&2", "true") == (0, ["2 of 2 commands succeeded"])


def test_a_failure_comes_last() -> None:
    fails = "echo 3 warnings generated.; echo a.cpp:1: error: braces; echo note: here >&2; exit 3"
    code, lines = outcome(fails, "sleep 0.1; echo silent")
    assert code == 1
    assert lines == [
        f"$ {fails}",
        "a.cpp:1: error: braces",
        "note: here",
        "1 of 2 commands succeeded",
        f"failed with 3: {fails}",
        "  a.cpp:1: error: braces",
    ]


def test_a_failure_without_words_and_no_commands_at_all() -> None:
    assert outcome("false")[1][-1] == "  no output"
    assert outcome() == (1, ["0 of 0 commands succeeded"])
