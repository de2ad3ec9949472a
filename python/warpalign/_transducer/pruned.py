"""The pruned transducer loss: a joint network over the few states of each frame that an additive one finds likely."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import (
    DTYPES,
    Precision,
    check_count,
    check_number,
    check_precision,
    naming_arguments,
    shape_of,
)
from warpalign._core.labels import check_in_place
from warpalign._core.randomness import device_generator
from warpalign._core.reduction import BatchLengths, reduced
from warpalign._core.series import Lengths
from warpalign._transducer.checks import check_reduction, explained
from warpalign._transducer.joint_autograd import JointInputs, JointSettings, joint_losses
from warpalign._transducer.joint_checks import check_joint, check_joint_inputs
from warpalign._transducer.joint_weights import JointWeights
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.prune_ranges import band, first_states
from warpalign._transducer.settings import WORKSPACE_LIMIT, TransducerReduction, check_dropout
from warpalign._transducer.simple import SimpleSettings, passing_posteriors, simple_losses


class PrunedTransducerLoss(NamedTuple):
    """The result of :func:`transducer_loss_pruned`."""

    loss: Tensor
    """simple_scale · simple + pruned_scale · pruned: 0-d, or (B,) with reduction "none"."""
    simple: Tensor
    """The loss of the additive joint network, in the shape of ``loss``."""
    pruned: Tensor
    """The loss of the joint network in the band, in the shape of ``loss``."""
    first_states: Tensor
    """(B, T), or (T,) for one utterance, int64: frame t's band are the states first_states[t] to first_states[t] +
    prune_range − 1."""


def transducer_loss_pruned(
    encoder_out: Tensor,
    predictor_out: Tensor,
    targets: Tensor,
    joint: JointWeights,
    encoder_logits: Tensor,
    predictor_logits: Tensor,
    encoder_lengths: Lengths | None = None,
    target_lengths: Lengths | None = None,
    *,
    prune_range: int = 5,
    simple_scale: float = 0.5,
    pruned_scale: float = 1.0,
    predictor_only_scale: float = 0.25,
    sigma: float = 0.0,
    delay_penalty: float = 0.0,
    dropout: float = 0.0,
    generator: torch.Generator | int | None = None,
    fastemit_lambda: float = 0.0,
    clamp: float | None = None,
    zero_infinity: bool = False,
    inplace_grad: bool = False,
    workspace_limit: int = WORKSPACE_LIMIT,
    precision: Precision | None = None,
    reduction: TransducerReduction = "mean",
) -> PrunedTransducerLoss:
    """Pruned transducer loss: RNN-T or multi-blank RNN-T whose joint network runs on ``prune_range`` states of each frame.

    An additive joint network, whose logits are encoder_logits[t] + predictor_logits[u], gives a first loss without
    logits of nodes in memory, and the posteriors of its arcs. They determine the band: for each frame the prune_range
    neighbouring states that paths are most likely to pass. The joint network itself then runs on the band alone, as in
    :func:`transducer_loss_from_joint`: on B·T·prune_range nodes instead of B·T·(U+1), whose logits are never in memory
    as a whole. Its loss sums over the paths within the band, so that it is at least the exact loss.

    Nothing waits for a GPU, so that a CUDA graph can capture a training step. No path exists within the band if an
    utterance has more than (prune_range − 1) · T_b labels; its pruned loss is then inf.

    Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236.

    Args:
        encoder_out: (B, T, H), or (T, H) for one utterance: outputs of the encoder, projected to the joint network's size;
            float64, float32, float16 or bfloat16.
        predictor_out: (B, U+1, H), or (U+1, H): outputs of the predictor for the start token and each label, of the dtype of
            encoder_out.
        targets: (B, U) labels, or (U,) for one utterance. Any integer type.
        joint: the output layer, its activation, and which columns are blanks. Durations (TDT) are not supported.
        encoder_logits: (B, T, V), or (T, V): a linear layer of the encoder's outputs, for the additive joint network.
        predictor_logits: (B, U+1, V), or (U+1, V): a linear layer of the predictor's outputs.
        encoder_lengths: (B,) true numbers of frames T_b, 0 to T: integers, as a tensor on the device of encoder_out, a list, a
            tuple or an array. None: all T. Padding is ignored, and its gradient is 0.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        prune_range: s, the number of states of a frame that are kept, at least 2. U + 1 or more keeps all of them.
        simple_scale: the factor of the additive network's loss.
        pruned_scale: the factor of the joint network's loss. Training often starts with a small one, as the bands of an
            untrained network are arbitrary.
        predictor_only_scale: the log-probabilities of the additive network are interpolated with those of the predictor
            alone, with this weight, which keeps the encoder from a prediction of its own: 0 to 1.
        sigma: logit under-normalisation: subtracted from every arc's log-probability, in both losses.
        delay_penalty: (arXiv 2211.00490) delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t, in
            both losses: above 0 it favours early labels.
        dropout: the probability that a hidden number of the joint network becomes 0; the others are divided by 1 − dropout.
        generator: draws the random numbers of dropout: a torch.Generator, or an int, which seeds a new one for the call.
            None: torch's own generator.
        fastemit_lambda: FastEmit (arXiv 2010.11148): the gradient of label arcs is scaled by 1 + lambda, in both losses.
        clamp: every entry of a pruned loss's gradient with respect to the joint network's logits is clipped to [−clamp, clamp].
            None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        inplace_grad: the gradients with respect to encoder_logits and predictor_logits are written into their memory in the
            backward pass, where both need one. Logits must be the result of an operation and serve nothing else; neither
            torch.compile nor torch.func, and one backward.
        workspace_limit: bytes that the joint network's calls may allocate, besides what they keep for the backward pass.
        precision: how a GPU multiplies float32 in the joint network: "highest", "high" or "medium". None: what
            torch.get_float32_matmul_precision() says, which always holds for the additive network.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume":
            sum of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Returns:
        The weighted loss, both losses, and the band.

    Raises:
        TypeError, ValueError: an argument is invalid, or FSDP has sharded the weight alone.
        NotImplementedError: for durations, and for second derivatives.

    Examples:
        >>> encoder_out, predictor_out = torch.randn(4, 50, 64), torch.randn(4, 11, 64)
        >>> output, targets = torch.nn.Linear(64, 30), torch.randint(0, 29, (4, 10))
        >>> of_encoder, of_predictor = torch.nn.Linear(64, 30), torch.nn.Linear(64, 30)
        >>> joint = JointWeights(output.weight, output.bias, activation="tanh")
        >>> result = transducer_loss_pruned(
        ...     encoder_out, predictor_out, targets, joint, of_encoder(encoder_out), of_predictor(predictor_out)
        ... )
        >>> result.loss.backward()
        >>> result.first_states.shape
        torch.Size([4, 50])
    """
    joint, kind, columns = check_joint(joint)
    if columns.tdt:
        raise NotImplementedError(
            f"joint: expected no durations in a pruned loss, got {tuple(columns.durations)}"
        )
    inputs, unbatched = check_joint_inputs(
        encoder_out, predictor_out, targets, joint, encoder_lengths, target_lengths
    )
    additive = _check_both(encoder_logits, predictor_logits, inputs, unbatched)
    in_place = check_in_place(inplace_grad, encoder_logits, predictor_logits)
    device, states = inputs.encoder.device, inputs.predictor.shape[1]
    width = min(check_count(prune_range, "prune_range", 2), states)
    scales = check_number(simple_scale, "simple_scale"), check_number(pruned_scale, "pruned_scale")
    alone = check_number(predictor_only_scale, "predictor_only_scale")
    if alone > 1:
        raise ValueError(f"predictor_only_scale: expected a number from 0 to 1, got {predictor_only_scale}")
    settings = check_settings(
        columns,
        TransducerPenalties(delay_penalty=delay_penalty),
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
    )
    drop = check_dropout(dropout)
    limit, units = check_count(workspace_limit, "workspace_limit", 0), check_precision(precision)
    reduction = check_reduction(reduction)
    if drop > 0:
        draws = device_generator(generator, device)
        inputs = inputs._replace(seed=torch.randint(2**62, (), generator=draws, device=device))
    of_joint = JointSettings(kind, False, drop, limit, units, width, settings)
    simple, pruned, first = _losses(inputs, additive, in_place, alone, of_joint)
    sizes = BatchLengths(inputs.encoder_lengths, inputs.encoder.shape[1], inputs.target_lengths, states - 1)
    simple, pruned = (reduced(losses, sizes, reduction, unbatched) for losses in (simple, pruned))
    loss = scales[0] * simple + scales[1] * pruned
    return PrunedTransducerLoss(loss, simple, pruned, first[0] if unbatched else first)


def _losses(
    inputs: JointInputs,
    additive: tuple[Tensor, Tensor],
    in_place: bool,
    alone: float,
    of_joint: JointSettings,
) -> tuple[Tensor, Tensor, Tensor]:
    """(B,) losses of both networks, and the band's first states (B, T)."""
    lengths, counts, settings = inputs.encoder_lengths, inputs.target_lengths, of_joint.of_lattice
    frames, states, width = inputs.encoder.shape[1], inputs.predictor.shape[1], of_joint.band_states
    of_simple = SimpleSettings(
        (settings.blank, *settings.big_blank_columns),
        settings.durations,
        alone,
        settings.sigma,
        settings.fastemit_lambda,
        settings.delay_penalty,
        settings.zero_infinity,
    )
    try:
        with naming_arguments():
            simple, by_arc = simple_losses(*additive, inputs.targets, lengths, counts, in_place, of_simple)
            if settings.durations:
                first = first_states(
                    *passing_posteriors(by_arc, settings.durations),
                    frames if lengths is None else lengths,
                    states - 1 if counts is None else counts,
                    width,
                    width - 1,
                ).int()
            else:
                first = band(by_arc, lengths, counts, width)
            del by_arc  # which the joint network's workspace may take
            pruned = joint_losses(inputs._replace(band=first), of_joint)
    except ValueError as error:
        raise explained(error, settings, frames, states, inputs.weight.shape[0]) from None
    return simple, pruned, first.long()


