"""CTC's loss with the network's last layer within it, as a function and as a module."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.checks import check_count, check_flag, naming_arguments, shape_of
from warpalign._core.labels import check_column, check_reduction, keyword_only
from warpalign._core.layers import as_linear_casts, check_layer, check_whole
from warpalign._core.reduction import BatchLengths, BatchReduction, reduced
from warpalign._core.series import Lengths
from warpalign._ctc.checks import (
    check_floats,
    check_integers,
    check_lengths,
    check_prior,
    check_settings,
    explained,
)
from warpalign._ctc.head_autograd import HeadInputs, HeadSettings, head_losses

HEAD_WORKSPACE_LIMIT = 64 * 2**20


def _check_layer_of(weight: object, bias: object) -> tuple[Tensor, Tensor | None]:
    """The layer's tensors, of matching shapes."""
    check_whole(weight, 2, "weight")
    checked = check_floats(weight, "weight", "C, H", dims=(2,))
    if 0 in checked.shape:
        raise ValueError(f"weight: expected no empty axis in (C, H), got shape {shape_of(checked)}")
    if bias is None:
        return checked, None
    check_whole(bias, 1, "bias")
    offset = check_floats(bias, "bias", "C", dims=(1,))
    if offset.shape != checked.shape[:1]:
        raise ValueError(f"bias: expected shape ({checked.shape[0]},), by weight, got {shape_of(offset)}")
    return checked, offset


def _check_targets(targets: object, encoder: Tensor, unbatched: bool) -> Tensor:
    """(B, U)."""
    labels = check_integers(targets, "targets", encoder, "(B, U)", "encoder_out")
    if unbatched and labels.dim() == 1:
        labels = labels.unsqueeze(0)
    batch = encoder.shape[0]
    if labels.dim() != 2 or labels.shape[0] != batch:
        expected = "(U,)" if unbatched else f"({batch}, U)"
        remedy = ""
        if labels.dim() == 1:
            remedy = (
                ": write torch.nn.utils.rnn.pad_sequence(targets.split(lengths), batch_first=True)"
                " and target_lengths="
            )
        raise ValueError(f"targets: expected shape {expected}, got {shape_of(labels)}{remedy}")
    return labels


