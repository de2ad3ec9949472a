"""``haste_pytorch``: LSTM and LayerNormLSTM.

Weights are (I, 4H) and (H, 4H) with gates in the order i, g, f, o, and one bias, as haste's. What differs: they run on CPUs,
tensors are made on torch's default device, gradients flow to the initial state and in evaluation mode too, and
``dropout=1`` and ``zoneout=1`` are refused. Weights are reordered in every call, which costs a copy of them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from warpalign.recurrent import LSTMWeights, lstm

__all__ = ["LSTM", "LayerNormLSTM"]


class _Base(nn.Module):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        batch_first: bool = False,
        forget_bias: float = 1.0,
        dropout: float = 0.0,
        zoneout: float = 0.0,
        return_state_sequence: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("dropout", dropout), ("zoneout", zoneout)):
            if not 0 <= value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be in [0.0, 1.0), got {value}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.batch_first = batch_first
        self.forget_bias = forget_bias
        self.dropout = dropout
        self.zoneout = zoneout
        self.return_state_sequence = return_state_sequence
        self.kernel = nn.Parameter(torch.empty(input_size, hidden_size * 4))
        self.recurrent_kernel = nn.Parameter(torch.empty(hidden_size, hidden_size * 4))
        self.bias = nn.Parameter(torch.empty(hidden_size * 4))
        self._add_parameters(hidden_size)
        self.reset_parameters()

    def _add_parameters(self, hidden_size: int) -> None:
        """Makes what a subclass has besides the kernels and the bias."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier for the kernel and orthogonal for the recurrent one, gate by gate; ``forget_bias`` for the forget gate."""
        for kernel, recurrent in zip(self.kernel.chunk(4, 1), self.recurrent_kernel.chunk(4, 1), strict=True):
            nn.init.xavier_uniform_(kernel)
            nn.init.orthogonal_(recurrent)
        self.bias.zero_()
        self.bias[self.hidden_size * 2 : self.hidden_size * 3] = self.forget_bias

    def _run(
        self,
        input: Tensor,
        state: tuple[Tensor, Tensor] | None,
        lengths: Tensor | None,
        norms: tuple[Tensor, ...] = (),
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        bias = _native(self.bias, 0)
        weights = LSTMWeights(
            _native(self.kernel, 1).T,
            _native(self.recurrent_kernel, 1).T,
            bias,
            torch.zeros_like(bias),
            None,
            *norms,
        )
        result = lstm(
            input,
            [weights],
            state,
            input_lengths=None if lengths is None else torch.as_tensor(lengths, device=input.device),
            batch_first=self.batch_first,
            rw_dropout=self.dropout,
            zoneout=(self.zoneout, 0.0),
            training=self.training,
            return_all_states=self.return_state_sequence,
        )
        assert isinstance(result.output, Tensor)
        if result.h_all is not None and result.c_all is not None:
            h, c = (s.transpose(1, 2) if self.batch_first else s for s in (result.h_all, result.c_all))
            return result.output, (h, c)
        return result.output, (result.h_n, result.c_n)


def _native(weights: Tensor, dim: int) -> Tensor:
    """From the gates i, g, f, o to torch's i, f, g, o, and back."""
    i, second, third, o = weights.chunk(4, dim)
    return torch.cat([i, third, second, o], dim)


class LSTM(_Base):
    """haste's LSTM of one layer: (output, (h, c)).

    Args:
        input_size: the number of features I.
        hidden_size: the number of units H.
        batch_first: whether input and output are (B, T, ·) in place of (T, B, ·).
        forget_bias: what reset_parameters() writes into the bias of the forget gate.
        dropout: the probability of dropout of the recurrent weights, in training; in [0, 1).
        zoneout: the probability of a unit of h to keep its value, in training; in [0, 1).
        return_state_sequence: whether the states of all steps are returned, (1, T, B, H) or with batch_first (1, B, T,
            H), in place of the last ones (1, B, H).
    """

    def to_native_weights(self) -> tuple[nn.Parameter, nn.Parameter, nn.Parameter, nn.Parameter]:
        """weight_ih_l0, weight_hh_l0, bias_ih_l0 and bias_hh_l0 of torch.nn.LSTM; each bias has half of this one."""
        half = _native(self.bias, 0) / 2
        kernels = (_native(kernel, 1).T for kernel in (self.kernel, self.recurrent_kernel))
        ih, hh, bias_ih, bias_hh = (
            nn.Parameter(w.detach().clone().contiguous()) for w in (*kernels, half, half)
        )
        return ih, hh, bias_ih, bias_hh

    def from_native_weights(
        self, weight_ih_l0: Tensor, weight_hh_l0: Tensor, bias_ih_l0: Tensor, bias_hh_l0: Tensor
    ) -> None:
        """Takes torch.nn.LSTM's weights over. This bias becomes the sum of both."""
        self.kernel = nn.Parameter(_native(weight_ih_l0.detach(), 0).T.contiguous())
        self.recurrent_kernel = nn.Parameter(_native(weight_hh_l0.detach(), 0).T.contiguous())
        self.bias = nn.Parameter(_native(bias_ih_l0.detach() + bias_hh_l0.detach(), 0))

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(output, (h, c)): the output (T, B, H), or (B, T, H) with ``batch_first``.

        Args:
            input: (T, B, I), or (B, T, I) with ``batch_first``.
            state: (h, c), each (1, B, H); None: zeros.
            lengths: (B,) true numbers of steps, integers; None: all T.
        """
        return self._run(input, state, lengths)


class LayerNormLSTM(_Base):
    """:class:`LSTM` with layer norm: ``gamma`` (2, 4H) scales W x and R h, ``gamma_h`` and ``beta_h`` (H,) the cell on its way out.

    Args:
        input_size: the number of features I.
        hidden_size: the number of units H.
        batch_first: whether input and output are (B, T, ·) in place of (T, B, ·).
        forget_bias: what reset_parameters() writes into the bias of the forget gate.
        dropout: the probability of dropout of the recurrent weights, in training; in [0, 1).
        zoneout: the probability of a unit of h to keep its value, in training; in [0, 1).
        return_state_sequence: whether the states of all steps are returned, (1, T, B, H) or with batch_first (1, B, T,
            H), in place of the last ones (1, B, H).
    """

    def _add_parameters(self, hidden_size: int) -> None:
        self.gamma = nn.Parameter(torch.empty(2, hidden_size * 4))
        self.gamma_h = nn.Parameter(torch.empty(hidden_size))
        self.beta_h = nn.Parameter(torch.empty(hidden_size))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As :class:`LSTM`; layer norm starts as the identity."""
        super().reset_parameters()
        self.gamma.fill_(1)
        self.gamma_h.fill_(1)
        self.beta_h.zero_()

    def forward(
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(output, (h, c)), as :meth:`LSTM.forward`.

        Args:
            input: (T, B, I), or (B, T, I) with ``batch_first``.
            state: (h, c), each (1, B, H); None: zeros.
            lengths: (B,) true numbers of steps, integers; None: all T.
        """
        gamma = _native(self.gamma, 1)
        return self._run(input, state, lengths, (gamma[0], gamma[1], self.gamma_h, self.beta_h))
