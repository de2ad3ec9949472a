"""Random models, phrases and sequences: spellings, tables of every size, and distances, beside plain Python."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from tests.python.decoding.reference import boosted, pending, random_grams, write
from tests.python.decoding.test_errors import distance
from warpalign.decoding import LanguageModelSum, NGramLanguageModel, PhraseBoost, edit_distance


@pytest.mark.parametrize("seed", range(30))
def test_random_models(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    words = [f"w{k}" for k in range(draw.choice([1, 2, 9, 30]))]
    counts = [draw.choice([0, 1, 20, 80]) for _ in range(draw.randint(0, 4))]
    reference = random_grams(seed, words, counts, draw.choice([0.0, 0.7]))
    file = write(reference, tmp_path / draw.choice(["m.arpa", "m.arpa.gz"]))
    # Some words have no label, some have several, and some labels have no word of the file.
    tokens = [draw.choice([*words, "else", "</s>"]) for _ in range(draw.randint(1, 12))]
    blank = draw.randrange(len(tokens))
    limit = draw.choice([0, 300, 3000, 2**28])
    grams = NGramLanguageModel(file, tokens, blank=blank - len(tokens), dense_limit=limit)
    phrases = {
        tuple(draw.randrange(len(tokens)) for _ in range(draw.randint(1, 4))): draw.choice([0.5, 2.0])
        for _ in range(draw.choice([0, 1, 10]))
    }
    boost = PhraseBoost(list(phrases), len(tokens), bonus=list(phrases.values()), dense_limit=limit)
    both = LanguageModelSum([grams, boost], [1.0, -2.0])
    texts = [tuple(draw.randrange(len(tokens)) for _ in range(draw.randint(0, 8))) for _ in range(6)]
    for text in texts:
        state = both.initial_state(1)
        rows, state = both.step(torch.tensor([blank]), state)
        words_so_far: tuple[str, ...] = ()
        for k, label in enumerate(text):
            expected = 0.0 if label == blank else reference.score(words_so_far, tokens[label])
            # A phrase may begin with the label that the search has read first.
            read = (blank, *text[:k])
            expected -= 2 * (boosted(phrases, (*read, label)) - boosted(phrases, read))
            if label != blank:
                assert float(rows[0, label]) == pytest.approx(expected, abs=2e-5)
                words_so_far = (*words_so_far, tokens[label])
            rows, state = both.step(torch.tensor([label]), state)
        expected = reference.score(words_so_far, "</s>") + 2 * pending(phrases, (blank, *text))
        assert float(both.final(state)) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("seed", range(30))
def test_random_distances(seed: int) -> None:
    draw = random.Random(seed)
    batch, many, symbols = draw.randint(0, 4), draw.randint(0, 4), draw.choice([1, 2, 50])
    longest, most = draw.randint(0, 12), draw.randint(0, 12)
    x = torch.randint(0, symbols, (batch, many, longest))
    ends, counts = torch.randint(0, longest + 1, (batch, many)), torch.randint(0, most + 1, (batch,))
    x[torch.arange(longest) >= ends[..., None]] = draw.choice([-1, -100])
    y = torch.randint(0, symbols, (batch, most))
    found = edit_distance(x.int() if draw.random() < 0.5 else x, y, counts)
    for b in range(batch):
        for n in range(many):
            expected = distance(x[b, n, : ends[b, n]].tolist(), y[b, : counts[b]].tolist())
            assert int(found[b, n]) == expected
