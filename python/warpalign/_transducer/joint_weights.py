"""The joint network of a transducer, described once for its loss, its alignment and its decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from warpalign._transducer.settings import BigBlanks, TransducerActivation

if TYPE_CHECKING:
    from torch import Tensor


class JointWeights(NamedTuple):
    """A joint network logits = weight · activation(encoder_out + predictor_out) + bias, and the meaning of its columns.

    The loss, the alignment and the decoders take the same object, so that all of them use the blank and the
    durations that the model was trained with.
    """

    weight: Tensor
    """(V, H), as :class:`torch.nn.Linear` has it; with ``durations`` (V + D, H), the rows of the durations last. H is the
    last axis of the outputs of encoder and predictor, after their projections."""
    bias: Tensor | None = None
    """(V,) or (V + D,), of the weight's dtype. None: no bias."""
    activation: TransducerActivation = "relu"
    """"relu" or "tanh"."""
    blank: int = -1
    """The column of the blank; below 0 it counts from V."""
    durations: Sequence[int] | None = None
    """The D different numbers of frames of a TDT model, 0 to 64, at most 16. None: the model is not a TDT model."""
    big_blanks: BigBlanks = ()
    """The frames that each big blank consumes, or {column: frames}, as in :func:`warpalign.transducer_loss`."""


class JointFunction(NamedTuple):
    """A joint network of any form, for decoding."""

    function: Callable[[Tensor, Tensor], Tensor]
    """Maps outputs of the encoder (N, H) and of the predictor (N, H') to scores (N, V), with ``durations`` (N, V + D)."""
    blank: int
    """The column of the blank, at least 0: how many columns there are is not known before the function is called."""
    durations: Sequence[int] | None = None
    """As in :class:`JointWeights`."""
    big_blanks: BigBlanks = ()
    """As in :class:`JointWeights`."""
