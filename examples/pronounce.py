#!/usr/bin/env python3
"""How words are pronounced: transducers from letters to phonemes, trained, decoded and aligned on a CPU.

Data: the CMU Pronouncing Dictionary (pronounce_steps/data.py); nothing is downloaded. `--quick` takes some 10 seconds of
one core's time for each family, the whole some 140.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

import warpalign
from pronounce_steps import data, plots
from pronounce_steps.model import FAMILIES, Pronouncer

SEED = 0
BATCH_LETTERS = 1024  # letters of a batch, which are some 140 words
BEAM = 4
SHOWN = ("phone", "thought", "boxes", "island")


class Size(NamedTuple):
    train: int | None
    test: int
    epochs: int
    hidden: int
    learning_rate: float


FULL = Size(train=None, test=3000, epochs=4, hidden=128, learning_rate=4e-3)
QUICK = Size(train=8000, test=300, epochs=4, hidden=64, learning_rate=1e-2)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--family",
        choices=FAMILIES,
        action="append",
        help="may be repeated (default: rnnt; quick: rnnt and tdt)",
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the plot (default: out)")
    parser.add_argument("--quick", action="store_true", help="fewer words, epochs and units")
    return parser.parse_args()


def edit_distance(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


class Result(NamedTuple):
    phoneme_errors: float
    word_errors: float
    words_per_second: float


def evaluate(model: Pronouncer, words: list[data.Word], beam: int) -> Result:
    """Edits for each phoneme, and words with an edit."""
    edits = wrong = phonemes = 0
    seconds = 0.0
    for batch in data.batches(words, BATCH_LETTERS):
        start = time.perf_counter()
        found = model.pronounce(batch.letters, beam)
        seconds += time.perf_counter() - start
        for got, row, length in zip(found, batch.phonemes.tolist(), batch.lengths.tolist(), strict=True):
            distance = edit_distance(got, row[:length])
            edits, wrong, phonemes = edits + distance, wrong + (distance > 0), phonemes + length
    return Result(edits / phonemes, wrong / len(words), len(words) / seconds)


def train(model: Pronouncer, words: list[data.Word], size: Size) -> float:
    """Seconds that training took."""
    start = time.perf_counter()
    steps = size.epochs * sum(1 for _ in data.batches(words, BATCH_LETTERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=size.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, size.learning_rate, total_steps=steps + 1)
    for epoch in range(size.epochs):
        total = count = 0.0
        for batch in data.batches(words, BATCH_LETTERS, seed=SEED + epoch):
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            if not bool(torch.isfinite(norm)):
                raise RuntimeError("the gradient is not finite")
            optimizer.step()
            schedule.step()
            total, count = total + loss.item(), count + 1
        print(
            f"  epoch {epoch + 1}: loss {total / count:.3f} per phoneme, {time.perf_counter() - start:.0f} s"
        )
    return time.perf_counter() - start


def draw(model: Pronouncer, words: list[data.Word], path: Path) -> None:
    shown = [next(word for word in words if word.spelling == spelling) for spelling in SHOWN]
    posteriors, frames = [], []
    for word in shown:
        alignment, label = model.align(data.as_batch([word]))
        posteriors.append(label[0, :, : len(word.phonemes)])
        frames.append(alignment.frames[0])
    plots.plot_alignments(shown, posteriors, frames, model.family.name, path)


def run(arguments: argparse.Namespace) -> None:
    size = QUICK if arguments.quick else FULL
    families = arguments.family or (["rnnt", "tdt"] if arguments.quick else ["rnnt"])
    arguments.out.mkdir(parents=True, exist_ok=True)
    words = data.load_words()
    training, test = data.split(words, size.train, size.test, SEED)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{len(words)} words; {len(training)} to train with, {len(test)} to test with")
    for name in families:
        torch.manual_seed(SEED)
        model = Pronouncer(FAMILIES[name], size.hidden)
        print(f"\n{model.family.name}, {sum(p.numel() for p in model.parameters())} parameters")
        before = evaluate(model, test, 1)
        seconds = train(model, training, size)
        print(f"  before training: phoneme errors {before.phoneme_errors:.1%}")
        for search, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):
            result = evaluate(model, test, beam)
            print(
                f"  {search}: phoneme errors {result.phoneme_errors:.1%}, word errors {result.word_errors:.1%}, "
                f"{result.words_per_second:.0f} words/s"
            )
        path = arguments.out / f"pronounce_{name}.png"
        draw(model, words, path)
        print(f"  trained in {seconds:.0f} s; alignments in {path}")


def main() -> int:
    try:
        run(parse_arguments())
    except (OSError, RuntimeError, ValueError, ModuleNotFoundError) as error:
        print(f"pronounce: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
