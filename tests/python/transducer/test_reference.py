"""The reference against all paths: what every other test compares with."""

from __future__ import annotations

import math

import pytest
import torch

from tests.python.transducer import reference
from tests.python.transducer.cases import every_family_and_penalty, labels_for, logits_for

CASES = every_family_and_penalty()


@pytest.mark.parametrize("name", CASES)
def test_all_paths(name: str) -> None:
    options = CASES[name]
    finite = 0
    for frames, count in ((0, 1), (1, 0), (1, 3), (2, 2), (4, 0), (5, 2), (4, 4)):
        x, z = logits_for(options, frames, count + 1)
        x = x.double()
        z = None if z is None else z.double()
        labels = labels_for(options, count).tolist()
        expected = reference.enumerated(x, labels, options, z)
        assert float(reference.loss(x, labels, options, z)) == pytest.approx(expected, rel=1e-12)
        finite += math.isfinite(expected)
    assert finite >= 3


@pytest.mark.parametrize("name", [name for name, options in CASES.items() if options.star is None])
def test_by_frames(name: str) -> None:
    options = CASES[name]
    if options.durations is not None and 0 not in options.durations:
        return  # label arcs that do not exist have no cumulative sum
    x, z = logits_for(options, 9, 5, dtype=torch.float64)
    labels = labels_for(options, 4)
    leaves = [None if s is None else s.requires_grad_() for s in (x, z)]
    found, expected = (
        function(leaves[0], y, options, leaves[1])
        for function, y in ((reference.loss_by_frames, labels), (reference.loss, labels.tolist()))
    )
    torch.testing.assert_close(found, expected)
    given = [s for s in leaves if s is not None]
    torch.testing.assert_close(torch.autograd.grad(found, given), torch.autograd.grad(expected, given))
