"""A back-off automaton as a language model of the decoders: scores of all labels, and states after labels, in torch's operators."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from warpalign._core.checks import check_count, check_flag, shape_of
from warpalign._decoding.automaton import Automaton

DENSE_LIMIT = 2**28
_CHUNK = 2**24  # numbers of the temporary tensors while complete rows are made


class LabelTable(nn.Module):
    """Reads labels from state to state of an automaton. Nothing waits for a device, and shapes depend on that of the states alone.

    The states of the lowest levels have complete rows, (D, V + 1), as far as ``dense_limit`` bytes go, at least the root. The row
    of any other state begins as that of the highest state on its chain that has one. Then the arcs of the states above are
    written over it, level by level. A level is as many columns wide as the state with the most arcs has. Padding, and the
    end of the sequence, go to column V.
    """

    keys: Tensor
    """(A + 1,): state · (V + 1) + label of each arc, ascending. The last one is of no arc."""
    target: Tensor
    """(A + 1,): the state that an arc leads to."""
    score_of_arc: Tensor
    label: Tensor
    """Both (A + the most arcs of a state,)."""
    first_keys: Tensor
    """(S, levels): state · (V + 1) of the state of each level on a state's chain; above all keys where there is none."""
    offset: Tensor
    """(S, levels): the sum of the back-off weights from a state to that of each level."""
    span: Tensor
    """(S, levels, 2): the first arc, and the one after the last, of the state of each level."""
    column_level: Tensor
    column_place: Tensor
    """(columns,): the level whose arcs a column takes, and which of them."""
    reads: Tensor
    """(V,): whether a label is read."""
    rows: Tensor
    """(D, V + 1): complete rows of the first states."""
    base: Tensor
    base_offset: Tensor
    """(S,): the highest state on a state's chain that has a complete row, and the weight of the back-offs to it."""

    def __init__(self, automaton: Automaton, skipped: list[int], dense_limit: object) -> None:
        """skipped: labels that are never read, and lead from a state to itself."""
        super().__init__()
        limit = check_count(dense_limit, "dense_limit", 0)
        self.labels, self.start, self.has_end = automaton.labels, automaton.start, True
        begins, width = automaton.level_begins, automaton.labels + 1
        first = torch.searchsorted(automaton.keys // width, torch.arange(begins[-1] + 1))
        span = torch.stack([first[:-1], first[1:]], 1)
        most = int((span[:, 1] - span[:, 0]).max())
        reads = torch.ones(automaton.labels, dtype=torch.bool)
        reads[skipped] = False
        # A key that no state has ends the search; labels behind the last arc are padding.
        self._keep("keys", torch.cat([automaton.keys, torch.tensor([torch.iinfo(torch.int64).max])]))
        self._keep("target", torch.cat([automaton.target, torch.zeros(1, dtype=torch.int64)]))
        self._keep("score_of_arc", torch.nn.functional.pad(automaton.score, (0, most)).float())
        self._keep("label", torch.nn.functional.pad(automaton.keys % width, (0, most), value=self.labels))
        self._keep("first_keys", automaton.chain * width)
        self._keep("offset", automaton.offset.float())
        # A level that a chain does not have: no arcs.
        self._keep("span", torch.cat([span, span.new_zeros(1, 2)])[automaton.chain])
        self._keep("reads", reads)
        self._set_dense(automaton, span, 0)
        self._keep("rows", automaton.score[None, :width].float())
        dense = max(k for k in range(len(begins) - 1) if k == 0 or 4 * width * begins[k + 1] <= limit)
        for k in range(1, dense + 1):
            states = torch.arange(begins[k], begins[k + 1])
            self._set_dense(automaton, span, k - 1, k)
            parts = states.split(max(1, _CHUNK // (width + len(self.column_level))))
            self._keep("rows", torch.cat([self.rows, *(self._rows_of(part) for part in parts)]))
        self._set_dense(automaton, span, dense)

    def _keep(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values.contiguous())

    def _set_dense(self, automaton: Automaton, span: Tensor, dense: int, last: int | None = None) -> None:
        """The columns in which arcs of the levels from dense + 1 to the last are written, where those to `dense` have rows."""
        begins = automaton.level_begins
        last = len(begins) - 2 if last is None else last
        arcs = span[:, 1] - span[:, 0]
        levels = range(dense + 1, last + 1)
        self.widths = [int(arcs[begins[k] : begins[k + 1]].max()) for k in levels]
        places = [torch.arange(width) for width in self.widths]
        empty = torch.zeros(0, dtype=torch.int64)
        self._keep("column_place", torch.cat([empty, *places]))
        self._keep(
            "column_level",
            torch.cat([empty, *(torch.full_like(p, k) for k, p in zip(levels, places, strict=True))]),
        )
        level = ((automaton.chain < begins[-1]).sum(1, keepdim=True) - 1).clamp(max=dense)
        self._keep("base", automaton.chain.gather(1, level).squeeze(1))
        self._keep("base_offset", automaton.offset.gather(1, level).squeeze(1).float())

    def initial_state(self, batch: int) -> Tensor:
        """The state before the first label.

        Args:
            batch: N, the number of hypotheses.

        Returns:
            (N,) int64.
        """
        return torch.full((batch,), self.start, device=self.keys.device)

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the next label, after one further label of each hypothesis.

        Args:
            tokens: (N,) int64 labels.
            state: (N,): what :meth:`initial_state` or the step before has returned; it is not modified.

        Returns:
            (N, V) scores of all labels, and the states (N,) after the tokens.

        Raises:
            IndexError: a label is not below V. On a GPU a kernel's assertion fails.
        """
        arc = self._arcs(tokens, state).amax(1)
        reads = self.reads.index_select(0, tokens)
        after = torch.where(reads, self.target.index_select(0, arc), state)
        return self._rows_of(after)[:, : self.labels], after

    def final(self, state: Tensor) -> Tensor:
        """Scores of the end of the sequence.

        Args:
            state: (N,): what :meth:`initial_state` or :meth:`step` has returned.

        Returns:
            (N,). The decoders add it, with their weight, to the scores of the hypotheses that they return.
        """
        if not self.has_end:
            return self.score_of_arc.new_zeros(state.shape)
        return self._score(self._arcs(torch.full_like(state, self.labels), state), state)[0]

    def score(self, tokens: Tensor, *, final: bool = True) -> Tensor:
        """Scores of whole sequences of labels, as for the hypotheses that a search returns.

        Args:
            tokens: (..., L) labels of any integer type; those below 0, as after a hypothesis' end, are not read.
            final: the score of the end of the sequence is a part of it.

        Returns:
            (...): sums of the scores of all labels.

        Raises:
            TypeError, ValueError: an argument is invalid.
            IndexError: as :meth:`step`.
        """
        ends, given = check_flag(final, "final"), check_tokens(tokens)
        flat = given.reshape(math.prod(given.shape[:-1]), given.shape[-1])
        state = self.initial_state(flat.shape[0])
        total = self.score_of_arc.new_zeros(flat.shape[0])
        for token in flat.unbind(1):
            read = token.clamp(min=0)
            reads = self.reads.index_select(0, read) & (token >= 0)
            score, arc = self._score(self._arcs(read, state), state)
            total = total + torch.where(reads, score, 0)
            state = torch.where(reads, self.target.index_select(0, arc), state)
        return (total + self.final(state) if ends else total).view(given.shape[:-1])

    def _arcs(self, tokens: Tensor, state: Tensor) -> Tensor:
        """(N, levels) the arc by which the state of each level on a chain reads a label; −1: it has none.

        Arcs are in order of their states, and states in order of their levels. So the largest number is the arc of the highest level
        that has one. The root has one for every label.
        """
        wanted = self.first_keys.index_select(0, state) + tokens[:, None]
        arc = torch.searchsorted(self.keys, wanted)
        return torch.where(self.keys[arc] == wanted, arc, -1)

    def _score(self, arcs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) scores by the arcs of _arcs(), and the arcs that count."""
        arc, level = arcs.max(1, keepdim=True)
        offset = self.offset.index_select(0, state).gather(1, level).squeeze(1)
        return self.score_of_arc.index_select(0, arc.squeeze(1)) + offset, arc.squeeze(1)

    def _rows_of(self, state: Tensor) -> Tensor:
        """(N, V + 1) scores of all labels in each state; the last column means nothing."""
        if not self.widths:  # every state has a complete row
            return self.rows.index_select(0, state)
        rows = self.rows.index_select(0, self.base.index_select(0, state))
        rows += self.base_offset.index_select(0, state)[:, None]
        begin, end = self.span.index_select(0, state).index_select(1, self.column_level).unbind(2)
        at = begin + self.column_place
        label = torch.where(at < end, self.label[at], self.labels)
        offset = self.offset.index_select(0, state).index_select(1, self.column_level)
        score = self.score_of_arc[at] + offset
        for labels, scores in zip(label.split(self.widths, 1), score.split(self.widths, 1), strict=True):
            rows.scatter_(1, labels, scores)
        return rows


def check_tokens(tokens: object) -> Tensor:
    """Labels (..., L), below 0 after the end of each sequence."""
    if not isinstance(tokens, Tensor):
        raise TypeError(f"tokens: expected a torch.Tensor, got {type(tokens).__name__}")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise TypeError(f"tokens: expected integers, got {tokens.dtype}")
    if tokens.dim() < 1:
        raise ValueError(f"tokens: expected (..., L), got shape {shape_of(tokens)}")
    return tokens.long()
