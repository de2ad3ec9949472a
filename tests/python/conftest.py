"""Fixtures of the package's tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def whatever_ran_before() -> Iterator[None]:
    """In this process: the numbers are the same, and so is the number of threads."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn: a test that takes this runs twice."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


@pytest.fixture
def cuda() -> torch.device:
    """For what only CUDA has; such tests carry the mark `gpu` themselves."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")
