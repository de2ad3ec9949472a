"""An LSTM step by step, for inference on what arrives in pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._recurrent import ops
from warpalign._recurrent.checks import HALF, check_weights
from warpalign._recurrent.modules import LSTM, weights_of
from warpalign._recurrent.planned import call_without_gradients


class LSTMStream:
    """The state of :class:`LSTM` between calls: :meth:`step` takes the next input of every row.

    A stream's outputs equal those of one call on the whole sequence: for float32 and float64 on the CPU bit for bit, and
    for half types too, as c stays in float32. The weights are packed once: they are those of the stream's creation. Nothing
    is differentiable, and the module must be in evaluation mode.

    Args:
        module: an :class:`LSTM` with one direction.
        batch_size: B rows.

    Raises:
        TypeError, ValueError: no such module, one in training mode or with two directions; inputs that do not fit.

    Examples:
        >>> stream = LSTM(40, 128).eval().stream(batch_size=2)
        >>> for frame in torch.randn(100, 2, 40):
        ...     y = stream.step(frame)
        >>> stream.reset(torch.tensor([True, False]))
    """

    h: Tensor
    """(L, B, P)."""
    c: Tensor
    """(L, B, H)."""

    def __init__(self, module: LSTM, batch_size: int = 1) -> None:
        if not isinstance(module, LSTM):
            raise TypeError(f"module: expected a warpalign.recurrent.LSTM, got {type(module).__name__}")
        if module.training:
            raise ValueError(
                "module: expected evaluation mode, got a module in training mode: call module.eval()"
            )
        if module.bidirectional:
            raise ValueError("module: expected one direction, as the other one starts at the end, got two")
        self.batch_size = check_count(batch_size, "batch_size")
        self.input_size = module.input_size
        like = module.weight_ih_l0.detach()
        with torch.no_grad():
            cells, first = check_weights(weights_of(module, module.proj_size > 0), like.unsqueeze(0), 1)
        self._weights = [tensor.detach() for cell in cells for tensor in cell]
        kinds = {
            "bias": module.bias,
            "projection": first.hr is not None,
            "layer_norm": first.ln_ih is not None,
        }
        self._packed = ops.pack(self._weights, **kinds)
        self._plan = module.plan
        cell = torch.float32 if like.dtype in HALF else like.dtype
        shape = (module.num_layers, self.batch_size)
        self.h = like.new_zeros(*shape, module.proj_size or module.hidden_size)
        self.c = like.new_zeros(*shape, module.hidden_size, dtype=cell)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """x (B, I), or several steps (T, B, I) -> h of the last layer (B, P), or (T, B, P)."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x: expected a torch.Tensor, got {type(x).__name__}")
        if x.dim() not in (2, 3) or x.shape[-2:] != (self.batch_size, self.input_size):
            shape = f"({self.batch_size}, {self.input_size})"
            raise ValueError(f"x: expected shape {shape}, or steps of it, got {tuple(x.shape)}")
        if x.dtype != self.h.dtype or x.device != self.h.device:
            raise TypeError(
                f"x: expected {self.h.dtype} on {self.h.device}, as the weights, got {x.dtype} on {x.device}"
            )
        y, self.h, self.c = call_without_gradients(
            x if x.dim() == 3 else x.unsqueeze(0),
            self._weights,
            self.h,
            self.c,
            self._packed,
            self._plan.settings(),
        )
        return y if x.dim() == 3 else y.squeeze(0)

    def reset(self, rows: Tensor | None = None) -> None:
        """Zeroes the state of these rows: a bool mask (B,) or indices. None: of all."""
        if rows is None:
            self.h, self.c = torch.zeros_like(self.h), torch.zeros_like(self.c)
            return
        if not isinstance(rows, Tensor) or rows.dim() != 1:
            came = f"shape {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise TypeError(f"rows: expected a bool mask (B,) or a tensor of indices, got {came}")
        self.h, self.c = self.h.clone(), self.c.clone()
        self.h[:, rows] = 0
        self.c[:, rows] = 0
