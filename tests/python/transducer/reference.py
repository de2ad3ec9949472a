"""Transducer losses in float64 from the definition, differentiated by autograd, and by enumeration of all paths.

Written apart from the C++ reference. Nothing here is fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign import TransducerPenalties


class Options(NamedTuple):
    blank: int = 0
    big_blanks: tuple[tuple[int, int], ...] = ()
    """(duration, column)"""
    durations: tuple[int, ...] | None = None
    sigma: float = 0.0
    delay: float = 0.0
    eos: int | None = None
    eos_penalty: float = 0.0
    star: int | None = None
    star_penalty: float = 1.0
    from_log_probs: bool = False


class Arc(NamedTuple):
    t: int
    u: int
    weight: Tensor
    """Log weight, 0-d."""
    is_label: bool


def arcs(
    scores: Tensor, durations: Tensor | None, labels: list[int], t: int, u: int, o: Options
) -> Iterator[Arc]:
    """Arcs out of (t, u); scores are log-probabilities (T, U+1, V), durations (T, U+1, D). (T, U) is the end."""
    frames, last = scores.shape[0], len(labels)
    starred = u > 0 and o.star is not None and labels[u - 1] == o.star
    early = (frames - 1) / 2 - t

    def blank(m: int, weight: Tensor) -> Iterator[Arc]:
        if t + m < frames or (t + m == frames and u == last):
            yield Arc(
                t + m,
                u,
                torch.tensor(math.log(o.star_penalty), dtype=torch.float64) if starred else weight,
                False,
            )

    def label(m: int, extra: Tensor | float) -> Iterator[Arc]:
        if u == last or t + m >= frames:
            return
        y = labels[u]
        if y == o.star:
            yield Arc(t + m, u + 1, torch.tensor(o.delay * early, dtype=torch.float64), True)
            return
        penalty = o.delay * early + (o.eos_penalty * early if y == o.eos else 0.0)
        yield Arc(t + m, u + 1, scores[t, u, y] - o.sigma + penalty + extra, True)

    if o.durations is not None and durations is not None:
        for d, m in enumerate(o.durations):
            if m > 0:
                yield from blank(m, scores[t, u, o.blank] - o.sigma + durations[t, u, d])
            yield from label(m, durations[t, u, d])
        return
    for m, column in ((1, o.blank), *o.big_blanks):
        yield from blank(m, scores[t, u, column] - o.sigma)
    yield from label(0, 0.0)


def log_probs(logits: Tensor, o: Options) -> Tensor:
    return logits if o.from_log_probs else logits.log_softmax(-1)


def log_sum(terms: list[Tensor]) -> Tensor:
    """log sum exp. Terms of −inf are left out: where there are no others, torch's gradient would be NaN."""
    there = [term for term in terms if float(term.detach()) != -math.inf]
    return torch.stack(there).logsumexp(0) if there else terms[0].detach()


def loss(logits: Tensor, labels: list[int], o: Options, duration_logits: Tensor | None = None) -> Tensor:
    """0-d; inf without a path. logits (T, U+1, V), float64."""
    scores = log_probs(logits, o)
    durations = None if duration_logits is None else log_probs(duration_logits, o)
    frames = logits.shape[0]
    incoming: dict[tuple[int, int], list[Tensor]] = {(0, 0): [torch.zeros((), dtype=torch.float64)]}
    for t in range(frames):
        for u in range(len(labels) + 1):
            if (t, u) not in incoming:
                continue
            alpha = log_sum(incoming[t, u])
            for arc in arcs(scores, durations, labels, t, u, o):
                incoming.setdefault((arc.t, arc.u), []).append(alpha + arc.weight)
    ends = incoming.get((frames, len(labels)), []) if frames else []
    if not ends:
        return logits.sum() * 0 + math.inf
    return -log_sum(ends)


def enumerated(logits: Tensor, labels: list[int], o: Options, duration_logits: Tensor | None = None) -> float:
    """The same as a sum over all paths, one by one."""
    scores = log_probs(logits, o)
    durations = None if duration_logits is None else log_probs(duration_logits, o)
    total = 0.0
    stack: list[tuple[int, int, float]] = [(0, 0, 0.0)] if logits.shape[0] else []
    while stack:
        t, u, weight = stack.pop()
        if t == logits.shape[0]:
            total += math.exp(weight)
            continue
        stack += [(a.t, a.u, weight + float(a.weight)) for a in arcs(scores, durations, labels, t, u, o)]
    return -math.log(total) if total else math.inf


def pattern(*shape: int) -> Tensor:
    """x.flat[n] = ((7919 n) mod 101) / 50 - 1."""
    n = torch.arange(math.prod(shape), dtype=torch.int64)
    return ((7919 * n % 101).double() / 50 - 1).reshape(shape)


def keywords(o: Options) -> dict[str, Any]:
    """The arguments of transducer_loss and tdt_loss that say the same."""
    given: dict[str, Any] = {
        "blank": o.blank,
        "sigma": o.sigma,
        "penalties": TransducerPenalties(
            delay_penalty=o.delay,
            eos_id=o.eos,
            eos_penalty=o.eos_penalty,
            star_id=o.star,
            star_penalty=o.star_penalty,
        ),
        "from_log_probs": o.from_log_probs,
    }
    if o.durations is not None:
        return given | {"durations": o.durations}
    return given | {
        "big_blanks": {column: m for m, column in o.big_blanks},
    }


