"""Sequences of symbols as a trie, and the longest proper suffix of each of its nodes: tensors on a CPU, built level by level."""

from __future__ import annotations

import torch
from torch import Tensor


class Trie:
    """Nodes are numbered by depth, and within a depth by parent and symbol; node 0 is the root.

    So ``keys``, the parent and the symbol of every node but the root as one number each, are in ascending order.
    """

    def __init__(self, symbols: int) -> None:
        self.symbols = symbols
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.begins = [0, 1]
        """Nodes of depth d are begins[d] to begins[d + 1] - 1."""

    def __len__(self) -> int:
        return self.begins[-1]

    @property
    def parent(self) -> Tensor:
        """(nodes - 1,): of every node but the root."""
        return self.keys // self.symbols

    @property
    def symbol(self) -> Tensor:
        """(nodes - 1,): that leads from its parent to every node but the root."""
        return self.keys % self.symbols

    def child(self, node: Tensor, symbol: Tensor) -> Tensor:
        """(N,) node that a symbol leads to; -1: none."""
        if not len(self.keys):
            return torch.full_like(node, -1)
        key = node * self.symbols + symbol
        at = torch.searchsorted(self.keys, key)
        found: Tensor = self.keys[at.clamp(max=len(self.keys) - 1)] == key
        return torch.where(found, at + 1, -1)

    def add_depth(self, parent: Tensor, symbol: Tensor) -> Tensor:
        """(K,) nodes of the next depth, one for each different pair of a deepest node and a symbol."""
        keys, place = (parent * self.symbols + symbol).unique(return_inverse=True)
        node: Tensor = place + len(self)
        self.keys = torch.cat([self.keys, keys])
        self.begins.append(len(self) + len(keys))
        return node

    def suffixes(self) -> Tensor:
        """(nodes,) the node of the longest proper suffix of a node's symbols that is a node; the root's is the root.

        Source: the failure function of Aho and Corasick, "Efficient string matching", CACM 1975.
        """
        parent, symbol = self.parent, self.symbol
        suffix = torch.zeros(len(self), dtype=torch.int64)
        for begin, end in zip(self.begins[2:], self.begins[3:], strict=False):
            at, read = suffix[parent[begin - 1 : end - 1]], symbol[begin - 1 : end - 1]
            found = self.child(at, read)
            while bool((goes_on := (found < 0) & (at > 0)).any()):
                at = torch.where(goes_on, suffix[at], at)
                found = torch.where(goes_on, self.child(at, read), found)
            suffix[begin:end] = found.clamp(min=0)
        return suffix

    def nearest(self, chosen: Tensor, suffix: Tensor) -> Tensor:
        """(nodes,) for each node the longest suffix, itself included, that is among the chosen (nodes,) ones, of which the root is one."""
        near = torch.arange(len(self))
        for begin, end in zip(self.begins[1:], self.begins[2:], strict=False):
            near[begin:end] = torch.where(chosen[begin:end], near[begin:end], near[suffix[begin:end]])
        return near
