"""The losses of the transducer family of arrays: settings and meanings are those of warpalign.transducer_loss() and tdt_loss()."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.reduction import BatchReduction, check_reduction
from warpalign._transducer.columns import check_columns, check_durations
from warpalign._transducer.penalties import TransducerPenalties, check_settings
from warpalign._transducer.settings import BigBlanks, Settings, check_omega
from warpalign.jax._arrays import check_floats, check_integers, check_lengths
from warpalign.jax._call import call, in_place, places
from warpalign.jax._reduction import reduced
from warpalign.jax._scaling import dense, has_gradient, values_of


class Inputs(NamedTuple):
    logits: Array
    duration_logits: Array | None
    targets: Array
    logit_lengths: Array | None
    target_lengths: Array | None
    without_durations: Array | None


def _run(settings: Settings, needs_grad: bool, of: Inputs) -> tuple[Array, ...]:
    """(losses, saved)."""
    return call("transducer", **of._asdict(), **settings._asdict(), needs_grad=needs_grad)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _losses(settings: Settings, of: Inputs) -> Array:
    return _run(settings, False, of)[0]


def _forward(settings: Settings, primals: Inputs) -> tuple[Array, Any]:
    of = values_of(primals)
    if not (has_gradient(primals.logits) or has_gradient(primals.duration_logits)):
        return _run(settings, False, of)[0], None
    losses, saved = _run(settings, True, of)
    return losses, (of, saved, places(losses))


def _backward(settings: Settings, kept: Any, grad_loss: Any) -> tuple[Inputs | None]:
    grad = dense(grad_loss)
    if kept is None or grad is None:
        return (None,)
    of, saved, where = kept
    by_logits, by_durations = call(
        "transducer_gradient",
        **of._asdict(),
        **settings._asdict(),
        saved=saved,
        grad_loss=in_place(where, grad),
    )
    durations = None if of.duration_logits is None else by_durations
    return (Inputs(by_logits, durations, None, None, None, None),)  # type: ignore[arg-type]


_losses.defvjp(_forward, _backward, symbolic_zeros=True)


def check_logits(given: object, name: str) -> Array:
    if isinstance(given, jax.Array) and given.ndim not in (3, 4):
        raise ValueError(f"{name}: expected (B, T, U+1, V) or (T, U+1, V), got shape {given.shape}")
    logits = check_floats(given, name, "T, U+1, V", (3, 4))
    if logits.shape[-1] == 0 or logits.shape[-2] == 0:
        raise ValueError(f"{name}: expected no empty axis of states or labels, got shape {logits.shape}")
    return logits


def check_inputs(
    logits: Array,
    duration_logits: Array | None,
    targets: object,
    logit_lengths: object,
    target_lengths: object,
    without_durations: Array | None = None,
) -> tuple[Inputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis. Logits have been checked."""
    unbatched = logits.ndim == 3
    if unbatched:
        logits = logits[None]
        duration_logits = None if duration_logits is None else duration_logits[None]
    batch, frames, states = logits.shape[:3]
    labels = check_labels(targets, batch, states, f"logits {logits.shape} have", unbatched)
    of = Inputs(
        logits,
        duration_logits,
        labels,
        check_lengths(logit_lengths, "logit_lengths", batch, frames, "T", unbatched=unbatched),
        check_lengths(target_lengths, "target_lengths", batch, states - 1, "U", unbatched=unbatched),
        without_durations,
    )
    return of, unbatched


def check_labels(targets: object, batch: int, states: int, whose: str, unbatched: bool) -> Array:
    """(B, U) labels. whose: whose number of states they must fit, as an error puts it."""
    labels = check_integers(targets, "targets", "(B, U)")
    if unbatched and labels.ndim == 1:
        labels = labels[None]
    if labels.shape != (batch, states - 1):
        shape = f"({states - 1},)" if unbatched else f"({batch}, {states - 1}), (B, U)"
        raise ValueError(f"targets: expected shape {shape}, as {whose} U + 1 = {states}, got {labels.shape}")
    return labels


def _reduced_losses(of: Inputs, unbatched: bool, settings: Settings, reduction: BatchReduction) -> Array:
    frames, labels = of.logits.shape[1], of.targets.shape[1]
    losses = _losses(settings, of)
    return reduced(losses, of.logit_lengths, frames, of.target_lengths, labels, reduction, unbatched)


def check_duration_logits(
    logits: Array, duration_logits: object, durations: tuple[int, ...], name: str
) -> tuple[Array, Array]:
    """Logits of labels, and of durations, which may be the last columns of the former. name: of the labels' logits."""
    if duration_logits is None:
        columns = logits.shape[-1] - len(durations)
        if columns < 1:
            raise ValueError(
                f"{name}: expected columns of labels besides those of {len(durations)} durations, as duration_logits "
                f"is None, got {logits.shape[-1]}"
            )
        logits, duration_logits = logits[..., :columns], logits[..., columns:]
    checked = check_logits(duration_logits, "duration_logits")
    if checked.dtype != logits.dtype:
        raise TypeError(f"duration_logits: expected the dtype of {name}, {logits.dtype}, got {checked.dtype}")
    shape = (*logits.shape[:-1], len(durations))
    if checked.shape != shape:
        raise ValueError(f"duration_logits: expected shape {shape}, got {checked.shape}")
    return logits, checked


