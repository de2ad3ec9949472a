"""Arc weights of a transducer's lattice in fast_rnnt's and k2's form: px of labels, py of blanks.

px is (B, S, T+1), and (B, S, T) where a label consumes a frame; py is (B, S+1, T). All functions are differentiable.

Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236; HAT: Variani et al.,
"Hybrid autoregressive transducer", arXiv 2003.07705, section 3.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

Scores = tuple[Tensor, Tensor]
TYPES = ("regular", "modified", "constrained")


def _finished(px: Tensor, py: Tensor, boundary: Tensor | None, kind: str) -> Scores:
    """px (B, S, T) by type: a last frame without labels, or the blank that a label is forced to take along."""
    if kind == "modified":
        return px, py
    if kind == "constrained":
        return px + py[:, 1:], py
    px = functional.pad(px, (0, 1), value=-torch.inf)
    if boundary is None:
        return px, py
    frame = torch.arange(px.shape[2], device=px.device)
    return px.masked_fill(frame == boundary[:, 3, None, None], -torch.inf), py


class _Powers:
    """What the additive joint network needs of its two parts: exp(am - max), exp(lm - max), and the log of their product's sums."""

    def __init__(self, lm: Tensor, am: Tensor) -> None:
        self.lm_max, self.am_max = lm.amax(2, keepdim=True), am.amax(2, keepdim=True)
        self.lm, self.am = (lm - self.lm_max).exp(), (am - self.am_max).exp()
        sums = torch.matmul(self.lm, self.am.mT) + torch.finfo(self.am.dtype).tiny
        self.normalizers = sums.log() + self.lm_max + self.am_max.mT  # (B, S+1, T)


def _label_scores(lm: Tensor, am: Tensor, symbols: Tensor) -> Scores:
    """Of each label: lm (B, S, 1) and am (B, S, T)."""
    batch, labels = symbols.shape
    of_lm = lm[:, :labels].gather(2, symbols[:, :, None])
    return of_lm, am.mT.gather(1, symbols[:, :, None].expand(batch, labels, am.shape[1]))


def simple_scores(
    lm: Tensor, am: Tensor, symbols: Tensor, blank: int, kind: str, boundary: Tensor | None
) -> Scores:
    """Of the joint network whose logits are am[t] + lm[s]."""
    powers = _Powers(lm, am)
    of_lm, of_am = _label_scores(lm, am, symbols)
    px = of_am + of_lm - powers.normalizers[:, :-1]
    py = am[:, None, :, blank] + lm[:, :, None, blank] - powers.normalizers
    return _finished(px, py, boundary, kind)


def smoothed_scores(
    lm: Tensor,
    am: Tensor,
    symbols: Tensor,
    blank: int,
    lm_only_scale: float,
    am_only_scale: float,
    kind: str,
    boundary: Tensor | None,
) -> Scores:
    """The same, interpolated with the log-probabilities of lm alone, and of am with the mean distribution of lm."""
    powers = _Powers(lm, am)
    tiny = torch.finfo(lm.dtype).tiny
    of_lm, of_am = _label_scores(lm, am, symbols)
    sums = powers.lm.sum(2, keepdim=True)
    unigram = (powers.lm / sums).mean((0, 1)) + tiny  # (C,)
    lm_only = sums.log() + powers.lm_max  # (B, S+1, 1)
    am_only = ((powers.am @ unigram)[..., None].log() + powers.am_max).mT  # (B, 1, T)
    unigram = unigram.log()
    both = 1.0 - lm_only_scale - am_only_scale
    lm_only_scale, am_only_scale = lm_only_scale or 1e-20, am_only_scale or 1e-20
    px = (
        (of_am + of_lm - powers.normalizers[:, :-1]) * both
        + (of_lm - lm_only[:, :-1]) * lm_only_scale
        + (of_am + unigram[symbols][..., None] - am_only) * am_only_scale
    )
    am_blank, lm_blank = am[:, None, :, blank], lm[:, :, None, blank]
    py = (
        (am_blank + lm_blank - powers.normalizers) * both
        + (lm_blank - lm_only) * lm_only_scale
        + (am_blank + unigram[blank] - am_only) * am_only_scale
    )
    return _finished(px, py, boundary, kind)


def joint_scores(logits: Tensor, symbols: Tensor, blank: int, kind: str, boundary: Tensor | None) -> Scores:
    """Of logits (B, T, S+1, C)."""
    batch, frames, states, _ = logits.shape
    normalizers = logits.logsumexp(3).mT
    index = symbols[:, None, :, None].expand(batch, frames, states - 1, 1)
    px = logits[:, :, :-1].gather(3, index).squeeze(3).mT - normalizers[:, :-1]
    return _finished(px, logits[..., blank].mT - normalizers, boundary, kind)


def _spread(scores: Tensor, ranges: Tensor, states: int) -> Tensor:
    """(B, states, T): scores (B, T, s) at the states of ranges; -inf elsewhere."""
    whole = scores.new_full((*scores.shape[:2], states), -torch.inf)
    return whole.scatter(2, ranges, scores).mT


def pruned_scores(
    logits: Tensor,
    symbols: Tensor,
    ranges: Tensor,
    blank: int,
    kind: str,
    boundary: Tensor | None,
    hat: bool = False,
) -> Scores:
    """Of logits (B, T, s, C), whose states are ranges (B, T, s).

    hat: the blank has the probability sigmoid(logit) (Bernoulli), and the labels share the rest.
    """
    batch, labels = symbols.shape
    frames = logits.shape[1]
    ended = functional.pad(symbols, (0, 1), value=blank)
    of_states = ended[:, None].expand(batch, frames, labels + 1).gather(2, ranges)
    of_labels, of_blank = logits.gather(3, of_states[..., None]).squeeze(3), logits[..., blank]
    if hat:
        others = torch.cat((logits[..., :blank], logits[..., blank + 1 :]), 3).logsumexp(3)
        px = of_labels - others + functional.logsigmoid(-of_blank)
        py = functional.logsigmoid(of_blank)
    else:
        normalizers = logits.logsumexp(3)
        px, py = of_labels - normalizers, of_blank - normalizers
    # No label leaves the last state: the column of its px is taken off.
    return _finished(_spread(px, ranges, labels + 1)[:, :-1], _spread(py, ranges, labels + 1), boundary, kind)


def delayed(px: Tensor, py: Tensor, boundary: Tensor | None, delay_penalty: float) -> Tensor:
    """px with delay_penalty times (T_b - 1) / 2 - t added: above 0 it favours early labels (arXiv 2211.00490)."""
    frame = torch.arange(px.shape[2], device=px.device)
    length = py.shape[2] if boundary is None else boundary[:, 3, None, None]
    return px + (((length - 1) / 2 - frame) * delay_penalty).to(px.dtype)
