"""``torch.nn.functional.ctc_loss`` and ``torch.nn.CTCLoss``, of torch 2.11.

Arguments, reductions and errors are torch's: log-probabilities (T, N, C), padded or concatenated targets, lengths as tensors or
tuples; "mean" divides each loss by its target length. What differs: float16 and bfloat16 are read as they are, with losses in
float32; the gradient of an utterance without any path is 0, not NaN; so is that of a class of probability 0. The gradient
with respect to log-probabilities is their exact one, −posterior. torch returns probability − posterior, which assumes a
log_softmax before it; the gradient in front of the log_softmax is the same. A label out of range is an error on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from warpalign.ctc import ctc_loss as _ctc_loss

_WHERE = "(while checking arguments for ctc_loss_allocate_outputs)"


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """CTC loss: (N,) with "none", else a number; float32 for half types.

    Args:
        log_probs: (T, N, C) or (T, C) log-probabilities, float64, float32, float16 or bfloat16.
        targets: (N, S) labels, padded, or (sum of target_lengths,), concatenated; for (T, C) (S,).
        input_lengths: (N,) true numbers of frames, a tensor or a sequence of integers.
        target_lengths: (N,) true numbers of labels, a tensor or a sequence of integers.
        blank: the class of the blank.
        reduction: "none"; "mean": each loss is divided by its target length before; "sum".
        zero_infinity: whether a loss of inf and its gradient become 0.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    unbatched = log_probs.dim() == 2
    if unbatched:
        log_probs = log_probs.unsqueeze(1)
    if log_probs.numel() == 0:
        raise RuntimeError("log_probs tensor must not be empty")
    frames, batch, classes = log_probs.shape
    lengths = _lengths(input_lengths, "input_lengths", log_probs.device)
    counts = _lengths(target_lengths, "target_lengths", log_probs.device)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, given in (("input_lengths", lengths), ("target_lengths", counts)):
        if given.shape != (batch,):
            raise RuntimeError(f"{name} must be of size batch_size")
    if targets.is_floating_point():
        targets = targets.long()
    if unbatched and targets.dim() == 1:
        targets = targets.unsqueeze(0)
    if targets.dim() not in (1, 2):
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.dim()}-dimensional tensor for argument #2 'targets' {_WHERE}"
        )
    _check_values(lengths, counts, targets, frames, batch)
    # Padded targets may be wider than the labels, and empty ones have any shape.
    if targets.dim() == 1 and counts.device.type == "cpu" and not int(counts.sum()):
        targets = targets.new_empty(batch, 0)
    losses = _ctc_loss(
        log_probs.transpose(0, 1),
        targets.to(log_probs.device),
        lengths,
        counts,
        blank=blank,
        from_log_probs=True,
        zero_infinity=zero_infinity,
        reduction="mean_target" if reduction == "mean" else reduction,  # type: ignore[arg-type]
    )
    return losses.squeeze(0) if unbatched and reduction == "none" else losses


def _lengths(given: Tensor | Sequence[int], name: str, device: torch.device) -> Tensor:
    lengths = given if isinstance(given, Tensor) else torch.tensor(given)
    if lengths.is_floating_point():
        raise RuntimeError(f"{name} must be integral")
    lengths = lengths.unsqueeze(0) if lengths.dim() == 0 else lengths
    return lengths.to(device, non_blocking=True)


def _check_values(lengths: Tensor, counts: Tensor, targets: Tensor, frames: int, batch: int) -> None:
    """torch's errors of values, where they are on the CPU."""
    if torch.compiler.is_compiling() or lengths.device.type != "cpu" or type(lengths) is not Tensor:
        return
    for name, given, most in (("input_lengths", lengths, frames), ("target_lengths", counts, None)):
        for value in given.tolist():
            if value < 0:
                raise RuntimeError(
                    f"Expected {name} to have value at least 0, but got value {value} {_WHERE}"
                )
            if most is not None and value > most:
                raise RuntimeError(
                    f"Expected {name} to have value at most {most}, but got value {value} {_WHERE}"
                )
    if targets.dim() == 1:
        if (total := int(counts.sum())) != targets.shape[0]:
            raise RuntimeError(
                f"Expected tensor to have size {total} at dimension 0, but got size {targets.shape[0]} for argument #2 "
                f"'targets' {_WHERE}"
            )
        return
    if targets.shape[0] != batch:
        raise RuntimeError(
            f"Expected tensor to have size {batch} at dimension 0, but got size {targets.shape[0]} for argument #2 'targets' "
            f"{_WHERE}"
        )
    if (most := int(counts.max())) > targets.shape[1]:
        raise RuntimeError(
            f"Expected tensor to have size at least {most} at dimension 1, but got size {targets.shape[1]} for argument #2 "
            f"'targets' {_WHERE}"
        )


class CTCLoss(nn.Module):
    """:func:`ctc_loss` with fixed settings.

    Args:
        blank: the class of the blank.
        reduction: "none"; "mean": each loss is divided by its target length before; "sum".
        zero_infinity: whether a loss of inf and its gradient become 0.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        """As :func:`ctc_loss`.

        Args:
            log_probs: (T, N, C) or (T, C) log-probabilities, float64, float32, float16 or bfloat16.
            targets: (N, S) labels, padded, or (sum of target_lengths,), concatenated; for (T, C) (S,).
            input_lengths: (N,) true numbers of frames, a tensor or a sequence of integers.
            target_lengths: (N,) true numbers of labels, a tensor or a sequence of integers.
        """
        return ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
