"""Language models of labels, edit distances, and the loss of expected errors."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign.decoding import (
    LanguageModelSum,
    NGramLanguageModel,
    PhraseBoost,
    edit_distance,
    mwer_loss,
)

WORDS = ["", "a", "b"]
LINES = (
    "\\data\\", "ngram 1=4", "ngram 2=2", "", "\\1-grams:", "-99 <s> -0.1", "-1 </s>", "-0.3 a 0", "-0.4 b",
    "\\2-grams:", "-0.2 <s> b", "-0.5 a a", "\\end\\",
)  # fmt: skip


def bad(
    function: Callable[..., object], message: str, error: type[BaseException] = ValueError, **given: Any
) -> BadCall:
    return BadCall(lambda _: function(**given), error, message, True)


def phrases(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    return bad(PhraseBoost, message, error, **{"phrases": [[1, 2], [0]], "labels": 3} | changed)


def ngram(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    """A model of a good file, but for what is changed."""

    def call(given: Given) -> object:
        arpa = given.file("m.arpa", "\n".join(LINES))
        return NGramLanguageModel(**{"arpa": arpa, "tokens": WORDS, "blank": 0} | changed)

    return BadCall(call, error, message, True)


def file(expected: str, line: int, came: str, *lines: str, name: str = "m.arpa") -> BadCall:
    """A model of a file of other lines."""

    def call(given: Given) -> object:
        return NGramLanguageModel(given.file(name, "\n".join(lines)), WORDS, blank=0)

    return BadCall(
        call, ValueError, f"arpa: expected {expected} in line {line} of FOLDER/{name}, got {came}", True
    )


def changed(at: int, line: str) -> tuple[str, ...]:
    """The lines of a good file with another one."""
    return (*LINES[:at], line, *LINES[at + 1 :])


def grams(message: str, *lines: str) -> BadCall:
    """A file whose n-grams do not fit together."""

    def call(given: Given) -> object:
        return NGramLanguageModel(given.file("m.arpa", "\n".join(lines)), WORDS, blank=0)

    return BadCall(call, ValueError, message, True)


def broken(given: Given) -> object:
    name = given.file("m.arpa.gz", gzip.compress("\n".join(LINES).encode())[:5])
    return NGramLanguageModel(name, WORDS, blank=0)


class OneRow:
    """A language model of one label."""

    def __init__(self, batch_axis: int = 0) -> None:
        self.batch_axis = batch_axis

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(tokens), 1), state


def models(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    given = {"models": [PhraseBoost([[1]], 2), OneRow()], "weights": [1.0, 0.5]}
    return bad(LanguageModelSum, message, error, **given | changed)


def of_other_labels(_: Given) -> object:
    both = LanguageModelSum([PhraseBoost([[1]], 2), OneRow()], [1.0, 0.5])
    return both.step(torch.zeros(3, dtype=torch.int64), both.initial_state(3))


def score(message: str, error: type[BaseException] = ValueError, **given: Any) -> BadCall:
    return BadCall(lambda _: PhraseBoost([[1]], 2).score(**given), error, message, True)


def edits(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    ints = torch.zeros(2, 5, dtype=torch.int64)
    return bad(edit_distance, message, error, **{"tokens": ints, "targets": ints} | changed)


def mwer(message: str, error: type[BaseException] = ValueError, **changed: Any) -> BadCall:
    numbers = torch.zeros(2, 5)
    return bad(mwer_loss, message, error, **{"scores": numbers, "errors": numbers} | changed)


INTS = torch.zeros(2, 5, dtype=torch.int64)
GRAM = "log10 of a probability, 2 words"
DTYPES = "float64, float32, float16 or bfloat16"

CALLS: BadCalls = {
    "PhraseBoost: phrases no sequence": phrases(
        "phrases: expected a sequence of sequences of ints, got int", TypeError, phrases=1
    ),
    "PhraseBoost: a phrase no sequence": phrases(
        "phrases[1]: expected a sequence of ints, got str", TypeError, phrases=[[1], "a b"]
    ),
    "PhraseBoost: an empty phrase": phrases(
        "phrases[0]: expected at least one label, got none", phrases=[[]]
    ),
    "PhraseBoost: a phrase of strings": phrases(
        "phrases[0]: expected a sequence of ints, got one with str", TypeError, phrases=[["a"]]
    ),
    "PhraseBoost: labels beyond": phrases("phrases[1]: expected labels from 0 to 1, got 2", phrases=[[1], [0, 2]], labels=2),
    "PhraseBoost: labels": phrases("labels: expected at least 1, got 0", labels=0),
    "PhraseBoost: bonus": phrases("bonus: expected a finite number > 0, got 0", bonus=0),
    "PhraseBoost: bonuses": phrases(
        "bonus: expected one number, or one for each of 2 phrases, got 3", bonus=[1.0, 2.0, 3.0]
    ),
    "PhraseBoost: one of the bonuses": phrases(
        "bonus[1]: expected a float, got str", TypeError, bonus=[1.0, "2"]
    ),
    "PhraseBoost: dense_limit": phrases("dense_limit: expected at least 0, got -1", dense_limit=-1),
    "PhraseBoost: score of a list": score(
        "tokens: expected a torch.Tensor, got list", TypeError, tokens=[1]
    ),
    "PhraseBoost: score of numbers": score(
        "tokens: expected integers, got torch.float32", TypeError, tokens=torch.zeros(3)
    ),
    "PhraseBoost: score of a scalar": score(
        "tokens: expected (..., L), got shape ()", tokens=torch.tensor(1)
    ),
    "PhraseBoost: score with an end": score(
        "final: expected a bool, got int", TypeError, tokens=INTS, final=1
    ),
    "NGramLanguageModel: arpa no path": ngram("arpa: expected the path of a file, got int", TypeError, arpa=1),
    "NGramLanguageModel: no file": ngram("arpa: expected a file, got 'nowhere.arpa', which is none", arpa="nowhere.arpa"),
    "NGramLanguageModel: tokens one string": ngram(
        "tokens: expected a sequence of strings, got str", TypeError, tokens="ab"
    ),
    "NGramLanguageModel: tokens of ints": ngram(
        "tokens: expected strings, got int at index 1", TypeError, tokens=["a", 1]
    ),
    "NGramLanguageModel: no tokens": ngram("tokens: expected at least one, got none", tokens=[]),
    "NGramLanguageModel: a word that the file does not have": ngram(
        "tokens: expected words of the file, got 'c' at index 3, and the file has no <unk>: give unknown=",
        tokens=["", "a", "b", "c"],
    ),
    "NGramLanguageModel: blank": ngram("blank: expected a column of 3, from -3 to 2, got 3", blank=3),
    "NGramLanguageModel: blanks": ngram("blank: expected an int, got float", TypeError, blank=[0, 1.0]),
    "NGramLanguageModel: unknown no number": ngram(
        "unknown: expected a float or None, got str", TypeError, unknown="no"
    ),
    "NGramLanguageModel: unknown": ngram("unknown: expected a finite number <= 0, got 0.5", unknown=0.5),
    "NGramLanguageModel: dense_limit": ngram(
        "dense_limit: expected an int, got float", TypeError, dense_limit=1e6
    ),
    "NGramLanguageModel: no data": file("\\data\\", 1, "the end of the file", "text"),
    "NGramLanguageModel: no counts": file('"ngram 1="', 2, "'\\\\1-grams:'", LINES[0], LINES[4]),
    "NGramLanguageModel: counts in another order": file('"ngram 2="', 3, "'ngram 3=2'", *changed(2, "ngram 3=2")),
    "NGramLanguageModel: another section": file(
        "\\2-grams:", 10, "'\\\\3-grams:'", *changed(9, "\\3-grams:")
    ),
    "NGramLanguageModel: no end": file("\\end\\", 12, "''", *LINES[:-1]),
    "NGramLanguageModel: fewer n-grams": file("2 n-grams of length 2 before", 12, "1", *LINES[:11], LINES[12]),
    "NGramLanguageModel: too few words": file(GRAM, 12, "'-0.5 a'", *changed(11, "-0.5 a")),
    "NGramLanguageModel: too many words": file(GRAM, 12, "'-0.5 a b -0.1'", *changed(11, "-0.5 a b -0.1")),
    "NGramLanguageModel: no probability": file(GRAM, 12, "'0.5 a b'", *changed(11, "0.5 a b")),
    "NGramLanguageModel: no number": file(
        "log10 of a probability, 1 words and perhaps a back-off weight", 8, "'-0.3 a x'", *changed(7, "-0.3 a x")
    ),
    "NGramLanguageModel: text with a name of a compressed file": file(
        "text in UTF-8", 0, "BadGzipFile", *LINES, name="m.arpa.gz"
    ),
    "NGramLanguageModel: a compressed file that is cut off": BadCall(
        broken, ValueError, "arpa: expected text in UTF-8 in line 0 of FOLDER/m.arpa.gz, got EOFError", True
    ),
    "NGramLanguageModel: an n-gram twice": grams("arpa: expected different n-grams, got '<s> b' twice", *changed(11, "-1 <s> b")),
    "NGramLanguageModel: an n-gram without its first words": grams(
        "arpa: expected the first words of every n-gram as an n-gram too, got 'b a' without 'b'",
        *changed(8, "-0.4 c")[:11], "-0.5 b a", "\\end\\",
    ),
    "LanguageModelSum: models no sequence": models(
        "models: expected a sequence of language models, got int", TypeError, models=1
    ),
    "LanguageModelSum: no models": models("models: expected at least one, got none", models=[], weights=[]),
    "LanguageModelSum: no model": models(
        "models[1]: expected a method initial_state(), got int without it",
        TypeError,
        models=[PhraseBoost([[1]], 2), 3],
    ),
    "LanguageModelSum: batch axes": models(
        "models[1].batch_axis: expected 0, as of models[0], got 1",
        models=[PhraseBoost([[1]], 2), OneRow(1)],
    ),
    "LanguageModelSum: other labels": BadCall(
        of_other_labels,
        ValueError,
        "models[1]: expected rows of shape (3, 2), as of the models before, got (3, 1)",
        True,
    ),
    "LanguageModelSum: weights no sequence": models(
        "weights: expected a sequence of floats, got float", TypeError, weights=1.0
    ),
    "LanguageModelSum: number of weights": models(
        "weights: expected 2, one for each of models, got 1", weights=[1.0]
    ),
    "LanguageModelSum: a weight no number": models(
        "weights[0]: expected a float, got str", TypeError, weights=["1", 1.0]
    ),
    "LanguageModelSum: a weight of NaN": models(
        "weights[1]: expected a finite number, got nan", weights=[1.0, float("nan")]
    ),
    "edit_distance: tokens no tensor": edits(
        "tokens: expected a torch.Tensor, got list", TypeError, tokens=[[1]]
    ),
    "edit_distance: tokens of numbers": edits(
        "tokens: expected integers, got torch.float32", TypeError, tokens=torch.zeros(2, 5)
    ),
    "edit_distance: axes of tokens": edits(
        "tokens: expected (B, L) or (B, N, L), got shape (5,)", tokens=INTS[0]
    ),
    "edit_distance: axes of targets": edits("targets: expected (B, U), got shape (5,)", targets=INTS[0]),
    "edit_distance: batch of targets": edits(
        "targets: expected shape (2, U), by tokens, got (1, 5)", targets=INTS[:1]
    ),
    "edit_distance: target_lengths": edits(
        "target_lengths: expected lengths from 0 to U = 5, got 6 at index 1", target_lengths=[1, 6]
    ),
    "mwer_loss: scores no tensor": mwer(
        "scores: expected a torch.Tensor, got float", TypeError, scores=1.0
    ),
    "mwer_loss: scores of integers": mwer(
        f"scores: expected dtype {DTYPES}, got torch.int64", TypeError, scores=INTS
    ),
    "mwer_loss: axes of scores": mwer("scores: expected (B, N), got shape (2,)", scores=torch.zeros(2)),
    "mwer_loss: errors no tensor": mwer("errors: expected a torch.Tensor, got int", TypeError, errors=1),
    "mwer_loss: complex errors": mwer(
        "errors: expected real numbers, got torch.complex64", TypeError, errors=torch.zeros(2, 5) * 1j
    ),
    "mwer_loss: errors with a gradient": mwer(
        "errors: expected a tensor without a gradient, got one that requires it",
        errors=torch.zeros(2, 5, requires_grad=True),
    ),
    "mwer_loss: shape of errors": mwer(
        "errors: expected shape (2, 5), as scores, got (2, 4)", errors=torch.zeros(2, 4)
    ),
    "mwer_loss: temperature": mwer("temperature: expected a finite number > 0, got 0", temperature=0),
    "mwer_loss: reduction": mwer(
        'reduction: expected "none", "mean" or "sum", got \'max\'', reduction="max"
    ),
}  # fmt: skip
