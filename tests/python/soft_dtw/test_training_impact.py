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
    """All losses that run on a CPU train the same model, on shipped data and on others, and it learns."""
    pytest.importorskip("pysdtw")
    pytest.importorskip("sktime")
    options = ["--device", "cpu", "--quick", "--seeds", "1", "--commit", "test", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["training_impact", *options, "--tasks", "leaves", "represent"])
    assert training_impact.main() == 0, capsys.readouterr().out
    (file,) = tmp_path.glob("*/*-test-training.json")
    rows = json.loads(file.read_text())
    assert [(row["task"], row["impl"]) for row in rows] == [
        ("leaves", "warpalign"),
        ("leaves", "pysdtw"),
        ("leaves", "tslearn"),
        ("represent", "warpalign"),
        ("represent", "pysdtw"),
    ]
    for ours, theirs in (rows[:2], rows[3:]):
        assert ours["metric_after"] < ours["metric_before"] == theirs["metric_before"]
        assert ours["metric_after"] == pytest.approx(theirs["metric_after"], rel=0.05)
    assert rows[2]["metric_before"] == rows[0]["metric_before"] and rows[2]["metric_after"] is None

    second = {**rows[0], "seed": 1, "seconds_per_epoch": 1e6, "metric_after": 2.5, "largest_batch": 64}
    monkeypatch.setattr(harness, "load", lambda pattern: [*rows, second])
    lines = [line.split(" | ") for line in tables.training_table().splitlines() if line.startswith("| ")]
    assert [line[1] for line in lines[2:]] == [row["impl"] for row in rows]
    least = harness.number(min(2.5, rows[0]["metric_after"]))
    assert lines[2][4] == "" and lines[2][7] == "64" and least in lines[2][8]
    times = rows[1]["seconds_per_epoch"] / rows[0]["seconds_per_epoch"]
    assert lines[3][4] == f"{times:.1f} ×" and lines[3][7] == "–"
