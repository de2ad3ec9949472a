"""CTC's loss as a function of tensors."""

from __future__ import annotations

from torch import Tensor

from warpalign._core.checks import naming_arguments
from warpalign._core.labels import check_in_place, check_reduction, keyword_only
from warpalign._core.reduction import BatchLengths, BatchReduction, reduced
from warpalign._core.series import Lengths
from warpalign._ctc import autograd
from warpalign._ctc.checks import check_inputs, check_logits, check_settings, explained


@keyword_only(4, "write blank=, or use warpalign.compat.torch.ctc_loss, which has torch's order of arguments")
def ctc_loss(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    zero_infinity: bool = False,
    label_prior: Tensor | None = None,
    star: int | None = None,
    reduction: BatchReduction = "mean",
    inplace_grad: bool = False,
    batch_invariant: bool = False,
) -> Tensor:
    """Connectionist temporal classification (CTC) loss from a network's logits.

    For each utterance, with T frames and labels y_1 .. y_U, the loss is −log of the sum over all paths of the product of the
    path's probabilities. A path has one class per frame; with repeated classes merged and blanks removed it is y. The
    probability of a class at a frame is the softmax of the frame's logits.

    Source: Graves et al., "Connectionist temporal classification", ICML 2006.

    Args:
        logits: (B, T, C) or (T, C), float64, float32, float16 or bfloat16, of any strides: ``x.transpose(0, 1)`` of logits
            (T, B, C) costs nothing. Half types are read without conversion; arithmetic is float32 or better.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type. A label lies in [0, C) and is not blank, or it is ``star``.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the logits' device, a list, a tuple or
            an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0.
            Lengths on a GPU are not read back but clamped into their range.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities, which are not normalised again, and the gradient is with respect to
            them.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        label_prior: (C,) logarithms of priors of the classes, optionally scaled. They are subtracted from the
            log-probabilities of a path, which makes paths less peaky (Huang et al., arXiv 2406.02560). Losses are not
            differentiated with respect to them.
        star: a label that matches any class but blank. Its probability is the sum of theirs (Pratap et al., NeurIPS
            2022). It may be C or more. None: there is none.
        reduction: "none" (B,); "sum"; "mean" over the batch, as in :func:`transducer_loss`; "mean_target": mean of
            loss / max(U_b, 1), which torch calls "mean"; "mean_volume": sum of losses / max(sum of U_b, 1); "mean_frame":
            mean of loss / max(T_b, 1).
        inplace_grad: the gradient is written into the logits' memory in backward, which saves their size. Logits must be
            the result of an operation and serve nothing else; neither torch.compile nor torch.func, and one backward.
        batch_invariant: an utterance's results are bitwise identical whatever else is in the batch. They always are on a
            CPU.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid. On a GPU, labels and lengths are not read back: an invalid label
            makes that utterance's loss and gradient NaN.
        NotImplementedError: for second derivatives.

    A NaN or +inf among an utterance's logits makes its loss and gradient NaN, no other's. A logit of −inf is a class that
    cannot be emitted; gradients stay finite.

    Examples:
        >>> logits = torch.randn(4, 50, 30, requires_grad=True)
        >>> targets = torch.randint(1, 30, (4, 10))
        >>> ctc_loss(logits, targets, logit_lengths=[50, 45, 40, 30]).backward()
    """
    logits = check_logits(logits)
    settings = check_settings(
        classes=logits.shape[-1],
        blank=blank,
        star=star,
        from_log_probs=from_log_probs,
        zero_infinity=zero_infinity,
        batch_invariant=batch_invariant,
    )
    reduction = check_reduction(reduction)
    inputs, unbatched = check_inputs(logits, targets, logit_lengths, target_lengths, label_prior)
    in_place = check_in_place(inplace_grad, logits)
    try:
        with naming_arguments():
            losses = autograd.losses(inputs, settings, in_place)
    except ValueError as error:
        frames, classes = inputs.logits.shape[1:]
        raise explained(error, settings, frames, classes, inputs.targets.shape[-1]) from None
    lengths = BatchLengths(
        inputs.logit_lengths, inputs.logits.shape[1], inputs.target_lengths, inputs.targets.shape[-1]
    )
    return reduced(losses, lengths, reduction, unbatched)
