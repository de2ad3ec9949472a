"""Spoken sentences with known text: synthesised, mixed with noise, and turned into log-mel features."""

from __future__ import annotations

import multiprocessing
import random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from align_speech_steps import voices
from align_speech_steps.model import HOP, LETTERS, MELS, WINDOW, mel_filters
from align_speech_steps.voices import RATE, Manner, Speech

STACKED = 2  # spectra of 10 ms in a frame
FRAME = STACKED * HOP / RATE  # seconds of a frame: 20 ms
BANDS = STACKED * MELS
CHUNK = 256  # utterances whose spectra are computed together
PIECE = 50  # utterances that a process speaks in a row

HEARD = Manner(
    variants=("en", "en-us", "en+m1", "en+m3", "en+m4", "en+m7", "en+f1", "en+f2", "en+f4", "en-us+f3"),
    speeds=(110, 180),
    pitches=(25, 75),
)
"""The voices that the model is trained with."""
UNHEARD = HEARD._replace(variants=("en+m2", "en+m6", "en+f5", "en-us+m5"))


class Text(NamedTuple):
    """What is said."""

    words: list[str]
    least: int
    """The least number of words of an utterance."""
    most: int


TEXT = Text(voices.WORDS, 2, 4)
FEW_WORDS = Text(voices.WORDS[:12], 1, 2)


class Part(NamedTuple):
    """A kind of utterances."""

    name: str
    manner: Manner
    ratios: tuple[float, float]
    """The least and the greatest signal-to-noise ratio in decibels; each utterance draws its own."""


TRAINING = Part("training", HEARD, (5, 30))
HELD_OUT = (
    Part("heard voices", HEARD, (10, 30)),
    Part("other voices", UNHEARD, (10, 30)),
    Part("more noise", HEARD, (0, 5)),
)


class Corpus(NamedTuple):
    """Utterances on a device, padded with zeros."""

    frames: Tensor
    """(N, T, BANDS) float16."""
    lengths: Tensor
    """(N,) true numbers of frames, on the CPU."""
    targets: Tensor
    """(N, U) indices of LETTERS."""
    counts: Tensor
    """(N,) true numbers of letters, on the CPU."""
    words: list[list[tuple[str, float]]]
    """The words of each utterance, and when each of them ends, in seconds."""


def sentences(
    text: Text, count: int, seed: int, without: frozenset[tuple[str, ...]] = frozenset()
) -> list[list[str]]:
    """So many sequences of words, none of which is in `without`."""
    draw = random.Random(seed)
    found: list[list[str]] = []
    while len(found) < count:
        words = draw.choices(text.words, k=draw.randint(text.least, text.most))
        if tuple(words) not in without:
            found.append(words)
    return found


class _Task(NamedTuple):
    manner: Manner
    texts: list[list[str]]
    seed: int
    tones: bool


def _speak_some(task: _Task) -> list[tuple[np.ndarray, list[str], list[tuple[float, float]]]]:
    """Arrays in place of tensors, each of which would travel by a file descriptor."""
    voice = voices.TONES if task.tones else voices.voice(task.manner)
    spoken = [voice.speak(words, random.Random(task.seed + k)) for k, words in enumerate(task.texts)]
    return [(one.sound.numpy(), one.words, one.times) for one in spoken]


def speak(
    tasks: list[tuple[Manner, list[list[str]]]], seed: int, processes: int, tones: bool
) -> list[list[Speech]]:
    """Each list of texts as speech, by so many processes; their number changes nothing."""
    pieces, of_task = [], []
    for k, (manner, texts) in enumerate(tasks):
        for first in range(0, len(texts), PIECE):
            own_seed = 1_000_003 * (seed + len(tasks) * first + k)
            pieces.append(_Task(manner, texts[first : first + PIECE], own_seed, tones))
            of_task.append(k)
    if processes == 1:
        done = [_speak_some(piece) for piece in pieces]
    else:
        with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
            done = pool.map(_speak_some, pieces, chunksize=1)
    found: list[list[Speech]] = [[] for _ in tasks]
    for k, some in zip(of_task, done, strict=True):
        found[k] += [Speech(torch.from_numpy(sound), words, times) for sound, words, times in some]
    return found


