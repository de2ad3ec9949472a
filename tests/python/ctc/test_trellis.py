"""Alignment beside the way of whisperX, a trellis in a Python loop: the same labels where outputs are sure of their classes."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.ctc import trellis
from benchmarks.harness.results import read_rows
from warpalign import ctc_align


@pytest.mark.parametrize("seed", range(20))
def test_the_same_labels(seed: int) -> None:
    frames, classes, labels = 40 + 13 * seed, 5 + 3 * (seed % 7), 8 + 3 * seed
    log_probs, targets = trellis.problem(frames, classes, labels, seed)
    found = ctc_align(log_probs, targets, from_log_probs=True)
    assert torch.equal(found.labels.long(), trellis.trellis_align(log_probs, targets))
    assert torch.equal(found.labels[found.labels != 0].long(), targets)


@pytest.mark.parametrize("labels", [[], [2], [1, 1], [3, 1, 2], [1, 2, 2, 1]])
def test_the_trellis_finds_its_best_path(labels: list[int]) -> None:
    log_probs = torch.randn(7, 4, generator=torch.Generator().manual_seed(len(labels)), dtype=torch.float64)
    log_probs = log_probs.log_softmax(-1)
    targets = torch.tensor(labels, dtype=torch.int64)
    paths = []
    for places in itertools.combinations(range(7), len(labels)):
        path = torch.zeros(7, dtype=torch.int64)
        path[list(places)] = targets
        paths.append(path)
    best = max(paths, key=lambda path: float(log_probs[torch.arange(7), path].sum()))
    assert torch.equal(trellis.trellis_align(log_probs, targets), best)
    # A path of one frame a label is one of CTC's, unless it lacks a blank between equal labels.
    if all(a != b for a, b in itertools.pairwise(labels)):
        score = log_probs[torch.arange(7), best].sum()
        assert ctc_align(log_probs, targets, from_log_probs=True).score >= score - 1e-12


def test_too_many_labels() -> None:
    with pytest.raises(ValueError, match="got 2 frames and 3 labels"):
        trellis.trellis_align(torch.zeros(2, 4), torch.tensor([1, 2, 3]))


def test_the_program_writes_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trellis, "SIZES", [(30, 6, 5)])
    monkeypatch.setattr(sys, "argv", ["trellis", "--runs", "1", "--commit", "none", "--out", str(tmp_path)])
    threads = torch.get_num_threads()
    try:
        trellis.main()
    finally:
        torch.set_num_threads(threads)
    (path,) = tmp_path.rglob("*-none-ctc-trellis.json")
    (row,) = read_rows(path)
    assert (row["T"], row["C"], row["L"]) == (30, 6, 5) and row["align_ms"] > 0 and row["trellis_ms"] > 0
