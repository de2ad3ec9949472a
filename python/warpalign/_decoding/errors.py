"""Edit distances of hypotheses, and the expected number of their errors as a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import DTYPES, check_number, check_reduction, shape_of
from warpalign._core.lengths import lengths_tensor
from warpalign._core.scalars import Reduction
from warpalign._core.series import Lengths

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def edit_distance(tokens: Tensor, targets: Tensor, target_lengths: Lengths | None = None) -> Tensor:
    """The edit (Levenshtein) distance: the least number of inserted, deleted and replaced labels between hypothesis and target.

    It runs on the tensors' device in min(L, U) steps, without synchronisation.

    Source: Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966; Wagner and
    Fischer, "The string-to-string correction problem", JACM 1974.

    Args:
        tokens: (B, L) labels, or (B, N, L) of N hypotheses, of any integer type, with numbers below 0 after the end,
            as in ``Hypotheses.tokens``. ``torch.stack([h.tokens for h in hypotheses], 1)`` makes N hypotheses one tensor.
        targets: (B, U) labels, of any integer type.
        target_lengths: (B,) true numbers of labels, 0 to U: integers, as a tensor on the device of tokens, a list, a tuple or
            an array. None: all U. A tensor on a GPU is clamped to this range instead of checked. Padding is ignored.

    Returns:
        (B,) or (B, N) int64.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> tokens = torch.tensor([[[1, 2, 3], [2, 3, -1]]])
        >>> edit_distance(tokens, torch.tensor([[1, 2, 4, 5]]), [3])
        tensor([[1, 2]])
    """
    given, labels = _check_integers(tokens, "tokens", (2, 3)), _check_integers(targets, "targets", (2,))
    batch, device = given.shape[0], given.device
    if labels.shape[0] != batch:
        raise ValueError(f"targets: expected shape ({batch}, U), by tokens, got {shape_of(labels)}")
    if labels.device != device:
        raise ValueError(f"targets: expected the device of tokens, {device}, got {labels.device}")
    most = labels.shape[1]
    counts = lengths_tensor(
        target_lengths,
        "target_lengths",
        batch,
        most,
        device,
        maximum_name="U",
        whose="tokens",
        unit="utterance",
    )
    many = given if given.dim() == 3 else given[:, None]
    ends = many.new_full((batch,), most) if counts is None else counts.long().clamp(0, most)
    found = _distances(many, (many >= 0).sum(2), labels[:, None], ends[:, None])
    return found if given.dim() == 3 else found.squeeze(1)


def _distances(x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor) -> Tensor:
    """(B, N) from x (B, N, L) and y (B, N, M), of which one may have N = 1, and their lengths (B, N)."""
    if x.shape[2] > y.shape[2]:
        return _distances(y, y_lengths, x, x_lengths)
    shape = torch.broadcast_shapes(x.shape[:2], y.shape[:2])
    place = torch.arange(y.shape[2] + 1, device=y.device)
    # row[j]: between the first i labels of x and the first j labels of y.
    row = place.expand(*shape, -1)
    for i in range(x.shape[2]):
        replaced = row[..., :-1] + (y != x[..., i, None])
        ended = torch.cat([row[..., :1] + 1, torch.minimum(row[..., 1:] + 1, replaced)], 2)
        # min over k <= j of ended[k] + j - k: labels of y that x lacks.
        after = (ended - place).cummin(2).values + place
        row = torch.where((i < x_lengths)[..., None], after, row)
    return row.gather(2, y_lengths.expand(shape)[..., None]).squeeze(2)


def _check_integers(values: object, name: str, axes: tuple[int, ...]) -> Tensor:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(values).__name__}")
    if values.dtype not in _INTEGERS:
        raise TypeError(f"{name}: expected integers, got {values.dtype}")
    if values.dim() not in axes:
        expected = "(B, U)" if axes == (2,) else "(B, L) or (B, N, L)"
        raise ValueError(f"{name}: expected {expected}, got shape {shape_of(values)}")
    return values.long()


def mwer_loss(
    scores: Tensor, errors: Tensor, *, temperature: float = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """Minimum word error rate training: the expected number of errors among N hypotheses of an utterance, minus the mean number.

    P are the probabilities of the N hypotheses, normalised to a sum of 1:

        loss = sum_n P_n (errors_n - mean of errors),  P = softmax(scores / temperature)

    The derivative with respect to scores_n is P_n (errors_n - sum_m P_m errors_m) / temperature. Subtracting the mean does not change it.

    A search returns no gradients. To get scores with gradients, negate the losses that :func:`transducer_loss`,
    :func:`transducer_loss_from_joint` or :func:`ctc_loss` returns for the hypotheses as targets, with ``reduction="none"``.

    Source: Prabhavalkar et al., "Minimum word error rate training for attention-based sequence-to-sequence models", ICASSP
    2018, arXiv 1712.01818; its equation 3. The temperature is that of k2's ``mwer_loss``.

    Args:
        scores: (B, N) log-probabilities, float64, float32, float16 or bfloat16. −inf: there is no such hypothesis, and the
            loss ignores it.
        errors: (B, N) numbers of errors, of any real dtype, without a gradient; :func:`edit_distance` counts labels.
        temperature: the divisor of the scores, above 0. The scores of long utterances lie far apart; a temperature above 1 lets
            more of their hypotheses count.
        reduction: "mean" over the batch, "sum", or "none".

    Returns:
        A scalar, or (B,) with "none"; float64 for float64 scores, else float32. Utterances without hypotheses have 0.

    Raises:
        TypeError, ValueError: an argument is invalid.

    Examples:
        >>> scores = torch.tensor([[-1.0, -1.0, -2.0]], requires_grad=True)
        >>> loss = mwer_loss(scores, torch.tensor([[0, 2, 3]]))
        >>> loss.backward()
        >>> [round(g, 3) for g in scores.grad[0].tolist()]  # better hypotheses become more probable
        [-0.554, 0.291, 0.262]
    """
    wide = _check_scores(scores)
    if not isinstance(errors, Tensor):
        raise TypeError(f"errors: expected a torch.Tensor, got {type(errors).__name__}")
    if errors.is_complex():
        raise TypeError(f"errors: expected real numbers, got {errors.dtype}")
    if errors.requires_grad:
        raise ValueError("errors: expected a tensor without a gradient, got one that requires it")
    if errors.shape != wide.shape:
        raise ValueError(f"errors: expected shape {shape_of(wide)}, as scores, got {shape_of(errors)}")
    if errors.device != wide.device:
        raise ValueError(f"errors: expected the device of scores, {wide.device}, got {errors.device}")
    heat = check_number(temperature, "temperature", None)
    kind = check_reduction(reduction)
    exists = wide != -torch.inf
    # Where an utterance has none, a softmax of zeros in place of NaN; all its weights are 0.
    shares = (wide / heat).masked_fill(~exists.any(1, keepdim=True), 0).softmax(1)
    wrong = torch.where(exists, errors.to(wide.dtype), 0)
    mean = wrong.sum(1, keepdim=True) / exists.sum(1, keepdim=True).clamp(min=1)
    losses = (shares * torch.where(exists, wrong - mean, 0)).sum(1)
    if kind == "none":
        return losses
    return losses.mean() if kind == "mean" else losses.sum()


def _check_scores(scores: object) -> Tensor:
    """float64 or float32."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores: expected a torch.Tensor, got {type(scores).__name__}")
    if scores.dtype not in DTYPES:
        raise TypeError(f"scores: expected dtype float64, float32, float16 or bfloat16, got {scores.dtype}")
    if scores.dim() != 2:
        raise ValueError(f"scores: expected (B, N), got shape {shape_of(scores)}")
    return scores if scores.dtype == torch.float64 else scores.float()
