"""Back-off n-gram language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os import PathLike
from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.scalars import check_column
from warpalign._decoding.arpa import NGrams, read_arpa
from warpalign._decoding.automaton import Arcs, Automaton, Nodes, compiled
from warpalign._decoding.table import DENSE_LIMIT, LabelTable
from warpalign._decoding.trie import Trie

_BEGIN, _END, _UNKNOWN = "<s>", "</s>", ("<unk>", "<UNK>")


class _Words(NamedTuple):
    """The words of labels, and those of the file that mean something of their own."""

    number: dict[str, int]
    of_label: list[int]
    """(V,): the number of each label's word."""


class NGramLanguageModel(LabelTable):
    """A back-off n-gram language model of labels, for shallow fusion in beam and greedy search, on a CPU or a GPU.

    The log-probability of a label, a natural logarithm, is that of the longest n-gram of the file that ends with the label and
    agrees with the labels before it, plus the back-off weights of the longer contexts. A word that the file does not have counts
    as ``<unk>``. The first context is ``<s>``. :meth:`final` returns the log-probability of ``</s>``, or 0 if the file has none.

    The whole model is one table of tensors, which ``.to(device)`` moves. A step takes a few torch operators for all hypotheses at
    once, without synchronisation, so a CUDA graph can capture it.

    Sources: Katz, "Estimation of probabilities from sparse data for the language model component of a speech recognizer", IEEE
    TASSP 1987; n-grams as tensors of one table: Bataev et al., arXiv 2505.22857.

    Args:
        arpa: a file in the ARPA format, of UTF-8 text; compressed by gzip where its name ends with ``.gz``.
        tokens: the words of the V labels, as the file writes them. N-grams with other words are left out.
        blank: the label or labels that are not words, such as the blank and big blanks: they leave the state as it is. A number
            below 0 counts from V.
        unknown: the log-probability, at most 0, of labels whose word the file does not have. None: such labels use the n-grams of
            ``<unk>``.
        dense_limit: bytes for scores that are computed in advance: V + 1 float32 numbers for each of the shortest contexts, as
            far as they fit, and at least for the empty context. More of them make a step faster.

    Attributes:
        order: the length of the longest n-grams.
        labels: V.

    Raises:
        TypeError, ValueError: an argument or the file is invalid; for the file the message names the line or the n-gram.

    Examples:
        >>> import tempfile, pathlib
        >>> lines = ["\\\\data\\\\", "ngram 1=4", "ngram 2=1", "", "\\\\1-grams:", "-99 <s> -0.1", "-1 </s>", "-0.3 a", "-0.4 b",
        ...          "\\\\2-grams:", "-0.2 <s> b", "\\\\end\\\\"]
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "letters.arpa"
        >>> _ = file.write_text("\\n".join(lines))
        >>> model = NGramLanguageModel(file, ["", "a", "b"], blank=0)
        >>> rows, state = model.step(torch.tensor([0]), model.initial_state(1))
        >>> torch.allclose(rows[0, 1:], torch.tensor([-0.1 - 0.3, -0.2]) * torch.log(torch.tensor(10.0)))
        True
    """

    def __init__(
        self,
        arpa: str | PathLike[str],
        tokens: Sequence[str],
        *,
        blank: int | Sequence[int],
        unknown: float | None = None,
        dense_limit: int = DENSE_LIMIT,
    ) -> None:
        words = _words_of(tokens)
        skipped = _check_blank(blank, len(words.of_label))
        floor = _check_unknown(unknown)
        if not isinstance(arpa, (str, PathLike)):
            raise TypeError(f"arpa: expected the path of a file, got {type(arpa).__name__}")
        grams = read_arpa(arpa, words.number)
        automaton = _automaton(grams, words, skipped, list(tokens), floor)
        super().__init__(automaton, skipped, dense_limit)
        self.order = len(grams)
        self.has_end = words.number[_END] in grams[0].words


def _check_unknown(unknown: object) -> float | None:
    if unknown is None:
        return None
    if isinstance(unknown, bool) or not isinstance(unknown, (int, float)):
        raise TypeError(f"unknown: expected a float or None, got {type(unknown).__name__}")
    if not -math.inf < unknown <= 0:
        raise ValueError(f"unknown: expected a finite number <= 0, got {unknown}")
    return float(unknown)


def _words_of(tokens: object) -> _Words:
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Sequence):
        raise TypeError(f"tokens: expected a sequence of strings, got {type(tokens).__name__}")
    for at, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"tokens: expected strings, got {type(token).__name__} at index {at}")
    if not tokens:
        raise ValueError("tokens: expected at least one, got none")
    number: dict[str, int] = {}
    for word in (*tokens, _BEGIN, _END, *_UNKNOWN):
        number.setdefault(word, len(number))
    number[_UNKNOWN[1]] = number[_UNKNOWN[0]]
    return _Words(number, [number[token] for token in tokens])


