"""A back-off automaton in arrays: from the nodes of a trie to states, arcs, and each state's chain of back-offs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._decoding.trie import Trie


class Automaton(NamedTuple):
    """S states and A arcs over V labels, and the end of the sequence as label V. Tensors on a CPU.

    State s reads label c by the arc of s, or of the first state on its chain of back-offs that has one; then the weights of the
    back-offs are added. State 0, the root, has an arc for every label. States are in order of their level: the number of
    back-offs to the root.
    """

    labels: int
    """V, without the end."""
    start: int
    """The state before the first label."""
    keys: Tensor
    """(A,) int64: state · (V + 1) + label of each arc, ascending."""
    score: Tensor
    """(A,) float64: of an arc."""
    target: Tensor
    """(A,) int64: the state that an arc leads to."""
    chain: Tensor
    """(S, levels) int64: the state of each level on a state's chain, itself included; S: there is none."""
    offset: Tensor
    """(S, levels) float64: the sum of the back-off weights from a state to that of each level."""
    level_begins: list[int]
    """States of level k are level_begins[k] to level_begins[k + 1] - 1."""


class Nodes(NamedTuple):
    """What the nodes of a trie mean. The root is a state, and so is every node with children."""

    trie: Trie
    suffix: Tensor
    """(nodes,) as ``trie.suffixes()`` has them."""
    near: Tensor
    """(nodes,): the state that stands for a node: itself, or its longest suffix that is one."""
    score: Tensor
    """(nodes,) float64: of the arc that leads to a node."""
    back_off: Tensor
    """(nodes,) float64: the weight of a state's back-off."""

    def is_state(self) -> Tensor:
        return self.near == torch.arange(len(self.near))

    def fallback(self) -> Tensor:
        """(nodes,): the state that a state backs off to."""
        return self.near[self.suffix]


class Arcs(NamedTuple):
    """Arcs by the node of the trie that they leave and that they lead to."""

    source: Tensor
    label: Tensor
    score: Tensor
    target: Tensor


def compiled(nodes: Nodes, arcs: Arcs, labels: int, start: int) -> Automaton:
    """The automaton whose states are those of the nodes. arcs: all of it, the root's for every label and the end among them."""
    level = _levels(nodes)
    states = nodes.is_state().nonzero().squeeze(1)
    states = states[level[states].argsort(stable=True)]
    count = torch.bincount(level[states])
    number = torch.zeros(len(nodes.near), dtype=torch.int64)
    number[states] = torch.arange(len(states))
    begins = [0, *count.cumsum(0).tolist()]
    chain, offset = _chains(
        begins, number[nodes.fallback()[states]], nodes.back_off[states].to(torch.float64)
    )
    keys, order = (number[arcs.source] * (labels + 1) + arcs.label).sort()
    return Automaton(
        labels,
        int(number[nodes.near[start]]),
        keys,
        arcs.score[order],
        number[nodes.near[arcs.target[order]]],
        chain,
        offset,
        begins,
    )


def _levels(nodes: Nodes) -> Tensor:
    """(nodes,): the number of back-offs from a state to the root."""
    level = torch.zeros(len(nodes.near), dtype=torch.int64)
    fallback = nodes.fallback()
    for begin, end in zip(nodes.trie.begins[1:], nodes.trie.begins[2:], strict=False):
        level[begin:end] = level[fallback[begin:end]] + 1
    return level


def _chains(begins: list[int], fallback: Tensor, back_off: Tensor) -> tuple[Tensor, Tensor]:
    """Of states in order of their levels."""
    count, levels = begins[-1], len(begins) - 1
    chain = torch.full((count, levels), count, dtype=torch.int64)
    offset = torch.zeros(count, levels, dtype=torch.float64)
    chain[0, 0] = 0
    for k in range(1, levels):
        own = slice(begins[k], begins[k + 1])
        chain[own, :k] = chain[fallback[own], :k]
        offset[own, :k] = offset[fallback[own], :k] + back_off[own, None]
        chain[own, k] = torch.arange(begins[k], begins[k + 1])
    return chain, offset
