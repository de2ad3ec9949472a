"""Training, and error rates of held-out utterances."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from align_speech_steps.model import LETTERS
from warpalign.transducer import Hypotheses

from .corpus import FRAME, Corpus
from .model import Recogniser

WARM_UP = 0.2  # the share of the steps over which the pruned loss gains its weight


class Batch(NamedTuple):
    frames: Tensor
    targets: Tensor
    lengths: Tensor
    counts: Tensor


def batch_of(data: Corpus, some: Tensor) -> Batch:
    """Utterances some (B,), cut to the longest of them."""
    lengths, counts = data.lengths[some], data.counts[some]
    device, on_device = data.frames.device, some.to(data.frames.device)
    return Batch(
        data.frames[on_device, : int(lengths.max())].float(),
        data.targets[on_device, : int(counts.max())],
        lengths.to(device, non_blocking=True),
        counts.to(device, non_blocking=True),
    )


def order(data: Corpus, size: int, seed: int) -> Iterator[Tensor]:
    """Batches of utterances of like lengths, again and again; a seed gives every model the same ones."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        shuffled = torch.randperm(len(data.lengths), generator=generator)
        pieces = []
        for piece in shuffled.split(16 * size):
            pieces += list(piece[data.lengths[piece].argsort()].split(size))
        for k in torch.randperm(len(pieces), generator=generator).tolist():
            yield pieces[k]


class Course(NamedTuple):
    """How a training went."""

    losses: list[float]
    """The mean loss of each of some 50 parts."""
    seconds: float
    utterances: int


def train(
    model: Recogniser, data: Corpus, steps: int, size: int, seed: int, learning_rate: float = 4e-3
) -> Course:
    """Trains for so many batches of `size` utterances."""
    device = data.frames.device
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps + 1, pct_start=0.15
    )
    every = max(1, steps // 50)
    losses, part, utterances = [], torch.zeros((), device=device), 0
    start = time.perf_counter()
    for step, some in zip(range(steps), order(data, size, seed), strict=False):
        batch = batch_of(data, some)
        scale = min(1.0, 0.1 + 0.9 * step / (WARM_UP * steps))
        loss = model.loss(*batch, pruned_scale=scale)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        part, utterances = part + loss.detach(), utterances + len(some)
        if (step + 1) % every == 0:
            losses.append(float(part) / every)
            part = torch.zeros((), device=device)
    return Course(losses, time.perf_counter() - start, utterances)


def edits(found: list[int], said: list[int]) -> int:
    """Insertions, deletions and substitutions."""
    row = list(range(len(said) + 1))
    for i, one in enumerate(found, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(said, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (one != other))
    return row[-1]


class Score(NamedTuple):
    """What a search made of some utterances."""

    letter_errors: float
    """Edits for each letter."""
    word_errors: float
    """Edits of words for each word."""
    delay_ms: float
    """The median time from the end of a word to its last letter, in utterances without error."""
    tokens: list[list[int]]


def tokens_of(found: Hypotheses) -> list[list[int]]:
    return [row[:count] for row, count in zip(found.tokens.tolist(), found.lengths.tolist(), strict=True)]


def _words(letters: list[int]) -> list[str]:
    return "".join(LETTERS[k] for k in letters).split()


def _delays(words: list[tuple[str, float]], frames: list[int]) -> list[float]:
    """Seconds from each word's end to the end of the frame at which its last letter is found."""
    delays, last = [], -1
    for word, end in words:
        last += len(word)
        delays.append((frames[last] + 1) * FRAME - end)
        last += 1  # the space
    return delays


def score(data: Corpus, tokens: list[list[int]], frames: list[list[int]]) -> Score:
    """Errors of the letters found, and how late they are found at these frames."""
    wrong = wrong_words = words = 0
    delays: list[float] = []
    targets, counts = data.targets.tolist(), data.counts.tolist()
    for k, found in enumerate(tokens):
        said = targets[k][: counts[k]]
        wrong += edits(found, said)
        of_word: dict[str, int] = {}
        heard, spoken = (
            [of_word.setdefault(word, len(of_word)) for word in _words(some)] for some in (found, said)
        )
        wrong_words, words = wrong_words + edits(heard, spoken), words + len(spoken)
        if found == said:
            delays += _delays(data.words[k], frames[k])
    median = 1e3 * sorted(delays)[len(delays) // 2] if delays else math.nan
    return Score(wrong / sum(counts), wrong_words / words, median, tokens)


@torch.no_grad()
def recognise(model: Recogniser, data: Corpus, beam: int = 1, size: int = 256) -> Score:
    """Letters of all utterances, by greedy search or with a beam."""
    tokens, frames = [], []
    for some in torch.arange(len(data.lengths)).split(size):
        batch = batch_of(data, some)
        rows = model.encode(batch.frames)
        if beam == 1:
            found = model.transducer.greedy_decode(rows, batch.lengths, model.predictor)
        else:
            found = model.transducer.beam_decode(rows, batch.lengths, model.predictor, beam=beam)[0]
        tokens += tokens_of(found)
        frames += found.frames.tolist()
    return score(data, tokens, frames)
