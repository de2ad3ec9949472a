"""Beam search beside others: torchaudio's, where it is installed, and alignment-length synchronous decoding.

torchaudio prunes as this package does: hypotheses that have their frame's blank, and those that have not, each to the beam.
It charges a blank where max_symbols ends a frame, which this package does not. Its default key counts the blank at the
beginning as a label, and orders every frame's hypotheses by it.

Alignment-length synchronous decoding is one of the searches that NeMo has; source: Saon, Tüske and Audhkhasi,
"Alignment-length synchronous decoding for RNN transducer" (ICASSP 2020), algorithm 1. It prunes among hypotheses of
different frames. So its model is one whose other hypotheses weigh little: then the best one is the same, and its score up
to what was pruned.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from tests.python.transducer.decoding_reference import Family, LastTwo, log_add, model, scores
from tests.python.transducer.test_beam import labels_of, search
from warpalign.transducer import JointWeights

FAMILY = Family(12, max_symbols=10)
HIDDEN, BEAM = 12, 8


class Torchaudio(torch.nn.Module):
    """The model with the methods that torchaudio's search calls."""

    def __init__(self, predictor: LastTwo, joint: JointWeights) -> None:
        super().__init__()
        self.predictor, self.joint = predictor, joint

    def transcribe(self, encoder: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return encoder, lengths

    def predict(self, tokens: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Tensor, list[Any]]:
        before = self.predictor.initial_state(len(tokens)) if state is None else state[0][0]
        rows, after = self.predictor.step(tokens[:, 0], before)
        return rows[:, None], lengths, [[after]]

    def join(
        self, encoder: Tensor, lengths: Tensor, rows: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = (encoder[:, :, None] + rows[:, None]).relu()
        return torch.nn.functional.linear(hidden, self.joint.weight, self.joint.bias), lengths, counts


def alignment_length_synchronous(
    encoder: Tensor, predictor: LastTwo, joint: JointWeights, beam: int, most_labels: int
) -> dict[tuple[int, ...], float]:
    """Complete hypotheses and their scores, in float64. In step i all hypotheses have labels + frames = i."""
    pool: dict[tuple[int, ...], float] = {(): 0.0}
    complete: dict[tuple[int, ...], float] = {}
    for i in range(len(encoder) + most_labels):
        after: dict[tuple[int, ...], float] = {}
        for labels, score in pool.items():
            t = i - len(labels)
            if t >= len(encoder):
                continue
            x = scores(encoder[t], predictor.row(list(labels), FAMILY), joint)
            lp = x[: FAMILY.vocabulary].log_softmax(0).tolist()
            blank = score + lp[FAMILY.blank]
            if t == len(encoder) - 1:
                complete[labels] = blank  # the only arc that ends this hypothesis
            after[labels] = log_add(after.get(labels, -math.inf), blank)
            for k in range(FAMILY.labels):
                longer = (*labels, k)
                after[longer] = log_add(after.get(longer, -math.inf), score + lp[k])
        pool = dict(sorted(after.items(), key=lambda item: -item[1])[:beam])
    return complete


def parts(frames: int, seed: int, blank: float, scale: float) -> tuple[Tensor, LastTwo, JointWeights]:
    """Encoder rows, predictor and joint network. scale: of what the predictor says."""
    predictor, joint = model(FAMILY, HIDDEN, seed=seed, blank=blank)
    predictor.tables.data *= scale
    return randn(1, frames, HIDDEN, seed=40 + seed), predictor, joint


@pytest.mark.parametrize(("seed", "labels"), [(0, 0), (1, 1), (3, 1), (4, 3), (7, 4), (9, 2)])
def test_torchaudio_finds_the_same(seed: int, labels: int) -> None:
    decoder = pytest.importorskip("torchaudio.models").RNNTBeamSearch
    encoder, predictor, joint = parts(20, seed, 4.0, 0.4)
    theirs = decoder(
        Torchaudio(predictor, joint),
        FAMILY.blank,
        hypo_sort_key=lambda h: h[3],
        step_max_tokens=FAMILY.max_symbols,
    )
    with torch.no_grad():
        best = theirs(encoder[0], torch.tensor(20), BEAM)[0]
    (ours,) = search(encoder, None, (predictor, joint), FAMILY, beam=BEAM, score_norm=False)
    assert labels_of(ours, 0) == tuple(best[0][1:]) and int(ours.lengths[0]) == labels
    # Float32 on both sides: sums of some 40 log-probabilities of some units.
    assert float(ours.scores[0]) == pytest.approx(best[3], abs=1e-4)


@pytest.mark.parametrize(("seed", "count"), [(0, 0), (1, 1), (2, 3), (3, 1), (4, 0)])
def test_alignment_length_synchronous_decoding_finds_the_same(seed: int, count: int) -> None:
    encoder, predictor, joint = parts(9, seed, 6.0, 1.0)
    expected = alignment_length_synchronous(encoder[0], predictor, joint, BEAM, 18)
    labels, score = max(expected.items(), key=lambda item: item[1])
    (ours,) = search(encoder, None, (predictor, joint), FAMILY, beam=BEAM, score_norm=False)
    assert labels_of(ours, 0) == labels and len(labels) == count
    assert float(ours.scores[0]) == pytest.approx(score, abs=0.05)  # the largest pruned share seen is 0.046
