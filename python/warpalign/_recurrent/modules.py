"""The LSTM as modules: torch.nn's, with more options."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from warpalign._core.checks import Precision, check_count, check_flag
from warpalign._core.series import Lengths
from warpalign._core.torch_internals import is_jit_tracing
from warpalign._core.transforms import not_compiled
from warpalign._recurrent.checks import (
    check_input_of_module,
    check_probability,
    check_projection,
)
from warpalign._recurrent.configuration import changed_options, configure, reset_own, weights_of
from warpalign._recurrent.functional import LSTMResult, run
from warpalign._recurrent.planned import Plan, run_planned
from warpalign._recurrent.recorded import Recorded
from warpalign._recurrent.settings import LSTMActivation, Options, suffixes


class LSTM(Recorded, nn.RNNBase):
    """torch.nn.LSTM with hard activations, zoneout, layer norm, weight dropout, lengths and resets.

    The first ten arguments, the names of the parameters and their initial values are those of torch.nn.LSTM. State dicts are compatible in
    both directions. Weights are fetched by name in every call; ``flatten_parameters()`` does nothing.
    :func:`warpalign.recurrent.lstm` has the equations.

    The metadata of the state_dict record the activation. Loading weights of another activation warns, and so does loading the
    state_dict of a torch.nn.LSTM into a hard module. A plain dict has no metadata and loads without that check.

    It is a torch.nn.RNNBase and not a torch.nn.LSTM, because torch.compile does not compile instances of that class.

    Args:
        input_size: I, the number of features of a step.
        hidden_size: H, the number of units of a layer and direction.
        num_layers: the number of layers.
        bias: whether the gates have biases.
        batch_first: input and output have the batch before time: (B, T, ...).
        dropout: the probability, in training, that an output of a layer but the last is 0.
        bidirectional: a second direction for each layer.
        proj_size: P, the size of h after a projection. 0: no projection.
        device: the device of the parameters. None: torch's default.
        dtype: the dtype of the parameters: float64, float32, float16 or bfloat16. None: torch's default.
        activation: "soft" (logistic and tanh) or "hard" (piecewise linear).
        hard_slope: the slope of hard gates: min(1, max(0, slope z + offset)).
        hard_offset: the offset of hard gates.
        rw_dropout: the probability, in training, that a recurrent weight is 0; one mask for all steps.
        zoneout: probabilities that h and c keep their values: one for both, or (hidden, cell).
        layer_norm: z = LN(W x) + LN(R h) + b, h = o u(LN(c)), with the parameters ``weight_ln_ih_l0``, ``weight_ln_hh_l0``
            (4H), ``weight_ln_c_l0`` and ``bias_ln_c_l0`` (H) for each layer and direction.
        layer_norm_eps: added to its variances.
        forget_bias: initial bias of the forget gates. None: torch.nn.LSTM's initialisation.
        return_all_states: calls return (h_all, c_all) too.
        recompute: less memory and more time in training, as in :func:`warpalign.recurrent.lstm`.
        state_dtype: c_n's dtype without hx: float32, for half types. None: the input's.
        precision: class of float32 errors on a GPU: float32's with "highest" and "high", that of TF32 with "medium". None: that
            of torch's own products, which are of TF32 after ``torch.set_float32_matmul_precision("high")``.
        batch_invariant: whether the results of a row are bitwise identical whatever else is in the batch. On a CPU they always are.

    Raises:
        TypeError, ValueError: an invalid argument; the message names it; a call raises what :func:`warpalign.recurrent.lstm` raises.

    Examples:
        >>> model = LSTM(40, 128, num_layers=2, bidirectional=True, activation="hard")
        >>> output, (h_n, c_n) = model(torch.randn(100, 8, 40), input_lengths=torch.randint(0, 101, (8,)))
        >>> output.shape, h_n.shape
        (torch.Size([100, 8, 256]), torch.Size([4, 8, 128]))
    """

    _options: dict[str, Any]
    _checked: Options
    _plan: Plan
    weight_ih_l0: Tensor
    weight_hh_l0: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: LSTMActivation = "soft",
        hard_slope: float = 0.125,
        hard_offset: float = 0.5,
        rw_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        forget_bias: float | None = None,
        return_all_states: bool = False,
        recompute: bool = False,
        state_dtype: torch.dtype | None = None,
        precision: Precision | None = None,
        batch_invariant: bool = False,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in DEFAULTS}
        check_projection(proj_size, hidden_size)
        super().__init__(
            "LSTM",
            check_count(input_size, "input_size"),
            check_count(hidden_size, "hidden_size"),
            check_count(num_layers, "num_layers"),
            check_flag(bias, "bias"),
            check_flag(batch_first, "batch_first"),
            check_probability(dropout, "dropout"),
            check_flag(bidirectional, "bidirectional"),
            proj_size,
            device,
            dtype,
        )
        configure(self, options, self.dropout)

    def _suffixes(self) -> list[str]:
        """The endings of the parameters' names, by layer and direction."""
        return list(suffixes(self.num_layers, self.bidirectional))

    def flatten_parameters(self) -> None:
        """Nothing: no call needs contiguous weights."""

    def reset_parameters(self) -> None:
        """torch.nn.LSTM's initial values, and those of layer norm and ``forget_bias``."""
        super().reset_parameters()
        reset_own(self)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        input_lengths: Lengths | None = None,
        resets: Tensor | None = None,
    ) -> Any:
        """(output, (h_n, c_n)), with ``return_all_states`` also (h_all, c_all): :class:`warpalign.recurrent.LSTMResult`.

        Args:
            input: (T, B, I), with ``batch_first`` (B, T, I); one sequence (T, I); or a PackedSequence.
            hx: (h_0, c_0) of shapes (L D, B, P) and (L D, B, H), without B for one sequence. None: 0.
            input_lengths: (B,) true numbers of steps, 0 to T in any order: a tensor on the input's device, list, tuple or array.
                None: all T. Padding is ignored; a row of length 0 keeps its initial state.
            resets: bool (T, B), with ``batch_first`` (B, T): before such a step the state is hx again. None: no resets.
        """
        recomputes = self._options["recompute"] and torch.is_grad_enabled()
        if (
            input_lengths is None
            and resets is None
            and self._is_plain()
            and not recomputes
            and not is_jit_tracing()
        ):
            found = run_planned(self, input, hx, self.batch_first)
            if found is not None:
                return found[0], found[1:]
        # A PackedSequence says in values how many rows a step has, and torch.compile does not see values.
        whole = not_compiled(self._run) if isinstance(input, PackedSequence) else self._run
        result = whole(input, hx, input_lengths, resets)
        states = result.h_n, result.c_n
        if self._options["return_all_states"]:
            return result.output, states, (result.h_all, result.c_all)
        return result.output, states

    def _is_plain(self) -> bool:
        return not self._options["return_all_states"] and self._options["state_dtype"] is None

    def _run(self, input: object, hx: object, input_lengths: object, resets: object) -> LSTMResult:
        check_input_of_module(input, self.weight_ih_l0)
        # dropout may have been changed since, as users of torch.nn.LSTM do.
        options = self._checked._replace(dropout=self.dropout)
        return run(
            input,
            weights_of(self, self.proj_size > 0),
            hx,
            options,
            input_lengths=input_lengths,
            resets=resets,
            bidirectional=self.bidirectional,
            batch_first=self.batch_first,
            training=self.training,
            state_dtype=self._options["state_dtype"],
            return_all_states=self._options["return_all_states"],
            recompute=self._options["recompute"],
        )

    def stream(self, batch_size: int = 1) -> Any:
        """An :class:`warpalign.recurrent.LSTMStream` that starts from zeros, for ``batch_size`` rows."""
        from warpalign._recurrent.stream import LSTMStream

        return LSTMStream(self, batch_size)

    def extra_repr(self) -> str:
        return super().extra_repr() + changed_options(self._options, self._defaults())

    @staticmethod
    def _defaults() -> dict[str, Any]:
        return DEFAULTS


