"""The transducer loss of an additive joint network: the logits of a node are encoder[t] + predictor[u].

Logits (B, T, U+1, V) are never in memory: their normaliser is one product of exponentials.

    log sum_k exp(e[t,k] + g[u,k]) = max e[t] + max g[u] + log sum_k exp(e[t,k] - max e[t]) exp(g[u,k] - max g[u])

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import apply
from warpalign._transducer import ops
from warpalign._transducer.arc_lattice import final
from warpalign._transducer.settings import Settings, as_keywords

_PART_BYTES = 32 * 2**20


class SimpleSettings(NamedTuple):
    blanks: tuple[int, ...]
    """Columns of the blank and the big blanks."""
    durations: tuple[int, ...]
    """Frames of the big blanks."""
    predictor_only_scale: float
    sigma: float
    fastemit_lambda: float
    delay_penalty: float
    zero_infinity: bool


def _real(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _powers(logits: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """exp(logits - max), 0 in padding, and max (B, rows, 1), for logits (B, rows, V)."""
    most = _real(logits.amax(2, keepdim=True))
    most = torch.where(most == -torch.inf, 0.0, most)
    powers = torch.sub(logits, most).exp_()  # half types become float32 in the subtraction
    if lengths is not None:
        row = torch.arange(logits.shape[1], device=logits.device)
        powers.masked_fill_((row >= lengths[:, None])[..., None], 0.0)
    return powers, most


def _parts(logits: Tensor) -> list[slice]:
    """Utterances whose powers of logits (B, T, V) are in memory at the same time."""
    batch, frames, columns = logits.shape
    each = max(frames * columns * (8 if logits.dtype == torch.float64 else 4), 1)
    size = max(_PART_BYTES // each, 1)
    return [slice(first, first + size) for first in range(0, batch, size)] or [slice(0, 0)]


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _cut(tensors: Sequence[Tensor | None], part: slice) -> list[Any]:
    return [None if tensor is None else tensor[part] for tensor in tensors]


def _sums(encoder: Tensor, of_predictor: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """sum_k of both powers (B, T, U+1), and the encoder's maxima (B, T, 1)."""
    sums, maxima = [], []
    for part in _parts(encoder):
        powers, most = _powers(*_cut((encoder, lengths), part))
        sums.append(torch.matmul(powers, of_predictor[part].mT).add_(torch.finfo(powers.dtype).tiny))
        maxima.append(most)
    return _joined(sums), _joined(maxima)


def _labels(targets: Tensor, columns: int) -> Tensor:
    """(B, U), int64, within the columns: labels in padding may be any number."""
    return targets.long().clamp(0, columns - 1)


def _arc_weights(
    encoder: Tensor,
    predictor: Tensor,
    labels: Tensor,
    normalizer: Tensor,
    alone: Tensor,
    settings: SimpleSettings,
) -> Tensor:
    """(B, T, U+1, K) log-probabilities of the blanks, and last of the label.

    normalizer: (B, T, U+1), of the sum of both logits. alone: (B, U+1), of the predictor's.
    """
    batch, frames, _ = encoder.shape
    states, kinds = predictor.shape[1], len(settings.blanks) + 1
    scale = settings.predictor_only_scale

    def weight(of_encoder: Tensor, of_predictor: Tensor, count: int) -> Tensor:
        """of_encoder: (B, T, 1 or count); of_predictor: (B, count)."""
        of_predictor = _real(of_predictor)
        both = _real(of_encoder) + of_predictor[:, None] - normalizer[..., :count]
        if not scale:
            return both
        return torch.lerp(both, (of_predictor - alone[:, :count])[:, None].expand_as(both), scale)

    weights = normalizer.new_full((batch, frames, states, kinds), -torch.inf)
    for kind, column in enumerate(settings.blanks):
        weights[..., kind] = weight(encoder[..., column, None], predictor[..., column], states)
    of_encoder = encoder.gather(2, labels[:, None].expand(-1, frames, -1))
    of_predictor = predictor[:, :-1].gather(2, labels[..., None]).squeeze(2)
    weights[:, :, :-1, -1] = weight(of_encoder, of_predictor, states - 1)
    return weights


def _lattice(
    weights: Tensor, lengths: Tensor | None, counts: Tensor | None, settings: SimpleSettings
) -> Tensor:
    """(B,) losses. Overwrites the weights with the losses' gradients by them: posteriors with the other sign."""
    kinds = weights.shape[3]
    targets = torch.full(
        (weights.shape[0], weights.shape[2] - 1), kinds - 1, dtype=torch.int32, device=weights.device
    )
    inputs = (weights, None, targets, lengths, counts, None)
    of_operator = Settings(
        durations=settings.durations,
        big_blank_columns=tuple(range(1, kinds - 1)),
        sigma=settings.sigma,
        delay_penalty=settings.delay_penalty,
        zero_infinity=settings.zero_infinity,
        from_log_probs=True,
    )
    keywords = as_keywords(tuple(of_operator))
    loss, saved = ops.loss(*inputs, True, **keywords)
    ops.gradient_in_place(*inputs, saved, loss.new_ones(()).expand(loss.shape[0]), **keywords)
    result: Tensor = loss
    return result