def transducer_loss(
    logits: Array,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = -1,
    big_blanks: BigBlanks = (),
    sigma: float = 0.0,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    from_log_probs: bool = False,
    reduction: BatchReduction = "mean",
) -> Array:
    """RNN-T loss, with or without big blanks, from a joint network's logits; :func:`warpalign.transducer_loss` for arrays of JAX.

    Args:
        logits: (B, T, U+1, V) or (T, U+1, V), float64, float32, float16 or bfloat16. Half types are read without conversion and
            summed in float32.
        targets: (B, U) labels, or (U,) for one utterance, of any integer type. A label lies in [0, V) and is not the column of a
            blank.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. Values of lists and NumPy arrays are checked when the function is
            traced, those of arrays on a CPU when it runs; on a GPU they are clamped into the range. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0.
        blank: the blank's column; below 0 it counts from V.
        big_blanks: the frames that each big blank consumes, 2 to 64; at most 8 of them. Their columns are blank−1, blank−2,
            ...; a dict {column: frames} names other columns.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        fastemit_lambda: the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels, the end of an utterance and unknown labels:
            :class:`warpalign.transducer.TransducerPenalties`. None: no penalty.
        clamp: every entry of the gradient of a loss is clipped to [−clamp, clamp], before it is multiplied by the upstream
            gradient. None: not clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        from_log_probs: True: the logits are log-probabilities, and the gradient is with respect to them.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume": sum
            of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it. An invalid label is an error of XLA on a CPU, and makes
            that utterance's loss and gradient NaN on a GPU. Forward mode is an error of JAX.
        NotImplementedError: for second derivatives.

    Examples:
        >>> logits, targets = jnp.zeros((4, 50, 11, 30)), jnp.ones((4, 10), int)
        >>> jax.grad(transducer_loss)(logits, targets).shape
        (4, 50, 11, 30)
    """
    logits = check_logits(logits, "logits")
    settings = check_settings(
        check_columns(blank, None, big_blanks, logits.shape[-1]),
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
        from_log_probs=from_log_probs,
    )
    reduction = check_reduction(reduction)
    of, unbatched = check_inputs(logits, None, targets, logit_lengths, target_lengths)
    return _reduced_losses(of, unbatched, settings, reduction)


def tdt_loss(
    label_logits: Array,
    duration_logits: Array | None,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    durations: Sequence[int],
    blank: int = -1,
    sigma: float = 0.0,
    omega: float = 0.0,
    key: Array | None = None,
    fastemit_lambda: float = 0.0,
    penalties: TransducerPenalties | None = None,
    clamp: float | None = None,
    zero_infinity: bool = False,
    from_log_probs: bool = False,
    reduction: BatchReduction = "mean",
) -> Array:
    """Token-and-duration transducer (TDT) loss; :func:`warpalign.tdt_loss` for arrays of JAX.

    Args:
        label_logits: (B, T, U+1, V) or (T, U+1, V), float64, float32, float16 or bfloat16.
        duration_logits: the same with D columns. None: they are the last D columns of ``label_logits``, (..., V+D).
        targets: (B, U) labels, or (U,) for one utterance, of any integer type. A label lies in [0, V) and is not the blank.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0.
        durations: D different numbers of frames, 0 to 64, one of them above 0; at most 16.
        blank: the blank's column; below 0 it counts from V.
        sigma: logit under-normalisation: subtracted from every arc's log-probability.
        omega: the probability that the loss of an utterance is the RNN-T loss of its label logits, with sigma = 0 and a gradient
            of 0 with respect to its duration logits. Drawn per utterance.
        key: a key of jax.random, which draws omega. None: omega is 0.
        fastemit_lambda: the gradient of label arcs is scaled by 1 + lambda. The loss is unchanged.
        penalties: for late labels and the end of an utterance: :class:`warpalign.transducer.TransducerPenalties`, without a
            wildcard. None: no penalty.
        clamp: every entry of a loss's gradient with respect to the label logits is clipped to [−clamp, clamp]. None: not
            clipped.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        from_log_probs: True: the logits are log-probabilities, and the gradient is with respect to them.
        reduction: "none" (B,); "sum"; "mean"; "mean_target"; "mean_volume" or "mean_frame", as in :func:`transducer_loss`.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError, NotImplementedError: as :func:`transducer_loss`.

    Examples:
        >>> logits, targets = jnp.zeros((4, 50, 11, 30 + 5)), jnp.ones((4, 10), int)
        >>> tdt_loss(logits, None, targets, durations=(0, 1, 2, 3, 4)).shape
        ()
    """
    label_logits = check_logits(label_logits, "label_logits")
    lengths = check_durations(durations)
    label_logits, duration_logits = check_duration_logits(
        label_logits, duration_logits, lengths, "label_logits"
    )
    settings = check_settings(
        check_columns(blank, lengths, (), label_logits.shape[-1] + len(lengths)),
        penalties,
        sigma=sigma,
        fastemit_lambda=fastemit_lambda,
        clamp=clamp,
        zero_infinity=zero_infinity,
        from_log_probs=from_log_probs,
    )
    reduction = check_reduction(reduction)
    drawn = drawn_utterances(omega, key, label_logits.shape[0] if label_logits.ndim == 4 else 1)
    of, unbatched = check_inputs(label_logits, duration_logits, targets, logit_lengths, target_lengths, drawn)
    return _reduced_losses(of, unbatched, settings, reduction)


def drawn_utterances(omega: object, key: Array | None, batch: int) -> Array | None:
    """(B,) bool: those whose loss is the RNN-T loss. None: there is none."""
    probability = check_omega(omega)
    if probability == 0:
        return None
    if key is None:
        raise ValueError("key: expected a key of jax.random with omega > 0, got None")
    return jax.random.uniform(key, (batch,), jnp.float32) < probability
