"""Prefix search in plain Python, float64: of all prefixes, or of a beam."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Added = Callable[[tuple[int, ...], int], float]


class Prefix(NamedTuple):
    labels: tuple[int, ...]
    score: float


def log_add(*values: float) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(v - top) for v in values))


def prefixes(
    logits: Tensor,
    beam: int | None,
    blank: int = 0,
    threshold: float = math.inf,
    from_log_probs: bool = False,
    added: Added | None = None,
) -> list[Prefix]:
    """Of one utterance (T, C), the best first; beam None: all of them."""
    wide = logits.double()
    rows = (wide if from_log_probs else wide.log_softmax(-1)).nan_to_num(nan=-math.inf, neginf=-math.inf)
    found: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for row in rows.tolist():
        blanks: dict[tuple[int, ...], float] = {}
        labels: dict[tuple[int, ...], list[float]] = {}
        for prefix, (by_blank, by_label) in found.items():
            total = log_add(by_blank, by_label)
            blanks[prefix] = total + row[blank]
            if prefix:
                labels.setdefault(prefix, []).append(by_label + row[prefix[-1]])
            for c, weight in enumerate(row):
                if c != blank:
                    extra = added(prefix, c) if added else 0.0
                    base = by_blank if prefix and prefix[-1] == c else total
                    labels.setdefault((*prefix, c), []).append(base + weight + extra)
        merged = {
            prefix: (blanks.get(prefix, -math.inf), log_add(*labels.get(prefix, [-math.inf])))
            for prefix in {**blanks, **labels}
        }
        alive = [(log_add(*pair), prefix) for prefix, pair in merged.items() if log_add(*pair) > -math.inf]
        alive.sort(key=lambda item: -item[0])
        kept = [item for item in alive[:beam] if item[0] >= alive[0][0] - threshold]
        found = {prefix: merged[prefix] for _, prefix in kept}
    scored = [Prefix(prefix, log_add(*pair)) for prefix, pair in found.items()]
    return sorted(scored, key=lambda item: -item.score)


def greedy(logits: Tensor, blank: int = 0) -> tuple[list[int], list[int], float]:
    """Labels, their first frames, and the log-probability of the best path."""
    best = logits.double().log_softmax(-1).max(-1)
    labels, frames, before = [], [], -1
    for t, c in enumerate(best.indices.tolist()):
        if c not in (blank, before):
            labels.append(c)
            frames.append(t)
        before = c
    return labels, frames, float(best.values.sum())
