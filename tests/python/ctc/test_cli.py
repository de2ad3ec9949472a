"""`warpalign ctc-align`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import warpalign
from warpalign.cli import _app


@pytest.mark.parametrize("log_probs", [False, True])
def test_spans(capsys: pytest.CaptureFixture[str], tmp_path: Path, log_probs: bool) -> None:
    logits = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", logits)
    (tmp_path / "y.txt").write_text("1 3\n3 2\n")
    arguments = [
        tmp_path / "x.npy",
        tmp_path / "y.txt",
        "-o",
        tmp_path / "spans.csv",
        "--json",
        "--frame-seconds",
        0.5,
    ]
    code = _app.run([str(a) for a in ("ctc-align", *arguments, *(["--log-probs"] if log_probs else []))])
    printed = json.loads(capsys.readouterr().out)
    expected = warpalign.ctc_align(
        torch.from_numpy(logits), torch.tensor([1, 3, 3, 2]), from_log_probs=log_probs
    )
    assert code == 0 and printed["score"] == pytest.approx(expected.score.item())
    assert (printed["frames"], printed["classes"], printed["tokens"]) == (40, 5, 4)
    with open(tmp_path / "spans.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["token"] for row in rows] == ["1", "3", "3", "2"]
    for row, (first, last) in zip(rows, expected.spans.tolist(), strict=True):
        assert (int(row["first"]), int(row["last"])) == (first, last)
        assert (float(row["start"]), float(row["end"])) == (first * 0.5, (last + 1) * 0.5)
        assert float(row["score"]) == pytest.approx(expected.scores[first : last + 1].mean().item(), rel=1e-4)


def test_a_vocabulary_and_a_star(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logits = np.random.default_rng(1).normal(size=(20, 3))
    np.save(tmp_path / "x.npy", logits)
    (tmp_path / "y.txt").write_text("a ? b")
    (tmp_path / "letters.txt").write_text("a\nb\n-\n")
    arguments = [
        tmp_path / "x.npy",
        tmp_path / "y.txt",
        "--vocabulary",
        tmp_path / "letters.txt",
        "--blank",
        2,
        "--star",
        "?",
        "--dtype",
        "float64",
    ]
    assert _app.run([str(a) for a in ("ctc-align", *arguments, "--json")]) == 0
    expected = warpalign.ctc_align(torch.from_numpy(logits), torch.tensor([0, 9, 1]), blank=2, star=9)
    assert json.loads(capsys.readouterr().out)["score"] == pytest.approx(expected.score.item(), rel=1e-12)
