"""The LSTM as a function of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from warpalign._core.checks import Precision, check_flag, naming_arguments
from warpalign._core.lengths import lengths_tensor
from warpalign._core.randomness import device_generator
from warpalign._core.series import Lengths
from warpalign._core.torch_internals import apply_unbound, is_forward_mode, is_jit_tracing, is_transforming
from warpalign._core.transforms import no_derivative, not_compiled
from warpalign._recurrent import ops
from warpalign._recurrent.autograd import EagerLSTM
from warpalign._recurrent.checks import (
    HALF,
    as_autocast,
    check_hx,
    check_input,
    check_no_lengths,
    check_options,
    check_resets,
    check_state,
    check_state_dtype,
    check_steps,
    check_weights,
    quiet_when_traced,
)
from warpalign._recurrent.packed import Rows, packed_again, rows_of
from warpalign._recurrent.settings import LSTMActivation, LSTMWeights, Options, directions


class LSTMResult(NamedTuple):
    """The result of :func:`lstm`. L D is layers times directions, P the size of h."""

    output: Tensor | PackedSequence
    """h of the last layer, as the input is: (T, B, D P), (B, T, D P), (T, D P) or a PackedSequence. 0 beyond a length."""
    h_n: Tensor
    """(L D, B, P): h after each row's last step."""
    c_n: Tensor
    """(L D, B, H)."""
    h_all: Tensor | None
    """With ``return_all_states``: (L D, T, B, P), packed (L D, N, P). 0 beyond a length."""
    c_all: Tensor | None
    """With ``return_all_states``: (L D, T, B, H), packed (L D, N, H)."""


class _Call(NamedTuple):
    """The input as the operator takes it: (T, B, I), or packed rows (N, I)."""

    x: Tensor
    batch: int
    unbatched: bool = False
    packed: PackedSequence | None = None
    rows: Rows | None = None
    """Of a PackedSequence."""


def _call_of(given: object, batch_first: bool) -> _Call:
    if isinstance(given, PackedSequence):
        x = as_autocast(check_input(given.data))
        rows = rows_of(given, x)
        return _Call(rows.x, rows.batch, False, given, rows)
    x = as_autocast(check_input(given))
    if x.dim() == 2:
        return _Call(check_steps(x.unsqueeze(1)), 1, True)
    x = check_steps(x.transpose(0, 1) if batch_first else x)
    return _Call(x, x.shape[1])


