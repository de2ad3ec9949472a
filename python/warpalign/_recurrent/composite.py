"""The LSTM in torch's own operations, differentiable any number of times: what second derivatives are made of.

warpalign/recurrent.h has the equations. Nothing is read back from a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import hardtanh, layer_norm, linear

from warpalign._core.transforms import no_derivative
from warpalign._recurrent.checks import HALF
from warpalign._recurrent.settings import LSTMWeights

_DRAWN = ("dropout", "weight_dropout", "zoneout_hidden", "zoneout_cell")
_NAMES = {"weight_dropout": "rw_dropout", "zoneout_hidden": "zoneout", "zoneout_cell": "zoneout"}


class Others(NamedTuple):
    """What has no derivative."""

    lengths: Tensor | None
    row_starts: Tensor | None
    resets: Tensor | None


class _Rows(NamedTuple):
    """Where the rows of (T, B) are: which of them count, and their places in a packed sequence."""

    valid: Tensor | None
    """(T, B)."""
    places: Tensor | None
    """(T, B), of packed rows."""
    steps: Tensor | None
    """(N,): the step of each packed row, and its number in the batch."""
    batch: Tensor | None

    def padded(self, packed: Tensor) -> Tensor:
        return packed if self.places is None else packed[self.places]

    def as_given(self, padded: Tensor) -> Tensor:
        """(T, B, K) with 0 where nothing counts, or packed (N, K)."""
        if self.steps is not None:
            return padded[self.steps, self.batch]
        return padded if self.valid is None else padded.where(self.valid.unsqueeze(-1), 0)


def _rows_of(x: Tensor, others: Others, batch: int) -> _Rows:
    if others.row_starts is not None:
        starts = others.row_starts.long()
        column = torch.arange(batch, device=x.device)
        valid = column < starts.diff().unsqueeze(1)
        places = (starts[:-1, None] + column).clamp(max=len(x) - 1)
        row = torch.arange(len(x), device=x.device)
        steps = torch.searchsorted(starts[1:].contiguous(), row, right=True)
        return _Rows(valid, places, steps, row - starts[steps])
    if others.lengths is None:
        return _Rows(None, None, None, None)
    return _Rows(torch.arange(len(x), device=x.device).unsqueeze(1) < others.lengths, None, None, None)


class _Cell(NamedTuple):
    """A layer and direction."""

    weights: LSTMWeights
    settings: dict[str, Any]

    def squashed(self, z: Tensor) -> Tensor:
        return hardtanh(z) if self.settings["activation"] else z.tanh()

    def gate(self, z: Tensor) -> Tensor:
        if not self.settings["activation"]:
            return z.sigmoid()
        return hardtanh(self.settings["hard_slope"] * z + self.settings["hard_offset"], 0.0, 1.0)

    def normed(self, v: Tensor, gamma: Tensor | None, beta: Tensor | None = None) -> Tensor:
        return (
            v if gamma is None else layer_norm(v, v.shape[-1:], gamma, beta, self.settings["layer_norm_eps"])
        )

    def step(self, of_x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        w = self.weights
        i, f, g, o = (of_x + self.normed(linear(h, w.hh), w.ln_hh)).chunk(4, -1)
        new_c = self.gate(f) * c + self.gate(i) * self.squashed(g)
        new_h = self.gate(o) * self.squashed(self.normed(new_c, w.ln_cell, w.ln_cell_bias))
        new_h = new_h if w.hr is None else linear(new_h, w.hr)
        keep_h, keep_c = self.settings["zoneout_hidden"], self.settings["zoneout_cell"]
        if keep_h:
            new_h = keep_h * h + (1 - keep_h) * new_h
        return new_h, keep_c * c + (1 - keep_c) * new_c if keep_c else new_c

    def run(
        self, x: Tensor, h0: Tensor, c0: Tensor, rows: _Rows, resets: Tensor | None, is_reverse: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x (T, B, I) -> h and c of all steps, and the last ones."""
        w = self.weights
        of_x = self.normed(linear(x, w.ih), w.ln_ih)
        if w.bias_ih is not None and w.bias_hh is not None:
            of_x = of_x + (w.bias_ih + w.bias_hh)
        h, c, order = h0, c0, range(len(x))
        outputs: list[tuple[Tensor, Tensor]] = []
        for t in reversed(order) if is_reverse else order:
            before = h, c
            if resets is not None:
                again = resets[t].unsqueeze(1)
                h, c = h0.where(again, h), c0.where(again, c)
            h, c = self.step(of_x[t], h, c)
            if rows.valid is not None:
                counts = rows.valid[t].unsqueeze(1)
                h, c = h.where(counts, before[0]), c.where(counts, before[1])
            outputs.append((h, c))
        every = outputs[::-1] if is_reverse else outputs
        return torch.stack([h for h, _ in every]), torch.stack([c for _, c in every]), h, c


