"""A transducer from letters to phonemes: bidirectional LSTM, a predictor of two phonemes, a small joint network."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

import warpalign

from .data import LETTERS, PHONEMES, Batch

SIGMA = 0.05  # of multi-blank and TDT models, as their papers have it


class Family(NamedTuple):
    """A kind of transducer."""

    name: str
    big_blanks: tuple[int, ...] = ()
    durations: tuple[int, ...] | None = None

    @property
    def blank(self) -> int:
        return len(PHONEMES) + len(self.big_blanks)


FAMILIES = {
    "rnnt": Family("RNN-T"),
    "multi-blank": Family("multi-blank (2)", big_blanks=(2,)),
    "tdt": Family("TDT (0, 1, 2)", durations=(0, 1, 2)),
}


class LastTwo(nn.Module):
    """The predictor: a sum of two embeddings. Its state is the last phoneme but one."""

    def __init__(self, tokens: int, hidden: int) -> None:
        super().__init__()
        self.last, self.before = nn.Embedding(tokens, hidden), nn.Embedding(tokens, hidden)
        self.start = tokens - 1  # the blank

    def forward(self, phonemes: Tensor) -> Tensor:
        """(B, U) to (B, U + 1, H): the row behind no phoneme, behind the first one, and so on."""
        last = nn.functional.pad(phonemes, (1, 0), value=self.start)
        before = nn.functional.pad(last[:, :-1], (1, 0), value=self.start)
        rows: Tensor = self.last(last) + self.before(before)
        return rows

    def initial_state(self, batch: int) -> Tensor:
        return torch.full((batch,), self.start, device=self.last.weight.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.last(tokens) + self.before(state), tokens


class Pronouncer(nn.Module):
    def __init__(self, family: Family, hidden: int) -> None:
        super().__init__()
        self.family = family
        self.embedding = nn.Embedding(len(LETTERS), hidden // 2)
        self.encoder = nn.LSTM(hidden // 2, hidden, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(2 * hidden, hidden)
        self.predictor = LastTwo(family.blank + 1, hidden)
        self.transducer = warpalign.TransducerJointLoss(
            hidden,
            family.blank + 1,
            activation="tanh",
            blank=family.blank,
            durations=family.durations,
            big_blanks=family.big_blanks,
            sigma=0.0 if family.name == "RNN-T" else SIGMA,
            reduction="mean_target",
        )

    def encode(self, letters: Tensor) -> Tensor:
        """(B, T) letters to (B, T, H)."""
        rows: Tensor = self.projection(self.encoder(self.embedding(letters))[0])
        return rows

    def loss(self, batch: Batch) -> Tensor:
        value: Tensor = self.transducer(
            self.encode(batch.letters),
            self.predictor(batch.phonemes),
            batch.phonemes,
            target_lengths=batch.lengths,
        )
        return value

    @torch.no_grad()
    def pronounce(self, letters: Tensor, beam: int) -> list[list[int]]:
        """Phonemes of (B, T) letters; a beam of 1 is greedy search."""
        rows = self.encode(letters)
        if beam == 1:
            found = self.transducer.greedy_decode(rows, None, self.predictor)
        else:
            found = self.transducer.beam_decode(rows, None, self.predictor, beam=beam)[0]
        return [
            row[:length] for row, length in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True)
        ]

    @torch.no_grad()
    def align(self, batch: Batch) -> tuple[warpalign.TransducerAlignment, Tensor]:
        """The best path, and (B, T, U) the probability that a phoneme is written at a letter."""
        found = self.transducer.align(
            self.encode(batch.letters),
            self.predictor(batch.phonemes),
            batch.phonemes,
            target_lengths=batch.lengths,
            posteriors=True,
        )
        assert found.posteriors is not None
        return found, found.posteriors.label
