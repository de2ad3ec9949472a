"""The alignment of a joint network's logits, of which a few frames at a time are in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import can_be_read, check_count
from warpalign._core.series import Lengths
from warpalign._core.transforms import not_compiled
from warpalign._transducer.align import TransducerAlignment, of_one_utterance, transducer_align
from warpalign._transducer.checks import explained
from warpalign._transducer.columns import Columns
from warpalign._transducer.joint_autograd import JointInputs
from warpalign._transducer.joint_checks import check_joint, check_joint_inputs
from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import WORKSPACE_LIMIT, Settings

# Columns of the small lattice, before those of the big blanks. The three labels have the score of the node's label.
_BLANK, _LABEL, _EOS, _STAR, _FIRST_BIG_BLANK = range(5)
_COPIES = 3
"""Of a chunk's logits that are in memory at once: logits, log-probabilities, and what makes the latter."""


@not_compiled
@torch.no_grad()
def transducer_align_from_joint(
    encoder_out: Tensor,
    predictor_out: Tensor,
    targets: Tensor,
    joint: JointWeights,
    encoder_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    sigma: float = 0.0,
    penalties: TransducerPenalties | None = None,
    posteriors: bool = False,
    workspace_limit: int = WORKSPACE_LIMIT,
) -> TransducerAlignment:
    """Alignment of labels to frames by a joint network: :func:`transducer_align` of its logits, which are never stored as a whole.

    The joint network is that of :func:`transducer_loss_from_joint`. Its logits are computed for a few frames at a time, and
    of each node the columns of its arcs are kept: blank, label, big blanks, durations.

    Memory: about ``workspace_limit`` for the logits, or those of one frame, 3·B·(U+1)·(V+D) numbers, where these are more;
    and B·T·(U+1)·(4+n+D) numbers for what is kept, with n big blanks and D durations. :func:`transducer_align` takes
    B·T·(U+1)·(V+D) numbers. Numbers have 4 bytes, float64 8.

    Args:
        encoder_out: (B, T, H), or (T, H) for one utterance: outputs of the encoder; float64, float32, float16 or bfloat16.
            Half types are converted to float32.
        predictor_out: (B, U+1, H), or (U+1, H): outputs of the predictor, of the dtype of encoder_out.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type.
        joint: the output layer, its activation, and which columns are blanks and durations.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        penalties: for late labels, the end of an utterance and unknown labels: :class:`TransducerPenalties`. None: no penalty.
        posteriors: whether to compute the probability of each arc, too.
        workspace_limit: bytes of the logits that are in memory at once. Less means smaller chunks of frames, and more time.

    Returns:
        :class:`TransducerAlignment`, as of :func:`transducer_align`. The results are not differentiable.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's score and posteriors NaN.

    Examples:
        >>> encoder_out, predictor_out = torch.randn(4, 50, 64), torch.randn(4, 11, 64)
        >>> output, targets = torch.nn.Linear(64, 30), torch.randint(0, 29, (4, 10))
        >>> joint = JointWeights(output.weight, output.bias, activation="tanh")
        >>> transducer_align_from_joint(encoder_out, predictor_out, targets, joint).frames.shape
        torch.Size([4, 10])
    """
    joint, _, columns = check_joint(joint)
    inputs, unbatched = check_joint_inputs(
        encoder_out, predictor_out, targets, joint, encoder_lengths, target_lengths
    )
    limit = check_count(workspace_limit, "workspace_limit", 0)
    settings = check_settings(columns, penalties, sigma=sigma, from_log_probs=True)
    small = _small_lattice(inputs, joint.activation, columns, settings, limit)
    first_big = range(_FIRST_BIG_BLANK, small.log_probs.shape[-1])
    found = transducer_align(
        small.log_probs,
        small.targets,
        inputs.encoder_lengths,
        inputs.target_lengths,
        duration_logits=small.durations,
        durations=columns.durations if columns.tdt else None,
        blank=_BLANK,
        big_blanks={} if columns.tdt else dict(zip(first_big, columns.durations, strict=True)),
        sigma=settings.sigma,
        penalties=TransducerPenalties(
            delay_penalty=settings.delay_penalty,
            eos_id=None if settings.eos_id < 0 else _EOS,
            eos_penalty=settings.eos_penalty,
            star_id=None if settings.star_id < 0 else _STAR,
            star_penalty=settings.star_penalty,
        ),
        from_log_probs=True,
        posteriors=posteriors,
    )
    return of_one_utterance(found) if unbatched else found


