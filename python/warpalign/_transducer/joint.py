"""The transducer loss of a joint network whose logits are never in memory, as a function and as a module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from warpalign._core.checks import Precision, check_count, check_flag, check_precision, naming_arguments
from warpalign._core.hypotheses import Hypotheses, Predictor
from warpalign._core.layers import check_layer
from warpalign._core.randomness import check_generator_of_module, device_generator
from warpalign._core.reduction import BatchLengths, reduced
from warpalign._core.series import Lengths
from warpalign._transducer.align import TransducerAlignment
from warpalign._transducer.align_joint import transducer_align_from_joint
from warpalign._transducer.beam import transducer_beam_decode
from warpalign._transducer.checks import check_reduction, explained
from warpalign._transducer.columns import check_columns, check_durations
from warpalign._transducer.greedy import transducer_greedy_decode
from warpalign._transducer.joint_autograd import JointSettings, joint_losses
from warpalign._transducer.joint_checks import check_joint, check_joint_inputs
from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import (
    WORKSPACE_LIMIT,
    BigBlanks,
    TransducerActivation,
    TransducerReduction,
    check_activation,
    check_dropout,
    check_omega,
)


def transducer_loss_from_joint(
    encoder_out: Tensor,
    predictor_out: Tensor,
    targets: Tensor,
    joint: JointWeights,
    encoder_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    sigma: float = 0.0,
    omega: float = 0.0,
    dropout: float = 0.0,
    generator: torch.Generator | int | None = None,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    workspace_limit: int = WORKSPACE_LIMIT,
    precision: Precision | None = None,
    reduction: TransducerReduction = "mean",
) -> Tensor:
    """Transducer loss of a joint network: RNN-T, multi-blank RNN-T or TDT. The logits are never in memory as a whole.

    The joint network is h[t, u] = activation(encoder_out[t] + predictor_out[u]), logits[t, u] = weight h[t, u] + bias. The
    loss is that of :func:`transducer_loss` on these logits, or of :func:`tdt_loss` if the joint network has durations. The
    logits of a batch have B·T·(U+1)·V numbers, and their gradient as many. This function computes them a tile at a time, in
    the forward pass and once more in the backward pass. The backward pass leaves out nodes whose posterior is below 2⁻⁴⁰
    (float64: 0), as in :func:`transducer_loss`.

    Source: Graves, Mohamed and Hinton, "Speech recognition with deep recurrent neural networks" (2013), section 3.2.

    Args:
        encoder_out: (B, T, H), or (T, H) for one utterance: outputs of the encoder; float64, float32, float16 or bfloat16.
        predictor_out: (B, U+1, H), or (U+1, H): outputs of the predictor for the start token and each label, of the dtype of
            encoder_out.
        targets: (B, U) labels, (U,) for one utterance, or (sum U_b,), all labels one after the other, which needs
            ``target_lengths``. Any integer type.
        joint: the output layer, its activation, and which columns are blanks and durations.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T. Padding is ignored, and its gradient is 0.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that an utterance's loss is plain RNN-T's on the columns of labels, with sigma = 0; only if the
            joint network has durations. Drawn per utterance, on the device of encoder_out.
        dropout: the probability that a hidden number h[t, u, j] becomes 0; the others are divided by 1 - dropout. The forward
            and the backward pass draw the same mask, which is never in memory.
        generator: draws the random numbers of omega and dropout: a torch.Generator, or an int, which seeds a new one for the
            call. None: torch's own generator.
        fastemit_lambda: FastEmit (arXiv 2010.11148): the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels, the end of an utterance and unknown labels: :class:`TransducerPenalties`. None: no penalty.
        clamp: every entry of a loss's gradient with respect to the logits is clipped to [−clamp, clamp]. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        workspace_limit: bytes that a call may allocate, besides what it keeps for the backward pass, and a GPU's list of
            nodes (4 bytes each). Less means smaller chunks of nodes, and more time. A limit that is too small for one chunk
            counts as the smallest that suffices.
        precision: how a GPU multiplies float32: "highest" as exactly as float32 does; "high" and "medium" with fewer bits on
            the matrix units. With 8 labels or more on compute capability 9.0 factors have 16 bits, from compute
            capability 8.0 on they otherwise have 22 ("high") or 11 ("medium"). None: what
            torch.get_float32_matmul_precision() says. A CPU always multiplies in float32.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume":
            sum of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Under torch.autocast all four floating-point tensors are cast, as a linear layer casts them. The CPU widens half types
    to float32. A GPU (compute capability 8.0 and later) multiplies them on its matrix units and adds in float32; hidden
    numbers and the gradients with respect to the logits are rounded to the half type there. Logits are too, except for 8
    labels or more on compute capability 9.0.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 tensors, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid, or FSDP has sharded the weight alone.
        NotImplementedError: for second derivatives.

    Examples:
        >>> encoder_out = torch.randn(4, 50, 64, requires_grad=True)
        >>> predictor_out = torch.randn(4, 11, 64, requires_grad=True)
        >>> output, targets = torch.nn.Linear(64, 30), torch.randint(0, 29, (4, 10))
        >>> joint = JointWeights(output.weight, output.bias, activation="tanh")
        >>> transducer_loss_from_joint(encoder_out, predictor_out, targets, joint).backward()
    """
    joint, kind, columns = check_joint(joint)
    inputs, unbatched = check_joint_inputs(
        encoder_out, predictor_out, targets, joint, encoder_lengths, target_lengths
    )
    device = inputs.encoder.device
    probability, draws = check_omega(omega), device_generator(generator, device)
    drop = check_dropout(dropout)
    limit = check_count(workspace_limit, "workspace_limit", 0)
    units = check_precision(precision)
    if probability > 0 and not columns.tdt:
        raise ValueError(f"omega: expected 0 without durations, got {omega}")
    assert columns.labels is not None
    settings = check_settings(
        columns,
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
    )
    reduction = check_reduction(reduction)
    batch, frames = inputs.encoder.shape[:2]
    if probability > 0:
        drawn = torch.rand(batch, generator=draws, device=device)
        inputs = inputs._replace(without_durations=drawn < probability)
    if drop > 0:
        inputs = inputs._replace(seed=torch.randint(2**62, (), generator=draws, device=device))
    states = inputs.predictor.shape[1]
    try:
        with naming_arguments():
            losses = joint_losses(inputs, JointSettings(kind, columns.tdt, drop, limit, units, 0, settings))
    except ValueError as error:
        raise explained(error, settings, frames, states, columns.labels) from None
    counts = BatchLengths(inputs.encoder_lengths, frames, inputs.target_lengths, states - 1)
    return reduced(losses, counts, reduction, unbatched)


_JOINT_DEFAULTS = JointWeights._field_defaults
_LOSS_DEFAULTS = transducer_loss_from_joint.__kwdefaults__ or {}


class TransducerJointLoss(nn.Module):
    """:func:`warpalign.transducer_loss_from_joint` as a module that owns the output layer, with fixed settings.

    The module also decodes and aligns, with the joint network that it trains: :meth:`greedy_decode`, :meth:`beam_decode`
    and :meth:`align`.

    Args:
        hidden: H, the last axis of the outputs of encoder and predictor.
        vocabulary: V, the number of all labels with blank and big blanks. With ``durations`` the layer has D additional rows.
        bias: whether the output layer has one.
        device: the device of the output layer. None: torch's default.
        dtype: the dtype of the output layer: float64, float32, float16 or bfloat16. None: torch's default.
        activation: "relu" or "tanh", of the joint network.
        blank: the column of the blank; below 0 it counts from V.
        durations: the D different numbers of frames of a TDT model, 0 to 64, at most 16. None: the model is not a TDT model.
        big_blanks: the frames that each big blank consumes, in the columns blank−1, blank−2, ..., or {column: frames}.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that the loss of an utterance is the RNN-T loss; only with ``durations``. 0 in evaluation mode.
        dropout: the probability that a hidden value is set to 0. 0 in evaluation mode.
        generator: draws the random numbers of omega and dropout. None: torch's own generator.
        fastemit_lambda: FastEmit: the gradient of label arcs is scaled by 1 + lambda.
        penalties: for late labels, the end of an utterance and unknown labels: :class:`TransducerPenalties`. None: no penalty.
        clamp: every entry of a loss's gradient with respect to the logits is clipped to [−clamp, clamp]. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf.
        workspace_limit: bytes that a call may allocate, besides what it keeps for the backward pass.
        precision: how a GPU multiplies float32: "highest", "high" or "medium". None: as torch's own products.
        reduction: "none", "sum", "mean", "mean_target", "mean_volume" or "mean_frame".

    Attributes:
        weight: (V + D, H), drawn as :class:`torch.nn.Linear` draws it.
        bias: (V + D,), or None.

    Raises:
        TypeError, ValueError: an argument of the layer does not fit, or there is no such reduction or activation. A call
            raises what :func:`warpalign.transducer_loss_from_joint` raises.

    Examples:
        >>> loss = TransducerJointLoss(64, 30, activation="tanh", fastemit_lambda=0.01)
        >>> encoder_out, predictor_out = torch.randn(4, 50, 64), torch.randn(4, 11, 64)
        >>> targets = torch.randint(0, 29, (4, 10))
        >>> loss(encoder_out, predictor_out, targets).backward()
        >>> loss.align(encoder_out, predictor_out, targets).frames.shape
        torch.Size([4, 10])
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
        durations: Sequence[int] | None = None,
        big_blanks: BigBlanks = (),
        sigma: float = 0.0,
        omega: float = 0.0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        fastemit_lambda: float = 0.0,
        penalties: TransducerPenalties | None = None,
        clamp: float | None = None,
        zero_infinity: bool = False,
        workspace_limit: int = WORKSPACE_LIMIT,
        precision: Precision | None = None,
        reduction: TransducerReduction = "mean",
    ) -> None:
        given = dict(locals())
        super().__init__()
        check_reduction(reduction)
        check_activation(activation)
        check_generator_of_module(generator)
        rows = check_count(vocabulary, "vocabulary") + (
            0 if durations is None else len(check_durations(durations))
        )
        check_columns(blank, durations, big_blanks, rows)
        size = check_count(hidden, "hidden")
        check_layer(dtype, device)
        self._options: dict[str, Any] = {name: given[name] for name in _LOSS_DEFAULTS}
        self._of_joint: dict[str, Any] = {
            name: given[name] for name in ("activation", "blank", "durations", "big_blanks")
        }
        self.weight = nn.Parameter(torch.empty(rows, size, device=device, dtype=dtype))
        self.bias = (
            nn.Parameter(torch.empty(rows, device=device, dtype=dtype)) if check_flag(bias, "bias") else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises the output layer again."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.shape[1])
            nn.init.uniform_(self.bias, -bound, bound)

    @property
    def joint(self) -> JointWeights:
        """The joint network, for :func:`warpalign.transducer_greedy_decode` and its like."""
        return JointWeights(self.weight, self.bias, **self._of_joint)

    def forward(
        self,
        encoder_out: Tensor,
        predictor_out: Tensor,
        targets: Tensor,
        encoder_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
    ) -> Tensor:
        """The loss: 0-d, or (B,) with reduction "none".

        Args:
            encoder_out: (B, T, H), or (T, H) for one utterance.
            predictor_out: (B, U+1, H), or (U+1, H).
            targets: (B, U) labels, (U,), or (sum U_b,).
            encoder_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
        """
        options = self._options if self.training else self._options | {"omega": 0.0, "dropout": 0.0}
        return transducer_loss_from_joint(
            encoder_out, predictor_out, targets, self.joint, encoder_lengths, target_lengths, **options
        )

    def greedy_decode(
        self, encoder_out: Tensor, encoder_lengths: Lengths | None, predictor: Predictor, **options: Any
    ) -> Hypotheses:
        """:func:`warpalign.transducer_greedy_decode` with the module's joint network.

        Args:
            encoder_out: (B, T, H).
            encoder_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            predictor: the network that reads labels.
            options: keyword arguments of :func:`warpalign.transducer_greedy_decode`, such as ``max_symbols_per_frame``.
        """
        return transducer_greedy_decode(encoder_out, encoder_lengths, predictor, self.joint, **options)

    def beam_decode(
        self, encoder_out: Tensor, encoder_lengths: Lengths | None, predictor: Predictor, **options: Any
    ) -> list[Hypotheses]:
        """:func:`warpalign.transducer_beam_decode` with the module's joint network.

        Args:
            encoder_out: (B, T, H).
            encoder_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            predictor: the network that reads labels.
            options: keyword arguments of :func:`warpalign.transducer_beam_decode`, such as ``beam`` and ``n_best``.
        """
        return transducer_beam_decode(encoder_out, encoder_lengths, predictor, self.joint, **options)

    def align(
        self,
        encoder_out: Tensor,
        predictor_out: Tensor,
        targets: Tensor,
        encoder_lengths: Lengths | None = None,
        target_lengths: Lengths | None = None,
        *,
        posteriors: bool = False,
    ) -> TransducerAlignment:
        """:func:`warpalign.transducer_align_from_joint` with the module's joint network, sigma and penalties.

        Args:
            encoder_out: (B, T, H), or (T, H) for one utterance.
            predictor_out: (B, U+1, H), or (U+1, H).
            targets: (B, U) labels, (U,), or (sum U_b,).
            encoder_lengths: (B,) true numbers of frames, 0 to T. None: all T.
            target_lengths: (B,) true numbers of labels, 0 to U. None: all U.
            posteriors: whether to compute the probability of each arc, too.
        """
        names = ("sigma", "penalties", "workspace_limit")
        options = {name: self._options[name] for name in names}
        return transducer_align_from_joint(
            encoder_out,
            predictor_out,
            targets,
            self.joint,
            encoder_lengths,
            target_lengths,
            posteriors=posteriors,
            **options,
        )

    def extra_repr(self) -> str:
        """The layer's sizes, and the settings that differ from their defaults."""
        defaults = _JOINT_DEFAULTS | _LOSS_DEFAULTS
        settings = self._of_joint | self._options
        shown = "".join(f", {name}={v!r}" for name, v in settings.items() if v != defaults[name])
        rows, hidden = self.weight.shape
        return f"hidden={hidden}, columns={rows}, bias={self.bias is not None}{shown}"
