"""The transducer loss of an additive joint network: the logits of a node are encoder[t] + predictor[u].

Logits (B, T, U+1, V) are never in memory: their normaliser is one product of shares, softmax(e[t]) and softmax(g[u]).

    log sum_k exp(e[t,k] + g[u,k]) = Z e[t] + Z g[u] + log sum_k softmax(e[t])[k] softmax(g[u])[k],    Z x = log sum_k exp x[k]

On a GPU the shares of bfloat16 logits are rounded to bfloat16, which has the range of float32, and products of them are
summed in float32.

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.transforms import Dim, apply, no_derivative, of_each, traceable
from warpalign._transducer import ops
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


def _real_type(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _shares(logits: Tensor, lengths: Tensor | None, dtype: torch.dtype) -> Tensor:
    """softmax(logits) (B, rows, V), 0 in padding."""
    shares = logits.softmax(2, dtype=dtype)
    if lengths is not None:
        row = torch.arange(logits.shape[1], device=logits.device)
        shares.masked_fill_((row >= lengths[:, None])[..., None], 0.0)
    return shares


def _factor_type(encoder: Tensor, predictor: Tensor) -> torch.dtype:
    """Of the shares that are multiplied."""
    if encoder.is_cuda and encoder.dtype == predictor.dtype == torch.bfloat16:
        return torch.bfloat16
    return torch.promote_types(_real_type(encoder), _real_type(predictor))


def _factor(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, rows, columns) as a factor. bfloat16 has columns of 0 up to a multiple of 8, as matrix units read them."""
    more = -tensor.shape[2] % 8 if dtype == torch.bfloat16 else 0
    factor = tensor.to(dtype)
    return torch.nn.functional.pad(factor, (0, more)) if more else factor


def _states_factor(shares: Tensor, dtype: torch.dtype) -> Tensor:
    """The predictor's shares (B, U+1, V) as a factor; bfloat16 has as many rows as a factor of U + 1 columns has columns."""
    factor = _factor(shares, dtype)
    more = -shares.shape[1] % 8 if dtype == torch.bfloat16 else 0
    return torch.nn.functional.pad(factor, (0, 0, 0, more)) if more else factor


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, of factors of one type; of bfloat16 in float32."""
    if a.dtype == torch.bfloat16:
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a, b)


def _parts(logits: Tensor, element_size: int) -> list[slice]:
    """Utterances of which so many bytes for each of the logits (B, T, V) are in memory at the same time."""
    batch, frames, columns = logits.shape
    size = max(_PART_BYTES // max(frames * columns * element_size, 1), 1)
    return [slice(first, first + size) for first in range(0, batch, size)] or [slice(0, 0)]


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _cut(tensor: Tensor | None, part: slice) -> Tensor | None:
    return None if tensor is None else tensor[part]


class _Rows(NamedTuple):
    """Log-probabilities of the rows of logits (B, rows, V) alone."""

    log_sums: Tensor
    """log sum_k exp(logits) (B, rows), float64."""
    blank: Tensor
    """(B, rows, 1)."""
    labels: Tensor
    """(B, rows, U)."""


def _rows(
    logits: Tensor, targets: Tensor, lengths: Tensor | None, counts: Tensor | None, blank: int
) -> _Rows:
    """In one read of the logits: they are CTC's emissions. Padding is arbitrary; invalid labels have NaN, on a CPU an error."""
    batch, rows, columns = logits.shape
    count = targets.shape[1]
    emissions = logits.new_full((batch, rows, count + 1), torch.nan, dtype=_real_type(logits))
    log_sums = logits.new_empty((batch, rows), dtype=torch.float64)
    of_others, first = log_sums.new_empty(0), 0
    ops.emissions(
        logits.reshape(-1, columns).contiguous(),
        first,
        targets,
        lengths,
        counts,
        None,
        log_sums,
        of_others,
        emissions,
        blank=blank,
    )
    return _Rows(log_sums, emissions[..., count:], emissions[..., :count])


def _sums(encoder: Tensor, of_states: Tensor, lengths: Tensor | None, states: int) -> Tensor:
    """sum_k of both shares (B, T, U+1). of_states: a factor."""
    sums = []
    for part in _parts(encoder, of_states.element_size()):
        shares = _shares(encoder[part], _cut(lengths, part), of_states.dtype)
        sums.append(_product(_factor(shares, of_states.dtype), of_states[part].mT))
    found = _joined(sums)[..., :states]
    return found + torch.finfo(found.dtype).tiny


