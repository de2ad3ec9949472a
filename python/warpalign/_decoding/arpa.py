"""Files of n-grams in the ARPA format."""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple, TextIO

_COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")
_SECTION = re.compile(r"\\(\d+)-grams:")


class NGrams(NamedTuple):
    """The n-grams of one length whose words are all known."""

    words: list[int]
    """Their words' numbers, n for each."""
    score: list[float]
    """Natural logarithms of probabilities."""
    back_off: list[float]
    """Natural logarithms of back-off weights; 0 where the file has none."""


def read_arpa(file: str | PathLike[str], numbers: dict[str, int]) -> list[NGrams]:
    """The n-grams of a file, from those of one word on. A name that ends with ``.gz`` is that of a compressed file.

    numbers: of the words that are known; n-grams with another word are left out.
    """
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"arpa: expected a file, got {str(path)!r}, which is none")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return _Reader(path, lines, numbers).sections()


class _Reader:
    """The lines of a file, counted for messages."""

    def __init__(self, path: Path, file: TextIO, numbers: dict[str, int]) -> None:
        self.path, self.numbers, self.at = path, numbers, 0
        self.lines = self._stripped(file)

    def _stripped(self, file: TextIO) -> Iterator[str]:
        """Lines that are not empty."""
        try:
            for self.at, line in enumerate(file, 1):
                if line := line.strip():
                    yield line
        except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
            raise self._wrong("text in UTF-8", type(error).__name__) from None

    def _wrong(self, expected: str, came: str) -> ValueError:
        return ValueError(f"arpa: expected {expected} in line {self.at} of {self.path}, got {came}")

    def sections(self) -> list[NGrams]:
        for line in self.lines:  # a text of any kind may stand before
            if line == "\\data\\":
                break
        else:
            raise self._wrong("\\data\\", "the end of the file")
        counts: list[int] = []
        line = next(self.lines, "")
        while match := _COUNT.fullmatch(line):
            if int(match[1]) != len(counts) + 1:
                raise self._wrong(f'"ngram {len(counts) + 1}="', repr(line))
            counts.append(int(match[2]))
            line = next(self.lines, "")
        if not counts:
            raise self._wrong('"ngram 1="', repr(line))
        found = []
        for n, count in enumerate(counts, 1):
            match = _SECTION.fullmatch(line)
            if not match or int(match[1]) != n:
                raise self._wrong(f"\\{n}-grams:", repr(line))
            grams, line = self._section(n, count, n == len(counts))
            found.append(grams)
        if line != "\\end\\":
            raise self._wrong("\\end\\", repr(line))
        return found

    def _section(self, n: int, count: int, is_last: bool) -> tuple[NGrams, str]:
        """N-grams of one length, and the line after them."""
        words: list[int] = []
        scores: list[float] = []
        back_offs: list[float] = []
        number, lines, ten = self.numbers.get, 0, math.log(10)
        line = ""
        for line in self.lines:
            if line[0] == "\\":
                break
            lines += 1
            fields = line.split()
            own = [number(word, -1) for word in fields[1 : n + 1]]
            try:
                score = float(fields[0])
                back_off = float(fields[n + 1]) if len(fields) > n + 1 else 0.0
            except ValueError:
                score = math.nan
            # A score of -inf is a word that never comes; NaN is no number. Some programs write a 0 behind the longest n-grams.
            fits = n + 1 <= len(fields) <= n + 2 and not (is_last and back_off)
            if not (fits and score <= 0 and abs(back_off) < math.inf):
                beside = "" if is_last else " and perhaps a back-off weight"
                raise self._wrong(f"log10 of a probability, {n} words{beside}", repr(line))
            if -1 not in own:
                words += own
                scores.append(score * ten)
                back_offs.append(back_off * ten)
        else:
            line = ""
        if lines != count:
            raise self._wrong(f"{count} n-grams of length {n} before", str(lines))
        return NGrams(words, scores, back_offs), line
