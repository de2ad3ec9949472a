#!/usr/bin/env python3
"""A speech recogniser trained end to end: LSTMs, soft and hard, and transducers of several families.

Speech is synthesised by espeak-ng where its library is installed (Debian: apt-get install espeak-ng), else tones that stand
for letters speak (align_speech_steps/voices.py). Held-out utterances have other sentences, some other voices, some more
noise. `--quick` takes a few words and a small model on a CPU; the whole is for a GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

import warpalign
from align_speech_steps import voices
from recognise_speech_steps import corpus, plots
from recognise_speech_steps.corpus import Corpus, Text
from recognise_speech_steps.model import FAMILIES, Recogniser
from recognise_speech_steps.train import batch_of, recognise, train

SEED = 0
BEAM = 4
ACTIVATIONS = ("soft", "hard")
MAIN_FAMILIES = ("RNN-T", "multi-blank 2 4 8", "TDT 0 to 4", "pruned")
QUICK_FAMILIES = ("RNN-T", "TDT 0 to 4")


class Size(NamedTuple):
    text: Text
    training: int
    held_out: int
    """Utterances of each kind."""
    steps: int
    batch: int
    hidden: int
    learning_rate: float


FULL = Size(corpus.TEXT, 5000, 300, 700, 64, 256, 4e-3)
QUICK = Size(corpus.FEW_WORDS, 160, 20, 250, 16, 64, 1e-2)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--family",
        choices=FAMILIES,
        action="append",
        help=f"may be repeated (default: {', '.join(MAIN_FAMILIES)}; quick: {', '.join(QUICK_FAMILIES)})",
    )
    parser.add_argument(
        "--activation", choices=ACTIVATIONS, action="append", help="of the LSTMs; may be repeated"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the plot (default: out)")
    parser.add_argument("--quick", action="store_true", help="few words, and a small model")
    parser.add_argument("--tones", action="store_true", help="tones, also where espeak-ng is installed")
    return parser.parse_args()


def visited(model: Recogniser, data: Corpus) -> float:
    """The share of frames and letters at which greedy search evaluates the joint network."""
    batch = batch_of(data, torch.arange(len(data.lengths)))
    found, nodes = model.walk(model.encode(batch.frames), batch.lengths)
    return float(nodes.sum()) / (int(data.lengths.sum()) + sum(map(len, found)))


def report(model: Recogniser, held_out: list[Corpus]) -> None:
    """Error rates of all held-out sets."""
    for part, data in zip(corpus.HELD_OUT, held_out, strict=True):
        greedy, beam = recognise(model, data), recognise(model, data, BEAM)
        print(
            f"  {part.name}: letter errors {greedy.letter_errors:.1%}, word errors {greedy.word_errors:.1%}, "
            f"beam {BEAM}: {beam.letter_errors:.1%}; nodes visited {visited(model, data):.0%}"
        )


def run(arguments: argparse.Namespace) -> None:
    size = QUICK if arguments.quick else FULL
    device = torch.device(arguments.device)
    families = arguments.family or (QUICK_FAMILIES if arguments.quick else MAIN_FAMILIES)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"warpalign {warpalign.__version__}, torch {torch.__version__}, {device}")
    processes = 1 if arguments.quick else os.cpu_count() or 1
    spoken, *held_out = corpus.make(
        size.text, size.training, size.held_out, SEED, device, processes, arguments.tones
    )
    print(
        f"voice: {'tones' if arguments.tones else voices.voice().name}; {size.training} utterances to train with, "
        f"{float(spoken.lengths.sum()) * corpus.FRAME / 60:.0f} minutes"
    )
    courses = {}
    for family in families:
        for activation in arguments.activation or ACTIVATIONS:
            name = f"{family}, {activation} gates"
            torch.manual_seed(SEED)
            model = Recogniser(FAMILIES[family], activation, size.hidden).to(device)
            course = train(model, spoken, size.steps, size.batch, SEED, size.learning_rate)
            courses[name] = course.losses
            print(
                f"\n{name}: loss {course.losses[0]:.2f} to {course.losses[-1]:.2f} per letter, "
                f"{course.utterances / course.seconds:.0f} utterances/s"
            )
            report(model.eval(), held_out)
    shown = batch_of(held_out[0], torch.tensor([0]))
    rows = model.encode(shown.frames)
    found = model.transducer.greedy_decode(rows, shown.lengths, model.predictor)
    path = arguments.out / "recognise_speech.png"
    plots.plot_recognition(shown, found, held_out[0].words[0], courses, path)
    print(f"\nLook at {path}: the losses, and an utterance with the letters heard.")


def main() -> int:
    begin = time.perf_counter()
    try:
        run(parse_arguments())
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        print(f"recognise_speech: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