def loss_by_frames(
    logits: Tensor, labels: Tensor, o: Options, duration_logits: Tensor | None = None
) -> Tensor:
    """loss() for sizes that matter: a frame at a time, on any device. Without star; every path's weight is finite.

    Label arcs within a frame are a cumulative sum: with c[u] the sum of their weights, alpha[t, u] - c[u] is the
    logcumsumexp over u of what comes from earlier frames, less c[u].
    """
    assert o.star is None
    scores = log_probs(logits, o)
    frames, states, _ = scores.shape
    out_of_reach = scores.new_full((states,), -1e30)
    early = (frames - 1) / 2 - torch.arange(frames, dtype=scores.dtype, device=scores.device)
    penalty = o.delay + (0.0 if o.eos is None else o.eos_penalty * (labels == o.eos).to(scores.dtype))
    index = labels.long().expand(frames, states - 1).unsqueeze(-1)
    label = scores[:, :-1].gather(2, index).squeeze(-1) - o.sigma + early[:, None] * penalty
    if o.durations is None:
        blanks = [(m, scores[:, :, column] - o.sigma) for m, column in ((1, o.blank), *o.big_blanks)]
        advancing, within = [], label
    else:
        assert duration_logits is not None
        q = log_probs(duration_logits, o)
        timed = list(enumerate(o.durations))
        blanks = [(m, scores[:, :, o.blank] - o.sigma + q[:, :, d]) for d, m in timed if m]
        advancing = [(m, label + q[:, :-1, d]) for d, m in timed if m]
        still = [label + q[:, :-1, d] for d, m in timed if not m]
        within = still[0] if still else torch.full_like(label, -1e30)
    alpha: list[Tensor] = []
    for t in range(frames):
        parts = [alpha[t - m] + weight[t - m] for m, weight in blanks if t >= m]
        for m, weight in advancing:
            if t >= m:
                parts.append(torch.cat([out_of_reach[:1], alpha[t - m][:-1] + weight[t - m]]))
        if t == 0:
            parts.append(torch.cat([torch.zeros_like(out_of_reach[:1]), out_of_reach[1:]]))
        entered = torch.stack([*parts, out_of_reach]).logsumexp(0)
        c = torch.cat([torch.zeros_like(out_of_reach[:1]), within[t].cumsum(0)])
        alpha.append(torch.logcumsumexp(entered - c, 0) + c)
    ends = [alpha[frames - m][-1] + weight[frames - m, -1] for m, weight in blanks if m <= frames]
    return -torch.stack(ends).logsumexp(0)


class Paths(NamedTuple):
    """All paths of one utterance, one by one."""

    best: float
    """Log weight of the best path; -inf without a path."""
    blank: Tensor
    """(T, U+1) posteriors, of plain blanks or, with durations, of all blanks."""
    label: Tensor
    """(T, U)"""
    grouped: Tensor
    """(n, T, U+1) of big blanks, or of durations."""


def all_paths(logits: Tensor, labels: list[int], o: Options, duration_logits: Tensor | None = None) -> Paths:
    scores = log_probs(logits, o)
    durations = None if duration_logits is None else log_probs(duration_logits, o)
    frames, states = logits.shape[0], len(labels) + 1
    groups = [m for m, _ in o.big_blanks] if o.durations is None else list(o.durations)
    found = Paths(
        -math.inf,
        torch.zeros(frames, states, dtype=torch.float64),
        torch.zeros(frames, states - 1, dtype=torch.float64),
        torch.zeros(len(groups), frames, states, dtype=torch.float64),
    )
    total, best = 0.0, -math.inf
    stack: list[tuple[int, int, float, tuple[tuple[int, int, Arc], ...]]] = (
        [(0, 0, 0.0, ())] if frames else []
    )
    while stack:
        t, u, weight, path = stack.pop()
        if t < frames:
            for arc in arcs(scores, durations, labels, t, u, o):
                stack.append((arc.t, arc.u, weight + float(arc.weight), (*path, (t, u, arc))))
            continue
        total += math.exp(weight)
        best = max(best, weight)
        for at, state, arc in path:
            consumed = arc.t - at
            if o.durations is not None or (consumed > 1 and not arc.is_label):
                found.grouped[groups.index(consumed), at, state] += math.exp(weight)
            if arc.is_label:
                found.label[at, state] += math.exp(weight)
            elif o.durations is not None or consumed == 1:
                found.blank[at, state] += math.exp(weight)
    scale = 1 / total if total else 0.0
    return Paths(best, found.blank * scale, found.label * scale, found.grouped * scale)


def weight_of(
    logits: Tensor,
    labels: list[int],
    o: Options,
    frames: Tensor,
    durations: Tensor,
    blanks: Tensor,
    duration_logits: Tensor | None = None,
) -> float:
    """Log weight of the path that an alignment (U,), (U,), (T,) describes; -inf if there is no such path."""
    scores = log_probs(logits, o)
    q = None if duration_logits is None else log_probs(duration_logits, o)
    t = u = 0
    weight = 0.0
    while t < logits.shape[0]:
        is_label = u < len(labels) and int(frames[u]) == t
        consumed = int(durations[u] if is_label else blanks[t])
        fitting = [
            a for a in arcs(scores, q, labels, t, u, o) if (a.is_label, a.t - t) == (is_label, consumed)
        ]
        if not fitting:
            return -math.inf
        weight += float(fitting[0].weight)
        t, u = fitting[0].t, fitting[0].u
    return weight if u == len(labels) else -math.inf
