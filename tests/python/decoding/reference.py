"""Back-off by dictionaries, and phrases by looking at every one: plain Python, one sequence at a time."""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Words = tuple[str, ...]


class Gram(NamedTuple):
    score: float
    """log10"""
    back_off: float | None = None


class Grams:
    """A model by the definition: the score of a word is that of the longest n-gram, after back-offs."""

    def __init__(self, grams: dict[Words, Gram]) -> None:
        self.grams = grams
        self.order = max(map(len, grams))

    def score(self, history: Words, word: str) -> float:
        """Natural logarithm."""
        if (word,) not in self.grams:
            word = "<unk>"
        known = tuple(w if (w,) in self.grams else "<unk>" for w in ("<s>", *history))
        context = known[max(len(known) - self.order + 1, 0) :]
        total = 0.0
        while (*context, word) not in self.grams:
            total += (self.grams.get(context, Gram(0)).back_off or 0.0) if context else 0.0
            context = context[1:]
        gram = (*context, word)
        return (total + self.grams[gram].score) * math.log(10)


def random_grams(seed: int, words: Sequence[str], counts: Sequence[int], pruned: float = 0.0) -> Grams:
    """So many n-grams of 2, 3, ... words above those of one; pruned: the share of those without their last words that are there anyway."""
    draw = random.Random(seed)
    every = ["<s>", "</s>", "<unk>", *words]
    grams: dict[Words, Gram] = {(w,): Gram(-99.0 if w == "<s>" else -3 * draw.random()) for w in every}
    last = list(grams)
    for count in counts:
        contexts = [context for context in last if context[-1] != "</s>"]
        if not contexts:
            break
        made: dict[Words, None] = {}
        for _ in range(50 * count):
            if len(made) == count:
                break
            context = draw.choice(contexts)
            gram = (*context, draw.choice(every[1:]))
            if len(gram) == 2 or gram[1:] in grams or draw.random() < pruned:
                made[gram] = None
        for gram in made:
            grams[gram] = Gram(-2 * draw.random())
            context = gram[:-1]
            grams[context] = Gram(grams[context].score, round(draw.uniform(-1, 0.5), 3))
        last = list(made)
    longest = max(map(len, grams))
    for gram in grams:  # a back-off weight of a context that nothing follows
        if len(gram) < longest and grams[gram].back_off is None and draw.random() < 0.2:
            grams[gram] = Gram(grams[gram].score, -0.25)
    return Grams(grams)


def write(model: Grams, path: Path, *above: str) -> Path:
    lines = [*above, "\\data\\"]
    each = {n: [g for g in model.grams if len(g) == n] for n in range(1, model.order + 1)}
    lines += [f"ngram {n}={len(own)}" for n, own in each.items()]
    for n, own in each.items():
        lines += ["", f"\\{n}-grams:"]
        for gram in own:
            score, back_off = model.grams[gram]
            beside = "" if back_off is None else f"\t{back_off}"
            lines.append(f"{score}\t{' '.join(gram)}{beside}")
    text = "\n".join([*lines, "", "\\end\\", ""])
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def boosted(phrases: dict[tuple[int, ...], float], labels: tuple[int, ...]) -> float:
    """What labels have gained: each phrase that has occurred, and the longest beginning of one at the end."""
    total = 0.0
    for phrase, bonus in phrases.items():
        n = len(phrase)
        total += bonus * n * sum(labels[k : k + n] == phrase for k in range(len(labels) - n + 1))
    return total + pending(phrases, labels)


def pending(phrases: dict[tuple[int, ...], float], labels: tuple[int, ...]) -> float:
    """The part of it that is lost where the labels end."""
    for k in range(len(labels), 0, -1):
        own = [b for p, b in phrases.items() if len(p) > k and p[:k] == labels[len(labels) - k :]]
        if own:
            return k * max(own)
    return 0.0
