"""The joint network of a transducer, described once for its loss, its alignment and its decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from warpalign._transducer.checks import check_big_blanks, check_column, check_durations
from warpalign._transducer.settings import BigBlanks, TransducerActivation


class JointWeights(NamedTuple):
    """A joint network logits = weight · activation(encoder_out + predictor_out) + bias, and what its columns mean.

    The loss, the alignment and the decoders take the same object, so that none of them can be told another blank or
    other durations than the model was trained with.
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
    """The D different numbers of frames of a TDT model, 0 to 64, at most 16. None: the model is no TDT model."""
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


class JointArcs(NamedTuple):
    """The checked meaning of a joint network's columns."""

    labels: int | None
    """V: all columns but those of durations. None: not known."""
    blank: int
    durations: tuple[int, ...]
    """Of TDT's arcs, or else of the big blanks."""
    big_blank_ids: tuple[int, ...]
    tdt: bool


def check_arcs(
    blank: object, durations: object, big_blanks: object, columns: int | None, owner: str = ""
) -> JointArcs:
    """columns: of the joint network, V + D; None: not known. owner: what messages put before the names of the arguments."""
    frames = () if durations is None else check_durations(durations, f"{owner}durations")
    labels = None if columns is None else columns - len(frames)
    if labels is not None and labels < 1:
        raise ValueError(
            f"{owner}weight: expected more rows than the {len(frames)} of durations, got {columns}"
        )
    known = 2**31 - 1 if labels is None else labels
    column = check_column(blank, f"{owner}blank", known)
    if durations is None:
        big, ids = check_big_blanks(big_blanks, column, known, f"{owner}big_blanks")
        return JointArcs(labels, column, big, ids, False)
    if not isinstance(big_blanks, (Sequence, Mapping)) or big_blanks:
        raise ValueError(f"{owner}big_blanks: expected none with durations, got {big_blanks}")
    return JointArcs(labels, column, frames, (), True)
