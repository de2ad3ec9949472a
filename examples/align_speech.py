#!/usr/bin/env python3
"""When is which word spoken? Trains a small acoustic model with CTC on synthesised speech, and aligns new sentences with it.

The voice is espeak-ng where its library is installed (Debian: apt-get install espeak-ng), else tones that stand for letters
(align_speech_steps/voices.py). Both know when they speak each word, so that the alignment's error is known. Runs on one
core of a CPU.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

import warpalign
from align_speech_steps import model, plots, voices

SEED = 0
FRESH = 20  # sentences that the model has not heard


class Size(NamedTuple):
    sentences: int
    epochs: int
    hidden: int


FULL = Size(sentences=400, epochs=30, hidden=96)
QUICK = Size(sentences=200, epochs=30, hidden=96)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the plot (default: out)")
    parser.add_argument("--quick", action="store_true", help="half as many sentences")
    parser.add_argument("--tones", action="store_true", help="tones, also where espeak-ng is installed")
    return parser.parse_args()


def print_words(one: voices.Speech, times: list[tuple[float, float]]) -> None:
    print(f"  {'word':<10} {'start':>6} {'end':>6}   {'spoken':>6} {'to':>6}   seconds")
    for word, found, true in zip(one.words, times, one.times, strict=True):
        print(f"  {word:<10} {found[0]:6.2f} {found[1]:6.2f}   {true[0]:6.2f} {true[1]:6.2f}")


def run(arguments: argparse.Namespace) -> None:
    size = QUICK if arguments.quick else FULL
    voice = voices.TONES if arguments.tones else voices.voice()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(
        "Which word is spoken when: an acoustic model is trained with ctc_loss; ctc_align finds the words of new sentences."
    )
    print(
        f"voice: {voice.name}"
        + ("" if voice is not voices.TONES else "; espeak-ng speaks where it is installed")
    )

    draw = random.Random(SEED)
    spoken = [voice.speak(words, draw) for words in voices.sentences(size.sentences, SEED + 1)]
    fresh = [voice.speak(words, draw) for words in voices.sentences(FRESH, SEED + 2)]
    seconds = sum(len(one.sound) for one in spoken) / voices.RATE
    torch.manual_seed(SEED)
    acoustic = model.Acoustic(size.hidden)
    print(
        f"{len(spoken)} sentences to train with, {seconds / 60:.0f} minutes of speech, "
        f"{sum(p.numel() for p in acoustic.parameters())} parameters"
    )
    start = time.perf_counter()
    model.train(acoustic, spoken, size.epochs, batch=16, seed=SEED)
    print(f"trained in {time.perf_counter() - start:.0f} s")

    found = [model.word_times(acoustic, one) for one in fresh]
    print(f"\nthe first of {FRESH} new sentences; greedy search hears: {found[0][1]}")
    print_words(fresh[0], found[0][0])
    pairs = [
        (a, b)
        for one, (times, _) in zip(fresh, found, strict=True)
        for a, b in zip(times, one.times, strict=True)
    ]
    for k, name in enumerate(("start", "end")):
        errors = torch.tensor([abs(a[k] - b[k]) for a, b in pairs])
        print(
            f"  {name}s of {len(pairs)} words: median error {1e3 * errors.median():.0f} ms, "
            f"nine of ten within {1e3 * errors.quantile(0.9):.0f} ms"
        )
    path = arguments.out / "align_speech.png"
    plots.plot_words(fresh[0], found[0][0], voice.name.split(",")[0], path)
    print(f"Look at {path}: the words over the waveform.")


def main() -> int:
    try:
        run(parse_arguments())
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        print(f"align_speech: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