def lstm(
    input: Tensor | PackedSequence,
    weights: Sequence[LSTMWeights],
    hx: tuple[Tensor, Tensor] | None = None,
    *,
    input_lengths: Lengths | None = None,
    resets: Tensor | None = None,
    bidirectional: bool = False,
    batch_first: bool = False,
    activation: LSTMActivation = "soft",
    hard_slope: float = 0.125,
    hard_offset: float = 0.5,
    dropout: float = 0.0,
    rw_dropout: float = 0.0,
    zoneout: float | tuple[float, float] = 0.0,
    layer_norm_eps: float = 1e-5,
    training: bool = False,
    generator: torch.Generator | int | None = None,
    state_dtype: torch.dtype | None = None,
    return_all_states: bool = False,
    recompute: bool = False,
    precision: Precision | None = None,
    batch_invariant: bool = False,
) -> LSTMResult:
    """A stack of LSTM layers, as a function of its weights; :class:`LSTM` is the module.

    With gates i, f, o = s(z) and g = u(z) of z = W x[t] + R h[t-1] + b, in this order of rows::

        c[t] = f c[t-1] + i g        h[t] = o u(c[t]), with a projection W_hr (o u(c[t]))

    "soft": s is the logistic function, u = tanh. "hard": s(z) = min(1, max(0, slope z + offset)), u(z) = min(1, max(-1, z));
    their derivatives are slope and 1 strictly inside the rails, 0 at the rails and beyond.

    Gradients flow to the input, all weights and hx, from all results. Second and higher derivatives use torch's
    own operations, step by step. No value is copied from a device.

    Sources: Hochreiter and Schmidhuber, "Long short-term memory", 1997; projection: arXiv 1402.1128; zoneout: arXiv
    1606.01305; layer norm: arXiv 1607.06450; weight dropout: arXiv 1708.02182.

    Args:
        input: (T, B, I), with ``batch_first`` (B, T, I); one sequence (T, I); or a PackedSequence, which a GPU pads for the
            call, so that it takes the time and the memory of T steps of B rows. float64, float32,
            float16 or bfloat16, any strides. Half types have half operands, and sums, gates and cells in float32.
        weights: one :class:`LSTMWeights` for each layer and direction: layer 0, layer 0 reversed, layer 1, ...
        hx: (h_0, c_0) of shapes (L D, B, P) and (L D, B, H), without B for one sequence. None: 0. c_0 has the input's
            dtype, or float32.
        input_lengths: (B,), integers from 0 to T in any order, as a tensor on the input's device, list, tuple or array. A row's
            state stops changing there, and its reverse direction starts there; a row of length 0 keeps its initial state. Padding
            is ignored. Values in the host's memory are checked; CUDA clamps those of its tensors.
        resets: bool (T, B), with ``batch_first`` (B, T): before such a step the state is hx again, in either direction.
        bidirectional: a second direction for each layer.
        batch_first: input, output and resets have the batch before time: (B, T, ...).
        activation: "soft" or "hard".
        hard_slope: the slope of hard gates.
        hard_offset: the offset of hard gates.
        dropout: in training, on the outputs of all layers but the last.
        rw_dropout: in training, on the recurrent weights R, one mask for all steps.
        zoneout: probabilities that h and c keep their values: one for both, or (hidden, cell). In evaluation
            mode the expectation is used.
        layer_norm_eps: of layer norm, which weights with ``ln_ih`` ... have: z = LN(W x) + LN(R h) + b, h = o u(LN(c)).
        training: whether masks of dropout, rw_dropout and zoneout are drawn.
        generator: draws the masks' seed: a torch.Generator of the input's device, or an int, which seeds a new one for the call.
            None: torch's own generator of the input's device.
        state_dtype: c_n's dtype without hx: float32, for half types. None: the input's.
        return_all_states: return h and c of all layers and steps too.
        recompute: less memory and more time in training. No gates are stored between the passes. The backward pass recomputes
            them, for a quarter of the steps at a time: with resets or two directions, and on the CPU with packed input and with
            dropout or zoneout in training, for all steps. A GPU keeps h of all layers for it, and its gates differ from
            the forward pass' by the rounding of a product.
        precision: class of float32 errors on a GPU: float32's with "highest" and "high", that of TF32 with "medium". None: that
            of torch's own products, which are of TF32 after ``torch.set_float32_matmul_precision("high")``.
        batch_invariant: whether the results of a row are bitwise identical whatever else is in the batch. On a CPU they always are.

    Returns:
        :class:`LSTMResult`.

    Raises:
        TypeError, ValueError: an invalid argument; the message names it. Shapes of input and hx, and inputs without a step,
            raise an error that is a RuntimeError too, and the input's dtype in a module one that is a ValueError too, which
            torch.nn.LSTM raises.
        NotImplementedError: a second derivative with dropout, rw_dropout or zoneout in training; forward mode and transforms
            of torch.func.

    Examples:
        >>> weights = [LSTMWeights(torch.randn(4 * 20, 10), torch.randn(4 * 20, 20))]
        >>> result = lstm(torch.randn(50, 8, 10), weights, activation="hard")
        >>> result.output.shape, result.h_n.shape
        (torch.Size([50, 8, 20]), torch.Size([1, 8, 20]))
    """
    options = check_options(
        activation=activation,
        hard_slope=hard_slope,
        hard_offset=hard_offset,
        layer_norm_eps=layer_norm_eps,
        dropout=dropout,
        rw_dropout=rw_dropout,
        zoneout=zoneout,
        precision=precision,
        batch_invariant=batch_invariant,
    )
    whole = not_compiled(run) if isinstance(input, PackedSequence) else run  # its batch_sizes are read
    return whole(
        input,
        weights,
        hx,
        options,
        input_lengths=input_lengths,
        resets=resets,
        bidirectional=check_flag(bidirectional, "bidirectional"),
        batch_first=check_flag(batch_first, "batch_first"),
        training=check_flag(training, "training"),
        generator=generator,
        state_dtype=state_dtype,
        return_all_states=check_flag(return_all_states, "return_all_states"),
        recompute=check_flag(recompute, "recompute"),
    )


