"""The transducer loss of an additive joint network: the logits of a node are encoder[t] + predictor[u].

Logits (B, T, U+1, V) are never in memory: their normaliser is one product of shares, softmax(e[t]) and softmax(g[u]).

    log sum_k exp(e[t,k] + g[u,k]) = Z e[t] + Z g[u] + log sum_k softmax(e[t])[k] softmax(g[u])[k],    Z x = log sum_k exp x[k]

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.losses import Tensors, check_in_place, write_in_place
from warpalign._core.transforms import Dim, apply, needs_gradient, no_derivative, of_each, traceable
from warpalign._transducer import ops
from warpalign._transducer.settings import Settings, as_keywords
from warpalign._transducer.shares import (
    cut,
    factor_of,
    factor_type,
    joined,
    parts_of,
    product,
    real_type,
    shares_of,
    states_factor,
)


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
    emissions = logits.new_full((batch, rows, count + 1), torch.nan, dtype=real_type(logits))
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
    for part in parts_of(encoder, of_states.element_size()):
        shares = shares_of(encoder[part], cut(lengths, part), of_states.dtype)
        sums.append(product(factor_of(shares, of_states.dtype), of_states[part].mT))
    found = joined(sums)[..., :states]
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
    """-by_label (B, T, U), where a label that comes twice has its sum once: no order of additions is open."""
    count = by_label.shape[2]  # torch.compile takes the sizes of `labels` as numbers here
    if count == 0:
        return by_label
    same = labels[:, :, None] == labels[:, None, :]
    place = torch.arange(count, device=labels.device)
    is_first = same.to(torch.uint8).argmax(2, keepdim=True) == place
    return by_label @ is_first.to(by_label).neg_()


class _Flows(NamedTuple):
    """What the gradients by both logits need of the posteriors of arcs, which have the other sign but in `by_label`."""

    by_sum: Tensor
    """(B, T, U+1) posteriors of nodes, divided by the sums of the products of both shares: a factor."""
    by_label: Tensor
    """(B, T, U) posteriors, of the first of equal labels."""
    by_blank: Tensor
    """(B, T, K) sums over states."""
    by_state: Tensor
    """(B, U+1, K) sums over frames."""


def _flows(by_arc: Tensor, sums: Tensor, labels: Tensor, kind: torch.dtype, fastemit_lambda: float) -> _Flows:
    if fastemit_lambda:
        by_arc = by_arc.clone()
        by_arc[..., -1] *= 1 + fastemit_lambda
    of_nodes = by_arc[..., 0] + by_arc[..., 1]
    for k in range(2, by_arc.shape[3]):
        of_nodes += by_arc[..., k]
    by_sum = factor_of(of_nodes.div_(sums), kind)
    return _Flows(by_sum, _of_first_labels(by_arc[:, :, :-1, -1], labels), by_arc.sum(2), by_arc.sum(1))


class _SimpleGradient(torch.autograd.Function):
    """Gradients by both logits."""

    @staticmethod
    def forward(
        grad: Tensor,
        by_sum: Tensor,
        by_label: Tensor,
        by_blank: Tensor,
        by_state: Tensor,
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        counts: Tensor | None,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        flows = _Flows(by_sum, by_label, by_blank, by_state)
        to = torch.empty_like(encoder), torch.empty_like(predictor)
        _write_gradients(grad, flows, (encoder, predictor), targets, lengths, counts, settings, to)
        return to

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
    """(loss (B,), by_arc (B, T, U+1, K), and _Flows, which are empty unless they are needed).

    by_arc: posteriors of the arcs with the other sign. Neither they nor the sums of the products of both shares live until
    the backward pass.
    """

    named = "the transducer losses"

    @staticmethod
    def forward(
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        lengths: Tensor | None,
        counts: Tensor | None,
        needs_grad: bool,
        in_place: bool,
        settings: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        labels, of_loss = _labels(targets, encoder.shape[2]), SimpleSettings(*settings)
        with torch.autocast(encoder.device.type, enabled=False):
            states, kind = None if counts is None else counts + 1, factor_type(encoder, predictor)
            # The sums come first: torch.compile takes sizes as numbers where a batch has parts.
            of_states = states_factor(shares_of(predictor, states, kind), kind)
            sums = _sums(encoder, of_states, lengths, predictor.shape[1])
            del of_states
            blank = of_loss.blanks[0]
            alone = _rows(predictor, targets[:, :0], states, None, blank).log_sums.to(real_type(predictor))
            of_frames = _rows(encoder, targets, lengths, counts, blank)
            by_arc = _arc_weights(encoder, predictor, labels, sums.log(), of_frames, alone, of_loss)
            del of_frames
            loss = _lattice(by_arc, lengths, counts, of_loss)
            if not needs_grad:
                return loss, by_arc, *(loss.new_empty(0) for _ in _Flows._fields)
            return loss, by_arc, *_flows(by_arc, sums, labels, kind, of_loss.fastemit_lambda)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, by_arc, *flows = output
        ctx.mark_non_differentiable(by_arc, *flows)
        ctx.set_materialize_grads(False)
        *tensors, _, ctx.in_place, ctx.settings = inputs
        ctx.save_for_backward(*flows, *tensors)
        ctx.is_used = False

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        none = (None,) * 6
        if grad is None:
            return None, None, *none
        check_in_place(ctx)
        if not (ctx.in_place and all(ctx.needs_input_grad[:2])):
            return *apply(_SimpleGradient, grad, *ctx.saved_tensors, ctx.settings), *none
        by_sum, by_label, by_blank, by_state, *inputs = ctx.saved_tensors
        flows = _Flows(by_sum, by_label, by_blank, by_state)

        def write(given: Tensors) -> None:
            encoder, predictor, targets, lengths, counts = given
            assert encoder is not None and predictor is not None and targets is not None
            both = encoder, predictor
            _write_gradients(grad, flows, both, targets, lengths, counts, ctx.settings, both)

        return *write_in_place(ctx, write, tuple(inputs), 2), *none

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Dim, ...], *arguments: Any) -> Any:
        *inputs, needs_grad, in_place, settings = arguments
        needs_grad = needs_grad or any(t.requires_grad for t in inputs[:2])
        return of_each(_SimpleLoss, info.batch_size, in_dims, (*inputs, needs_grad, in_place, settings))


def _write_product(to: Tensor, a: Tensor, b: Tensor) -> None:
    """to = a * b, rounded once."""
    if torch.compiler.is_compiling():  # which does not write to a part of a tensor
        to.copy_(a * b)
    else:
        torch.mul(a, b, out=to)


def _write_gradients(
    grad: Tensor,
    flows: _Flows,
    logits: tuple[Tensor, Tensor],
    targets: Tensor,
    lengths: Tensor | None,
    counts: Tensor | None,
    settings: tuple[Any, ...],
    to: tuple[Tensor, Tensor],
) -> None:
    """With respect to both logits, which `to` may be. Through the normaliser they are products of shares, too.

    With by_sum b, the shares p of a frame and q of a state, s the scale of the predictor alone, and a the posteriors of the
    arcs that a column names, they are

        (s - 1) (p[t] sum_u b[t,u] q[u] + a),   q[u] ((s - 1) sum_t b[t,u] p[t] + s sum of u's arcs) - a
    """
    (encoder, predictor), of_loss = logits, SimpleSettings(*settings)
    columns, states, scale = encoder.shape[2], predictor.shape[1], of_loss.predictor_only_scale
    labels, kind = _labels(targets, columns), factor_type(encoder, predictor)
    upstream = grad[:, None, None].to(flows.by_blank)
    with torch.autocast(encoder.device.type, enabled=False):
        for part in parts_of(encoder, flows.by_blank.element_size()):
            of_frames = factor_of(shares_of(encoder[part], cut(lengths, part), kind), kind)
            shares = shares_of(predictor[part], None if counts is None else counts[part] + 1, kind)
            by_sum, of_states = flows.by_sum[part], states_factor(shares, kind)
            one = product(by_sum, of_states)[..., :columns].mul_(of_frames[..., :columns])
            _add_columns(one, flows.by_blank[part], of_loss.blanks, -1)
            one.scatter_add_(2, labels[part, None].expand(-1, one.shape[1], -1), flows.by_label[part])
            _write_product(to[0][part], one, upstream[part] * (scale - 1))
            del one
            by_state = flows.by_state[part]
            of_part = product(by_sum.mT, of_frames)[:, :states, :columns]
            of_part.mul_(scale - 1).sub_(by_state.sum(2)[..., None], alpha=scale).mul_(shares)
            del of_frames, shares
            _add_columns(of_part, by_state, of_loss.blanks, 1)
            of_part[:, :-1].scatter_add_(2, labels[part, :, None], by_state[:, :-1, -1:])
            _write_product(to[1][part], of_part, upstream[part])


def simple_losses(
    encoder: Tensor,
    predictor: Tensor,
    targets: Tensor,
    lengths: Tensor | None,
    counts: Tensor | None,
    in_place: bool,
    settings: SimpleSettings,
) -> tuple[Tensor, Tensor]:
    """(B,) losses, differentiable by encoder (B, T, V) and predictor (B, U+1, V), and posteriors without a derivative.

    Posteriors are those of all arcs with the other sign, (B, T, U+1, K): of the blanks, and last of the label. in_place:
    gradients take the memory of the logits, where both need one.
    """
    if torch.compiler.is_compiling():
        encoder, predictor = traceable(encoder), traceable(predictor)
    needs = needs_gradient(encoder, predictor)
    result: tuple[Tensor, ...] = apply(
        _SimpleLoss, encoder, predictor, targets, lengths, counts, needs, in_place, tuple(settings)
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
