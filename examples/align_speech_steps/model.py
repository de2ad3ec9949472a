"""An acoustic model of letters: a log-mel spectrogram, and convolutions that see a quarter of a second."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import warpalign

from .voices import RATE, Speech

LETTERS = "abcdefghijklmnopqrstuvwxyz "  # class k + 1; class 0 is blank
MELS, WINDOW, HOP = 40, 512, 220
FRAME = 2 * HOP / RATE  # seconds of a frame of logits: 20 ms
PRIOR_SCALE = 0.3
"""Of label priors, with which a network's letters last as long as they sound: docs/howto/ctc.md."""


def labels_of(words: list[str]) -> Tensor:
    return torch.tensor([1 + LETTERS.index(letter) for letter in " ".join(words)])


def mel_filters() -> Tensor:
    """(WINDOW / 2 + 1, MELS): triangles on the mel scale, up to 8 kHz."""
    top = 2595 * math.log10(1 + 8000 / 700)
    centres = 700 * (10 ** (torch.linspace(0, top, MELS + 2) / 2595) - 1)
    frequencies = torch.arange(WINDOW // 2 + 1)[:, None] * RATE / WINDOW
    rising = (frequencies - centres[:-2]) / (centres[1:-1] - centres[:-2])
    falling = (centres[2:] - frequencies) / (centres[2:] - centres[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


_FILTERS = mel_filters()


def features(sound: Tensor) -> Tensor:
    """(T, MELS): logarithms of a mel spectrogram, a frame every 10 ms, with mean 0 for each band."""
    spectrum = torch.stft(sound, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    mels = (spectrum.abs().square().T @ _FILTERS).add(1e-3).log()
    return (mels - mels.mean(0)) / 3


class Acoustic(nn.Module):
    """Logits of letters."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(MELS, hidden, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(hidden, 1 + len(LETTERS), 3, padding=1),
        )

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Logits (B, T, C) of features, and their true lengths (B,)."""
        batch = nn.utils.rnn.pad_sequence(inputs, batch_first=True)
        logits: Tensor = self.layers(batch.transpose(1, 2)).transpose(1, 2)
        return logits, torch.tensor([(len(x) + 1) // 2 for x in inputs])


def train(model: Acoustic, spoken: list[Speech], epochs: int, batch: int, seed: int) -> list[float]:
    """The loss of each epoch, for each letter."""
    data = [(features(one.sound), labels_of(one.words)) for one in spoken]
    steps = epochs * math.ceil(len(data) / batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1)
    prior = torch.zeros(1 + len(LETTERS))
    generator, losses = torch.Generator().manual_seed(seed), []
    for epoch in range(epochs):
        total, means = 0.0, []
        for some in torch.randperm(len(data), generator=generator).split(batch):
            inputs, targets = zip(*(data[k] for k in some.tolist()), strict=True)
            counts = torch.tensor([len(one) for one in targets])
            logits, frames = model(list(inputs))
            # Priors of outputs that say nothing yet would be noise.
            loss = warpalign.ctc_loss(
                logits, torch.cat(targets), frames, counts, reduction="mean_volume", label_prior=prior
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(some)
            means.append(logits.detach().softmax(-1).mean((0, 1)))
        if epoch >= epochs // 4:
            prior = PRIOR_SCALE * torch.stack(means).mean(0).log()
        losses.append(total / len(data))
    return losses


def word_times(model: Acoustic, one: Speech) -> tuple[list[tuple[float, float]], str]:
    """Start and end of each word by forced alignment, in seconds, and the letters that greedy search hears."""
    with torch.no_grad():
        logits, _ = model([features(one.sound)])
    spans = warpalign.ctc_align(logits[0], labels_of(one.words)).spans
    times, first = [], 0
    for word in one.words:
        last = first + len(word) - 1
        times.append((int(spans[first, 0]) * FRAME, (int(spans[last, 1]) + 1) * FRAME))
        first = last + 2  # after the space
    found = warpalign.ctc_greedy_decode(logits)
    return times, "".join(LETTERS[k - 1] for k in found.tokens[0, : int(found.lengths[0])].tolist())
