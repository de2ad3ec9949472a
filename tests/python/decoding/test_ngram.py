"""N-grams: the definition by dictionaries, files, states, complete rows."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.python.decoding.reference import Gram, Grams, random_grams, write
from warpalign.decoding import NGramLanguageModel

WORDS = [f"w{k}" for k in range(12)]
TOKENS = ["<blank>", *WORDS, "not in the file", "<big>"]
BLANKS = [0, -1]
MODELS: dict[str, tuple[int, list[int], float]] = {
    "unigrams": (1, [], 0),
    "bigrams": (2, [40], 0),
    "trigrams": (3, [60, 120], 0),
    "five words": (4, [50, 90, 90, 60], 0),
    "without last words": (5, [50, 90, 90, 60], 0.5),
    "few": (6, [3, 1, 0], 0),
}
# Scores are sums of at most five float32 numbers below 8.
TOLERANCE = 5 * 8 * torch.finfo(torch.float32).eps


def read(labels: list[int]) -> tuple[str, ...]:
    """The words of labels."""
    return tuple(TOKENS[label] for label in labels if label not in (0, len(TOKENS) - 1))


@pytest.mark.parametrize("dense_limit", [0, 4000, 2**28])
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_definition(name: str, dense_limit: int, tmp_path: Path, device: torch.device) -> None:
    seed, counts, pruned = MODELS[name]
    reference = random_grams(seed, WORDS, counts, pruned)
    file = write(reference, tmp_path / "model.arpa", "a text of any kind", "")
    model = NGramLanguageModel(file, TOKENS, blank=BLANKS, dense_limit=dense_limit).to(device)
    assert model.order == reference.order and model.labels == len(TOKENS)
    rng = random.Random(seed)
    number = {word: label for label, word in enumerate(TOKENS)}
    known = [[number[word] for word in gram] for gram in reference.grams if number.keys() >= set(gram)]
    histories: list[list[int]] = [[] for _ in range(30)]
    state = model.initial_state(len(histories))
    tokens = torch.zeros(len(histories), dtype=torch.int64, device=device)  # the blank begins
    seen = set()
    for _ in range(12):
        rows, state = model.step(tokens, state)
        assert rows.shape == (30, len(TOKENS)) and rows.dtype == torch.float32
        ends = model.final(state)
        for k, history in enumerate(histories):
            words = read(history)
            expected = [reference.score(words, word) for word in TOKENS[1:-1]]
            assert rows[k, 1:-1].tolist() == pytest.approx(expected, abs=TOLERANCE)
            assert float(ends[k]) == pytest.approx(reference.score(words, "</s>"), abs=TOLERANCE)
            seen.add(words)
        for history in histories:  # most go on with an n-gram of the file, which random labels rarely do
            after = [g[-1] for g in known if len(g) > 1 and history[1 - len(g) :] == g[:-1]]
            goes_on = after and rng.random() < 0.6
            history.append(rng.choice(after) if goes_on else rng.randrange(len(TOKENS)))
        tokens = torch.tensor([history[-1] for history in histories], device=device)
    assert len(seen) > 200


@pytest.mark.parametrize("name", ["trigrams", "without last words"])
def test_scores_of_sequences(name: str, tmp_path: Path, device: torch.device) -> None:
    seed, counts, pruned = MODELS[name]
    reference = random_grams(seed, WORDS, counts, pruned)
    file = write(reference, tmp_path / "model.arpa.gz")
    model = NGramLanguageModel(file, TOKENS, blank=BLANKS).to(device)
    tokens = torch.randint(0, len(TOKENS), (3, 4, 7), generator=torch.Generator().manual_seed(0))
    tokens[1, :, 3:] = -1
    tokens[2, 0] = -1
    found = model.score(tokens.to(device))
    without = model.score(tokens.int().to(device), final=False)
    assert found.shape == (3, 4)
    for b in range(3):
        for n in range(4):
            words = read([label for label in tokens[b, n].tolist() if label >= 0])
            expected = sum(reference.score(words[:k], word) for k, word in enumerate(words))
            assert float(without[b, n]) == pytest.approx(expected, abs=8 * TOLERANCE)
            expected += reference.score(words, "</s>")
            assert float(found[b, n]) == pytest.approx(expected, abs=8 * TOLERANCE)
    assert torch.equal(model.score(tokens[0, 0].to(device)), found[0, 0])
    assert model.score(tokens[:0].to(device)).shape == (0, 4)
    assert torch.equal(model.score(tokens[0, :1, :0].to(device)), model.final(model.initial_state(1)))


def test_a_path_and_blanks_in_one(tmp_path: Path) -> None:
    """The first word by hand, and that blanks change nothing."""
    grams = {("<s>",): Gram(-99, -0.5), ("a",): Gram(-0.25), ("b",): Gram(-0.5), ("<s>", "b"): Gram(-0.125)}
    model = NGramLanguageModel(str(write(Grams(grams), tmp_path / "m.arpa")), ["a", "b", ""], blank=2)
    rows, state = model.step(torch.tensor([2]), model.initial_state(1))
    ten = math.log(10)
    assert rows[0, :2].tolist() == pytest.approx([-0.75 * ten, -0.125 * ten])
    again, same = model.step(torch.tensor([2]), state)
    assert torch.equal(again, rows) and torch.equal(state, same)
    assert model.final(state).tolist() == [0]  # the file has no </s>
    other, _ = model.step(torch.tensor([1]), state)
    assert other[0, :2].tolist() == pytest.approx([-0.25 * ten, -0.5 * ten])


def test_unknown_words(tmp_path: Path) -> None:
    grams = {("<s>",): Gram(-99), ("a",): Gram(-0.25), ("</s>",): Gram(-1)}
    file = write(Grams(grams), tmp_path / "m.arpa")
    model = NGramLanguageModel(file, ["", "a", "x"], blank=0, unknown=-7.5)
    rows, _ = model.step(torch.tensor([2]), model.initial_state(1))
    assert rows[0, 1:].tolist() == pytest.approx([-0.25 * math.log(10), -7.5])
    # Words of the same spelling are one word, the alias <UNK> too.
    grams[("<UNK>",)] = Gram(-2.0)
    file = write(Grams(grams), tmp_path / "m.arpa")
    model = NGramLanguageModel(file, ["a", "x", "a", "y", ""], blank=4)
    rows, _ = model.step(torch.tensor([4]), model.initial_state(1))
    assert rows[0, :4].tolist() == pytest.approx([s * math.log(10) for s in (-0.25, -2, -0.25, -2)])


def test_words_that_are_no_labels_are_left_out(tmp_path: Path) -> None:
    reference = random_grams(3, WORDS, [60, 120])
    file = write(reference, tmp_path / "model.arpa")
    some = ["", *WORDS[:4]]
    model, whole = (NGramLanguageModel(file, tokens, blank=0) for tokens in (some, TOKENS[:-1]))
    assert model.keys.numel() < whole.keys.numel()
    tokens = torch.randint(1, 5, (20, 6))
    torch.testing.assert_close(model.score(tokens), whole.score(tokens), rtol=0, atol=1e-5)


def test_a_stream_of_rows_does_not_depend_on_the_batch(tmp_path: Path, device: torch.device) -> None:
    model = NGramLanguageModel(
        write(random_grams(3, WORDS, [60, 120]), tmp_path / "m.arpa"), TOKENS, blank=BLANKS, dense_limit=0
    ).to(device)
    tokens = torch.randint(1, 13, (40,), device=device)
    rows, state = model.step(tokens, model.initial_state(40))
    for k in range(0, 40, 7):
        alone, after = model.step(tokens[k : k + 1], model.initial_state(1))
        assert torch.equal(alone[0], rows[k]) and int(after) == int(state[k])
    empty, none = model.step(tokens[:0], model.initial_state(0))
    assert empty.shape == (0, len(TOKENS)) and none.shape == (0,)


def test_it_is_a_module(tmp_path: Path) -> None:
    model = NGramLanguageModel(
        write(random_grams(3, WORDS, [60, 120]), tmp_path / "m.arpa"), TOKENS, blank=BLANKS, dense_limit=9000
    )
    tokens = torch.randint(1, 13, (5, 6))
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(again.score(tokens), model.score(tokens))
    wide = model.double()
    assert wide.score(tokens).dtype == torch.float64
    assert not list(model.parameters())


@pytest.mark.gpu
def test_a_step_in_a_cuda_graph(tmp_path: Path, cuda: torch.device) -> None:
    for dense_limit in (0, 2**28):
        model = NGramLanguageModel(
            write(random_grams(4, WORDS, [50, 90, 90, 60]), tmp_path / "m.arpa"),
            TOKENS,
            blank=BLANKS,
            dense_limit=dense_limit,
        ).to(cuda)
        tokens, state = torch.ones(9, dtype=torch.int64, device=cuda), model.initial_state(9)

        def step(tokens: Any = tokens, state: Any = state, model: Any = model) -> tuple[Any, ...]:
            rows, after = model.step(tokens, state)
            return rows, after, model.final(after)

        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = step()
        for _ in range(5):
            tokens.copy_(torch.randint(1, 13, (9,)))
            graph.replay()
            for got, wanted in zip(made, step(), strict=True):
                assert torch.equal(got, wanted)
            state.copy_(made[1])


@pytest.mark.parametrize("name", ["trigrams", "five words"])
def test_kenlm_agrees(name: str, tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    seed, counts, _ = MODELS[name]
    reference = random_grams(seed, WORDS, counts)
    # kenlm wants no back-off weight above 1.
    grams = {
        gram: Gram(score, None if back_off is None else min(back_off, -0.01))
        for gram, (score, back_off) in reference.grams.items()
    }
    file = write(Grams(grams), tmp_path / "model.arpa")
    other = kenlm.Model(str(file))
    model = NGramLanguageModel(file, TOKENS, blank=BLANKS)
    tokens = torch.randint(1, 14, (50, 9))
    expected = [
        other.score(" ".join(TOKENS[label].replace(" ", "_") for label in row)) * math.log(10)
        for row in tokens.tolist()
    ]
    assert model.score(tokens).tolist() == pytest.approx(expected, abs=1e-4)
