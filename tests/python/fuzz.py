"""Random calls: how many there are in a run of the tests, and how they are drawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.python.helpers import ROOT

# Random calls of a whole run, each as long as one of soft-DTW. Operators share them, and so do an operator's tests: one
# operator more costs no time.
CASES = int(os.environ.get("WARPALIGN_FUZZ_CASES", 10_000))
OPERATORS = {path.parent.name for path in (ROOT / "tests" / "python").glob("*/test_fuzz*.py")}


def share(tests: int, weight: int = 1, device: torch.device | None = None) -> settings:
    """The settings for one of an operator's tests; the same cases in every run.

    weight: how many times as long as one of soft-DTW's an operator's call takes, with its reference. device: on a GPU
    there is a tenth of the calls, because references take their time on the host there too.
    """
    if device is not None and device.type == "cuda":
        weight *= 10
    return settings(
        max_examples=-(-CASES // (len(OPERATORS) * tests * weight)),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def fuzz(check: Callable[..., None], drawn: st.SearchStrategy[tuple[Any, ...]], chosen: settings) -> None:
    """Calls check(*drawn) as often as share() says, and not less."""
    count = 0

    @chosen
    @given(drawn)
    def run(arguments: tuple[Any, ...]) -> None:
        nonlocal count
        count += 1
        check(*arguments)

    run()
    assert count >= chosen.max_examples
