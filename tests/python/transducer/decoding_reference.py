"""Transducer decoders in float64, one utterance at a time, straight from the definition. Nothing here is fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign.transducer import JointFunction, JointWeights


class Family(NamedTuple):
    """A kind of transducer over `labels` labels; the blank is column `labels`, big blanks stand before it in NeMo's order."""

    labels: int = 7
    big_blanks: tuple[int, ...] = ()
    durations: tuple[int, ...] | None = None
    max_symbols: int = 3

    @property
    def blank(self) -> int:
        return self.labels + len(self.big_blanks)

    @property
    def vocabulary(self) -> int:
        return self.blank + 1

    @property
    def columns(self) -> int:
        return self.vocabulary + len(self.durations or ())

    def keywords(self) -> dict[str, object]:
        """Of a search, besides what the joint network says."""
        return {"max_symbols_per_frame": self.max_symbols}

    def function(self, function: Callable[[Tensor, Tensor], Tensor]) -> JointFunction:
        return JointFunction(function, self.blank, self.durations, self.big_blanks)


FAMILIES = {
    "rnnt": Family(),
    "multi-blank": Family(big_blanks=(2, 4)),
    "tdt": Family(durations=(0, 1, 2, 4)),
    "tdt-without-0": Family(durations=(3, 1)),
}


