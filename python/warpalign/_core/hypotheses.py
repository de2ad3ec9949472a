"""What searches for labels have in common: what they find, and networks that read labels one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_number, shape_of

State = Any
"""A tensor, or tuples, lists and dicts of tensors; each has the batch on one axis."""


class Predictor(Protocol):
    """The network that reads labels. The attribute ``batch_axis`` is the batch axis of its states; without it, axis 0.

    A language model may have a method ``final(state)`` too: it returns (N,) log-probabilities that the labels end after a state.
    """

    def initial_state(self, batch: int) -> State:
        """The state before the first token, for ``batch`` hypotheses."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """tokens (N,) int64 and a state -> outputs (N, H) and the state after them. It must not modify its argument."""


class Hypotheses(NamedTuple):
    """What a search has found, one hypothesis for each of B utterances.

    L is the length of the longest one. CTC's searches, which read nothing back from a GPU, have the number of frames in its
    place. For one utterance of CTC without a batch axis B is left out.
    """

    tokens: Tensor
    """(B, L) int64, −1 after a hypothesis' end."""
    frames: Tensor
    """(B, L) int64: the frame of each token, counted from the beginning of the stream; −1 after the end. CTC: the first one."""
    durations: Tensor
    """(B, L) int64: frames that the token's arc consumes, 0 without TDT; −1 after the end."""
    lengths: Tensor
    """(B,) int64."""
    scores: Tensor
    """(B,): log-probability, from the beginning of the stream; −inf: there is no such hypothesis."""
    state: Any
    """What continues the stream."""

    @property
    def new_tokens(self) -> Tensor:
        """(B, L') int64: the tokens that this chunk has made final, which no later chunk changes; −1 after them.

        Of greedy search these are all ``tokens`` of the chunk. Of beam search they are the tokens on which all hypotheses of
        the utterance agree, less those that earlier chunks have made final: the same for each of the ``n_best``. At the end
        of a stream the rest are the last of the best hypothesis' ``tokens``.
        """
        found: Tensor = self.state.new_tokens(self.tokens)
        return found


def agreed(tokens: Tensor, lives: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L) tokens of one hypothesis of each utterance, and (B,) how many of its first tokens all hypotheses share.

    Args:
        tokens: (B, K, L), −1 after a hypothesis' end.
        lives: (B, K): whether there is such a hypothesis.
    """
    one = lives.to(torch.uint8).argmax(1)
    first = tokens.take_along_dim(one[:, None, None], 1)
    same = ((tokens == first) | ~lives[..., None]).all(1) & (first[:, 0] >= 0) & lives.any(1, keepdim=True)
    return first.squeeze(1), same.long().cumprod(1).sum(1)


def cut_out(tokens: Tensor, begin: Tensor, end: Tensor, most: int) -> Tensor:
    """(B, most): tokens (B, L) from begin (B,) to end (B,), −1 after them."""
    place = begin[:, None] + torch.arange(most, device=tokens.device)
    wide = torch.nn.functional.pad(tokens, (0, 1), value=-1)
    return torch.where(place < end[:, None], wide.gather(1, place.clamp(max=tokens.shape[1])), -1)


def leaves(state: State) -> list[Any]:
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in leaves(part)]
    if isinstance(state, dict):
        return [leaf for part in state.values() for leaf in leaves(part)]
    return [state]


def mapped(function: Callable[..., Tensor], state: State, *others: State) -> State:
    """function(tensor, its counterparts in others) for every tensor of a state."""
    if isinstance(state, (tuple, list)):
        parts = [mapped(function, *together) for together in zip(state, *others, strict=True)]
        # A named tuple takes its fields one by one.
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    if isinstance(state, dict):
        return {key: mapped(function, state[key], *(other[key] for other in others)) for key in state}
    return function(state, *others)


def where(found: Tensor, new: State, old: State, axis: int) -> State:
    """A state: the new one where found (N,) says so, else the old one."""

    def choose(one: Tensor, other: Tensor) -> Tensor:
        if one.numel() == 0:
            return one
        return torch.where(found.view([-1 if k == axis else 1 for k in range(one.dim())]), one, other)

    return mapped(choose, new, old)


def check_reader(reader: Any, name: str) -> Predictor:
    for method in ("initial_state", "step"):
        if not callable(getattr(reader, method, None)):
            raise TypeError(f"{name}: expected a method {method}(), got {type(reader).__name__} without it")
    checked: Predictor = reader
    return checked


def check_weight(lm_weight: object, language_model: object) -> float:
    """What a language model's scores are multiplied by; 0 where there is none."""
    if lm_weight is None:
        if language_model is not None:
            raise ValueError(
                "lm_weight: expected the weight of language_model, got None: write lm_weight=0.3, for example"
            )
        return 0.0
    weight = check_number(lm_weight, "lm_weight")
    if language_model is None and weight > 0:
        raise ValueError(
            f"lm_weight: expected None without language_model, got {lm_weight}: pass language_model="
        )
    return weight


def axis_of(reader: Any, name: str) -> int:
    return check_count(getattr(reader, "batch_axis", 0), f"{name}.batch_axis", 0)


def checked_step(result: object, name: str, count: int, batch_axis: int) -> tuple[Tensor, State]:
    """What ``step`` of the reader in the argument `name` has returned for so many hypotheses."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name}: expected step() to return rows and a state, got {type(result).__name__}")
    row, state = result
    if not isinstance(row, Tensor) or row.dim() != 2 or row.shape[0] != count:
        came = f"shape {shape_of(row)}" if isinstance(row, Tensor) else type(row).__name__
        raise ValueError(f"{name}: expected rows ({count}, H) from step(), got {came}")
    for leaf in leaves(state):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{name}: expected a state of tensors, got one with {type(leaf).__name__}")
        if leaf.dim() <= batch_axis or leaf.shape[batch_axis] != count:
            raise ValueError(
                f"{name}: expected states with {count} hypotheses on axis {batch_axis} (batch_axis), got shape {shape_of(leaf)}"
            )
    return row, state


def final_scores(reader: Any, name: str, state: State, count: int) -> Tensor | None:
    """(count,) scores of an end after each hypothesis, by the reader in the argument `name`. None: it has no method for them."""
    if not callable(getattr(reader, "final", None)):
        return None
    scores = reader.final(state)
    if not isinstance(scores, Tensor) or tuple(scores.shape) != (count,):
        came = f"shape {shape_of(scores)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{name}: expected scores ({count},) from final(), got {came}")
    return scores


def advanced(
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    batch_axis: int,
    rows: Tensor,
    state: State,
    picked: Tensor,
    tokens: Tensor,
    found: Tensor,
) -> tuple[Tensor, State]:
    """Rows and states of the hypotheses that new ones come from, after their new labels.

    Args:
        picked: (N,) the hypothesis that each one comes from.
        tokens: (N,) int64: its new label, where found (N,) says that there is one.
    """
    rows = rows.index_select(0, picked)
    state = mapped(lambda leaf: leaf.index_select(batch_axis, picked), state)
    if not found.is_cuda and not bool(found.any()):
        return rows, state
    new_rows, new_state = step(tokens, state)
    return torch.where(found[:, None], new_rows, rows), where(found, new_state, state, batch_axis)
