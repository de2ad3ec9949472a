"""A prediction network of a transducer, or a language model of its labels: an embedding and an LSTM."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.checks import check_count
from warpalign._recurrent.modules import LSTM

State = tuple[Tensor, Tensor]


class LSTMPredictor(nn.Module):
    """The prediction network of a transducer: an embedding of labels and an LSTM, for training and for decoding.

    It is a :class:`warpalign.transducer.Predictor`: the decoders take it as it is. States have the dtype and the device of
    its parameters.

    Args:
        vocabulary: V, the number of all labels, with the blank.
        embedding: E, the number of features of a label.
        hidden: H, the number of units of a layer.
        layers: the number of layers.
        start: the label that stands before the first one, 0 to V - 1; below 0 it counts from V. The decoders read the blank
            first.
        device: the device of the parameters. None: torch's default.
        dtype: the dtype of the parameters: float64, float32, float16 or bfloat16. None: torch's default.
        **options: of the :class:`LSTM`, such as ``activation="hard"``, ``dropout`` or ``proj_size``.

    Attributes:
        embed: the :class:`torch.nn.Embedding` of V labels.
        lstm: the :class:`LSTM`.
        batch_axis: the batch axis of a state, for the decoders: 1.

    Raises:
        TypeError, ValueError: an argument does not fit.

    Examples:
        >>> predictor = LSTMPredictor(30, 64, 128, activation="hard")
        >>> predictor(torch.randint(0, 29, (4, 10))).shape
        torch.Size([4, 11, 128])
    """

    batch_axis = 1

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        hidden: int,
        layers: int = 1,
        *,
        start: int = -1,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        labels = check_count(vocabulary, "vocabulary")
        if isinstance(start, bool) or not isinstance(start, int):
            raise TypeError(f"start: expected an int, got {type(start).__name__}")
        if not -labels <= start < labels:
            raise ValueError(f"start: expected a label of vocabulary = {labels}, got {start}")
        for name in ("bidirectional", "batch_first"):
            if name in options:
                raise TypeError(f"options: {name} is the predictor's own: it reads (B, U) in one direction")
        self.start = start % labels
        self.embed = nn.Embedding(labels, check_count(embedding, "embedding"), device=device, dtype=dtype)
        self.lstm = LSTM(
            embedding,
            check_count(hidden, "hidden"),
            check_count(layers, "layers"),
            batch_first=True,
            device=device,
            dtype=dtype,
            **options,
        )

    def forward(self, targets: Tensor) -> Tensor:
        """The outputs for the start label and for each label of whole targets, for training.

        Args:
            targets: (B, U) labels, of any integer type; below 0 in padding.

        Returns:
            (B, U+1, H), or P in place of H with a projection of that size.
        """
        labels = nn.functional.pad(targets, (1, 0), value=self.start)
        output: Tensor = self.lstm(self.embed(torch.where(labels < 0, self.start, labels)))[0]
        return output

    def initial_state(self, batch: int) -> State:
        """The state before the first label: zeros.

        Args:
            batch: B, the number of hypotheses.

        Returns:
            (h, c), of shapes (layers, B, H), h with P in place of H with a projection.
        """
        own, zeros = self.lstm, self.embed.weight.new_zeros
        return (
            zeros(own.num_layers, batch, own.proj_size or own.hidden_size),
            zeros(own.num_layers, batch, own.hidden_size),
        )

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs for one further label of each hypothesis.

        Args:
            tokens: (B,) labels.
            state: what :meth:`initial_state` or the step before has returned; it is not modified.

        Returns:
            The outputs (B, H), and the state after the labels.
        """
        output, after = self.lstm(self.embed(tokens)[:, None], state)
        return output[:, 0], after
