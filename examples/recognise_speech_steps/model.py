"""The recogniser: an encoder and a predictor by LSTMs, and a transducer of any family."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import warpalign
from align_speech_steps.model import LETTERS
from warpalign.recurrent import LSTM
from warpalign.transducer import LSTMPredictor, TransducerPenalties

from .corpus import BANDS

EMBEDDING = 64
PRUNE_RANGE = 5
BLANK_BIAS = 4.6
"""Added to the blank's first bias. Blanks then have 80 % of the probability, which is their share of the arcs of a path. Without
it, training first learns to write all letters after the last frame, and takes several times as many steps to leave that."""


class Family(NamedTuple):
    """A kind of transducer, and how it is trained."""

    name: str
    big_blanks: tuple[int, ...] = ()
    durations: tuple[int, ...] | None = None
    sigma: float = 0.0
    omega: float = 0.0
    pruned: bool = False
    fastemit: float = 0.0
    delay_penalty: float = 0.0


FAMILIES = {
    family.name: family
    for family in (
        Family("RNN-T"),
        Family("multi-blank 2", big_blanks=(2,), sigma=0.05),
        Family("multi-blank 2 4", big_blanks=(2, 4), sigma=0.05),
        Family("multi-blank 2 4 8", big_blanks=(2, 4, 8), sigma=0.05),
        Family("multi-blank 2 4 8, sigma 0", big_blanks=(2, 4, 8)),
        Family("multi-blank 2 4 8, sigma 0.2", big_blanks=(2, 4, 8), sigma=0.2),
        Family("TDT 0 to 4", durations=(0, 1, 2, 3, 4), sigma=0.05, omega=0.1),
        Family("pruned", pruned=True),
        *(Family(f"FastEmit {strength}", fastemit=strength) for strength in (0.003, 0.01, 0.03, 0.1)),
        *(Family(f"delay penalty {cost}", delay_penalty=cost) for cost in (0.001, 0.003, 0.01, 0.03)),
    )
}


class Recogniser(nn.Module):
    """Letters from frames (B, T, BANDS).

    Args:
        family: the kind of transducer.
        activation: of both LSTMs: "soft" or "hard".
        hidden: the number of units of a layer, and of the joint network.
        layers: the number of the encoder's layers.
        vocabulary: the number of labels without blanks.
    """

    def __init__(
        self, family: Family, activation: str, hidden: int, layers: int = 2, vocabulary: int = len(LETTERS)
    ) -> None:
        super().__init__()
        self.family, self.vocabulary = family, vocabulary
        columns = vocabulary + len(family.big_blanks) + 1
        gates: dict[str, Any] = {"activation": activation}
        # The encoder is drawn first, so that a seed gives all families and activations the same one.
        self.encoder = LSTM(BANDS, hidden, layers, batch_first=True, forget_bias=1.0, **gates)
        self.predictor = LSTMPredictor(columns, EMBEDDING, hidden, **gates)
        penalties = TransducerPenalties(delay_penalty=family.delay_penalty)
        self.transducer = warpalign.TransducerJointLoss(
            hidden,
            columns,
            activation="tanh",
            durations=family.durations,
            big_blanks=family.big_blanks,
            sigma=family.sigma,
            omega=family.omega,
            fastemit_lambda=family.fastemit,
            penalties=penalties,
            reduction="mean_volume",
        )
        # The additive network that finds the band of the pruned loss.
        self.simple = (
            nn.ModuleList(nn.Linear(hidden, columns) for _ in range(2)) if family.pruned else nn.ModuleList()
        )
        with torch.no_grad():
            for layer in (self.transducer, *self.simple[:1]):
                layer.bias[columns - 1] += BLANK_BIAS

    def encode(self, frames: Tensor) -> Tensor:
        """(B, T, BANDS) to (B, T, H)."""
        rows: Tensor = self.encoder(frames)[0]
        return rows

    def loss(
        self, frames: Tensor, targets: Tensor, lengths: Tensor, counts: Tensor, pruned_scale: float = 1.0
    ) -> Tensor:
        """The loss for each letter.

        Args:
            frames: (B, T, BANDS).
            targets: (B, U) letters.
            lengths: (B,) true numbers of frames.
            counts: (B,) true numbers of letters.
            pruned_scale: the weight of the pruned loss, which rises from a small one to 1.
        """
        rows, states = self.encode(frames), self.predictor(targets)
        if not self.family.pruned:
            value: Tensor = self.transducer(rows, states, targets, lengths, counts)
            return value
        of_encoder, of_predictor = self.simple
        return warpalign.transducer_loss_pruned(
            rows,
            states,
            targets,
            self.transducer.joint,
            of_encoder(rows),
            of_predictor(states),
            lengths,
            counts,
            prune_range=PRUNE_RANGE,
            pruned_scale=pruned_scale,
            reduction="mean_volume",
        ).loss

    @torch.no_grad()
    def walk(self, rows: Tensor, lengths: Tensor, most_symbols: int = 10) -> tuple[list[list[int]], Tensor]:
        """Greedy search as a loop over nodes, by the joint network of (B, H) rows: letters, and nodes visited, (B,).

        Args:
            rows: (B, T, H) of the encoder.
            lengths: (B,) true numbers of frames.
            most_symbols: letters of a frame, after which the next one follows.
        """
        joint, blank = self.transducer.joint, self.vocabulary + len(self.family.big_blanks)
        assert joint.bias is not None
        skips = torch.ones(blank + 1, dtype=torch.int64, device=rows.device)
        for k, frames in enumerate(self.family.big_blanks):
            skips[blank - 1 - k] = frames
        durations = (
            None if self.family.durations is None else torch.tensor(self.family.durations, device=rows.device)
        )
        each = torch.arange(len(rows), device=rows.device)
        at, symbols, visited = (torch.zeros_like(each) for _ in range(3))
        written, state = [], self.predictor.initial_state(len(rows))
        outputs, state = self.predictor.step(torch.full_like(each, blank), state)
        while bool((active := at < lengths).any()):
            hidden = (rows[each, at.clamp(max=rows.shape[1] - 1)] + outputs).tanh()
            scores = torch.nn.functional.linear(hidden, joint.weight, joint.bias)
            best = scores[:, : blank + 1].argmax(1)
            found = active & (best < self.vocabulary)
            if durations is None:
                step = torch.where(found, 0, skips[best])
            else:
                step = durations[scores[:, blank + 1 :].argmax(1)]
                step = torch.where(found, step, step.clamp(min=1))
            visited += active
            symbols = torch.where(found, symbols + 1, symbols)
            step = torch.where((step == 0) & (symbols >= most_symbols), 1, step)
            symbols = torch.where(step > 0, 0, symbols)
            new_outputs, after = self.predictor.step(best, state)
            outputs = torch.where(found[:, None], new_outputs, outputs)
            kept = ~found[:, None]
            state = torch.where(kept, state[0], after[0]), torch.where(kept, state[1], after[1])
            at = at + torch.where(active, step, 0)
            written.append(torch.where(found, best, -1))
        table = torch.stack(written, 1).tolist()
        return [[label for label in row if label >= 0] for row in table], visited
