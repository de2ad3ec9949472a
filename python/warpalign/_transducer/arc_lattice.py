"""Lattices of given arc weights: the recursion of fast_rnnt and k2, on the operators of the transducer losses.

p[s, t] is the log of the sum over all monotonic paths from (0, 0):

    regular:  p[s, t] = log(exp(p[s-1, t] + px[s-1, t]) + exp(p[s, t-1] + py[s, t-1]))
    modified: p[s, t] = log(exp(p[s-1, t-1] + px[s-1, t-1]) + exp(p[s, t-1] + py[s, t-1]))

A transducer's lattice has the same paths: py are its blanks, px its labels, which consume a frame in the modified form. It
has one frame more, whose only blank leads from the last node to the end and weighs nothing.

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from warpalign._core.transforms import apply, no_derivative
from warpalign._transducer import ops
from warpalign._transducer.settings import Settings, as_keywords

Begin = tuple[Tensor, Tensor]
"""(B,) first states, and (B,) first frames."""


def _shifted(table: Tensor, begin: Begin | None, shape: tuple[int, int], fill: float) -> Tensor:
    """(B, *shape): table (B, rows, columns) from row begin[0][b] and column begin[1][b] on, which may be below 0.

    Numbers that the table does not have are `fill`. begin None: (0, 0).
    """
    rows, columns = table.shape[1:]
    if begin is None:
        return torch.nn.functional.pad(table, (0, shape[1] - columns, 0, shape[0] - rows), value=fill)
    if rows * columns == 0:
        return table.new_full((table.shape[0], *shape), fill)
    states, frames = begin
    row = torch.arange(shape[0], device=table.device)[None, :, None] + states[:, None, None]
    column = torch.arange(shape[1], device=table.device)[None, None, :] + frames[:, None, None]
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    index = torch.where(inside, row * columns + column, 0).flatten(1)
    values = table.flatten(1).gather(1, index).view(table.shape[0], *shape)
    return torch.where(inside, values, fill)


class _Lattice:
    """The arcs of a batch as a transducer's logits, (B, T+1, S+1, 2): blank, label."""

    def __init__(self, px: Tensor, py: Tensor, boundary: Tensor | None) -> None:
        batch, self.labels, self.columns = px.shape
        self.frames = py.shape[2]
        self.begin: Begin | None = None
        self.last_frames: Tensor | None = None
        shape = (self.labels + 1, self.frames + 1)
        dtype = torch.float64 if px.dtype == torch.float64 else torch.float32
        self.weights = px.new_empty((batch, self.frames + 1, self.labels + 1, 2), dtype=dtype)
        lengths = counts = None
        ends = torch.full((batch, 1), shape[0] * shape[1] - 1, device=px.device)
        if boundary is not None:
            states, frames, last_states, self.last_frames = boundary.to(px.device).unbind(1)
            self.begin = states, frames
            lengths, counts = self.last_frames - frames, last_states - states
            ends = (lengths * shape[0] + counts).clamp(0, shape[0] * shape[1] - 1)[:, None]
            lengths, counts = (lengths + 1).int(), counts.int()
        for column, table in enumerate((py, px)):
            self.weights.select(3, column).mT.copy_(_shifted(table, self.begin, shape, -torch.inf))
        self.weights.view(batch, -1, 2).select(2, 0).scatter_(1, ends, 0.0)
        durations = None
        if self.columns == self.frames:  # modified
            durations = self.weights.new_zeros(()).expand(*self.weights.shape[:3], 1)
        targets = torch.ones((batch, self.labels), dtype=torch.int32, device=px.device)
        self.inputs = (self.weights, durations, targets, lengths, counts, None)
        settings = Settings(durations=() if durations is None else (1,), from_log_probs=True)
        self.settings = as_keywords(tuple(settings))

    def posteriors(self, gradients: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Of px (B, S, T or T+1) and py (B, S+1, T), from the gradients of the loss by the weights."""
        blank, label = gradients.select(3, 0).mT, gradients.select(3, 1).mT
        if self.begin is None:
            of_px, of_py = label[:, : self.labels, : self.columns], blank[:, :, : self.frames]
        else:
            assert self.last_frames is not None
            back = -self.begin[0], -self.begin[1]
            of_px = _shifted(label, back, (self.labels, self.columns), 0.0)
            of_py = _shifted(blank, back, (self.labels + 1, self.frames), 0.0)
            frame = torch.arange(self.frames, device=of_py.device)
            # The blank that leads to the end is not one of py's.
            of_py = torch.where(frame < self.last_frames[:, None, None], of_py, 0.0)
        return (-of_px).to(dtype).contiguous(), (-of_py).to(dtype).contiguous()


class _Final(torch.autograd.Function):
    """The given gradients, which cannot be differentiated by what they were made of."""

    named = "the transducer losses"

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of the transducer losses")


def final(gradients: tuple[Tensor, ...], *sources: Tensor) -> tuple[Tensor, ...]:
    """Gradients that were made of the sources without autograd, for a backward pass with create_graph=True, too."""
    if not torch.is_grad_enabled():
        return gradients
    result: tuple[Tensor, ...] = apply(_Final, len(gradients), *gradients, *sources)
    return result


class _Recursion(torch.autograd.Function):
    """(scores (B,), posteriors of px, posteriors of py); the latter two are empty unless they are needed."""

    named = "the transducer losses"

    @staticmethod
    def forward(ctx: Any, px: Tensor, py: Tensor, boundary: Tensor | None, with_posteriors: bool) -> Any:
        lattice = _Lattice(px, py, boundary)
        needs = with_posteriors or any(ctx.needs_input_grad[:2])
        loss, saved = ops.loss(*lattice.inputs, needs, **lattice.settings)
        empty = px.new_empty(0)
        of_px, of_py = empty, empty.clone()
        if needs:
            ones = loss.new_ones(()).expand(loss.shape[0])
            gradients, _ = ops.gradient(*lattice.inputs, saved, ones, **lattice.settings)
            of_px, of_py = lattice.posteriors(gradients, px.dtype)
        ctx.save_for_backward(px, py, of_px, of_py)
        ctx.mark_non_differentiable(of_px, of_py)
        ctx.set_materialize_grads(False)
        return (-loss).to(px.dtype), of_px, of_py

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> Any:
        if grad is None:
            return None, None, None, None
        px, py, *posteriors = ctx.saved_tensors
        factor = grad.detach()[:, None, None]
        grads = final(tuple(posterior * factor for posterior in posteriors), grad, px, py)
        wanted = ctx.needs_input_grad
        return *(g if want else None for g, want in zip(grads, wanted[:2], strict=True)), None, None


def recursion(
    px: Tensor, py: Tensor, boundary: Tensor | None, with_posteriors: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (B,), differentiable by px and py, and with_posteriors those of all arcs, in the shapes of px and py.

    Args:
        px: (B, S, T+1), or (B, S, T) for the modified recursion.
        py: (B, S+1, T).
        boundary: (B, 4), integers: first state, first frame, last state, last frame. None: (0, 0, S, T).
        with_posteriors: whether posteriors are returned; else they are so only where a gradient needs them.
    """
    result: tuple[Tensor, Tensor, Tensor] = apply(_Recursion, px, py, boundary, with_posteriors)
    return result
