"""The demo runs to its end and writes its plots; a wrong argument costs one line."""

from pathlib import Path

import pytest

from tests.python.helpers import run_python


def test_quick_demo(tmp_path: Path) -> None:
    pytest.importorskip("tslearn")
    done = run_python("examples/demo.py", "--quick", "--device", "cpu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"pairwise", "barycenters", "alignment_trace", "alignment_eeg", "forecast"}
    assert "warpalign" in done.stdout and "tslearn" in done.stdout


def test_unknown_device() -> None:
    done = run_python("examples/demo.py", "--device", "abacus")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
