"""The commands `warpalign ctc-align` and `ctc-decode`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.python.bad_calls import BadCall, BadCalls, Given
from tests.python.core.bad_calls.files import Refused, command


def aligned(logits: object, tokens: str) -> Callable[[Given], None]:
    def call(given: Given) -> None:
        path = given.folder / "x.npy"
        if isinstance(logits, str):
            path.write_text(logits)
        else:
            np.save(path, logits)  # type: ignore[arg-type]
        command("ctc-align", path, given.file("y.txt", tokens))

    return call


def spelled(given: Given) -> None:
    np.save(given.folder / "x.npy", np.zeros((5, 3), np.float32))
    words, letters = given.file("y.txt", "a c"), given.file("v.txt", "-\na\nb\n")
    command("ctc-align", given.folder / "x.npy", words, "--vocabulary", letters)


def archived(given: Given) -> None:
    with open(given.folder / "x.npz", "wb") as file:
        np.savez(file, x=np.zeros((5, 3)))
    command("ctc-align", given.folder / "x.npz", given.file("y.txt", "1"))


def decoded(given: Given) -> None:
    np.save(given.folder / "x.npy", np.zeros((5, 3), np.float32))
    command("ctc-decode", given.folder / "x.npy", "--vocabulary", given.file("v.txt", "-\na\n"))


def weighted(given: Given) -> None:
    np.save(given.folder / "x.npy", np.zeros((5, 3), np.float32))
    command("ctc-decode", given.folder / "x.npy", "--lm-weight", 2)


CALLS: BadCalls = {
    "ctc-decode: a weight of no n-grams": BadCall(weighted, Refused, "--lm-weight: expected --arpa beside it, got 2 alone: write --arpa FILE"),
    "ctc-decode: too few symbols": BadCall(decoded, Refused, "FOLDER/v.txt: expected a symbol for each of 3 classes, got 2"),
    "ctc-align: no array": BadCall(aligned("text", "1"), Refused, "FOLDER/x.npy: expected a .npy file"),
    "ctc-align: one axis": BadCall(aligned(np.zeros(4), "1"), Refused, "FOLDER/x.npy: expected floating-point logits (T, C), got float64 (4,)"),
    "ctc-align: an archive": BadCall(archived, Refused, "FOLDER/x.npz: expected floating-point logits (T, C), got an archive"),
    "ctc-align: no such class": BadCall(aligned(np.zeros((5, 3)), "1 7"), Refused, "TOKENS: expected tokens of 0 to 2, got '7' at index 1"),
    "ctc-align: no such symbol": BadCall(spelled, Refused, "TOKENS: expected tokens of the vocabulary, got 'c' at index 1"),
    "ctc-align: too many tokens": BadCall(aligned(np.zeros((3, 3)), "1 1 2"), Refused, "FOLDER/y.txt: expected tokens that 3 frames can hold, got 3, with a blank between equal ones"),
}  # fmt: skip