def _labels(targets: Tensor, columns: int) -> Tensor:
    """(B, U), int64, within the columns: labels in padding may be any number."""
    return targets.long().clamp(0, columns - 1)


def _arc_weights(
    encoder: Tensor,
    predictor: Tensor,
    labels: Tensor,
    log_sums: Tensor,
    of_frames: _Rows,
    alone: Tensor,
    settings: SimpleSettings,
) -> Tensor:
    """(B, T, U+1, K) log-probabilities of the blanks, and last of the label.

    With rows' log-probabilities e and g they are (1 - s) (e + g - log_sums) + s g, s the scale of the predictor alone.

    log_sums: (B, T, U+1), of the products of both shares. alone: (B, U+1), the log-sums of the predictor's logits.
    """
    batch, frames, states = log_sums.shape
    kinds = len(settings.blanks) + 1
    weights = log_sums.new_empty((batch, frames, states, kinds))
    weights[:, :, -1, -1] = -torch.inf

    def write(kind: int, of_encoder: Tensor, of_predictor: Tensor) -> None:
        """of_encoder: (B, T, 1 or count), a log-probability; of_predictor: (B, count), a logit."""
        count = of_predictor.shape[1]
        of_both = of_encoder - log_sums[..., :count]
        of_states = (of_predictor - alone[:, :count])[:, None]
        scale, to = 1 - settings.predictor_only_scale, weights[:, :, :count, kind]
        if torch.compiler.is_compiling():  # which does not write to a part of a tensor
            to.copy_(torch.add(of_states, of_both, alpha=scale))
        else:
            torch.add(of_states, of_both, alpha=scale, out=to)

    write(0, of_frames.blank, predictor[..., settings.blanks[0]])
    for kind, column in enumerate(settings.blanks[1:], 1):
        of_encoder = encoder[..., column] - of_frames.log_sums.to(alone)
        write(kind, of_encoder[..., None], predictor[..., column])
    of_predictor = predictor[:, :-1].gather(2, labels[..., None]).squeeze(2)
    write(kinds - 1, of_frames.labels, of_predictor)
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
        to[..., column].add_(by_arc[..., kind], alpha=scale)


def _of_first_labels(by_label: Tensor, labels: Tensor) -> Tensor:
    """by_label (B, T, U), where a label that comes twice has its sum once: no order of additions is open."""
    same = labels[:, :, None] == labels[:, None, :]
    place = torch.arange(labels.shape[1], device=labels.device)
    is_first = same.to(torch.uint8).argmax(2, keepdim=True) == place
    return by_label @ is_first.to(by_label)


