"""torch's checks of derivatives against differences, and on which devices they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor


def one_on_cuda(argument: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Every case on the CPU, the first one on a GPU too: C++ tests compare CUDA with the CPU in all of them."""
    every = list(cases)
    pairs = [*((case, "cpu") for case in every), pytest.param(every[0], "cuda", marks=pytest.mark.gpu)]
    return pytest.mark.parametrize((argument, "device"), pairs, indirect=["device"])


def _options(inputs: Tensor | Sequence[Tensor]) -> dict[str, Any]:
    """On a GPU along random directions: a solve for every number of the inputs would take minutes there."""
    tensors = [inputs] if isinstance(inputs, Tensor) else inputs
    return {"fast_mode": any(t.is_cuda for t in tensors)}


def gradcheck(function: Callable[..., Any], inputs: Tensor | Sequence[Tensor]) -> bool:
    return torch.autograd.gradcheck(function, inputs, **_options(inputs))


def gradgradcheck(function: Callable[..., Any], inputs: Tensor | Sequence[Tensor]) -> bool:
    return torch.autograd.gradgradcheck(function, inputs, **_options(inputs))
