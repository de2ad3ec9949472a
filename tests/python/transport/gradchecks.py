"""torch's checks of derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def _options(inputs: Tensor | Sequence[Tensor]) -> dict[str, Any]:
    """On a GPU along random directions: a solve for every number of the inputs would take minutes there."""
    tensors = [inputs] if isinstance(inputs, Tensor) else inputs
    return {"fast_mode": any(t.is_cuda for t in tensors)}


def gradcheck(function: Callable[..., Any], inputs: Tensor | Sequence[Tensor]) -> bool:
    return torch.autograd.gradcheck(function, inputs, **_options(inputs))


def gradgradcheck(function: Callable[..., Any], inputs: Tensor | Sequence[Tensor]) -> bool:
    return torch.autograd.gradgradcheck(function, inputs, **_options(inputs))
