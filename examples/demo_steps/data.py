"""Real series that installed packages ship: nothing is downloaded.

* Trace (tslearn's cached copy of the UCR data set): 100 training and 100 test series of 275 samples, each
  one transient of a simulated nuclear-plant instrument, in four classes; z-normalised, univariate.
* EEG (matplotlib's sample data): ten seconds of four electrodes at 80 samples per second, each scaled to unit
  variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import Tensor

EEG_CHANNELS = ("PG3", "PG5", "PG7", "PG9")
EEG_RATE_HZ = 80.0


@dataclass(frozen=True)
class Trace:
    """Series (count, 275, 1) in float32 and their classes (count,), numbered from 1, sorted by class."""

    train: Tensor
    train_class: Tensor
    test: Tensor
    test_class: Tensor

    @property
    def classes(self) -> list[int]:
        return sorted(set(self.train_class.tolist()))


def load_trace(device: torch.device, per_class: int | None = None) -> Trace:
    """The Trace data set, or its first `per_class` series of every class."""
    from tslearn.datasets import CachedDatasets

    train, train_class, test, test_class = CachedDatasets().load_dataset("Trace")

    def tidy(series: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        order = np.argsort(labels, kind="stable")
        series, labels = series[order], labels[order].astype(np.int64)
        if per_class is not None:
            keep = np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in np.unique(labels)])
            series, labels = series[keep], labels[keep]
        return torch.tensor(series, dtype=torch.float32, device=device), torch.tensor(labels)

    return Trace(*tidy(train, train_class), *tidy(test, test_class))


def load_eeg(device: torch.device) -> Tensor:
    """The recording as one series (800, 4), float32."""
    file = Path(matplotlib.get_data_path(), "sample_data", "eeg.dat")
    recording = np.fromfile(file, dtype=np.float64).reshape(-1, len(EEG_CHANNELS))
    return torch.tensor(recording, dtype=torch.float32, device=device)


def windows(series: Tensor, length: int, hop: int) -> Tensor:
    """All windows (count, length, D) of a series (samples, D), `hop` samples apart."""
    return series.unfold(0, length, hop).transpose(1, 2).contiguous()
