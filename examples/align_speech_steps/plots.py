"""The figure: words over the waveform."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

from .model import features  # noqa: E402
from .voices import RATE, Speech  # noqa: E402


def plot_words(one: Speech, times: list[tuple[float, float]], voice: str, path: Path) -> None:
    """Waveform and spectrogram with the words where the alignment has them; dashed lines are the voice's own starts."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 4.2), sharex=True, layout="constrained")
    seconds = len(one.sound) / RATE
    above.plot(torch.arange(len(one.sound)) / RATE, one.sound, color="dimgray", linewidth=0.3)
    top = 1.1 * float(one.sound.abs().max())
    above.set_ylim(-top, 1.4 * top)
    above.set_yticks([])
    below.imshow(
        features(one.sound).T, aspect="auto", origin="lower", cmap="magma", extent=(0, seconds, 0, 1)
    )
    below.set_yticks([])
    below.set_ylabel("mel bands")
    below.set_xlabel("seconds")
    for k, (word, (start, end), (spoken, _)) in enumerate(zip(one.words, times, one.times, strict=True)):
        above.axvspan(start, end, color=("tab:orange", "tab:blue")[k % 2], alpha=0.3)
        above.text((start + end) / 2, 1.15 * top, word, ha="center")
        for axis, colour in ((above, "black"), (below, "white")):
            axis.axvline(spoken, color=colour, linestyle="--", linewidth=0.8)
    above.set_title(f"words by ctc_align; dashed: where {voice} starts each word")
    figure.savefig(path, dpi=150)
    plt.close(figure)
