"""The reference against all paths: what every other test compares with."""

from __future__ import annotations

import math

import pytest

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
