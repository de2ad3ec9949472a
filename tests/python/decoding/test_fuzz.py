"""Distances of random sequences, beside plain Python."""

from __future__ import annotations

import random

import pytest
import torch

from tests.python.decoding.test_errors import distance
from warpalign.decoding import edit_distance


@pytest.mark.parametrize("seed", range(30))
def test_random_distances(seed: int) -> None:
    draw = random.Random(seed)
    batch, many, symbols = draw.randint(0, 4), draw.randint(0, 4), draw.choice([1, 2, 50])
    longest, most = draw.randint(0, 12), draw.randint(0, 12)
    x = torch.randint(0, symbols, (batch, many, longest))
    ends, counts = torch.randint(0, longest + 1, (batch, many)), torch.randint(0, most + 1, (batch,))
    x[torch.arange(longest) >= ends[..., None]] = draw.choice([-1, -100])
    y = torch.randint(0, symbols, (batch, most))
    found = edit_distance(x.int() if draw.random() < 0.5 else x, y, counts)
    for b in range(batch):
        for n in range(many):
            expected = distance(x[b, n, : ends[b, n]].tolist(), y[b, : counts[b]].tolist())
            assert int(found[b, n]) == expected
