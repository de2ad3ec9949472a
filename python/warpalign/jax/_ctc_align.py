"""Alignments of arrays by CTC: best paths, and posteriors of labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array

from warpalign._ctc.settings import Settings
from warpalign.jax._call import call
from warpalign.jax._ctc import Inputs, problem


class CTCAlignment(NamedTuple):
    """Best paths of a batch, by :func:`ctc_align`. For one utterance without a batch axis B is left out."""

    score: Array
    """(B,): log-probability of the best path; −inf where there is none, NaN where a logit is NaN or +inf."""
    labels: Array
    """(B, T), int32: the class of each frame: blank, a label, or star; −1 after T_b, and where there is no path."""
    scores: Array
    """(B, T): log-probability of each frame's class, less its prior; 0 after T_b, and where there is no path."""
    spans: Array
    """(B, U, 2), int32: first and last frame of each label; −1 after U_b, and where there is no path."""


def ctc_align(
    logits: Array,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Array | None = None,
    star: int | None = None,
) -> CTCAlignment:
    """The most probable CTC path of every utterance; :func:`warpalign.ctc_align` for arrays of JAX. It has no gradient.

    Args:
        logits: (B, T, C) or (T, C), as in :func:`ctc_loss`.
        targets: (B, U) or (U,), as in :func:`ctc_loss`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        label_prior: (C,) logarithms of priors of the classes, which are subtracted from log-probabilities.
        star: a label that matches any class but blank, with the log-probability of the most probable one. None: there is none.

    Returns:
        CTCAlignment(score, labels, scores, spans). Reals are float64 for float64 logits, else float32.

    Raises:
        TypeError, ValueError: as :func:`ctc_loss`.

    Examples:
        >>> import jax.numpy as jnp
        >>> logits, targets = jnp.zeros((4, 50, 30)), jnp.ones((4, 10), int)
        >>> ctc_align(logits, targets).spans.shape
        (4, 10, 2)
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
    )
    found = _call("ctc_align", settings, of)
    return CTCAlignment(*(part[0] if unbatched else part for part in found))


def ctc_posteriors(
    logits: Array,
    targets: Array,
    logit_lengths: Any = None,
    target_lengths: Any = None,
    *,
    blank: int = 0,
    from_log_probs: bool = False,
    label_prior: Array | None = None,
    star: int | None = None,
) -> Array:
    """The probability that a frame belongs to a label, given the labels; :func:`warpalign.ctc_posteriors` for arrays of JAX.

    Args:
        logits: (B, T, C) or (T, C), as in :func:`ctc_loss`.
        targets: (B, U) or (U,), as in :func:`ctc_loss`.
        logit_lengths: (B,) true numbers of frames T_b, 0 to T. None: all T.
        target_lengths: (B,) true numbers of labels U_b, 0 to U. None: all U.
        blank: the class of the blank; a negative number counts from C.
        from_log_probs: True: the logits are log-probabilities.
        label_prior: (C,) logarithms of priors of the classes, as in :func:`ctc_loss`.
        star: a label that matches any class but blank, as in :func:`ctc_loss`.

    Returns:
        (B, T, U) probabilities, or (T, U); float64 for float64 logits, else float32. 0 in the padding and where there is no path;
        NaN at the frames of an utterance with a NaN or +inf among its logits. They have no gradient.

    Raises:
        TypeError, ValueError: as :func:`ctc_loss`.

    Examples:
        >>> import jax.numpy as jnp
        >>> logits, targets = jnp.zeros((4, 50, 30)), jnp.ones((4, 10), int)
        >>> ctc_posteriors(logits, targets).shape
        (4, 50, 10)
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
    )
    _, found = _call("ctc_posteriors", settings, of)
    return found[0] if unbatched else found


def _call(operator: str, settings: Settings, of: Inputs) -> tuple[Array, ...]:
    of = of._replace(logits=jax.lax.stop_gradient(of.logits))
    return call(operator, shared=("label_prior",), **of._asdict(), **settings._asdict())
