"""A language model in greedy search: it chooses among labels where the joint network has found one."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.hypotheses import State, check_weight, final_scores, where
from warpalign._transducer.decode_model import Model


class Fusion(NamedTuple):
    """A checked language model."""

    reader: Model
    """The model with the language model in the predictor's place."""
    weight: float
    blanks: Tensor
    """Columns that are no labels."""

    def begin(self, batch: int) -> State:
        """Its first rows, and its state."""
        return self.reader.begin(batch)

    def read(self, language: State, tokens: Tensor, found: Tensor) -> State:
        """Its rows and state after the labels that were found."""
        rows, state = language
        new_rows, new_state = self.reader.step(tokens, state)
        axis = self.reader.batch_axis
        return torch.where(found[:, None], new_rows, rows), where(found, new_state, state, axis)

    def chosen(self, scores: Tensor, language: State, label: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) the best labels with the language model's scores, and what they add to the scores of those without.

        Args:
            scores: (B, columns) of the joint network in the frames of the labels.
            label: (B,) int64 the best ones without it, where found says that there is one.
        """
        rows, _ = language
        labels = scores.shape[1] - (len(self.reader.arcs.durations) if self.reader.arcs.tdt else 0)
        if rows.shape[1] != labels:
            raise ValueError(
                f"language_model: expected log-probabilities of {labels} labels, blanks included, got shape {tuple(rows.shape)}"
            )
        own = scores[:, :labels]
        fused = own + self.weight * rows.to(scores.dtype)
        fused = fused.nan_to_num(-torch.inf, torch.inf, -torch.inf).index_fill(1, self.blanks, -torch.inf)
        most, best = fused.max(1)
        best = torch.where(found & (most > -torch.inf), best, label)
        own_score = own.gather(1, label[:, None]).squeeze(1).double()
        gained = fused.gather(1, best[:, None]).squeeze(1).double() - own_score
        return best, torch.where(found & (most > -torch.inf), gained, 0)

    def ended(self, language: State, log_prob: Tensor) -> Tensor:
        """(B,) log_prob with the score of an end, if the language model has one."""
        if self.weight == 0:
            return log_prob
        final = final_scores(self.reader.predictor, "language_model", language[1], log_prob.numel())
        return log_prob if final is None else log_prob + self.weight * final.double()


def check_fusion(language_model: object, lm_weight: object, model: Model) -> Fusion | None:
    weight = check_weight(lm_weight, language_model)
    if language_model is None:
        return None
    columns = (model.arcs.blank, *model.arcs.big_blank_columns)
    blanks = torch.tensor(columns, device=model.encoder.device)
    return Fusion(model.reading(language_model, "language_model"), weight, blanks)
