"""The transducer loss of a joint network whose logits are never in memory, as a function and as a module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from warpalign._core.checks import Precision, check_count, check_flag, check_precision, naming_arguments
from warpalign._core.series import Lengths
from warpalign._transducer.checks import (
    check_big_blanks,
    check_column,
    check_dropout,
    check_durations,
    check_generator,
    check_omega,
    check_reduction,
    check_settings,
    explained,
)
from warpalign._transducer.joint_autograd import JointSettings, joint_losses
from warpalign._transducer.joint_checks import check_activation, check_joint_inputs, check_layer
from warpalign._transducer.reduction import BatchLengths, reduced
from warpalign._transducer.settings import TransducerReduction

TransducerActivation = Literal["relu", "tanh"]
WORKSPACE_LIMIT = 48 * 2**20
"""Bytes: the core's own default."""


def transducer_loss_from_joint(
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    encoder_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    activation: TransducerActivation = "relu",
    blank: int = -1,
    big_blank_durations: Sequence[int] = (),
    big_blank_ids: Sequence[int] | None = None,
    durations: Sequence[int] | None = None,
    sigma: float = 0.0,
    omega: float = 0.0,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
    fastemit_lambda: float = 0.0,
    delay_penalty: float = 0.0,
    eos_id: int | None = None,
    eos_penalty: float = 0.0,
    star_id: int | None = None,
    star_penalty: float = 1.0,
    clamp: float | None = None,
    zero_infinity: bool = False,
    workspace_limit: int = WORKSPACE_LIMIT,
    precision: Precision | None = None,
    reduction: TransducerReduction = "mean",
) -> Tensor:
    """Transducer loss of a joint network: RNN-T, with big blanks if wanted, or TDT. Logits are never in memory as a whole.

    The joint network is h[t, u] = activation(encoder[t] + predictor[u]), logits[t, u] = weight h[t, u] + bias. The loss is
    that of :func:`transducer_loss` on these logits, or of :func:`tdt_loss` with ``durations``. The logits of a batch have
    B·T·(U+1)·V numbers, and their gradient as many. This function computes them a tile at a time, in forward and once more
    in backward. Backward leaves out nodes whose posterior is below 2⁻⁴⁰ (float64: 0), as in :func:`transducer_loss`.

    Source: Graves, Mohamed and Hinton, "Speech recognition with deep recurrent neural networks" (2013), section 3.2.

    Args:
        encoder: (B, T, H), or (T, H) for one utterance; float64, float32, float16 or bfloat16.
        predictor: (B, U+1, H), or (U+1, H), of encoder's dtype.
        weight: (V, H), as :class:`torch.nn.Linear` has it; with ``durations`` (V + D, H), the durations' rows last.
        bias: (V,) or (V + D,). None: 0.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels behind each other, which needs
            ``target_lengths``. Any integer type.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T, as in :func:`transducer_loss`. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        activation: "relu" or "tanh".
        durations: TDT's D different numbers of frames, 0 to 64, at most 16. None: RNN-T.
        omega: as in :func:`tdt_loss`; with ``durations`` only.
        dropout: the probability that a hidden number h[t, u, j] becomes 0; others are divided by 1 - dropout. Forward
            and backward make the same mask, which is never in memory.
        generator: of the random numbers of omega and dropout. None: torch's own.
        workspace_limit: bytes that a call may take for itself, besides what it keeps for backward, and a GPU's list of
            nodes (4 bytes each). Less means smaller chunks of nodes, and more time. A limit that nothing fits in counts as the least that works.
        precision: class of float32 errors on a GPU, as in :func:`warpalign.soft_dtw`. "high" and "medium" multiply on the
            matrix units (compute capability 8.0 and later), with three products of TF32 and with one. A CPU multiplies in
            float32 whatever is asked for.
        all others: blank (counted from V if below 0), big_blank_durations, big_blank_ids, sigma, fastemit_lambda,
            delay_penalty, eos_id, eos_penalty, star_id, star_penalty, clamp (of the gradient by logits), zero_infinity and
            reduction are as in :func:`transducer_loss`.

    Under torch.autocast all four floating-point tensors are cast, as a linear layer casts them. The CPU widens half types
    to float32. A GPU (compute capability 8.0 and later) multiplies them on its matrix units and adds in float32; hidden
    rows and the gradients by logits are rounded to the half type there. Logits are too, but for more than 128 labels on
    compute capability 9.0.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 tensors, else float32.

    Raises:
        TypeError, ValueError: an argument does not fit, or FSDP has sharded the weight alone.
        NotImplementedError: the gradient is differentiated again.

    Examples:
        >>> encoder = torch.randn(4, 50, 64, requires_grad=True)
        >>> predictor = torch.randn(4, 11, 64, requires_grad=True)
        >>> output = torch.nn.Linear(64, 30)
        >>> targets = torch.randint(0, 29, (4, 10))
        >>> loss = transducer_loss_from_joint(encoder, predictor, output.weight, output.bias, targets, activation="tanh")
        >>> loss.backward()
    """
    kind = check_activation(activation)
    inputs, unbatched = check_joint_inputs(
        encoder, predictor, weight, bias, targets, encoder_lengths, target_lengths
    )
    probability, generator = check_omega(omega), check_generator(generator)
    drop = check_dropout(dropout)
    limit = check_count(workspace_limit, "workspace_limit", 0)
    units = check_precision(precision)
    tdt = durations is not None
    columns = inputs.weight.shape[0]
    ids: tuple[int, ...] = ()
    if durations is not None:
        if len(big_blank_durations) > 0:
            raise ValueError("big_blank_durations: expected none with durations, got some")
        if star_id is not None:
            raise ValueError(f"star_id: expected None with durations, got {star_id}")
        lengths = check_durations(durations)
        columns -= len(lengths)
        if columns < 1:
            raise ValueError(
                f"weight: expected more rows than the {len(lengths)} of durations, got {inputs.weight.shape[0]}"
            )
    else:
        if probability > 0:
            raise ValueError(f"omega: expected 0 without durations, got {omega}")
        lengths, ids = check_big_blanks(
            big_blank_durations, big_blank_ids, check_column(blank, "blank", columns), columns
        )
    settings = check_settings(
        columns=columns,
        blank=blank,
        durations=lengths,
        big_blank_ids=ids,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        delay_penalty=delay_penalty,
        eos_id=eos_id,
        eos_penalty=eos_penalty,
        star_id=star_id,
        star_penalty=star_penalty,
        clamp=clamp,
        zero_infinity=zero_infinity,
        from_log_probs=False,
        packed=False,
    )
    reduction = check_reduction(reduction)
    batch, frames = inputs.encoder.shape[:2]
    if probability > 0:
        drawn = torch.rand(batch, generator=generator, device=inputs.encoder.device)
        inputs = inputs._replace(without_durations=drawn < probability)
    if drop > 0:
        seed = torch.randint(2**62, (), generator=generator, device=inputs.encoder.device)
        inputs = inputs._replace(seed=seed)
    states = inputs.predictor.shape[1]
    try:
        with naming_arguments():
            losses = joint_losses(inputs, JointSettings(kind, tdt, drop, limit, units, settings))
    except ValueError as error:
        raise explained(error, settings, frames, states, columns) from None
    counts = BatchLengths(inputs.encoder_lengths, frames, inputs.target_lengths, states - 1)
    return reduced(losses, counts, reduction, unbatched)