DEFAULTS: dict[str, Any] = LSTM.__init__.__kwdefaults__ or {}
"""The options of LSTM that torch.nn.LSTM does not have, and their defaults."""


class HardLSTM(LSTM):
    """:class:`LSTM` with ``activation="hard"``: gates min(1, max(0, z/8 + 1/2)), and hardtanh instead of tanh.

    Args:
        input_size: I, the number of features of a step.
        hidden_size: H, the number of units of a layer and direction.
        num_layers: the number of layers.
        bias: whether the gates have biases.
        batch_first: input and output have the batch before time: (B, T, ...).
        dropout: the probability, in training, that an output of a layer but the last is 0.
        bidirectional: a second direction for each layer.
        proj_size: P, the size of h after a projection. 0: no projection.
        device: the device of the parameters. None: torch's default.
        dtype: the dtype of the parameters: float64, float32, float16 or bfloat16. None: torch's default.
        options: further keyword arguments of :class:`LSTM`, such as ``hard_slope``, ``zoneout`` and ``layer_norm``.

    Raises:
        TypeError, ValueError: as :class:`LSTM`.

    Examples:
        >>> output, (h_n, c_n) = HardLSTM(40, 128)(torch.randn(100, 8, 40))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            **{"activation": "hard"} | options,
        )

    @staticmethod
    def _defaults() -> dict[str, Any]:
        return DEFAULTS | {"activation": "hard"}


class LSTMCell(Recorded, nn.LSTMCell):
    """torch.nn.LSTMCell with the options of :class:`LSTM`: one step.

    Args:
        input_size: I, the number of features of a step.
        hidden_size: H, the number of units .
        bias: whether the gates have biases.
        device: the device of the parameters. None: torch's default.
        dtype: the dtype of the parameters: float64, float32, float16 or bfloat16. None: torch's default.
        activation: "soft" (logistic and tanh) or "hard" (piecewise linear).
        hard_slope: the slope of hard gates: min(1, max(0, slope z + offset)).
        hard_offset: the offset of hard gates.
        rw_dropout: the probability, in training, that a recurrent weight is 0, by a mask of the call.
        zoneout: probabilities that h and c keep their values: one for both, or (hidden, cell).
        layer_norm: z = LN(W x) + LN(R h) + b, h = o u(LN(c)), as in :class:`LSTM`.
        layer_norm_eps: added to its variances.
        forget_bias: initial bias of the forget gates. None: torch.nn.LSTMCell's initialisation.
        precision: class of float32 errors on a GPU: "highest", "high" or "medium", as in :class:`LSTM`. None: that of torch's own
            products.
        batch_invariant: whether the results of a row are bitwise identical whatever else is in the batch. On a CPU they always are.

    Raises:
        TypeError, ValueError: as :class:`LSTM`.

    Examples:
        >>> cell = LSTMCell(40, 128, activation="hard")
        >>> h, c = cell(torch.randn(8, 40))
        >>> h, c = cell(torch.randn(8, 40), (h, c))
    """

    _options: dict[str, Any]
    _checked: Options
    _plan: Plan

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        activation: LSTMActivation = "soft",
        hard_slope: float = 0.125,
        hard_offset: float = 0.5,
        rw_dropout: float = 0.0,
        zoneout: float | tuple[float, float] = 0.0,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        forget_bias: float | None = None,
        precision: Precision | None = None,
        batch_invariant: bool = False,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in DEFAULTS}
        check_count(input_size, "input_size")
        check_count(hidden_size, "hidden_size")
        super().__init__(input_size, hidden_size, check_flag(bias, "bias"), device, dtype)
        configure(self, DEFAULTS | options, 0.0)

    def _suffixes(self) -> list[str]:
        return [""]

    def reset_parameters(self) -> None:
        """torch.nn.LSTMCell's initial values, and those of layer norm and ``forget_bias``."""
        super().reset_parameters()
        reset_own(self)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(h, c) after one step, of the shapes of hx.

        Args:
            input: (B, I) or (I,).
            hx: (h, c) before the step, (B, H) or (H,) each. None: 0.
        """
        if not isinstance(input, Tensor):
            raise TypeError(f"input: expected a torch.Tensor, got {type(input).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"input: expected (B, I) or (I,), got shape {tuple(input.shape)}")
        if isinstance(hx, (tuple, list)):
            hx = tuple(s.unsqueeze(0) if isinstance(s, Tensor) else s for s in hx)  # type: ignore[assignment]
        x = input.unsqueeze(0)
        found = None if is_jit_tracing() else run_planned(self, x, hx)
        if found is not None:
            return found[1].squeeze(0), found[2].squeeze(0)
        check_input_of_module(input, self.weight_ih)
        result = run(x, weights_of(self, False), hx, self._checked, training=self.training)
        return result.h_n.squeeze(0), result.c_n.squeeze(0)

    def extra_repr(self) -> str:
        return super().extra_repr() + changed_options(self._options, DEFAULTS)
