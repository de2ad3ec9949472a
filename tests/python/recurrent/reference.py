"""The plain per-step LSTM in torch's own operations, in any dtype: what results are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import hardtanh, layer_norm

from warpalign.recurrent import LSTMWeights


def gates(z: Tensor, hard: bool) -> tuple[Tensor, ...]:
    i, f, g, o = z.chunk(4, -1)
    if hard:
        return *(hardtanh(v / 8 + 0.5, 0, 1) for v in (i, f)), hardtanh(g), hardtanh(o / 8 + 0.5, 0, 1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def normalised(v: Tensor, gamma: Tensor | None, beta: Tensor | None = None) -> Tensor:
    return v if gamma is None else layer_norm(v, v.shape[-1:], gamma, beta)


def rounded_tf32(v: Tensor) -> Tensor:
    """float32 numbers, each as the nearest one of 11 bits of mantissa."""
    return ((v.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Tf32Product(torch.autograd.Function):
    """A product of matrices whose factors are rounded to TF32, and so are those of its gradients."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return rounded_tf32(a) @ rounded_tf32(b)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        a, b = map(rounded_tf32, ctx.saved_tensors)
        gradient = rounded_tf32(gradient)
        return gradient @ b.T, a.T @ gradient


def plain_lstm(
    x: Tensor,
    weights: Sequence[LSTMWeights],
    h0: Tensor,
    c0: Tensor,
    *,
    hard: bool = False,
    directions: int = 1,
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> tuple[Tensor, Tensor, Tensor]:
    """x (T, B, I) -> y, h_n, c_n."""
    squash: Any = hardtanh if hard else torch.tanh
    finals = []
    for layer in range(len(weights) // directions):
        outputs = []
        for direction in range(directions):
            w = weights[layer * directions + direction]
            h, c = h0[layer * directions + direction], c0[layer * directions + direction]
            steps: list[Tensor] = []
            for t in range(len(x)) if direction == 0 else reversed(range(len(x))):
                z = normalised(product(x[t], w.ih.T), w.ln_ih) + normalised(product(h, w.hh.T), w.ln_hh)
                if w.bias_ih is not None and w.bias_hh is not None:
                    z = z + (w.bias_ih + w.bias_hh)
                i, f, g, o = gates(z, hard)
                c = f * c + i * g
                h = o * squash(normalised(c, w.ln_cell, w.ln_cell_bias))
                h = h if w.hr is None else product(h, w.hr.T)
                steps.append(h)
            outputs.append(torch.stack(steps if direction == 0 else steps[::-1]))
            finals.append((h, c))
        x = torch.cat(outputs, -1)
    return x, torch.stack([h for h, _ in finals]), torch.stack([c for _, c in finals])


def relative_error(value: Tensor, expected: Tensor) -> float:
    difference = value.detach().double() - expected.detach()
    return float(difference.norm() / expected.detach().norm())
