"""Sums of language models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.checks import shape_of
from warpalign._core.hypotheses import Predictor, State, axis_of, check_reader, leaves


class LanguageModelSum(nn.Module):
    """The weighted sum of several language models of the same labels, such as n-grams, networks and boosted phrases.

    Args:
        models: language models of the decoders: they have the methods of :class:`warpalign.Predictor`, and one ``batch_axis``.
            Those that are modules move with this one.
        weights: what the scores of each model are multiplied by. A number below 0 subtracts a model, such as an estimate of
            what the recogniser has learned of its training texts.

    Attributes:
        batch_axis: the batch axis of the models' states.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> from warpalign.decoding import PhraseBoost
        >>> names, terms = PhraseBoost([[1, 2]], 5), PhraseBoost([[2, 3]], 5)
        >>> both = LanguageModelSum([names, terms], [2.0, 1.0])
        >>> rows, state = both.step(torch.tensor([1]), both.initial_state(1))
        >>> rows[0].tolist()  # the second label of [1, 2], the first ones, and 2.0 back where [1, 2] ends otherwise
        [-2.0, 0.0, 3.0, -2.0, -2.0]
    """

    def __init__(self, models: Sequence[Predictor], weights: Sequence[float]) -> None:
        super().__init__()
        self.models = _check_models(models)
        self.weights = _check_weights(weights, len(self.models))
        self.batch_axis = axis_of(self.models[0], "models[0]")
        for at, model in enumerate(self.models):
            axis = axis_of(model, f"models[{at}]")
            if axis != self.batch_axis:
                raise ValueError(
                    f"models[{at}].batch_axis: expected {self.batch_axis}, as of models[0], got {axis}"
                )
        self.modules_of_models = nn.ModuleList(model for model in self.models if isinstance(model, nn.Module))

    def initial_state(self, batch: int) -> tuple[State, ...]:
        """The models' states before the first label.

        Args:
            batch: N, the number of hypotheses.

        Returns:
            A tuple of the states.
        """
        return tuple(model.initial_state(batch) for model in self.models)

    def step(self, tokens: Tensor, state: tuple[State, ...]) -> tuple[Tensor, tuple[State, ...]]:
        """Scores of the next label, after one further label of each hypothesis.

        Args:
            tokens: (N,) int64 labels.
            state: what :meth:`initial_state` or the step before has returned; it is not modified.

        Returns:
            The weighted sum of the models' rows (N, V), and their states after the labels.

        Raises:
            ValueError: the models' rows have different numbers of labels.
        """
        total: Tensor | None = None
        states = []
        for at, (model, weight, own) in enumerate(zip(self.models, self.weights, state, strict=True)):
            rows, after = model.step(tokens, own)
            if total is not None and rows.shape != total.shape:
                raise ValueError(
                    f"models[{at}]: expected rows of shape {shape_of(total)}, as of the models before, got {shape_of(rows)}"
                )
            total = rows * weight if total is None else total + rows * weight
            states.append(after)
        assert total is not None
        return total, tuple(states)

    def final(self, state: tuple[State, ...]) -> Tensor:
        """Scores of the end of the sequence: the weighted sum of the models that have a method ``final``.

        Args:
            state: what :meth:`initial_state` or :meth:`step` has returned.

        Returns:
            (N,).
        """
        parts = [
            weight * model.final(own)
            for model, weight, own in zip(self.models, self.weights, state, strict=True)
            if callable(getattr(model, "final", None))
        ]
        first = leaves(state)[0]
        zeros = torch.zeros(first.shape[self.batch_axis], device=first.device)
        return sum(parts, zeros)


def _check_models(models: object) -> list[Any]:
    if not isinstance(models, (Sequence, nn.ModuleList)):
        raise TypeError(f"models: expected a sequence of language models, got {type(models).__name__}")
    if not len(models):
        raise ValueError("models: expected at least one, got none")
    return [check_reader(model, f"models[{at}]") for at, model in enumerate(models)]


def _check_weights(weights: object, count: int) -> list[float]:
    if isinstance(weights, str) or not isinstance(weights, Sequence):
        raise TypeError(f"weights: expected a sequence of floats, got {type(weights).__name__}")
    if len(weights) != count:
        raise ValueError(f"weights: expected {count}, one for each of models, got {len(weights)}")
    for at, weight in enumerate(weights):
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise TypeError(f"weights[{at}]: expected a float, got {type(weight).__name__}")
        if not math.isfinite(weight):
            raise ValueError(f"weights[{at}]: expected a finite number, got {weight}")
    return [float(weight) for weight in weights]
