"""benchmarks/soft_dtw/training_impact.py, in the process that has compiled pysdtw (tests/conftest.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.harness import tables as harness
from benchmarks.soft_dtw import tables, training_impact


def test_trainings_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """warpalign's and pysdtw's losses train the same model, and both learn."""
    pytest.importorskip("pysdtw")
    options = ["--device", "cpu", "--quick", "--commit", "test", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["training_impact", *options])
    assert training_impact.main() == 0, capsys.readouterr().out
    (file,) = tmp_path.glob("*/*-test-training.json")
    rows = json.loads(file.read_text())
    assert [(row["task"], row["impl"]) for row in rows] == [
        (task, impl) for task in ("forecast", "represent") for impl in ("warpalign", "pysdtw")
    ]
    for ours, theirs in (rows[:2], rows[2:]):
        assert ours["metric_after"] < ours["metric_before"] == theirs["metric_before"]
        assert ours["metric_after"] == pytest.approx(theirs["metric_after"], rel=0.05)

    peer = {"impl": "peer", "device": rows[0]["device"], "B": 32, "N": 48, "M": 48, "D": 1, "gamma": 1.0}
    table_row = {**peer, "op": "soft_dtw", "step_ms": 1.0, "dtype": "float32", "precision": "highest"}
    monkeypatch.setattr(tables, "gpu_rows", lambda: [table_row])
    monkeypatch.setattr(
        harness, "load", lambda pattern: [{**peer, "step_ms": 11.0}] if "peers" in pattern else rows
    )
    (line,) = [line for line in tables.training_table().splitlines() if "estimated |" in line]
    # 2 steps per epoch, each 10 ms longer.
    assert f"| {harness.number(rows[0]['seconds_per_epoch'] + 0.02)} | 11 |" in line
