"""k2's transducer losses, of k2 1.24: simple, smoothed and pruned RNN-T, and HAT.

:func:`install` puts them under their names in k2, where icefall's recipes find them.

Those that fast_rnnt has with the same signature are :mod:`warpalign.compat.fast_rnnt`'s. ``rnnt_loss`` and
``rnnt_loss_pruned`` have no ``return_grad`` here, the latter has ``use_hat_loss``. What differs is what is said there.
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from warpalign._transducer import rnnt_scores
from warpalign.compat._fast_rnnt import check, check_pruned, loss_of
from warpalign.compat._installation import Installation, Installations, Replacement
from warpalign.compat.fast_rnnt import (
    do_rnnt_pruning,
    get_rnnt_logprobs,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
    get_rnnt_prune_ranges,
    joint_mutual_information_recursion,
    mutual_information_recursion,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)
from warpalign.compat.fast_rnnt import get_rnnt_logprobs_joint as _logprobs_joint

__all__ = [
    "do_rnnt_pruning",
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
    "get_rnnt_prune_ranges",
    "install",
    "joint_mutual_information_recursion",
    "mutual_information_recursion",
    "rnnt_loss",
    "rnnt_loss_pruned",
    "rnnt_loss_simple",
    "rnnt_loss_smoothed",
    "uninstall",
]

_LOSSES = tuple(name for name in __all__ if name not in ("install", "uninstall"))

_installations = Installations()


def install() -> Installation:
    """Lets recipes of icefall train with these functions: ``k2.rnnt_loss_smoothed`` and its like are this module's.

    A call of k2's functions by their names in ``k2`` is enough, as in icefall's models; everything else of k2 stays.

    Returns:
        The replaced names. A ``with`` block puts the originals back at its end, as ``uninstall()`` does.

    Raises:
        ImportError: k2 is not installed, or lacks one of the functions.
    """
    try:
        package = import_module("k2")
    except ImportError as error:
        raise ImportError(f"install: expected k2, got {error!r}: install k2") from error
    missing = [name for name in _LOSSES if not hasattr(package, name)]
    if missing:
        raise ImportError(f"install: expected k2.{missing[0]}, got a k2 without it: install k2 1.24 or later")
    return _installations.make(Replacement(package, name, globals()[name], f"k2.{name}") for name in _LOSSES)


def uninstall() -> None:
    """Puts the originals back. Without :func:`install` it does nothing."""
    _installations.undo()


def get_rnnt_logprobs_joint(
    logits: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    rnnt_type: str = "regular",
    boundary: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """px and py of logits (B, T, S+1, C).

    Args:
        logits: (B, T, S+1, C) logits of the joint network.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
    """
    return _logprobs_joint(logits, symbols, termination_symbol, boundary, rnnt_type)


def rnnt_loss(
    logits: Tensor,
    symbols: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
) -> Tensor:
    """RNN-T loss of logits (B, T, S+1, C).

    Args:
        logits: (B, T, S+1, C) logits of the joint network.
        symbols: (B, S) labels, int64.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
    """
    scores = _logprobs_joint(logits, symbols, termination_symbol, boundary, rnnt_type)
    loss = loss_of(scores, boundary, delay_penalty, reduction, False)
    assert isinstance(loss, Tensor)
    return loss


def rnnt_loss_pruned(
    logits: Tensor,
    symbols: Tensor,
    ranges: Tensor,
    termination_symbol: int,
    boundary: Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str | None = "mean",
    use_hat_loss: bool = False,
) -> Tensor:
    """RNN-T loss of logits (B, T, s_range, C) of the states in ranges; with use_hat_loss of HAT, whose blank is column 0.

    Args:
        logits: (B, T, s_range, C) logits of the joint network at the states in ranges.
        symbols: (B, S) labels, int64.
        ranges: (B, T, s_range) states of each frame, int64, ascending by 1.
        termination_symbol: the column of the blank.
        boundary: (B, 4), int64: first label, first frame, number of labels, number of frames. None: (0, 0, S, T).
        rnnt_type: "regular"; "modified": a label consumes a frame; "constrained": the same, with the blank of the next state.
        delay_penalty: delay_penalty · ((T_b − 1)/2 − t) is added to the weight of a label at frame t; ignored unless above 0.
        reduction: "none" (B,), "mean" or "sum".
        use_hat_loss: whether the blank has the probability sigmoid(logit), and the labels share the rest.
    """
    if use_hat_loss:
        check(termination_symbol == 0, "termination_symbol", "0 with use_hat_loss", termination_symbol)
    check_pruned(logits, symbols, ranges, rnnt_type, boundary)
    scores = rnnt_scores.pruned_scores(
        logits, symbols, ranges, termination_symbol, rnnt_type, boundary, use_hat_loss
    )
    loss = loss_of(scores, boundary, delay_penalty, reduction, False)
    assert isinstance(loss, Tensor)
    return loss