class LastTwo(torch.nn.Module):
    """Rows from the last two tokens: no product of matrices, so that a row's bits do not depend on the batch."""

    def __init__(self, family: Family, hidden: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        shape = (2, family.vocabulary, hidden)
        self.tables = torch.nn.Parameter(torch.randn(shape, generator=generator))

    def initial_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, dtype=torch.int64, device=self.tables.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.tables[0, tokens] + self.tables[1, state], tokens

    def row(self, labels: list[int], family: Family) -> Tensor:
        """The row behind so many labels, in float64."""
        tokens = [0, family.blank, *labels]
        wide = self.tables.detach().double()
        return wide[0, tokens[-1]] + wide[1, tokens[-2]]


def scores(encoder: Tensor, row: Tensor, joint: JointWeights) -> Tensor:
    """(columns,) of one frame (H,), in float64."""
    hidden = encoder.double() + row
    hidden = hidden.relu() if joint.activation == "relu" else hidden.tanh()
    result = joint.weight.detach().double() @ hidden
    return result if joint.bias is None else result + joint.bias.detach().double()


class Arc(NamedTuple):
    log_prob: float
    label: int
    """−1: a blank"""
    frames: int


def arcs(x: Tensor, family: Family) -> Iterator[Arc]:
    lp = x[: family.vocabulary].log_softmax(0).tolist()
    if family.durations is not None:
        for d, q in zip(family.durations, x[family.vocabulary :].log_softmax(0).tolist(), strict=True):
            for k in range(family.labels):
                yield Arc(lp[k] + q, k, d)
            if d > 0:
                yield Arc(lp[family.blank] + q, -1, d)
        return
    for k in range(family.labels):
        yield Arc(lp[k], k, 0)
    yield Arc(lp[family.blank], -1, 1)
    for i, frames in enumerate(family.big_blanks):
        yield Arc(lp[family.blank - 1 - i], -1, frames)


def best_of_heads(x: Tensor, family: Family) -> Arc:
    """The best label or blank, then its best duration."""
    if family.durations is None:
        return max(arcs(x, family), key=lambda arc: arc.log_prob)
    lp = x[: family.vocabulary].log_softmax(0)
    q = x[family.vocabulary :].log_softmax(0)
    k = int(lp.argmax())
    allowed = [i for i, d in enumerate(family.durations) if k != family.blank or d > 0]
    best = max(allowed, key=lambda i: float(q[i]))
    label = -1 if k == family.blank else k
    return Arc(float(lp[k] + q[best]), label, family.durations[best])


class Found(NamedTuple):
    tokens: list[int]
    frames: list[int]
    durations: list[int]
    score: float
    end: int
    """The frame behind the search; beyond the last one where an arc led there."""


def greedy(encoder: Tensor, predictor: LastTwo, joint: JointWeights, family: Family) -> Found:
    """encoder (T, H)."""
    t = symbols = 0
    found = Found([], [], [], 0.0, 0)
    score = 0.0
    while t < len(encoder):
        arc = best_of_heads(scores(encoder[t], predictor.row(found.tokens, family), joint), family)
        score += arc.log_prob
        if arc.label < 0:
            t, symbols = t + arc.frames, 0
            continue
        found.tokens.append(arc.label)
        found.frames.append(t)
        found.durations.append(arc.frames)
        symbols = 0 if arc.frames else symbols + 1
        t += arc.frames
        if symbols >= family.max_symbols:
            t, symbols = t + 1, 0
    return found._replace(score=score, end=t)


def log_add(a: float, b: float) -> float:
    if a == -math.inf or b == -math.inf:
        return max(a, b)
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def all_hypotheses(
    encoder: Tensor,
    predictor: LastTwo,
    joint: JointWeights,
    family: Family,
    add: Callable[[float, float], float] = log_add,
) -> dict[tuple[int, ...], float]:
    """Every label sequence that any path writes, and the sum (or maximum) of its paths, by enumeration."""
    total: dict[tuple[int, ...], float] = {}

    def follow(t: int, symbols: int, labels: tuple[int, ...], score: float) -> None:
        if t >= len(encoder):
            total[labels] = add(total.get(labels, -math.inf), score)
            return
        for arc in arcs(scores(encoder[t], predictor.row(list(labels), family), joint), family):
            if arc.label < 0:
                follow(t + arc.frames, 0, labels, score + arc.log_prob)
                continue
            count = 0 if arc.frames else symbols + 1
            forced = count >= family.max_symbols
            after = t + arc.frames + forced
            follow(after, 0 if forced else count, (*labels, arc.label), score + arc.log_prob)

    follow(0, 0, (), 0.0)
    return total


class Hypothesis(NamedTuple):
    frame: int
    symbols: int
    labels: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    """(frame, duration) of each label"""
    score: float


def together(pool: list[Hypothesis], add: Callable[[float, float], float]) -> list[Hypothesis]:
    """Those of the same labels and frame as one, with the best one's alignment."""
    groups: dict[tuple[int, tuple[int, ...]], list[Hypothesis]] = {}
    for h in pool:
        groups.setdefault((h.frame, h.labels), []).append(h)
    return [
        max(group, key=lambda h: h.score)._replace(score=reduce(add, (h.score for h in group)))
        for group in groups.values()
    ]


def beam_search(
    encoder: Tensor,
    predictor: LastTwo,
    joint: JointWeights,
    family: Family,
    beam: int,
    *,
    add: Callable[[float, float], float] = log_add,
    label_scores: Callable[[tuple[int, ...]], list[float]] = lambda labels: [],
) -> list[Hypothesis]:
    """The best hypotheses in the end, the best first. label_scores: what is added to the next labels' scores."""
    pool = [Hypothesis(0, 0, (), (), 0.0)]
    while True:
        active = [h.frame for h in pool if h.frame < len(encoder)]
        if not active:  # hypotheses of the same labels differ in how far they lead beyond the end
            pool = [h._replace(frame=len(encoder)) for h in pool]
            return sorted(together(pool, add), key=lambda h: -h.score)
        after = [h for h in pool if h.frame != min(active)]
        for h in pool:
            if h.frame != min(active):
                continue
            x = scores(encoder[h.frame], predictor.row(list(h.labels), family), joint)
            more = label_scores(h.labels)
            by = [float(x[k]) + (more[k] if more else 0.0) for k in range(family.labels)]
            looked_at = sorted(range(family.labels), key=lambda k: -by[k])[:beam]
            for arc in arcs(x, family):
                if arc.label >= 0 and arc.label not in looked_at:
                    continue
                if arc.label < 0:
                    after.append(
                        h._replace(frame=h.frame + arc.frames, symbols=0, score=h.score + arc.log_prob)
                    )
                    continue
                symbols = 0 if arc.frames else h.symbols + 1
                forced = symbols >= family.max_symbols
                after.append(
                    Hypothesis(
                        h.frame + arc.frames + forced,
                        0 if forced else symbols,
                        (*h.labels, arc.label),
                        (*h.places, (h.frame, arc.frames)),
                        h.score + arc.log_prob + (more[arc.label] if more else 0.0),
                    )
                )
        ranked = sorted(together(after, add), key=lambda h: -h.score)
        later = [h for h in ranked if h.frame != min(active)][:beam]
        least = later[-1].score if len(later) == beam else -math.inf
        here = [h for h in ranked if h.frame == min(active)][:beam]
        pool = later + [h for h in here if h.score > least]


def model(
    family: Family, hidden: int = 12, *, activation: str = "relu", seed: int = 0, blank: float = 1.5
) -> tuple[LastTwo, JointWeights]:
    """A predictor and a joint network that write a label in some frames."""
    generator = torch.Generator().manual_seed(seed + 100)
    weight = torch.randn(family.columns, hidden, generator=generator)
    bias = torch.linspace(0, 0.02, family.columns)  # no ties
    bias[family.labels : family.vocabulary] += blank
    joint = JointWeights(
        weight,
        bias,
        activation,  # type: ignore[arg-type]
        durations=family.durations,
        big_blanks=family.big_blanks,
    )
    return LastTwo(family, hidden, seed), joint