def _spectra(sounds: Tensor, lengths: Tensor, ratios: Tensor, generator: torch.Generator) -> Tensor:
    """(B, T, BANDS) of (B, N) samples with white and brown noise of (B,) decibels below the speech."""
    device = sounds.device
    inside = torch.arange(sounds.shape[1], device=device) < lengths[:, None]
    noise = torch.randn(sounds.shape, generator=generator, device=device)
    slow = torch.nn.functional.avg_pool1d(noise[:, None], 15, 1, 7, count_include_pad=False)[:, 0] * 15**0.5
    noise = torch.where(torch.rand(len(sounds), 1, generator=generator, device=device) < 0.5, noise, slow)
    loudness = ((sounds.square() * inside).sum(1) / lengths).sqrt()
    mixed = (sounds + noise * (loudness * 10 ** (-ratios / 20))[:, None]) * inside
    spectrum = torch.stft(
        mixed, WINDOW, HOP, window=torch.hann_window(WINDOW, device=device), return_complex=True
    )
    power = spectrum.abs().square().transpose(1, 2) @ mel_filters().to(device)
    bands = (power / loudness.square()[:, None, None]).add(1e-2).log()
    bands = bands[:, : bands.shape[1] // STACKED * STACKED].reshape(len(sounds), -1, BANDS)
    frames = _frames_of(lengths)
    shown = (torch.arange(bands.shape[1], device=device) < frames[:, None])[..., None]
    return (bands - (bands * shown).sum(1, keepdim=True) / frames[:, None, None]) / 3 * shown


def _frames_of(samples: Tensor) -> Tensor:
    """As many frames as have all their spectra."""
    return (samples // HOP + 1) // STACKED


def corpus(spoken: list[Speech], part: Part, seed: int, device: torch.device) -> Corpus:
    """Features of utterances with noise."""
    generator = torch.Generator(device).manual_seed(seed)
    samples = torch.tensor([len(one.sound) for one in spoken])
    lengths = _frames_of(samples)
    frames = torch.zeros(len(spoken), int(lengths.max()), BANDS, dtype=torch.float16, device=device)
    for first in range(0, len(spoken), CHUNK):
        some = slice(first, first + CHUNK)
        sounds = torch.nn.utils.rnn.pad_sequence([one.sound for one in spoken[some]], batch_first=True)
        ratios = torch.empty(len(sounds), device=device).uniform_(*part.ratios, generator=generator)
        found = _spectra(sounds.to(device), samples[some].to(device), ratios, generator)
        frames[some, : found.shape[1]] = found.half()[:, : frames.shape[1]]
    letters = [torch.tensor([LETTERS.index(c) for c in " ".join(one.words)]) for one in spoken]
    return Corpus(
        frames,
        lengths,
        torch.nn.utils.rnn.pad_sequence(letters, batch_first=True).to(device),
        torch.tensor([len(one) for one in letters]),
        [[(word, end) for word, (_, end) in zip(one.words, one.times, strict=True)] for one in spoken],
    )


def make(
    text: Text,
    training: int,
    held_out: int,
    seed: int,
    device: torch.device,
    processes: int = 1,
    tones: bool = False,
) -> list[Corpus]:
    """The training set, and the held-out sets, whose sentences are others.

    Args:
        text: what is said.
        training: utterances to train with.
        held_out: utterances of each part of `HELD_OUT`.
        seed: of texts, voices and noise.
        device: where the features are computed and stay.
        processes: that speak.
        tones: whether tones speak, also where espeak-ng is installed.
    """
    parts = [TRAINING, *HELD_OUT]
    texts = [sentences(text, training, seed)]
    known = frozenset(map(tuple, texts[0]))
    texts += [sentences(text, held_out, seed + 1 + k, known) for k in range(len(HELD_OUT))]
    tasks = [(part.manner, some) for part, some in zip(parts, texts, strict=True)]
    spoken = speak(tasks, seed, processes, tones)
    return [
        corpus(some, part, seed + k, device) for k, (some, part) in enumerate(zip(spoken, parts, strict=True))
    ]