class _SmallLattice(NamedTuple):
    """The lattice with a column for each kind of arc in place of one for each label."""

    log_probs: Tensor
    """(B, T, U+1, 4 + n)."""
    durations: Tensor | None
    """(B, T, U+1, D): log-probabilities."""
    targets: Tensor
    """As the targets: columns of ``log_probs``; -1 for what is no label."""


def _small_lattice(
    inputs: JointInputs, activation: str, columns: Columns, settings: Settings, limit: int
) -> _SmallLattice:
    assert columns.labels is not None
    encoder, predictor, weight = (_wide(t) for t in (inputs.encoder, inputs.predictor, inputs.weight))
    bias = None if inputs.bias is None else _wide(inputs.bias)
    batch, frames, _ = encoder.shape
    states, rows_of_weight = predictor.shape[1], weight.shape[0]
    labels = inputs.targets.long()
    valid = (labels >= 0) & (labels < columns.labels) & (labels != columns.blank)
    for column in columns.big_blank_columns:
        valid &= labels != column
    _check_labels(labels, valid, inputs, settings, columns.labels)
    kind = torch.full_like(labels, _LABEL)
    kind[labels == settings.eos_id] = _EOS  # settings have -1 for None, which is no valid label
    kind[labels == settings.star_id] = _STAR
    own = _of_states(labels.where(valid, 0), inputs.target_lengths, states)[:, None, :, None]
    small = encoder.new_empty(batch, frames, states, _FIRST_BIG_BLANK + len(columns.big_blank_columns))
    durations = encoder.new_empty(batch, frames, states, len(columns.durations)) if columns.tdt else None
    step = max(1, limit // max(1, _COPIES * batch * states * rows_of_weight * encoder.element_size()))
    for first in range(0, frames, step):
        chunk = slice(first, first + step)
        hidden = encoder[:, chunk, None] + predictor[:, None]
        hidden = hidden.relu_() if activation == "relu" else hidden.tanh_()
        logits = torch.nn.functional.linear(hidden, weight, bias)
        rows = logits[..., : columns.labels].log_softmax(-1)
        small[:, chunk, :, _BLANK] = rows[..., columns.blank]
        small[:, chunk, :, _LABEL:_FIRST_BIG_BLANK] = rows.gather(-1, own.expand(*rows.shape[:-1], 1))
        for place, column in enumerate(columns.big_blank_columns, _FIRST_BIG_BLANK):
            small[:, chunk, :, place] = rows[..., column]
        if durations is not None:
            durations[:, chunk] = logits[..., columns.labels :].log_softmax(-1)
    return _SmallLattice(small, durations, kind.where(valid, -1))


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _of_states(labels: Tensor, counts: Tensor | None, states: int) -> Tensor:
    """(B, U+1): the label that leaves each state; where none does, any."""
    if labels.dim() == 2:
        return torch.nn.functional.pad(labels, (0, 1))
    assert counts is not None
    wide = counts.long()
    index = (wide.cumsum(0) - wide)[:, None] + torch.arange(states, device=labels.device)
    return torch.nn.functional.pad(labels, (0, 1))[index.clamp(0, len(labels))]


def _check_labels(
    labels: Tensor, valid: Tensor, inputs: JointInputs, settings: Settings, columns: int
) -> None:
    """Raises where a label on a CPU is none."""
    if not can_be_read(labels):
        return
    wrong = ~valid
    if labels.dim() == 2 and inputs.target_lengths is not None:
        wrong &= torch.arange(labels.shape[1]) < inputs.target_lengths[:, None]
    places = wrong.nonzero()
    if not len(places):
        return
    utterance, label = int(places[0, 0]), int(labels[tuple(places[0])])
    if labels.dim() == 1:
        assert inputs.target_lengths is not None
        utterance = int(torch.searchsorted(inputs.target_lengths.cumsum(0), places[0], right=True))
    text = f"targets: expected columns of the logits that are no blank's, got {label} at index {utterance}"
    frames, states = inputs.encoder.shape[1], inputs.predictor.shape[1]
    raise explained(ValueError(text), settings, frames, states, columns)