def _cells(weights: Sequence[Tensor], settings: dict[str, Any]) -> Iterator[_Cell]:
    fields = ["ih", "hh"] + ["bias_ih", "bias_hh"] * settings["bias"] + ["hr"] * settings["projection"]
    fields += ["ln_ih", "ln_hh", "ln_cell", "ln_cell_bias"] * settings["layer_norm"]
    rest = iter(weights)
    for _ in range(len(weights) // len(fields)):
        yield _Cell(LSTMWeights(**{field: next(rest) for field in fields}), settings)


def per_cell_of(settings: dict[str, Any]) -> int:
    """Weights of a layer and direction; settings at their defaults may be missing."""
    has_norm = settings.get("layer_norm", False)
    return int(2 + 2 * settings.get("bias", True) + settings.get("projection", False) + 4 * has_norm)


def check_no_masks(settings: dict[str, Any]) -> None:
    """Masks are drawn within the operator, and are not to be had here."""
    drawn = [name for name in _DRAWN if settings["training"] and settings[name] > 0]
    if drawn:
        raise no_derivative(
            f"second derivatives of the LSTM with {_NAMES.get(drawn[0], drawn[0])} in training"
        )


def composite_lstm(
    x: Tensor,
    weights: Sequence[Tensor],
    h0: Tensor | None,
    c0: Tensor | None,
    others: Others,
    settings: dict[str, Any],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(y, h_n, c_n, h_all, c_all) of the operator `lstm`; half types are computed in float32, as gates and cells are there."""
    check_no_masks(settings)
    dtype, is_half = x.dtype, x.dtype in HALF
    cell_dtype = c0.dtype if c0 is not None else torch.float32 if settings["float32_cell"] else dtype
    if is_half:
        x, h0, c0 = x.float(), None if h0 is None else h0.float(), None if c0 is None else c0.float()
        weights = [w.float() for w in weights]
    cells = list(_cells(weights, settings))
    batch = x.shape[1] if others.row_starts is None else settings["batch"]
    rows = _rows_of(x, others, batch)
    hidden, output = cells[0].weights.hh.shape[0] // 4, cells[0].weights.hh.shape[1]
    h0 = x.new_zeros(len(cells), batch, output) if h0 is None else h0
    c0 = x.new_zeros(len(cells), batch, hidden) if c0 is None else c0
    resets = None if others.resets is None else rows.padded(others.resets)
    directions = 2 if settings["bidirectional"] else 1
    below = rows.padded(x)
    if rows.valid is not None:  # nobody reads padding: not even 0 times NaN
        below = below.where(rows.valid.unsqueeze(-1), 0)
    found = []
    for first in range(0, len(cells), directions):
        layer = [
            cells[n].run(below, h0[n], c0[n], rows, resets, n != first)
            for n in range(first, first + directions)
        ]
        below = torch.cat([one[0] for one in layer], -1)
        found += layer
    h_all, c_all, h_n, c_n = (
        [rows.as_given(one[0]) for one in found],
        [rows.as_given(one[1]) for one in found],
        [one[2] for one in found],
        [one[3] for one in found],
    )
    y = torch.cat(h_all[-directions:], -1)
    hidden_states = (torch.stack(states).to(dtype) for states in (h_n, h_all))
    cell_states = (torch.stack(states).to(cell_dtype) for states in (c_n, c_all))
    (last_h, every_h), (last_c, every_c) = hidden_states, cell_states
    return y.to(dtype), last_h, last_c, every_h, every_c


class Derivable(NamedTuple):
    """What the operator `lstm_backward` is differentiated by, or the derivatives."""

    x: Tensor | None
    h0: Tensor | None
    c0: Tensor | None
    weights: list[Tensor | None]
    incoming: list[Tensor | None]
    """The gradients of y, h_n, c_n, h_all, c_all."""


def second_derivatives(
    given: Derivable, gradients: Sequence[Tensor | None], others: Others, settings: dict[str, Any]
) -> Derivable:
    """The derivatives of the sum of `gradients` times what `lstm_backward` returns: by x, h0, c0 and the weights but bias_hh."""
    creates_graph = torch.is_grad_enabled()

    def source(t: Tensor | None) -> Tensor | None:
        # A view is a tensor of its own to differentiate by, and hands a third derivative on.
        if t is None or (creates_graph and t.requires_grad):
            return t if t is None else t.view_as(t)
        return t.detach().requires_grad_()

    with torch.enable_grad():
        x, h0, c0, weights, incoming = Derivable(
            source(given.x),
            source(given.h0),
            source(given.c0),
            list(map(source, given.weights)),
            list(map(source, given.incoming)),
        )
        outputs = composite_lstm(x, weights, h0, c0, others, settings)  # type: ignore[arg-type]
        into = [(output, by) for output, by in zip(outputs, incoming, strict=True) if by is not None]
        per_cell = per_cell_of(settings)
        one_bias = [w for n, w in enumerate(weights) if not (settings["bias"] and n % per_cell == 3)]
        wanted = [
            (by, gradient)
            for by, gradient in zip((x, h0, c0, *one_bias), gradients, strict=True)
            if by is not None and gradient is not None
        ]
        nothing = Derivable(None, None, None, [None] * len(weights), [None] * len(incoming))
        if not wanted or not into:
            return nothing
        first = torch.autograd.grad(
            [output for output, _ in into],
            [by for by, _ in wanted],
            [by for _, by in into],
            create_graph=True,
            allow_unused=True,
        )
    pairs = [(f, g) for f, (_, g) in zip(first, wanted, strict=True) if f is not None and f.requires_grad]
    if not pairs:
        return nothing
    flat = [x, h0, c0, *weights, *incoming]
    by_all = [t for t in flat if t is not None]
    found = iter(
        torch.autograd.grad(
            [f for f, _ in pairs],
            by_all,
            [g for _, g in pairs],
            create_graph=creates_graph,
            allow_unused=True,
        )
    )
    second = [None if t is None else next(found) for t in flat]
    return Derivable(
        second[0], second[1], second[2], second[3 : 3 + len(weights)], second[3 + len(weights) :]
    )
