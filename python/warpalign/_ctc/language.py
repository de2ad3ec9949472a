"""Language models in prefix beam search."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._core.hypotheses import (
    Predictor,
    State,
    axis_of,
    check_reader,
    check_weight,
    checked_step,
    final_scores,
)
from warpalign._core.transforms import not_compiled

Found = tuple[Tensor, Tensor, Tensor, Tensor]
"""(B, K, T) tokens and frames, (B, K) lengths and scores."""


class LanguageModel(NamedTuple):
    """A reader of labels, and how its log-probabilities count."""

    reader: Predictor
    batch_axis: int
    weight: float
    start: int

    def begin(self, count: int, device: torch.device) -> tuple[Tensor, State]:
        tokens = torch.full((count,), self.start, dtype=torch.int64, device=device)
        return self.step(tokens, self.reader.initial_state(count))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return checked_step(
            self.reader.step(tokens, state), "language_model", tokens.shape[0], self.batch_axis
        )

    @not_compiled
    @torch.no_grad()
    def ended(self, found: Found, state: State) -> Found:
        """Prefixes in order of their scores with that of an end after each, if the reader has one. state: of B·K prefixes."""
        tokens, frames, lengths, scores = found
        final = final_scores(self.reader, "language_model", state, scores.numel())
        if final is None or self.weight == 0:
            return found
        scores = scores + self.weight * final.to(scores.dtype).view(scores.shape)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        each = order[..., None].expand_as(tokens)
        return tokens.gather(1, each), frames.gather(1, each), lengths.gather(1, order), scores


def check_language(
    language_model: object, lm_weight: object, start_id: object, blank: int
) -> LanguageModel | None:
    weight = check_weight(lm_weight, language_model)
    start = blank if start_id is None else check_count(start_id, "start_id", 0)
    if language_model is None:
        return None
    reader = check_reader(language_model, "language_model")
    return LanguageModel(reader, axis_of(reader, "language_model"), weight, start)
