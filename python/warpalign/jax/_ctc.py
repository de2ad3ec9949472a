"""CTC's loss of arrays: settings and meanings are those of warpalign.ctc_loss()."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from warpalign._core.reduction import BatchReduction, check_reduction
from warpalign._ctc.settings import Settings, check_settings
from warpalign.jax._arrays import check_floats, check_integers, check_lengths
from warpalign.jax._call import call, in_place, places
from warpalign.jax._reduction import reduced
from warpalign.jax._scaling import dense, has_gradient, values_of


class Inputs(NamedTuple):
    logits: Array
    targets: Array
    logit_lengths: Array | None
    target_lengths: Array | None
    label_prior: Array | None


def _run(settings: Settings, needs_grad: bool, of: Inputs) -> tuple[Array, ...]:
    """(losses, saved)."""
    return call(
        "ctc_loss", shared=("label_prior",), **of._asdict(), **settings._asdict(), needs_grad=needs_grad
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def losses(settings: Settings, of: Inputs) -> Array:
    return _run(settings, False, of)[0]


def _forward(settings: Settings, primals: Inputs) -> tuple[Array, Any]:
    of = values_of(primals)
    if not has_gradient(primals.logits):
        return _run(settings, False, of)[0], None
    found, saved = _run(settings, True, of)
    return found, (of, saved, places(found))


def _backward(settings: Settings, kept: Any, grad_loss: Any) -> tuple[Inputs | None]:
    grad = dense(grad_loss)
    if kept is None or grad is None:
        return (None,)
    of, saved, where = kept
    (gradient,) = call(
        "ctc_gradient",
        shared=("label_prior",),
        **of._asdict(),
        **settings._asdict(),
        saved=saved,
        grad_loss=in_place(where, grad),
    )
    return (Inputs(gradient, None, None, None, None),)  # type: ignore[arg-type]


losses.defvjp(_forward, _backward, symbolic_zeros=True)


def _check_prior(given: object, logits: Array) -> Array | None:
    """(C,) of the losses' dtype."""
    if given is None:
        return None
    prior = check_floats(given, "label_prior", "C", (1,))
    classes = logits.shape[-1]
    if prior.shape != (classes,):
        raise ValueError(
            f"label_prior: expected shape ({classes},), one logarithm of a prior for each class, got {prior.shape}"
        )
    return jax.lax.stop_gradient(prior.astype(jnp.float64 if logits.dtype == jnp.float64 else jnp.float32))


def problem(
    given: object,
    targets: object,
    logit_lengths: object,
    target_lengths: object,
    label_prior: object,
    **settings: Any,
) -> tuple[Settings, Inputs, bool]:
    """What the operators take, and whether the input was one utterance without a batch axis."""
    logits = check_floats(given, "logits", "T, C")
    if logits.shape[-1] == 0:
        raise ValueError(f"logits: expected at least one class, got shape {logits.shape}")
    checked = check_settings(classes=logits.shape[-1], **settings)
    unbatched = logits.ndim == 2
    labels = check_integers(targets, "targets", "(B, U)")
    if unbatched:
        logits, labels = logits[None], labels[None] if labels.ndim == 1 else labels
    batch, frames = logits.shape[:2]
    if labels.ndim != 2 or labels.shape[0] != batch:
        shape = "(U,)" if unbatched else f"({batch}, U)"
        raise ValueError(f"targets: expected shape {shape}, got {labels.shape}")
    of = Inputs(
        logits,
        labels,
        check_lengths(logit_lengths, "logit_lengths", batch, frames, "T", unbatched=unbatched),
        check_lengths(target_lengths, "target_lengths", batch, labels.shape[1], "U", unbatched=unbatched),
        _check_prior(label_prior, logits),
    )
    return checked, of, unbatched


def ctc_loss(
    logits: Array,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    zero_infinity: bool = False,
    label_prior: Array | None = None,
    star: int | None = None,
    reduction: BatchReduction = "mean",
    batch_invariant: bool = False,
) -> Array:
    """CTC loss from a network's logits; :func:`warpalign.ctc_loss` for arrays of JAX.

    Args:
        logits: (B, T, C) or (T, C), float64, float32, float16 or bfloat16. Half types are read without conversion; arithmetic is
            float32 or better.
        targets: (B, U) labels, or (U,) for one utterance, of any integer type. A label lies in [0, C) and is not blank, or it is
            ``star``.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. Values of lists and NumPy arrays are checked when the function is
            traced, those of arrays on a CPU when it runs; on a GPU they are clamped into the range. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U. Padding is ignored, and its gradient is 0.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities, which are not normalised again, and the gradient is with respect to
            them.
        zero_infinity: the loss of an utterance without any path is 0 instead of inf. Its gradient is 0 in either case.
        label_prior: (C,) logarithms of priors of the classes, which are subtracted from the log-probabilities of a path. They have no
            gradient.
        star: a label that matches any class but blank. None: there is none.
        reduction: "none" (B,); "sum"; "mean" over the batch; "mean_target": mean of loss / max(U_b, 1); "mean_volume": sum
            of losses / max(sum of U_b, 1); "mean_frame": mean of loss / max(T_b, 1).
        batch_invariant: an utterance's results are bitwise identical whatever else is in the batch. They always are on a CPU.

    Returns:
        (B,), or 0-d with a reduction or for one utterance; float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: an argument is invalid; the message names it. An invalid label is an error of XLA on a CPU, and makes
            that utterance's loss and gradient NaN on a GPU. Forward mode is an error of JAX.
        NotImplementedError: for second derivatives.

    Examples:
        >>> logits, targets = jnp.zeros((4, 50, 30)), jnp.ones((4, 10), int)
        >>> jax.grad(ctc_loss)(logits, targets, [50, 45, 40, 30]).shape
        (4, 50, 30)
    """
    settings, of, unbatched = problem(
        logits,
        targets,
        logit_lengths,
        target_lengths,
        label_prior,
        blank=blank,
        star=star,
        from_log_probs=from_log_probs,
        zero_infinity=zero_infinity,
        batch_invariant=batch_invariant,
    )
    reduction = check_reduction(reduction)
    frames, most = of.logits.shape[1], of.targets.shape[1]
    found = losses(settings, of)
    return reduced(found, of.logit_lengths, frames, of.target_lengths, most, reduction, unbatched)
