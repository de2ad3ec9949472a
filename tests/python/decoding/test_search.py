"""N-grams and phrases in the searches of CTC and transducers, beside those searches in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.ctc import decode_reference
from tests.python.decoding.reference import boosted, pending, random_grams, write
from tests.python.helpers import randn
from tests.python.transducer.decoding_reference import (
    Family,
    Found,
    LastTwo,
    arcs,
    beam_search,
    best_of_heads,
    model,
    scores,
)
from tests.python.transducer.test_greedy import on
from warpalign import ctc_beam_decode, transducer_beam_decode, transducer_greedy_decode
from warpalign.decoding import LanguageModelSum, NGramLanguageModel, PhraseBoost
from warpalign.transducer import JointWeights

PHRASES = {(1, 2, 3): 1.0, (2, 3): 0.5, (4, 4, 0): 2.0}
WEIGHT = 0.7


class Both:
    """N-grams and phrases over some labels, as a model and by the definition."""

    def __init__(self, folder: Path, tokens: list[str], blanks: list[int]) -> None:
        words = [word for label, word in enumerate(tokens) if label not in blanks]
        self.tokens, self.reference = tokens, random_grams(5, words, [40, 80])
        file = write(self.reference, folder / "model.arpa")
        grams = NGramLanguageModel(file, tokens, blank=blanks, dense_limit=1000)
        # Phrases that the labels have.
        self.phrases = {p: bonus for p, bonus in PHRASES.items() if not set(p) & set(blanks)}
        phrases = PhraseBoost(list(self.phrases), len(tokens), bonus=list(self.phrases.values()))
        self.model = LanguageModelSum([grams, phrases], [0.5, 1.0])

    def added(self, labels: tuple[int, ...], label: int) -> float:
        words = tuple(self.tokens[k] for k in labels)
        by_words = self.reference.score(words, self.tokens[label])
        by_phrases = boosted(self.phrases, (*labels, label)) - boosted(self.phrases, labels)
        return WEIGHT * (0.5 * by_words + by_phrases)

    def ended(self, labels: tuple[int, ...]) -> float:
        words = tuple(self.tokens[k] for k in labels)
        return WEIGHT * (0.5 * self.reference.score(words, "</s>") - pending(self.phrases, labels))


def labels_of(found: Any, b: int) -> tuple[int, ...]:
    return tuple(found.tokens[b, : int(found.lengths[b])].tolist())


@pytest.mark.parametrize("beam", [1, 6])
def test_ctc(beam: int, tmp_path: Path, device: torch.device) -> None:
    both = Both(tmp_path, ["a", "b", "c", "d", "e", ""], [5])
    logits = randn(3, 11, 6, seed=beam, dtype=torch.float64)
    lengths = [11, 0, 6]
    given: dict[str, Any] = {"blank": 5, "beam": beam, "n_best": beam, "lm_weight": WEIGHT}
    found = ctc_beam_decode(logits.to(device), lengths, language_model=both.model.to(device), **given)
    for b, length in enumerate(lengths):
        expected = decode_reference.prefixes(logits[b, :length], beam, 5, added=both.added)
        ended = [(prefix.score + both.ended(prefix.labels), prefix.labels) for prefix in expected]
        ended.sort(key=lambda pair: -pair[0])
        for one, (score, labels) in zip(found, ended, strict=False):
            assert labels_of(one, b) == labels
            assert float(one.scores[b]) == pytest.approx(score, abs=1e-5)
        assert all(one.scores[b] == -torch.inf for one in found[len(ended) :])
    # Frames follow their hypotheses; the state of a stream is not that of an end.
    assert (found[0].frames[0, : int(found[0].lengths[0])].diff() >= 0).all()
    state = None
    for chunk in logits[:1].to(device).split(4, 1):
        part = ctc_beam_decode(chunk, language_model=both.model, state=state, **given)
        state = part[0].state
    assert labels_of(part[0], 0) == labels_of(found[0], 0)
    assert float(part[0].scores[0]) == pytest.approx(float(found[0].scores[0]), abs=1e-9)


FAMILIES = [Family(5), Family(5, big_blanks=(2, 4)), Family(5, durations=(0, 1, 2))]


@pytest.mark.parametrize("family", FAMILIES, ids=["rnnt", "multi-blank", "tdt"])
def test_transducer_beam(family: Family, tmp_path: Path, device: torch.device) -> None:
    blanks = list(range(5, family.vocabulary))
    both = Both(tmp_path, [*"abcde", *[""] * len(blanks)], blanks)
    predictor, joint = on(device, model(family, blank=0.5))
    encoder = randn(2, 9, 12, seed=27, dtype=torch.float64)
    given: dict[str, Any] = {"beam": 4, "n_best": 4, "score_norm": False, **family.keywords()}
    found = transducer_beam_decode(
        encoder.to(device),
        [9, 5],
        predictor.double(),
        joint,
        language_model=both.model.to(device),
        lm_weight=WEIGHT,
        **given,
    )
    for b, length in enumerate((9, 5)):
        expected = beam_search(
            encoder[b, :length],
            *model(family, blank=0.5),
            family,
            4,
            label_scores=lambda labels: [both.added(labels, k) for k in range(5)],
        )
        ended = [(h.score + both.ended(h.labels), h.labels) for h in expected]
        ended.sort(key=lambda pair: -pair[0])
        assert len(ended) >= 2
        for h, (score, labels) in zip(found, ended, strict=False):
            assert labels_of(h, b) == labels
            assert float(h.scores[b]) == pytest.approx(score, abs=1e-5)


def fused_greedy(encoder: Tensor, parts: tuple[LastTwo, JointWeights], family: Family, both: Both) -> Found:
    """As decoding_reference.greedy(), with a language model that chooses among labels."""
    t = symbols = 0
    found, score = Found([], [], [], 0.0, 0), 0.0
    while t < len(encoder):
        x = scores(encoder[t], parts[0].row(found.tokens, family), parts[1])
        arc = best_of_heads(x, family)
        if arc.label < 0:
            score, t, symbols = score + arc.log_prob, t + arc.frames, 0
            continue
        of_labels = [a for a in arcs(x, family) if a.label >= 0 and a.frames == arc.frames]
        best = max(of_labels, key=lambda a: a.log_prob + both.added(tuple(found.tokens), a.label))
        score += best.log_prob + both.added(tuple(found.tokens), best.label)
        found.tokens.append(best.label)
        found.frames.append(t)
        found.durations.append(best.frames)
        symbols = 0 if best.frames else symbols + 1
        t += best.frames
        if symbols >= family.max_symbols:
            t, symbols = t + 1, 0
    return found._replace(score=score + both.ended(tuple(found.tokens)), end=t)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("family", FAMILIES, ids=["rnnt", "multi-blank", "tdt"])
def test_transducer_greedy(family: Family, is_function: bool, tmp_path: Path, device: torch.device) -> None:
    blanks = list(range(5, family.vocabulary))
    both = Both(tmp_path, [*"abcde", *[""] * len(blanks)], blanks)
    predictor, joint = on(device, model(family, blank=-4.0))
    encoder = randn(4, 40, 12, seed=28, dtype=torch.float64)
    lengths = [40, 0, 17, 1]
    weights = joint._replace(weight=joint.weight.double(), bias=joint.bias.double())  # type: ignore[union-attr]

    def function(frames: Tensor, rows: Tensor) -> Tensor:
        return torch.nn.functional.linear((frames + rows).relu(), weights.weight, weights.bias)

    given: dict[str, Any] = {"lm_weight": WEIGHT, **family.keywords()}
    given |= {"language_model": both.model.to(device)}
    parts: Any = (predictor.double(), family.function(function) if is_function else joint)
    found = transducer_greedy_decode(encoder.to(device), lengths, *parts, **given)
    without = transducer_greedy_decode(encoder.to(device), lengths, *parts, **family.keywords())
    assert found.tokens.shape != without.tokens.shape or not torch.equal(found.tokens, without.tokens)
    for b, length in enumerate(lengths):
        expected = fused_greedy(encoder[b, :length], model(family, blank=-4.0), family, both)
        count = int(found.lengths[b])
        assert found.tokens[b, :count].tolist() == expected.tokens
        assert found.frames[b, :count].tolist() == expected.frames
        assert found.durations[b, :count].tolist() == expected.durations
        assert float(found.scores[b]) == pytest.approx(expected.score, abs=1e-5)
    # In chunks; and a weight of 0 is the search without it.
    state, tokens = None, list[int]()
    for chunk in encoder[:1].to(device).split(7, 1):
        part = transducer_greedy_decode(chunk, None, *parts, state=state, **given)
        state, tokens = part.state, [*tokens, *part.new_tokens[0].tolist()]
    assert tokens == found.tokens[0, : int(found.lengths[0])].tolist()
    assert float(part.scores[0]) == pytest.approx(float(found.scores[0]), abs=1e-9)
    none = transducer_greedy_decode(encoder.to(device), lengths, *parts, **given | {"lm_weight": 0.0})
    assert torch.equal(none.tokens, without.tokens)
    torch.testing.assert_close(none.scores, without.scores)


def test_no_frames_no_utterances(tmp_path: Path, device: torch.device) -> None:
    both = Both(tmp_path, [*"abcde", ""], [5])
    family = FAMILIES[0]
    parts = on(device, model(family))
    given: dict[str, Any] = {"language_model": both.model.to(device), "lm_weight": WEIGHT}
    for shape in ((2, 0, 12), (0, 5, 12)):
        encoder = torch.zeros(shape, device=device)
        greedy = transducer_greedy_decode(encoder, None, *parts, **given)
        (best,) = transducer_beam_decode(encoder, None, *parts, **given)
        assert greedy.tokens.shape == best.tokens.shape == (shape[0], 0)
        for found in (greedy, best):
            assert found.scores.tolist() == pytest.approx([both.ended(())] * shape[0], abs=1e-5)
    (found,) = ctc_beam_decode(torch.zeros(2, 0, 6, device=device), blank=5, **given)
    assert found.scores.tolist() == pytest.approx([both.ended(())] * 2, abs=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("beam", [0, 3])
def test_transducers_in_cuda_graphs(beam: int, tmp_path: Path, cuda: torch.device) -> None:
    family = FAMILIES[1]
    both = Both(tmp_path, [*"abcde", *[""] * 3], [5, 6, 7])
    predictor, joint = on(cuda, model(family, blank=-4.0))
    encoder = randn(3, 90, 12, seed=29).to(cuda)
    given: dict[str, Any] = {"language_model": both.model.to(cuda), "lm_weight": WEIGHT, **family.keywords()}
    found = []
    for graph in (False, True):
        one = given | {"cuda_graph": graph}
        if beam:
            one |= {"beam": beam, "steps_per_round": 3}
            found += transducer_beam_decode(encoder, [90, 17, 40], predictor, joint, **one)
        else:
            one |= {"labels_per_round": 3}
            found += [transducer_greedy_decode(encoder, [90, 17, 40], predictor, joint, **one)]
    assert int(found[0].lengths.max()) > 6  # more than two rounds
    for eager, captured in zip(found[0][:5], found[1][:5], strict=True):
        assert torch.equal(eager, captured)


@pytest.mark.gpu
def test_ctc_in_a_cuda_graph(tmp_path: Path, cuda: torch.device) -> None:
    both = Both(tmp_path, [*"abcde", ""], [5])
    logits = randn(2, 12, 6, seed=30).to(cuda)
    lengths = torch.tensor([12, 7], device=cuda)
    given: dict[str, Any] = {
        "language_model": both.model.to(cuda),
        "lm_weight": WEIGHT,
        "blank": 5,
        "beam": 4,
    }
    ctc_beam_decode(logits, lengths, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (made,) = ctc_beam_decode(logits, lengths, **given)
    for seed in range(3):
        logits.copy_(randn(2, 12, 6, seed=seed))
        graph.replay()
        (wanted,) = ctc_beam_decode(logits, lengths, **given)
        for got, want in zip(made[:5], wanted[:5], strict=True):
            assert torch.equal(got, want)
