"""The figure: losses, and an utterance with the letters heard in it."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

from align_speech_steps.model import LETTERS, MELS  # noqa: E402
from warpalign.transducer import Hypotheses  # noqa: E402

from .corpus import FRAME  # noqa: E402
from .train import Batch  # noqa: E402


def plot_recognition(
    shown: Batch,
    found: Hypotheses,
    words: list[tuple[str, float]],
    courses: dict[str, list[float]],
    path: Path,
) -> None:
    """Losses by the course of training, and one utterance.

    Args:
        shown: the utterance, as a batch of one.
        found: what greedy search heard in it.
        words: what is said, and when each word ends, in seconds.
        courses: losses of each model.
        path: the file.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4), width_ratios=(1, 1.6), layout="constrained")
    for name, losses in courses.items():
        left.plot([k / len(losses) for k in range(1, 1 + len(losses))], losses, label=name)
    left.set(xlabel="share of the steps", ylabel="loss per letter", yscale="log")
    left.legend(fontsize=8)
    frames = shown.frames[0, :, :MELS].cpu()
    seconds = len(frames) * FRAME
    right.imshow(frames.T, aspect="auto", origin="lower", cmap="magma", extent=(0, seconds, 0, MELS))
    count = int(found.lengths[0])
    letters = zip(found.tokens[0, :count].tolist(), found.frames[0, :count].tolist(), strict=True)
    for k, (letter, frame) in enumerate(letters):
        right.text((frame + 0.5) * FRAME, MELS + 1 + 3 * (k % 2), LETTERS[letter], ha="center", fontsize=9)
    for word, end in words:
        right.axvline(end, color="white", linestyle="--", linewidth=0.8)
        right.text(end, 1, f"{word} ", ha="right", color="white", fontsize=9)
    right.set(xlabel="seconds; dashed: a word ends", ylabel="mel bands", ylim=(0, MELS + 8))
    figure.savefig(path, dpi=150)
    plt.close(figure)