class _SimpleGradient(torch.autograd.Function):
    """Gradients by both logits."""

    @staticmethod
    def forward(
        grad: Tensor,
        sums: Tensor,
        by_arc: Tensor,
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        counts: Tensor | None,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        labels = _labels(targets, encoder.shape[2])
        saved = encoder, predictor, labels, lengths, counts, sums, by_arc
        with torch.autocast(encoder.device.type, enabled=False):
            return _gradients(grad, saved, SimpleSettings(*settings))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of the transducer losses")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        return of_each(_SimpleGradient, info.batch_size, in_dims, arguments)


class _SimpleLoss(torch.autograd.Function):
    """(loss (B,), by_arc (B, T, U+1, K), sums (B, T, U+1)).

    by_arc: posteriors of the arcs with the other sign. sums: of the products of both shares.
    """

    @staticmethod
    def forward(
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        counts: Tensor | None,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        labels, of_loss = _labels(targets, encoder.shape[2]), SimpleSettings(*settings)
        with torch.autocast(encoder.device.type, enabled=False):
            states, kind = None if counts is None else counts + 1, _factor_type(encoder, predictor)
            # The sums come first: torch.compile takes sizes as numbers where a batch has parts.
            of_states = _states_factor(_shares(predictor, states, kind), kind)
            sums = _sums(encoder, of_states, lengths, predictor.shape[1])
            del of_states
            blank = of_loss.blanks[0]
            alone = _rows(predictor, targets[:, :0], states, None, blank).log_sums.to(_real_type(predictor))
            of_frames = _rows(encoder, targets, lengths, counts, blank)
            by_arc = _arc_weights(encoder, predictor, labels, sums.log(), of_frames, alone, of_loss)
            del of_frames
            loss = _lattice(by_arc, lengths, counts, of_loss)
        return loss, by_arc, sums

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, by_arc, sums = output
        ctx.mark_non_differentiable(by_arc, sums)
        ctx.set_materialize_grads(False)
        *tensors, ctx.settings = inputs
        ctx.save_for_backward(sums, by_arc, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        none = (None,) * 4
        if grad is None:
            return None, None, *none
        return *apply(_SimpleGradient, grad, *ctx.saved_tensors, ctx.settings), *none

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        return of_each(_SimpleLoss, info.batch_size, in_dims, arguments)


def _gradients(grad: Tensor, saved: Sequence[Any], settings: SimpleSettings) -> tuple[Tensor, Tensor]:
    """With respect to both logits. Through the normaliser they are products of shares, too."""
    encoder, predictor, labels, lengths, counts, sums, by_arc = saved
    columns, states, scale = encoder.shape[2], predictor.shape[1], settings.predictor_only_scale
    upstream, kind = grad[:, None, None], _factor_type(encoder, predictor)
    if settings.fastemit_lambda:
        by_arc = by_arc.clone()
        by_arc[..., -1] *= 1 + settings.fastemit_lambda
    by_blank, by_state = by_arc.sum(2).mul_(upstream), by_arc.sum(1).mul_(upstream)
    by_label = _of_first_labels(by_arc[:, :, :-1, -1] * (upstream * (1 - scale)), labels)
    by_sum = _factor(by_arc.sum(3).div_(sums).mul_(upstream * (scale - 1)), kind)
    shares = _shares(predictor, None if counts is None else counts + 1, kind)
    of_states = _states_factor(shares, kind)
    by_encoder, of_parts = torch.empty_like(encoder), []
    for part in _parts(encoder, sums.element_size()):
        of_frames = _factor(_shares(encoder[part], _cut(lengths, part), kind), kind)
        of_parts.append(_product(by_sum[part].mT, of_frames))
        one = _product(by_sum[part], of_states[part])[..., :columns].mul_(of_frames[..., :columns])
        _add_columns(one, by_blank[part], settings.blanks, 1 - scale)
        one.scatter_add_(2, labels[part, None].expand(-1, one.shape[1], -1), by_label[part])
        by_encoder[part] = one
    by_predictor = _joined(of_parts)[:, :states, :columns].mul_(shares)
    del of_parts
    if scale:
        by_predictor.addcmul_(by_state.sum(2)[..., None], shares.to(by_state.dtype), value=-scale)
    _add_columns(by_predictor, by_state, settings.blanks, 1)
    by_predictor[:, :-1].scatter_add_(2, labels[..., None], by_state[:, :-1, -1:])
    return by_encoder, by_predictor.to(predictor.dtype)


def simple_losses(
    encoder: Tensor,
    predictor: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    counts: Tensor | None,
    settings: SimpleSettings,
) -> tuple[Tensor, Tensor]:
    """(B,) losses, differentiable by encoder (B, T, V) and predictor (B, U+1, V), and posteriors without a derivative.

    Posteriors are those of all arcs with the other sign, (B, T, U+1, K): of the blanks, and last of the label.
    """
    if torch.compiler.is_compiling():
        encoder, predictor = traceable(encoder), traceable(predictor)
    result: tuple[Tensor, Tensor, Tensor] = apply(
        _SimpleLoss, encoder, predictor, targets, lengths, counts, tuple(settings)
    )
    return result[0], result[1]


def passing_posteriors(by_arc: Tensor, durations: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Of the blanks that pass each frame in each state, (B, T, U+1), and of the labels, (B, T, U).

    by_arc: as simple_losses returns it. durations: those of the big blanks.
    """
    of_blanks = -by_arc[..., 0]
    for kind, frames in enumerate(durations, 1):
        # A big blank passes its first frame and those after it.
        begun = by_arc[..., kind].cumsum(1)
        of_blanks.sub_(begun)
        of_blanks[:, frames:].add_(begun[:, :-frames])
    return of_blanks, -by_arc[:, :, :-1, -1]