def _add_columns(to: Tensor, by_arc: Tensor, blanks: tuple[int, ...], scale: float) -> None:
    """to (B, rows, V)[blank] += scale by_arc (B, rows, K) for each blank."""
    for kind, column in enumerate(blanks):
        to[..., column] += scale * by_arc[..., kind]


def _add_labels(to: Tensor, by_label: Tensor, labels: Tensor) -> None:
    """to (B, T, V)[labels] += by_label (B, T, U). A label that comes twice adds its sum once: no order of additions is open."""
    same = labels[:, :, None] == labels[:, None, :]
    is_first = same.to(torch.uint8).argmax(2, keepdim=True) == torch.arange(labels.shape[1], device=to.device)
    sums = by_label @ is_first.to(by_label)
    to.scatter_add_(2, labels[:, None].expand(-1, to.shape[1], -1), sums)


class _SimpleLoss(torch.autograd.Function):
    """(loss (B,), by_arc (B, T, U+1, K)): posteriors of the arcs with the other sign."""

    @staticmethod
    def forward(
        ctx: Any,
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        counts: Tensor | None,
        settings: SimpleSettings,
    ) -> tuple[Tensor, Tensor]:
        labels = _labels(targets, encoder.shape[2])
        with torch.autocast(encoder.device.type, enabled=False):
            of_predictor, predictor_most = _powers(predictor, None if counts is None else counts + 1)
            sums, encoder_most = _sums(encoder, of_predictor, lengths)
            normalizer = sums.log() + encoder_most + predictor_most.mT
            alone = of_predictor.sum(2).log() + predictor_most.squeeze(2)
            del of_predictor
            by_arc = _arc_weights(encoder, predictor, labels, normalizer, alone, settings)
            loss = _lattice(by_arc, lengths, counts, settings)
        ctx.save_for_backward(encoder, predictor, labels, lengths, counts, sums, by_arc)
        ctx.settings = settings
        ctx.mark_non_differentiable(by_arc)
        ctx.set_materialize_grads(False)
        return loss, by_arc

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        none = (None,) * 4
        if grad is None:
            return None, None, *none
        with torch.no_grad():
            parts = [
                _gradients(grad[part], _cut(ctx.saved_tensors, part), ctx.settings)
                for part in _parts(ctx.saved_tensors[0])
            ]
            grads = tuple(_joined(list(of_parts)) for of_parts in zip(*parts, strict=True))
        return *final(grads, grad, *ctx.saved_tensors[:2]), *none


def _gradients(grad: Tensor, saved: list[Any], settings: SimpleSettings) -> tuple[Tensor, Tensor]:
    """With respect to both logits. Through the normaliser they are products of exponentials, too."""
    encoder, predictor, labels, lengths, counts, sums, by_arc = saved
    scale = settings.predictor_only_scale
    by_arc = by_arc * grad[:, None, None, None]
    by_arc[..., -1] *= 1 + settings.fastemit_lambda
    by_node = by_arc.sum(3)
    of_encoder, _ = _powers(encoder, lengths)
    of_predictor, _ = _powers(predictor, None if counts is None else counts + 1)
    by_sum = by_node * (scale - 1) / sums
    by_predictor = (by_sum.mT @ of_encoder).mul_(of_predictor)
    if scale:
        share = by_node.sum(1)[..., None] * scale / of_predictor.sum(2, keepdim=True).clamp(min=1)
        by_predictor.addcmul_(share, of_predictor, value=-1)
    of_states = by_arc.sum(1)
    _add_columns(by_predictor, of_states, settings.blanks, 1)
    by_predictor[:, :-1].scatter_add_(2, labels[..., None], of_states[:, :-1, -1:])
    by_encoder = of_encoder.mul_(by_sum @ of_predictor)
    _add_columns(by_encoder, by_arc.sum(2), settings.blanks, 1 - scale)
    _add_labels(by_encoder, by_arc[:, :, :-1, -1] * (1 - scale), labels)
    return by_encoder.to(encoder.dtype), by_predictor.to(predictor.dtype)


def simple_losses(
    encoder: Tensor,
    predictor: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    counts: Tensor | None,
    settings: SimpleSettings,
) -> tuple[Tensor, Tensor, Tensor]:
    """(B,) losses, differentiable by encoder (B, T, V) and predictor (B, U+1, V), and posteriors without a derivative.

    Posteriors: of the blanks that pass each frame in each state, (B, T, U+1), and of the labels, (B, T, U).
    """
    result: tuple[Tensor, Tensor] = apply(_SimpleLoss, encoder, predictor, targets, lengths, counts, settings)
    loss, by_arc = result
    of_blanks = -by_arc[..., 0]
    for kind, frames in enumerate(settings.durations, 1):
        # A big blank passes its first frame and those after it.
        begun = by_arc[..., kind].cumsum(1)
        of_blanks.sub_(begun)
        of_blanks[:, frames:].add_(begun[:, :-frames])
    return loss, of_blanks, -by_arc[:, :, :-1, -1]
