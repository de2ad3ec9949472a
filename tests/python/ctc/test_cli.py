"""`warpalign ctc-align` and `ctc-decode`."""

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


@pytest.mark.parametrize("suffix", ["txt", "csv"])
def test_decoding(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    logits = np.random.default_rng(2).normal(size=(30, 4))
    logits[:, 3] += 1
    np.save(tmp_path / "x.npy", logits)
    (tmp_path / "letters.txt").write_text("a\nb\nc\n-\n")
    output = tmp_path / f"found.{suffix}"
    options = ("--blank", 3, "--beam", 5, "--dtype", "float64", "--frame-seconds", 0.5, "--json")
    arguments = (
        "ctc-decode",
        tmp_path / "x.npy",
        "--vocabulary",
        tmp_path / "letters.txt",
        "-o",
        output,
        *options,
    )
    assert _app.run([str(a) for a in arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    (expected,) = warpalign.ctc_beam_decode(torch.from_numpy(logits), beam=5, blank=3)
    count = int(expected.lengths)
    letters = ["abc"[token] for token in expected.tokens[:count].tolist()]
    assert printed["score"] == pytest.approx(expected.scores.item(), rel=1e-12)
    assert (printed["frames"], printed["classes"], printed["tokens"]) == (30, 4, count)
    assert printed["text"] == " ".join(letters)
    if suffix == "txt":
        assert output.read_text().split() == letters
        return
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["token"] for row in rows] == letters
    assert [int(row["frame"]) for row in rows] == expected.frames[:count].tolist()
    assert all(float(row["start"]) == int(row["frame"]) * 0.5 for row in rows)


def test_decoding_with_n_grams(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logits = np.random.default_rng(3).normal(size=(30, 4))
    np.save(tmp_path / "x.npy", logits)
    (tmp_path / "letters.txt").write_text("-\na\nb\nc\n")
    lines = ["\\data\\", "ngram 1=4", "ngram 2=1", "\\1-grams:", "-1 a -0.2", "-0.3 b", "-2 c", "-0.5 </s>"]
    (tmp_path / "x.arpa").write_text("\n".join([*lines, "\\2-grams:", "-0.1 a c", "\\end\\"]))
    arguments = [
        "ctc-decode",
        tmp_path / "x.npy",
        "--vocabulary",
        tmp_path / "letters.txt",
        "--dtype",
        "float64",
    ]
    arguments += ["--arpa", tmp_path / "x.arpa", "--lm-weight", 2, "--json"]
    assert _app.run([str(a) for a in arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    model = warpalign.NGramLanguageModel(tmp_path / "x.arpa", ["-", *"abc"], blank=0)
    (expected,) = warpalign.ctc_beam_decode(torch.from_numpy(logits), language_model=model, lm_weight=2.0)
    (without,) = warpalign.ctc_beam_decode(torch.from_numpy(logits))
    assert printed["score"] == pytest.approx(expected.scores.item(), rel=1e-12)
    letters = ["-abc"[token] for token in expected.tokens[: int(expected.lengths)].tolist()]
    assert printed["text"] == " ".join(letters)
    assert not torch.equal(without.tokens, expected.tokens)
