"""Scores of phrases that are expected in what is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_number
from warpalign._decoding.automaton import Arcs, Automaton, Nodes, compiled
from warpalign._decoding.table import DENSE_LIMIT, LabelTable
from warpalign._decoding.trie import Trie


class PhraseBoost(LabelTable):
    """Raises the scores of hypotheses with given phrases in them, such as names that a recogniser has rarely heard.

    It is a language model for the decoders. Each label that continues a phrase adds the phrase's bonus at once, so that the beam
    keeps the beginnings of phrases. If the next label does not continue the phrase, its score takes back what the beginning has
    added. So a whole sequence scores bonus · length for every occurrence of every phrase, also of phrases within others. If
    the sequence ends within a phrase, :meth:`final` takes back what the beginning has added.

    One automaton has all phrases, in one table of tensors, like that of :class:`NGramLanguageModel`.

    Source: Aho and Corasick, "Efficient string matching: an aid to bibliographic search", CACM 1975; on a GPU: Andrusenko et
    al., arXiv 2508.07014.

    Args:
        phrases: sequences of labels, each of at least one, 0 to labels - 1. Equal phrases count once, with the larger bonus.
        labels: V, the number of labels, blanks included.
        bonus: what each label of a phrase adds to the score, a natural logarithm, above 0: one number for all, or one for each phrase.
        dense_limit: bytes of complete rows, as in :class:`NGramLanguageModel`.

    Attributes:
        labels: V.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> boost = PhraseBoost([[1, 2], [1, 2, 3]], labels=5, bonus=2.0)
        >>> boost.score(torch.tensor([[1, 2, 4], [1, 2, 3], [1, 4, 2]])).tolist()
        [4.0, 10.0, 0.0]
    """

    def __init__(
        self,
        phrases: Sequence[Sequence[int]],
        labels: int,
        *,
        bonus: float | Sequence[float] = 1.0,
        dense_limit: int = DENSE_LIMIT,
    ) -> None:
        count = check_count(labels, "labels")
        given = _check_phrases(phrases, count)
        super().__init__(_automaton(given, _check_bonus(bonus, len(given)), count), [], dense_limit)


def _check_phrases(phrases: object, labels: int) -> list[list[int]]:
    if isinstance(phrases, str) or not isinstance(phrases, Sequence):
        raise TypeError(f"phrases: expected a sequence of sequences of ints, got {type(phrases).__name__}")
    found = []
    for at, phrase in enumerate(phrases):
        if isinstance(phrase, str) or not isinstance(phrase, Sequence):
            raise TypeError(f"phrases[{at}]: expected a sequence of ints, got {type(phrase).__name__}")
        if not phrase:
            raise ValueError(f"phrases[{at}]: expected at least one label, got none")
        for label in phrase:
            if isinstance(label, bool) or not isinstance(label, Integral):
                raise TypeError(
                    f"phrases[{at}]: expected a sequence of ints, got one with {type(label).__name__}"
                )
            if not 0 <= int(label) < labels:
                raise ValueError(f"phrases[{at}]: expected labels from 0 to {labels - 1}, got {label}")
        found.append([int(label) for label in phrase])
    return found


def _check_bonus(bonus: object, phrases: int) -> Tensor:
    """(phrases,) float64."""
    if not isinstance(bonus, Sequence) or isinstance(bonus, str):
        one = check_number(bonus, "bonus", None)
        return torch.full((phrases,), one, dtype=torch.float64)
    if len(bonus) != phrases:
        raise ValueError(
            f"bonus: expected one number, or one for each of {phrases} phrases, got {len(bonus)}"
        )
    each = [check_number(one, f"bonus[{at}]", None) for at, one in enumerate(bonus)]
    return torch.tensor(each, dtype=torch.float64)


class _Marks(NamedTuple):
    """What the nodes of the phrases' trie have gained. All are (nodes,) float64."""

    ends: Tensor
    """The bonus · length of the phrase that ends in a node; 0: none does."""
    largest: Tensor
    """The largest bonus of the phrases that lead beyond a node; 0: none does."""


def _automaton(phrases: list[list[int]], bonus: Tensor, labels: int) -> Automaton:
    trie, marks, depth = _marked(phrases, bonus, labels)
    suffix = trie.suffixes()
    is_state = marks.largest > 0
    is_state[0] = True
    near = trie.nearest(is_state, suffix)
    # What a state has gained and may lose again: that of the longest beginning of a phrase.
    pending = depth * marks.largest
    # What is kept: all phrases that end with a node, as suffixes of each other.
    kept = marks.ends.clone()
    for begin, end in zip(trie.begins[1:], trie.begins[2:], strict=False):
        kept[begin:end] += kept[suffix[begin:end]]
    back_off = pending[near[suffix]] - pending
    score = torch.zeros(len(trie), dtype=torch.float64)
    score[1:] = kept[1:] + pending[near[1:]] - pending[trie.parent]
    nodes = Nodes(trie, suffix, near, score, back_off)
    own = Arcs(trie.parent, trie.symbol, score[1:], torch.arange(1, len(trie)))
    # All other labels, and the end of the sequence, lead from the root to itself and score nothing.
    missing = torch.ones(labels + 1, dtype=torch.bool)
    missing[own.label[own.source == 0]] = False
    added = missing.nonzero().squeeze(1)
    zeros = torch.zeros_like(added)
    arcs = Arcs(
        torch.cat([own.source, zeros]),
        torch.cat([own.label, added]),
        torch.cat([own.score, zeros.double()]),
        torch.cat([own.target, zeros]),
    )
    return compiled(nodes, arcs, labels, 0)


def _marked(phrases: list[list[int]], bonus: Tensor, labels: int) -> tuple[Trie, _Marks, Tensor]:
    """The trie of the phrases, what its nodes gain, and their depths."""
    trie = Trie(labels)
    lengths = torch.tensor([len(phrase) for phrase in phrases], dtype=torch.int64)
    longest = max(map(len, phrases), default=0)
    symbols = torch.tensor([[*p, *[0] * (longest - len(p))] for p in phrases], dtype=torch.int64)
    node = torch.zeros(len(phrases), dtype=torch.int64)
    ends, largest, depth = ([torch.zeros(1, dtype=torch.float64)] for _ in range(3))
    for k in range(longest):
        goes_on = (lengths > k).nonzero().squeeze(1)
        largest[-1].scatter_reduce_(0, node[goes_on] - trie.begins[-2], bonus[goes_on], "amax")
        first = len(trie)
        node[goes_on] = trie.add_depth(node[goes_on], symbols[goes_on, k])
        made = len(trie) - first
        for kept, value in ((ends, 0), (largest, 0), (depth, k + 1)):
            kept.append(torch.full((made,), value, dtype=torch.float64))
        last = goes_on[lengths[goes_on] == k + 1]
        ends[-1].scatter_reduce_(0, node[last] - first, bonus[last] * (k + 1), "amax")
    return trie, _Marks(torch.cat(ends), torch.cat(largest)), torch.cat(depth)
