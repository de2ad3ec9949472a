"""Operators of CTC's loss with the last layer within it: they make the logits of some frames at a time by torch's products.

A loss makes the logits once and keeps the posteriors of labels; a gradient makes them again. The steps between the products
are the core's (warpalign/ctc_head.h).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from warpalign._core.library import check_devices, empty_unless
from warpalign._core.transforms import no_autocast
from warpalign._ctc import ops

_LEAST_ROWS = 16  # frames of a chunk, whatever the limit is

_library = torch.library.Library("warpalign", "FRAGMENT")
# encoder (B, T, H), contiguous; weight (C, H); bias (C,); targets (B, U) and lengths (B,), int32 or int64; label_prior (C,).
# loss (B,), inf without a path; posteriors (B, T, U), empty unless needs_grad; the others as in ctc_schemas.cpp.
_library.define(
    "ctc_head_loss(Tensor encoder, Tensor weight, Tensor? bias, Tensor targets, Tensor? encoder_lengths, Tensor? "
    "target_lengths, Tensor? label_prior, bool needs_grad, *, int workspace_limit, int blank=0, int star=-1) -> (Tensor "
    "loss, Tensor posteriors, Tensor first_labels, Tensor next_labels, Tensor log_sums, Tensor log_sums_of_others)"
)
# The gradients that are not needed are empty.
_library.define(
    "ctc_head_gradient(Tensor encoder, Tensor weight, Tensor? bias, Tensor targets, Tensor? encoder_lengths, Tensor? "
    "target_lengths, Tensor loss, Tensor posteriors, Tensor first_labels, Tensor next_labels, Tensor log_sums, Tensor "
    "log_sums_of_others, Tensor grad_loss, bool needs_encoder, bool needs_weight, bool needs_bias, *, int workspace_limit, "
    "int blank=0, int star=-1) -> (Tensor encoder, Tensor weight, Tensor bias)"
)


def _chunks(
    encoder: Tensor, weight: Tensor, bias: Tensor | None, limit: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The first row of a chunk of the B·T rows, the rows, and their logits, which lie in the same memory every time."""
    rows = encoder.flatten(0, 1)
    count, classes = rows.shape[0], weight.shape[0]
    fitting = max(limit // (classes * weight.element_size()), _LEAST_ROWS)
    chunks = -(-count // fitting)
    size = -(-count // chunks) if chunks else 0
    memory = encoder.new_empty(size, classes)
    for first in range(0, count, max(size, 1)):
        part = rows[first : first + size]
        logits = memory[: part.shape[0]]
        if bias is None:
            torch.mm(part, weight.t(), out=logits)
        else:
            torch.addmm(bias, part, weight.t(), out=logits)
        yield first, part, logits


@torch.no_grad()
@no_autocast()
def _loss(
    encoder: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
    needs_grad: bool,
    *,
    workspace_limit: int,
    blank: int = 0,
    star: int = -1,
) -> tuple[Tensor, ...]:
    batch, frames = encoder.shape[:2]
    labels, classes = targets.shape[1], weight.shape[0]
    settings = {"blank": blank, "star": star}
    columns = ops.head_labels(targets, target_lengths, frames, classes, **settings)
    sums = encoder.new_empty((batch, frames), dtype=torch.float64)
    others = torch.empty_like(sums) if star >= 0 else sums.new_empty(0)
    emissions = encoder.new_empty((batch, frames, labels + 1), dtype=ops.real_of(encoder.dtype))
    given = (targets, encoder_lengths, target_lengths, label_prior)
    for first, _, logits in _chunks(encoder, weight, bias, workspace_limit):
        ops.chunk_emissions_in_place(logits, first, *given, sums, others, emissions, **settings)
    problem = (emissions, columns[0], encoder_lengths, target_lengths, None)
    as_classes = {"blank": labels, "from_log_probs": True}
    if needs_grad:
        loss, posteriors = ops.posteriors(*problem, **as_classes)
    else:
        loss, posteriors = ops.loss(*problem, False, **as_classes)[0], emissions.new_empty(0)
    return loss, posteriors, *columns, sums, others


@torch.no_grad()
@no_autocast()
def _gradient(
    encoder: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    loss: Tensor,
    posteriors: Tensor,
    first_labels: Tensor,
    next_labels: Tensor,
    log_sums: Tensor,
    log_sums_of_others: Tensor,
    grad_loss: Tensor,
    needs_encoder: bool,
    needs_weight: bool,
    needs_bias: bool,
    *,
    workspace_limit: int,
    blank: int = 0,
    star: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    labels = (targets, encoder_lengths, target_lengths, first_labels, next_labels)
    given = (*labels, log_sums, log_sums_of_others, posteriors, loss, grad_loss)
    frames = encoder.shape[1]
    # Sums over chunks are float32 for half types.
    real = ops.real_of(weight.dtype)
    to_encoder = empty_unless(needs_encoder, encoder, *encoder.shape)
    to_weight = weight.new_zeros(weight.shape if needs_weight else 0, dtype=real)
    to_bias = weight.new_zeros(weight.shape[0] if needs_bias else 0, dtype=real)
    padding = None
    if encoder_lengths is not None and needs_weight:
        steps = torch.arange(frames, device=encoder.device)
        padding = (steps >= encoder_lengths[:, None]).flatten()[:, None]
    for first, rows, logits in _chunks(encoder, weight, bias, workspace_limit):
        last = first + rows.shape[0]
        ops.chunk_gradient_in_place(logits, first, *given, blank=blank, star=star)
        if needs_encoder:
            torch.mm(logits, weight, out=to_encoder.flatten(0, 1)[first:last])
        if needs_weight:
            # Gradients of the padding are 0, which does not help where its numbers are NaN.
            used = rows if padding is None else rows.masked_fill(padding[first:last], 0)
            _add_product(to_weight, logits.t(), used)
        if needs_bias:
            _add_rows(to_bias, logits)
    return to_encoder, to_weight.to(weight.dtype), to_bias.to(weight.dtype)


def _add_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """to += a b, whose sums have the dtype of `to`."""
    if a.dtype == to.dtype:
        to.addmm_(a, b)
    elif to.is_cuda:
        torch.addmm(to, a, b, out_dtype=to.dtype, out=to)
    else:
        to.addmm_(a.to(to.dtype), b.to(to.dtype))


def _add_rows(to: Tensor, rows: Tensor) -> None:
    """to += the sum of the rows, in the dtype of `to`.

    On a GPU by a product with ones: torch's sum over the first axis takes memory of up to twice the rows there. It is exact in
    half types, whose products with 1 are; a product with a vector does not use TF32.
    """
    if not to.is_cuda:
        to += rows.sum(0, dtype=to.dtype)
        return
    ones = rows.new_ones(rows.shape[0])
    if rows.dtype == to.dtype:
        to.addmv_(rows.t(), ones)
    else:
        _add_product(to[None], ones[None], rows)


for _key in ("CPU", "CUDA"):
    _library.impl("ctc_head_loss", _loss, _key)
    _library.impl("ctc_head_gradient", _gradient, _key)


@torch.library.register_fake("warpalign::ctc_head_loss")  # type: ignore[untyped-decorator]
def _(
    encoder: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    label_prior: Tensor | None,
    needs_grad: bool,
    *,
    star: int = -1,
    **settings: object,
) -> tuple[Tensor, ...]:
    check_devices(
        "encoder",
        encoder=encoder,
        weight=weight,
        bias=bias,
        targets=targets,
        encoder_lengths=encoder_lengths,
        target_lengths=target_lengths,
        label_prior=label_prior,
    )
    (batch, frames, _), labels = encoder.shape, targets.shape[1]
    real = ops.real_of(encoder.dtype)
    sums = encoder.new_empty((batch, frames), dtype=torch.float64)
    return (
        encoder.new_empty(batch, dtype=real),
        encoder.new_empty((batch, frames, labels) if needs_grad else 0, dtype=real),
        encoder.new_empty((batch, labels), dtype=torch.int32),
        encoder.new_empty((batch, labels), dtype=torch.int32),
        sums,
        torch.empty_like(sums) if star >= 0 else sums.new_empty(0),
    )


@torch.library.register_fake("warpalign::ctc_head_gradient")  # type: ignore[untyped-decorator]
def _(
    encoder: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Tensor | None,
    target_lengths: Tensor | None,
    loss: Tensor,
    posteriors: Tensor,
    first_labels: Tensor,
    next_labels: Tensor,
    log_sums: Tensor,
    log_sums_of_others: Tensor,
    grad_loss: Tensor,
    needs_encoder: bool,
    needs_weight: bool,
    needs_bias: bool,
    **settings: object,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        empty_unless(needs_encoder, encoder, *encoder.shape),
        empty_unless(needs_weight, weight, *weight.shape),
        empty_unless(needs_bias, weight, weight.shape[0]),
    )


loss = torch.ops.warpalign.ctc_head_loss.default
gradient = torch.ops.warpalign.ctc_head_gradient.default