def _check_both(
    encoder: object, predictor: object, inputs: JointInputs, unbatched: bool
) -> tuple[Tensor, Tensor]:
    """The additive network's logits (B, T, V) and (B, U+1, V)."""
    if inputs.targets.dim() == 1:
        raise ValueError(f"targets: expected (B, U) in a pruned loss, got shape {shape_of(inputs.targets)}")
    batch, frames = inputs.encoder.shape[:2]
    states, labels = inputs.predictor.shape[1], inputs.weight.shape[0]
    device = inputs.encoder.device
    return (
        _check_additive(encoder, "encoder_logits", (batch, frames, labels), device, unbatched),
        _check_additive(predictor, "predictor_logits", (batch, states, labels), device, unbatched),
    )


def _check_additive(
    given: object, name: str, shape: tuple[int, int, int], device: torch.device, unbatched: bool
) -> Tensor:
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    if given.dtype not in DTYPES:
        raise TypeError(f"{name}: expected dtype float64, float32, float16 or bfloat16, got {given.dtype}")
    if given.device != device:
        raise ValueError(f"{name}: expected the device of encoder_out, {device}, got {given.device}")
    expected = shape[1:] if unbatched else shape
    if given.shape != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {shape_of(given)}")
    return given.unsqueeze(0) if unbatched else given