def _check_inputs(
    encoder_out: object,
    weight: object,
    bias: object,
    targets: object,
    encoder_lengths: object,
    target_lengths: object,
    label_prior: object,
) -> tuple[HeadInputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis."""
    encoder = check_floats(encoder_out, "encoder_out", "T, H")
    layer, offset = _check_layer_of(weight, bias)
    unbatched = encoder.dim() == 2
    encoder = encoder.unsqueeze(0) if unbatched else encoder
    if encoder.shape[2] != layer.shape[1]:
        raise ValueError(
            f"encoder_out: expected a last axis of {layer.shape[1]}, by weight, got shape {shape_of(encoder[0] if unbatched else encoder)}"
        )
    encoder, layer = as_linear_casts(encoder), as_linear_casts(layer)
    offset = None if offset is None else as_linear_casts(offset)
    for name, tensor in (("weight", layer), ("bias", offset)):
        if tensor is not None and tensor.dtype != encoder.dtype:
            raise TypeError(f"{name}: expected the dtype of encoder_out, {encoder.dtype}, got {tensor.dtype}")
        if tensor is not None and tensor.device != encoder.device:
            raise ValueError(
                f"{name}: expected the device of encoder_out, {encoder.device}, got {tensor.device}"
            )
    labels = _check_targets(targets, encoder, unbatched)
    options: Any = {"unbatched": unbatched, "whose": "encoder_out"}
    batch, frames = encoder.shape[:2]
    device = encoder.device
    lengths = check_lengths(encoder_lengths, "encoder_lengths", device, batch, frames, "T", **options)
    counts = check_lengths(target_lengths, "target_lengths", device, batch, labels.shape[1], "U", **options)
    prior = check_prior(label_prior, encoder, layer.shape[0], "encoder_out")
    inputs = HeadInputs(encoder.contiguous(), layer, offset, labels, lengths, counts, prior)
    return inputs, unbatched


@keyword_only(6, "write blank=, reduction= and so on")
def ctc_loss_from_encoder(
    encoder_out: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    blank: int = 0,
    zero_infinity: bool = False,
    label_prior: Tensor | None = None,
    star: int | None = None,
    workspace_limit: int = HEAD_WORKSPACE_LIMIT,
    reduction: BatchReduction = "mean",
) -> Tensor:
    """CTC loss of a network whose last layer is linear. The logits are never in memory as a whole.

    The loss is that of :func:`ctc_loss` on the logits encoder_out · weightᵀ + bias. The logits of a batch have B·T·C numbers,
    and their gradient as many. This function computes them a chunk of frames at a time, in the forward pass and once more in
    the backward pass. It keeps the posteriors of labels, B·T·U numbers, and a normaliser of each frame. Use it for large
    vocabularies.

    Source: Graves et al., "Connectionist temporal classification", ICML 2006.

    Args:
        encoder_out: (B, T, H), or (T, H) for one utterance: inputs of the last layer; float64, float32, float16 or bfloat16.
            A tensor that is not contiguous is copied.
        weight: (C, H), as :class:`torch.nn.Linear` has it, of the dtype of encoder_out.
        bias: (C,), of the same dtype. None: no bias.
        targets: (B, U) labels, or (U,) for one utterance. Any integer type. A label lies in [0, C) and is not blank, or it is
            ``star``.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0.
            Lengths on a GPU are not read back but clamped into their range.
        blank: the class of the blank; a negative number counts from C.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        label_prior: (C,) logarithms of priors of the classes, optionally scaled, as in :func:`ctc_loss`.
        star: a label that matches any class but blank, as in :func:`ctc_loss`. It may be C or more. None: there is none.
        workspace_limit: bytes of the logits that are in memory at the same time. A smaller number means more products of
            fewer frames, and more time. At least 16 frames are computed at a time. On a CPU gradients of half types take
            twice as much again.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume": sum of
            losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Under torch.autocast encoder_out, weight and bias are cast, as a linear layer casts them. Products are torch's and follow
    its settings, such as ``torch.set_float32_matmul_precision``. Logits and their gradient are rounded to half types, as
    those of a linear layer; sums over frames are float32 or wider.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 tensors, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid, or FSDP has sharded the weight alone. On a GPU, labels and lengths are
            not read back: an invalid label makes that utterance's loss and all gradients NaN.
        NotImplementedError: for second derivatives.

    Examples:
        >>> encoder_out, head = torch.randn(4, 50, 64, requires_grad=True), torch.nn.Linear(64, 3000)
        >>> targets = torch.randint(1, 3000, (4, 10))
        >>> ctc_loss_from_encoder(encoder_out, head.weight, head.bias, targets, [50, 45, 40, 30]).backward()
    """
    inputs, unbatched = _check_inputs(
        encoder_out, weight, bias, targets, encoder_lengths, target_lengths, label_prior
    )
    settings = check_settings(
        classes=inputs.weight.shape[0],
        blank=blank,
        star=star,
        from_log_probs=False,
        zero_infinity=zero_infinity,
    )
    reduction = check_reduction(reduction)
    limit = check_count(workspace_limit, "workspace_limit", 0)
    frames, labels = inputs.encoder.shape[1], inputs.targets.shape[1]
    try:
        with naming_arguments():
            losses = head_losses(inputs, HeadSettings(limit, settings.blank, settings.star))
    except ValueError as error:
        named = ValueError(str(error).replace("logit_lengths", "encoder_lengths"))
        raise explained(named, settings, frames, inputs.weight.shape[0], labels) from None
    if settings.zero_infinity:
        losses = losses.masked_fill(losses == math.inf, 0)
    lengths = BatchLengths(inputs.encoder_lengths, frames, inputs.target_lengths, labels)
    return reduced(losses, lengths, reduction, unbatched)


class CTCHeadLoss(nn.Module):
    """:func:`warpalign.ctc_loss_from_encoder` as a module that owns the last layer, with fixed settings.

    For decoding and alignment compute logits, ``torch.nn.functional.linear(encoder_out, loss.weight, loss.bias)``.

    Args:
        hidden: H, the last axis of the outputs of the encoder.
        classes: C, the number of classes with blank.
        bias: whether the layer has one.
        device: the device of the layer. None: torch's default.
        dtype: the dtype of the layer: float64, float32, float16 or bfloat16. None: torch's default.
        blank: the class of the blank; a negative number counts from C.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf.
        star: a label that matches any class but blank.
        workspace_limit: bytes of the logits that are in memory at the same time.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".

    Attributes:
        weight: (C, H), drawn as :class:`torch.nn.Linear` draws it.
        bias: (C,), or None.

    Raises:
        TypeError, ValueError: an argument of the layer does not fit, or there is no such reduction. A call raises what
            :func:`warpalign.ctc_loss_from_encoder` raises.

    Examples:
        >>> loss = CTCHeadLoss(64, 3000, zero_infinity=True)
        >>> loss(torch.randn(4, 50, 64), torch.randint(1, 3000, (4, 10))).backward()
    """

    bias: Tensor | None

    def __init__(
        self,
        hidden: int,
        classes: int,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        blank: int = 0,
        zero_infinity: bool = False,
        star: int | None = None,
        workspace_limit: int = HEAD_WORKSPACE_LIMIT,
        reduction: BatchReduction = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        rows, size = check_count(classes, "classes"), check_count(hidden, "hidden")
        check_column(blank, "blank", rows)
        check_layer(dtype, device)
        self._options: dict[str, Any] = {
            "blank": blank,
            "zero_infinity": zero_infinity,
            "star": star,
            "workspace_limit": workspace_limit,
            "reduction": reduction,
        }
        self.weight = nn.Parameter(torch.empty(rows, size, device=device, dtype=dtype))
        self.bias = (
            nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if check_flag(bias, "bias") else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises the layer again."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.shape[1])
            nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        defaults = ctc_loss_from_encoder.__kwdefaults__ or {}
        changed = "".join(f", {k}={v!r}" for k, v in self._options.items() if v != defaults.get(k))
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}{changed}"

    def forward(
        self,
        encoder_out: Tensor,
        targets: Tensor,
        encoder_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
        label_prior: Tensor | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            encoder_out: (B, T, H), or (T, H) for one utterance.
            targets: (B, U) labels, or (U,) for one utterance.
            encoder_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
            label_prior: (C,) logarithms of priors of the classes, which are subtracted. None: none.
        """
        return ctc_loss_from_encoder(
            encoder_out,
            self.weight,
            self.bias,
            targets,
            encoder_lengths,
            target_lengths,
            label_prior=label_prior,
            **self._options,
        )
