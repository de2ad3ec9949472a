"""The demo runs to its end and writes its plots; a wrong argument costs one line."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "examples/demo.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_quick_demo(tmp_path: Path) -> None:
    pytest.importorskip("tslearn")
    done = run("--quick", "--device", "cpu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"pairwise", "barycenters", "alignment_trace", "alignment_eeg", "forecast"}
    assert "warpalign" in done.stdout and "tslearn" in done.stdout


def test_unknown_device() -> None:
    done = run("--device", "abacus")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
