"""Speech of known words at known times: by espeak-ng where its library is installed, else tones for letters."""

from __future__ import annotations

import ctypes
import ctypes.util
import random
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

RATE = 22050
# espeak-ng speaks some pairs of short words as one, such as "of a": none of these.
_TEXT = (
    "apple autumn bridge bright brother candle castle children cloud coffee copper corner country dark dinner doctor dream "
    "early earth evening famous farmer father finger flower forest friend garden gentle giant golden green happy harbour "
    "heavy hidden honey horse hungry island jacket kitchen ladder language letter little lonely magic market meadow middle "
    "mirror modern morning mother mountain music narrow number ocean orange paper pencil people picture planet pocket "
    "purple quiet rabbit rapid river rocket school season second shadow silent silver simple sister slowly summer table "
    "teacher thunder ticket together travel under valley velvet village visit water window winter wonder yellow zebra"
)
WORDS = _TEXT.split()


class Speech(NamedTuple):
    sound: Tensor
    """(N,) float32 samples, RATE a second."""
    words: list[str]
    times: list[tuple[float, float]]
    """Start and end of each word in seconds, as the voice spoke it."""


class Manner(NamedTuple):
    """How espeak-ng speaks; each sentence draws its own."""

    variants: tuple[str, ...] = ("en", "en+m3", "en+m7", "en+f2", "en+f4")
    """Names of voices."""
    speeds: tuple[int, int] = (110, 170)
    """The least and the most words a minute."""
    pitches: tuple[int, int] = (30, 70)
    """The least and the most of espeak-ng's pitch, which is from 0 to 99."""


class Voice(NamedTuple):
    name: str
    speak: Callable[[list[str], random.Random], Speech]


def sentences(count: int, seed: int) -> list[list[str]]:
    """Sequences of 4 to 7 of the words."""
    draw = random.Random(seed)
    return [draw.choices(WORDS, k=draw.randint(4, 7)) for _ in range(count)]


class _Event(ctypes.Structure):
    """espeak_EVENT of speak_lib.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("name", ctypes.c_char * 8),
    )


_END, _WORD, _PHONEME = 0, 1, 7  # types of events
_SYNCHRONOUS, _PHONEME_EVENTS = 2, 1
_SPEED, _PITCH = 1, 3  # parameters
_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


class _Espeak:
    """espeak-ng's library, which calls back with samples and with events of words and phonemes."""

    def __init__(self, library: Any) -> None:
        self.library = library
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, None, _PHONEME_EVENTS)
        if rate != RATE:
            raise RuntimeError(
                f"espeak-ng: expected {RATE} samples a second, got {rate}; install espeak-ng-data"
            )
        self.samples: list[np.ndarray] = []
        self.events: list[tuple[int, int, bytes]] = []
        self.callback = _Callback(self._called)  # lives as long as the library may call it
        library.espeak_SetSynthCallback(self.callback)

    def _called(self, samples: Any, count: int, events: Any) -> int:
        if samples and count:
            self.samples.append(np.ctypeslib.as_array(samples, (count,)).copy())
        k = 0
        while events[k].type != _END:
            if events[k].text_position > 0:  # an event of a word at 0 closes the text
                self.events.append((events[k].type, events[k].sample, events[k].name))
            k += 1
        return 0

    def speak(self, manner: Manner, words: list[str], draw: random.Random) -> Speech:
        self.samples, self.events = [], []
        variant = draw.choice(manner.variants)
        if self.library.espeak_SetVoiceByName(variant.encode()) != 0:
            raise RuntimeError(f"espeak-ng: there is no voice {variant}; install espeak-ng-data")
        self.library.espeak_SetParameter(_SPEED, draw.randint(*manner.speeds), 0)
        self.library.espeak_SetParameter(_PITCH, draw.randint(*manner.pitches), 0)
        text = " ".join(words).encode()
        self.library.espeak_Synth(
            ctypes.c_char_p(text), ctypes.c_size_t(len(text) + 1), 0, 1, 0, 1, None, None
        )
        sound = torch.from_numpy(np.concatenate(self.samples)).float() / 2**15
        return Speech(sound, words, self._times(len(words)))

    def _times(self, count: int) -> list[tuple[float, float]]:
        """A word begins with its first phoneme, and ends where the next word's or a pause begins."""
        times: list[tuple[float, float]] = []
        for k, (kind, sample, _) in enumerate(self.events):
            if kind == _WORD:
                rest = [event for event in self.events[k + 1 :] if event[0] in (_WORD, _PHONEME)]
                end = next((at for what, at, name in rest if what == _WORD or name[:1] == b"_"), rest[-1][1])
                first = next((at for what, at, _ in rest if what == _PHONEME), sample)
                times.append((first / RATE, end / RATE))
        if len(times) != count:
            raise RuntimeError(f"espeak-ng: expected events of {count} words, got {len(times)}")
        return times


def _tones(words: list[str], draw: random.Random) -> Speech:
    """A letter is two tones, as two formants of a vowel, of 50 to 110 ms; words have pauses between them."""
    now, pieces, times = 0.0, [], []
    speed, pitch = draw.uniform(0.8, 1.25), draw.uniform(0.95, 1.05)

    def add(seconds: float, *frequencies: float) -> None:
        nonlocal now
        time = torch.arange(int(seconds * RATE)) / RATE
        piece = sum((torch.sin(2 * torch.pi * f * pitch * time) for f in frequencies), torch.zeros(len(time)))
        pieces.append(0.2 * piece * torch.sin(torch.pi * time / seconds) ** 0.5)
        now += len(time) / RATE

    add(0.1)
    for word in words:
        start = now
        for letter in word:
            k = ord(letter) - ord("a")
            add(draw.uniform(0.05, 0.11) / speed, 250 + 120 * (k % 6), 1200 + 450 * (k // 6))
        times.append((start, now))
        add(draw.uniform(0.04, 0.15) / speed)
    sound = torch.cat(pieces)
    noise = torch.randn(len(sound), generator=torch.Generator().manual_seed(draw.randrange(2**31)))
    return Speech(sound + 0.005 * noise, words, times)


TONES = Voice("tones, two for each letter", _tones)


@lru_cache(maxsize=1)
def _espeak() -> _Espeak | None:
    """The library, which is initialised once in a process; None: it is not installed."""
    try:
        library = ctypes.CDLL(ctypes.util.find_library("espeak-ng") or "libespeak-ng.so.1")
    except OSError:
        return None
    return _Espeak(library)


def voice(manner: Manner | None = None) -> Voice:
    """espeak-ng's, or tones, which have no manner."""
    espeak = _espeak()
    return TONES if espeak is None else Voice("espeak-ng", partial(espeak.speak, manner or Manner()))