class TransducerJointLoss(nn.Module):
    """:func:`warpalign.transducer_loss_from_joint` with an output layer of its own and fixed settings.

    Args:
        hidden: H, the last axis of encoder and predictor.
        vocabulary: V, all labels with blank and big blanks. With ``durations`` the layer has D rows more.
        bias: whether the output layer has one.
        device, dtype: of the output layer.
        all others: activation, blank, big_blank_durations, big_blank_ids, durations, sigma, omega, dropout, generator,
            fastemit_lambda, delay_penalty, eos_id, eos_penalty, star_id, star_penalty, clamp, zero_infinity,
            workspace_limit, precision and reduction are as in :func:`warpalign.transducer_loss_from_joint`. In evaluation
            mode omega and dropout are 0.

    Attributes:
        weight: (V + D, H), drawn as :class:`torch.nn.Linear` draws it.
        bias: (V + D,), or None.

    Raises:
        TypeError, ValueError: an argument of the layer does not fit, or there is no such reduction or activation. A call
            raises what :func:`warpalign.transducer_loss_from_joint` raises.

    Examples:
        >>> loss = TransducerJointLoss(64, 30, activation="tanh", fastemit_lambda=0.01)
        >>> encoder, predictor = torch.randn(4, 50, 64), torch.randn(4, 11, 64)
        >>> loss(encoder, predictor, torch.randint(0, 29, (4, 10))).backward()
    """

    bias: Tensor | None

    def __init__(
        self,
        hidden: int,
        vocabulary: int,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        activation: TransducerActivation = "relu",
        blank: int = -1,
        big_blank_durations: Sequence[int] = (),
        big_blank_ids: Sequence[int] | None = None,
        durations: Sequence[int] | None = None,
        sigma: float = 0.0,
        omega: float = 0.0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        fastemit_lambda: float = 0.0,
        delay_penalty: float = 0.0,
        eos_id: int | None = None,
        eos_penalty: float = 0.0,
        star_id: int | None = None,
        star_penalty: float = 1.0,
        clamp: float | None = None,
        zero_infinity: bool = False,
        workspace_limit: int = WORKSPACE_LIMIT,
        precision: Precision | None = None,
        reduction: TransducerReduction = "mean",
    ) -> None:
        given = dict(locals())
        options: dict[str, Any] = {k: given[k] for k in transducer_loss_from_joint.__kwdefaults__ or {}}
        super().__init__()
        check_reduction(reduction)
        check_activation(activation)
        rows = check_count(vocabulary, "vocabulary") + (
            0 if durations is None else len(check_durations(durations))
        )
        size = check_count(hidden, "hidden")
        check_layer(dtype, device)
        self.options = options
        self.weight = nn.Parameter(torch.empty(rows, size, device=device, dtype=dtype))
        self.bias = (
            nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if check_flag(bias, "bias") else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the output layer anew."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.shape[1])
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self,
        encoder: Tensor,
        predictor: Tensor,
        targets: Tensor,
        encoder_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """encoder (B, T, H), predictor (B, U+1, H), targets (B, U), lengths (B,) -> 0-d, or (B,) with reduction "none"."""
        options = self.options if self.training else self.options | {"omega": 0.0, "dropout": 0.0}
        return transducer_loss_from_joint(
            encoder, predictor, self.weight, self.bias, targets, encoder_lengths, target_lengths, **options
        )

    def extra_repr(self) -> str:
        defaults = transducer_loss_from_joint.__kwdefaults__ or {}
        changed = {k: v for k, v in self.options.items() if v != defaults[k]}
        shown = "".join(f", {name}={value!r}" for name, value in changed.items())
        rows, hidden = self.weight.shape
        return f"hidden={hidden}, columns={rows}, bias={self.bias is not None}{shown}"