def _check_blank(blank: object, labels: int) -> list[int]:
    given = list(blank) if isinstance(blank, Sequence) and not isinstance(blank, str) else [blank]
    return [check_column(one, "blank", labels) for one in given]


def _automaton(
    grams: list[NGrams], words: _Words, skipped: list[int], tokens: list[str], floor: float | None
) -> Automaton:
    nodes = _nodes(grams, words)
    trie, labels = nodes.trie, len(tokens)
    begin, end, unknown = (words.number[word] for word in (_BEGIN, _END, _UNKNOWN[0]))
    every = torch.arange(len(words.number))
    of_word = trie.child(torch.zeros_like(every), every)  # nodes of single words
    has = (of_word >= 0).tolist()
    of_label = []
    for label, word in enumerate(words.of_label):
        replaced = unknown if floor is None else -1
        if not (has[word] or label in skipped or floor is not None or has[unknown]):
            raise ValueError(
                f"tokens: expected words of the file, got {tokens[label]!r} at index {label}, and the file has no <unk>: give unknown="
            )
        of_label.append(-1 if label in skipped else word if has[word] else replaced)
    # The end of the sequence is label V.
    arcs = _arcs(nodes, torch.tensor([*of_label, end]), len(words.number))
    # Labels that the root has no arc for lead to it: with the score of unknown words, or 0 of blanks and of an end without </s>.
    missing = torch.ones(labels + 1, dtype=torch.bool)
    missing[arcs.label[arcs.source == 0]] = False
    score = torch.full((labels + 1,), 0.0 if floor is None else floor, dtype=torch.float64)
    score[[*skipped, labels]] = 0
    added = missing.nonzero().squeeze(1)
    zeros = torch.zeros_like(added)
    arcs = Arcs(
        torch.cat([arcs.source, zeros]),
        torch.cat([arcs.label, added]),
        torch.cat([arcs.score, score[added]]),
        torch.cat([arcs.target, zeros]),
    )
    start = max(int(of_word[begin]), 0)
    return compiled(nodes, arcs, labels, start)


def _nodes(grams: list[NGrams], words: _Words) -> Nodes:
    """A node for each n-gram: its context is a node before it."""
    trie = Trie(len(words.number))
    scores, back_offs = [torch.zeros(1, dtype=torch.float64)], [torch.zeros(1, dtype=torch.float64)]
    spelled = {number: word for word, number in reversed(words.number.items())}
    for n, own in enumerate(grams, 1):
        sequence = torch.tensor(own.words, dtype=torch.int64).view(-1, n)
        node = torch.zeros(len(sequence), dtype=torch.int64)
        for k in range(n - 1):
            node = trie.child(node, sequence[:, k])
            if bool((node < 0).any()):
                text = " ".join(spelled[word] for word in sequence[int((node < 0).nonzero()[0])].tolist())
                raise ValueError(
                    f"arpa: expected the first words of every n-gram as an n-gram too, got {text!r} without {' '.join(text.split()[: k + 1])!r}"
                )
        first = len(trie)
        place = trie.add_depth(node, sequence[:, n - 1]) - first
        if len(trie) - first < len(sequence):
            twice = (place.bincount() > 1)[place].nonzero()[0]
            text = " ".join(spelled[word] for word in sequence[int(twice)].tolist())
            raise ValueError(f"arpa: expected different n-grams, got {text!r} twice")
        for kept, values in ((scores, own.score), (back_offs, own.back_off)):
            of_nodes = torch.zeros(len(sequence), dtype=torch.float64)
            of_nodes[place] = torch.tensor(values, dtype=torch.float64)
            kept.append(of_nodes)
    suffix, back_off = trie.suffixes(), torch.cat(back_offs)
    # A context that nothing follows, and whose back-off costs nothing, is that of its last words.
    is_state = back_off != 0
    is_state[trie.parent] = True
    is_state[0] = True
    return Nodes(trie, suffix, trie.nearest(is_state, suffix), torch.cat(scores), back_off)


def _arcs(nodes: Nodes, word_of_label: Tensor, words: int) -> Arcs:
    """An arc for each node of a word and each label with that word."""
    order = word_of_label.argsort(stable=True)
    first = torch.searchsorted(word_of_label[order], torch.arange(words + 1))
    word, node = nodes.trie.symbol, torch.arange(1, len(nodes.near))
    count = (first[1:] - first[:-1])[word]
    each = torch.repeat_interleave(torch.arange(len(node)), count)
    place = torch.arange(len(each)) - (count.cumsum(0) - count)[each]
    label = order[first[:-1][word[each]] + place]
    return Arcs(nodes.trie.parent[each], label, nodes.score[node[each]], node[each])