@quiet_when_traced
def run(
    input: object,
    weights: Sequence[LSTMWeights],
    hx: object,
    options: Options,
    *,
    input_lengths: object = None,
    resets: object = None,
    bidirectional: bool = False,
    batch_first: bool = False,
    training: bool = False,
    generator: object = None,
    state_dtype: object = None,
    return_all_states: bool = False,
    recompute: bool = False,
) -> LSTMResult:
    """:func:`lstm` with options that have been checked."""
    call = _call_of(input, batch_first)
    x = call.x
    check_no_lengths(input, input_lengths, resets)
    cells, first = check_weights(weights, x, directions(bidirectional))
    hidden, output = first.hh.shape[0] // 4, first.hh.shape[1]
    h0, c0 = _states(hx, call, (len(cells), call.batch), hidden, output)
    if is_transforming() or is_forward_mode():
        raise no_derivative("torch.func transforms and forward mode through the LSTM")
    needs_seed = training and options.draws_masks()
    draws = device_generator(generator, x.device)
    seed = torch.randint(2**62, (), generator=draws, device=x.device) if needs_seed else None
    flat = [tensor for cell in cells for tensor in cell]
    tensors = (x, *flat, h0, c0)
    # torch.jit.trace compares graphs of both grad modes: a traced one is for both. Functions of autograd differ in each graph.
    is_tracing = is_jit_tracing()
    is_enabled = torch.is_grad_enabled() or is_tracing
    needs_grad = is_enabled and any(t is not None and t.requires_grad for t in tensors)
    inputs = (
        x,
        flat,
        h0,
        c0,
        call.rows.lengths
        if call.rows
        else lengths_tensor(input_lengths, "input_lengths", call.batch, x.shape[0], x.device),
        call.rows.row_starts if call.rows else None,
        check_resets(resets, x, batch_first, call.unbatched),
        seed,
    )
    settings = {
        "batch": call.batch,
        "bidirectional": bidirectional,
        "bias": first.bias_ih is not None,
        "projection": first.hr is not None,
        "layer_norm": first.ln_ih is not None,
        "training": training,
        "float32_cell": check_state_dtype(state_dtype, x),
        "recompute": recompute and needs_grad,
        **options.of_call(),
    }
    with naming_arguments():
        if needs_grad and not (torch.compiler.is_compiling() or is_tracing):
            others = (inputs[4:], return_all_states, settings)
            y, h_n, c_n, h_all, c_all = apply_unbound(EagerLSTM, x, h0, c0, others, *flat)
        else:
            y, h_n, c_n, h_all, c_all, _ = ops.lstm(*inputs, None, return_all_states, needs_grad, **settings)
    states = (h_all, c_all) if return_all_states else (None, None)
    return _as_input(LSTMResult(y, h_n, c_n, *states), call, batch_first)


def _states(
    hx: object, call: _Call, shape: tuple[int, int], hidden: int, output: int
) -> tuple[Tensor | None, Tensor | None]:
    """h_0 and c_0 as the operator takes them."""
    if hx is None:
        return None, None
    h0, c0 = check_hx(hx)
    x = call.x
    lead = shape[:1] if call.unbatched else shape
    if isinstance(h0, Tensor):
        h0 = as_autocast(h0)
    h0 = check_state(h0, "hx[0]", x, (*lead, output), (x.dtype,))
    of_cell = (x.dtype, torch.float32) if x.dtype in HALF else (x.dtype,)
    c0 = check_state(c0, "hx[1]", x, (*lead, hidden), of_cell)
    if call.unbatched:
        h0, c0 = h0.unsqueeze(1), c0.unsqueeze(1)
    if call.packed is not None and call.packed.sorted_indices is not None:
        h0, c0 = (s.index_select(1, call.packed.sorted_indices) for s in (h0, c0))
    return h0.contiguous(), c0.contiguous()


def _as_input(result: LSTMResult, call: _Call, batch_first: bool) -> LSTMResult:
    """Results of the operator in the input's form."""
    y, h_n, c_n, h_all, c_all = result
    assert isinstance(y, Tensor)
    if call.packed is not None:
        packed = call.packed
        if call.rows is not None and call.rows.places is not None:
            places = call.rows.places
            y = packed_again(y, places)
            h_all, c_all = (None if s is None else packed_again(s, places, 1) for s in (h_all, c_all))
        elif y.dim() == 3:
            y = y.flatten(0, 1)
            h_all, c_all = (None if s is None else s.flatten(1, 2) for s in (h_all, c_all))
        if packed.unsorted_indices is not None:
            h_n, c_n = (s.index_select(1, packed.unsorted_indices) for s in (h_n, c_n))
        rows = PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return LSTMResult(rows, h_n, c_n, h_all, c_all)
    if call.unbatched:
        states = (None if s is None else s.squeeze(2) for s in (h_all, c_all))
        return LSTMResult(y.squeeze(1), h_n.squeeze(1), c_n.squeeze(1), *states)
    return LSTMResult(y.transpose(0, 1) if batch_first else y, h_n, c_n, h_all, c_all)
