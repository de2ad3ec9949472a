"""The figure: which letter writes which phoneme."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from torch import Tensor

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

from .data import PHONEMES, Word  # noqa: E402


def plot_alignments(
    words: list[Word], posteriors: list[Tensor], frames: list[Tensor], title: str, path: Path
) -> None:
    """A panel for each word: (T, U) probabilities that a letter writes a phoneme, and the best path's letters (U,)."""
    figure, axes = plt.subplots(1, len(words), figsize=(3.2 * len(words), 3.4), layout="constrained")
    for axis, word, posterior, at in zip(axes, words, posteriors, frames, strict=True):
        image = axis.imshow(posterior.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
        axis.plot(at, range(len(at)), "o", color="#D55E00", markersize=5)
        axis.set_xticks(range(len(word.spelling)), list(word.spelling))
        axis.set_yticks(range(len(word.phonemes)), [PHONEMES[p] for p in word.phonemes])
        axis.set_title(word.spelling)
    figure.colorbar(image, ax=axes, label="probability")
    figure.suptitle(f"{title}: which letter writes which phoneme; dots: the best path")
    figure.savefig(path, dpi=150)
    plt.close(figure)
