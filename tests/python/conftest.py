"""Fixtures of the package's tests."""

from __future__ import annotations

import pytest
import torch


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
