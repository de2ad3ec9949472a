"""The losses of the transducer family as functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._core.randomness import device_generator
from warpalign._core.reduction import BatchLengths, reduced
from warpalign._core.series import Lengths
from warpalign._transducer import autograd
from warpalign._transducer.autograd import Inputs
from warpalign._transducer.checks import (
    check_duration_logits,
    check_flag,
    check_in_place,
    check_inputs,
    check_joined_columns,
    check_logits,
    check_reduction,
    explained,
    keyword_only,
)
from warpalign._transducer.columns import check_columns, check_durations
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import BigBlanks, Settings, TransducerReduction, check_omega


@keyword_only(
    4, "write blank=, or use warpalign.compat.torchaudio.rnnt_loss, which has torchaudio's order of arguments"
)
def transducer_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    blank: int = -1,
    big_blanks: BigBlanks = (),
    sigma: float = 0.0,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    from_log_probs: bool = False,
    packed: bool = False,
    inplace_grad: bool = False,
    reduction: TransducerReduction = "mean",
) -> Tensor:
    """RNN-T loss, with or without big blanks, from a joint network's logits.

    For each utterance, with T frames and labels y_1 .. y_U, the loss is −log of the sum over all paths from node (0, 0) to
    the end of exp(sum of arc weights). At node (t, u) a blank leads to (t+1, u) and a label to (t, u+1); a big blank of
    duration m leads to (t+m, u). A blank that reaches frame T with u = U ends the path. The weight of an arc is its
    column's log-softmax over the V logits of the node, less ``sigma``.

    Source: Graves, "Sequence transduction with recurrent neural networks" (2012), section 2.4; big blanks and sigma: Xu et
    al., arXiv 2211.03541.

    Args:
        logits: (B, T, U+1, V), (T, U+1, V), or with ``packed`` (N, V), float64, float32, float16 or bfloat16. Any strides
            but the last, which is 1. Half types are read without conversion and summed in float32.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type. A label lies in [0, V) and is not the column of a blank.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the logits' device, a list, a tuple or
            an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0. Lengths
            on a GPU are not read back but clamped into their range.
        blank: the blank's column; below 0 it counts from V.
        big_blanks: the frames that each big blank consumes, 2 to 64; at most 8 of them. Their columns are blank−1, blank−2,
            ..., as in NeMo; a dict {column: frames} names other columns. (2, 4, 8) with sigma = 0.05 is the paper's setting.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        fastemit_lambda: FastEmit (arXiv 2010.11148): the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels, the end of an utterance and unknown labels: :class:`TransducerPenalties`. None: no penalty.
        clamp: every entry of the gradient of a loss is clipped to [−clamp, clamp], before it is multiplied by the upstream
            gradient. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        from_log_probs: True: the logits are log-probabilities, and the gradient is with respect to them.
        packed: row (t, u) of utterance b is row offset_b + t (U_b + 1) + u of (N, V), N = sum of T_b (U_b + 1). Both lengths
            are needed.
        inplace_grad: the gradient is written into the logits' memory in the backward pass, which saves their size. Logits must be
            the result of an operation and serve nothing else; neither torch.compile nor torch.func, and one backward.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume":
            sum of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's loss and gradient NaN.
        NotImplementedError: for second derivatives.

    A NaN or +inf among an utterance's logits makes its loss and gradient NaN, no other's.

    Examples:
        >>> logits = torch.randn(4, 50, 11, 30, requires_grad=True)
        >>> targets = torch.randint(0, 29, (4, 10))
        >>> transducer_loss(logits, targets, blank=-1).backward()
    """
    packed = check_flag(packed, "packed")
    logits = check_logits(logits, "logits", packed)
    settings = check_settings(
        check_columns(blank, None, big_blanks, logits.shape[-1]),
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
        from_log_probs=from_log_probs,
        packed=packed,
    )
    reduction = check_reduction(reduction)
    inputs, unbatched = check_inputs(logits, None, targets, logit_lengths, target_lengths, packed)
    return _reduced_losses(inputs, settings, check_in_place(inplace_grad, logits), reduction, unbatched)


def tdt_loss(
    label_logits: Tensor,
    duration_logits: Tensor | None,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    durations: Sequence[int],
    blank: int = -1,
    sigma: float = 0.0,
    omega: float = 0.0,
    generator: torch.Generator | int | None = None,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    from_log_probs: bool = False,
    packed: bool = False,
    inplace_grad: bool = False,
    reduction: TransducerReduction = "mean",
) -> Tensor:
    """Token-and-duration transducer (TDT) loss, from a joint network's logits of labels and of durations.

    As :func:`transducer_loss`, but every arc consumes as many frames as its duration: a blank leads from (t, u) to
    (t+d, u) for each d > 0 of ``durations``, a label to (t+d, u+1) for each d. The weight of an arc is the label's
    log-softmax less ``sigma``, plus the duration's log-softmax.

    Source: Xu et al., "Efficient sequence transduction by jointly predicting tokens and durations", arXiv 2304.06795.

    Args:
        label_logits: (B, T, U+1, V), (T, U+1, V), or with ``packed`` (N, V).
        duration_logits: the same with D columns. None: they are the last D columns of ``label_logits``, (..., V+D), and so
            is their gradient. Parts that torch.split() has made are not copied in forward, but its backward copies both
            gradients together.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type. A label lies in [0, V) and is not the blank.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the logits' device, a list, a tuple or
            an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0. Lengths
            on a GPU are not read back but clamped into their range.
        durations: D different numbers of frames, 0 to 64, one of them above 0; at most 16.
        blank: the blank's column; below 0 it counts from V.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that the loss of an utterance is the RNN-T loss of its label logits, with sigma = 0 and a gradient
            of 0 with respect to its duration logits. Drawn per utterance, on the logits' device; under torch.func.vmap as its
            ``randomness`` says.
        generator: draws omega: a torch.Generator, or an int, which seeds a new one for the call. None: torch's own generator.
        fastemit_lambda: FastEmit (arXiv 2010.11148): the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels and the end of an utterance: :class:`TransducerPenalties`, without a wildcard. None: no
            penalty.
        clamp: every entry of a loss's gradient with respect to the label logits is clipped to [−clamp, clamp]. None: not
            clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        from_log_probs: True: the logits are log-probabilities, and the gradient is with respect to them.
        packed: row (t, u) of utterance b is row offset_b + t (U_b + 1) + u of (N, V) and (N, D), N = sum of T_b (U_b + 1).
            Both lengths are needed.
        inplace_grad: the gradient is written into the logits' memory in the backward pass, as in :func:`transducer_loss`.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume":
            sum of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's loss and gradient NaN.
        NotImplementedError: for second derivatives.

    Examples:
        >>> logits = torch.randn(4, 50, 11, 30 + 5, requires_grad=True)
        >>> targets = torch.randint(0, 29, (4, 10))
        >>> tdt_loss(logits, None, targets, durations=(0, 1, 2, 3, 4), sigma=0.05).backward()
    """
    packed = check_flag(packed, "packed")
    label_logits = check_logits(label_logits, "label_logits", packed)
    lengths = check_durations(durations)
    if duration_logits is None:
        columns = check_joined_columns(label_logits, lengths)
        label_logits, duration_logits = autograd.parts(label_logits, columns)
    duration_logits = check_duration_logits(duration_logits, label_logits, lengths, packed)
    settings = check_settings(
        check_columns(blank, lengths, (), label_logits.shape[-1] + len(lengths)),
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
        from_log_probs=from_log_probs,
        packed=packed,
    )
    reduction = check_reduction(reduction)
    probability, draws = check_omega(omega), device_generator(generator, label_logits.device)
    inputs, unbatched = check_inputs(
        label_logits, duration_logits, targets, logit_lengths, target_lengths, packed
    )
    if probability > 0:
        count = inputs.logits.shape[0] if inputs.logit_lengths is None else inputs.logit_lengths.shape[0]
        drawn = torch.rand(count, generator=draws, device=label_logits.device)
        inputs = inputs._replace(without_durations=drawn < probability)
    in_place = check_in_place(inplace_grad, label_logits, duration_logits)
    return _reduced_losses(inputs, settings, in_place, reduction, unbatched)


def _reduced_losses(
    inputs: Inputs, settings: Settings, in_place: bool, reduction: TransducerReduction, unbatched: bool
) -> Tensor:
    # Packed logits have lengths: their sizes are not looked at.
    frames, states = (0, 1) if settings.packed else inputs.logits.shape[1:3]
    try:
        with naming_arguments():
            losses = autograd.losses(inputs, settings, in_place)
    except ValueError as error:
        raise explained(error, settings, frames, states, inputs.logits.shape[-1]) from None
    lengths = BatchLengths(inputs.logit_lengths, frames, inputs.target_lengths, states - 1)
    return reduced(losses, lengths, reduction, unbatched)
