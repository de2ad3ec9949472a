"""Boosted phrases beside a search for every occurrence, and sums of language models."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.decoding.reference import boosted, pending
from warpalign.decoding import LanguageModelSum, PhraseBoost
from warpalign.recurrent import LSTM
from warpalign.transducer import LSTMPredictor

CASES: dict[str, dict[tuple[int, ...], float]] = {
    "none": {},
    "one label": {(2,): 1.5},
    "a phrase of one label again": {(1, 1, 1): 1.0},
    "one within another": {(1, 2): 1.0, (1, 2, 3): 1.0, (2,): 0.5},
    "ends that begin others": {(0, 1, 2): 1.0, (1, 2, 0): 2.0, (2, 0, 1, 1): 0.25, (1, 1): 3.0},
    "bonuses of their own": {(3, 2, 1): 4.0, (3, 2, 2): 0.5, (3,): 1.0},
}


def drawn(seed: int, labels: int) -> dict[tuple[int, ...], float]:
    draw = random.Random(seed)
    phrases = [tuple(draw.randrange(labels) for _ in range(draw.randint(1, 6))) for _ in range(25)]
    return {phrase: draw.choice([0.5, 1.0, 2.0]) for phrase in phrases}


def boost(phrases: dict[tuple[int, ...], float], labels: int, dense_limit: int = 2**28) -> PhraseBoost:
    return PhraseBoost(list(phrases), labels, bonus=list(phrases.values()), dense_limit=dense_limit)


@pytest.mark.parametrize("dense_limit", [0, 200, 2**28])
@pytest.mark.parametrize("name", [*CASES, 0, 1, 2])
def test_it_is_the_definition(name: str | int, dense_limit: int, device: torch.device) -> None:
    phrases = CASES[name] if isinstance(name, str) else drawn(name, 4)
    model = boost(phrases, 4, dense_limit).to(device)
    draw = random.Random(0)
    texts: list[tuple[int, ...]] = [() for _ in range(60)]
    state = model.initial_state(60)
    rows = model.step(torch.zeros(60, dtype=torch.int64, device=device), state)[0]  # only its shape counts
    for _ in range(10):
        labels = [draw.randrange(4) for _ in texts]
        rows, state = model.step(torch.tensor(labels, device=device), state)
        texts = [(*text, label) for text, label in zip(texts, labels, strict=True)]
        ends = model.final(state)
        for k, text in enumerate(texts):
            before = boosted(phrases, text)
            # All numbers are sums of few quarters, which float32 holds exactly.
            assert rows[k].tolist() == [boosted(phrases, (*text, label)) - before for label in range(4)]
            assert float(ends[k]) == -pending(phrases, text)
    tokens = torch.tensor(texts, device=device)
    assert model.score(tokens, final=False).tolist() == [boosted(phrases, text) for text in texts]
    assert model.score(tokens).tolist() == [boosted(phrases, t) - pending(phrases, t) for t in texts]


def test_equal_phrases_count_once() -> None:
    model = PhraseBoost([[1, 2], (1, 2), [1, 2]], 3, bonus=[1.0, 2.0, 0.5])
    assert model.score(torch.tensor([[1, 2]])).tolist() == [4.0]
    assert PhraseBoost([[1, 2]], 3).score(torch.tensor([[1, 2]])).tolist() == [2.0]


class Halves(torch.nn.Module):
    """A language model without an end, whose state is a nest."""

    def __init__(self) -> None:
        super().__init__()
        self.row = torch.nn.Parameter(torch.tensor([0.5, 1.0, 1.5, 2.0]))

    def initial_state(self, batch: int) -> dict[str, Tensor]:
        return {"count": torch.zeros(batch, 1, device=self.row.device)}

    def step(self, tokens: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self.row + state["count"], {"count": state["count"] + 1}


def test_sums(device: torch.device) -> None:
    one, other = boost(drawn(0, 4), 4), boost(drawn(1, 4), 4)
    both = LanguageModelSum([one, Halves(), other], [1.0, -0.5, 2.0]).to(device)
    assert both.batch_axis == 0
    parts: tuple[Any, ...] = (one, Halves().to(device), other)
    states = [part.initial_state(5) for part in parts]
    state = both.initial_state(5)
    for seed in range(4):
        tokens = torch.randint(0, 4, (5,), generator=torch.Generator().manual_seed(seed)).to(device)
        rows, state = both.step(tokens, state)
        steps = [part.step(tokens, own) for part, own in zip(parts, states, strict=True)]
        states = [after for _, after in steps]
        torch.testing.assert_close(rows, steps[0][0] - 0.5 * steps[1][0] + 2 * steps[2][0])
        torch.testing.assert_close(both.final(state), one.final(states[0]) + 2 * other.final(states[2]))
    alone = LanguageModelSum([Halves()], [1.0])
    assert alone.final(alone.initial_state(3)).tolist() == [0, 0, 0]


def test_sums_of_networks() -> None:
    torch.manual_seed(0)
    networks = [LSTMPredictor(6, 4, 6), LSTMPredictor(6, 4, 6)]
    assert isinstance(networks[0].lstm, LSTM)
    both = LanguageModelSum(networks, [0.25, 0.75])
    assert both.batch_axis == 1
    tokens = torch.tensor([1, 4])
    rows, state = both.step(tokens, both.initial_state(2))
    (a, _), (b, _) = (net.step(tokens, net.initial_state(2)) for net in networks)
    torch.testing.assert_close(rows, 0.25 * a + 0.75 * b)
    assert both.final(state).tolist() == [0, 0]
    assert len(list(both.parameters())) == 2 * len(list(networks[0].parameters()))
