"""An LSTM step by step, for inference on what arrives in pieces."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import check_count
from warpalign._recurrent import ops
from warpalign._recurrent.checks import HALF, check_rows, check_weights
from warpalign._recurrent.configuration import weights_of
from warpalign._recurrent.modules import LSTM
from warpalign._recurrent.planned import advance


class LSTMStream:
    """The state of :class:`LSTM` between calls: :meth:`step` takes the next input of every row.

    A stream's outputs equal those of one call on the whole sequence: on a CPU bitwise, for half types
    too, because c stays in float32. The weights are packed once: they are those of the stream's creation. Nothing
    is differentiable, and the module must be in evaluation mode.

    The state is updated in place: ``stream.h`` and ``stream.c`` keep their memory as long as the stream exists. A step that
    was captured in a CUDA graph therefore advances the stream in every replay, and :meth:`reset` acts between replays. Clone
    them to save a state; assigning to them copies the values.

    Args:
        module: an :class:`LSTM` with one direction.
        batch_size: B rows.

    Raises:
        TypeError, ValueError: a module of another class, in training mode or with two directions; inputs that do not fit.

    Examples:
        >>> stream = LSTM(40, 128).eval().stream(batch_size=2)
        >>> for frame in torch.randn(100, 2, 40):
        ...     y = stream.step(frame)
        >>> stream.reset(torch.tensor([True, False]))
    """

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
        self.batch_first = module.batch_first
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
        self._plan = module._plan
        cell = torch.float32 if like.dtype in HALF else like.dtype
        shape = (module.num_layers, self.batch_size)
        with torch.inference_mode(False):  # which would forbid updates outside of it
            self._h = like.new_zeros(*shape, module.proj_size or module.hidden_size)
            self._c = like.new_zeros(*shape, module.hidden_size, dtype=cell)

    @property
    def h(self) -> Tensor:
        """(L, B, P)."""
        return self._h

    @h.setter
    def h(self, value: Tensor) -> None:
        _copy(value, self._h, "h")

    @property
    def c(self) -> Tensor:
        """(L, B, H)."""
        return self._c

    @c.setter
    def c(self, value: Tensor) -> None:
        _copy(value, self._c, "c")

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """x (B, I) -> h of the last layer (B, P); several steps (T, B, I) -> (T, B, P).

        With ``batch_first=True`` modules several steps are (B, T, I) -> (B, T, P).
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x: expected a torch.Tensor, got {type(x).__name__}")
        many = x.dim() == 3
        steps = x.transpose(0, 1) if many and self.batch_first else x if many else x.unsqueeze(0)
        if steps.dim() != 3 or steps.shape[1:] != (self.batch_size, self.input_size) or not steps.shape[0]:
            b, i = self.batch_size, self.input_size
            several = f"({b}, T, {i})" if self.batch_first else f"(T, {b}, {i})"
            raise ValueError(
                f"x: expected shape ({b}, {i}), or {several} of T >= 1 steps, got {tuple(x.shape)}"
            )
        if x.dtype != self._h.dtype or x.device != self._h.device:
            raise TypeError(
                f"x: expected {self._h.dtype} on {self._h.device}, as the weights, got {x.dtype} on {x.device}"
            )
        y = advance(steps, self._weights, self._h, self._c, self._packed, self._plan.settings())
        return y.squeeze(0) if not many else y.transpose(0, 1) if self.batch_first else y

    @torch.no_grad()
    def reset(self, rows: Tensor | None = None) -> None:
        """Zeroes the state of these rows, in place: a bool mask (B,) or indices. None: of all.

        Within the capture of a CUDA graph the rows have to be on the GPU.
        """
        if rows is None:
            self._h.zero_(), self._c.zero_()
            return
        where = check_rows(rows, self.batch_size).to(self._h.device)
        for state in (self._h, self._c):
            if where.dtype == torch.bool:
                state.masked_fill_(where[:, None], 0)
            else:
                state.index_fill_(1, where, 0)


def _copy(value: object, to: Tensor, name: str) -> None:
    if not isinstance(value, Tensor) or value.shape != to.shape:
        came = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name}: expected a tensor of shape {tuple(to.shape)}, got {came}")
    with torch.no_grad():
        to.copy_(value)
