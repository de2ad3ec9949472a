"""Every bad call, and its error word for word: one list, in a module per part of the package. test_bad_calls.py makes them.

The keys are "function: what is wrong with the call".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor


@dataclass
class Given:
    """What a call is made with. In messages FOLDER and DEVICE stand for these."""

    folder: Path
    device: torch.device

    @property
    def x(self) -> Tensor:
        return torch.zeros(3, 5, 2, device=self.device)

    @property
    def y(self) -> Tensor:
        return torch.zeros(3, 6, 2, device=self.device)

    @property
    def cost(self) -> Tensor:
        return torch.zeros(3, 5, 6, device=self.device)

    def ints(self, *values: Any, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def file(self, name: str, contents: str | bytes = "") -> Path:
        path = self.folder / name
        path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return path


class BadCall(NamedTuple):
    call: Callable[[Given], object]
    error: type[BaseException]
    message: str
    cpu_only: bool = False
    """Whether CUDA refuses, or allows, the call for another reason."""
    gpu_message: str | None = None
    """The message on a GPU, where it is another one."""


BadCalls = dict[str, BadCall]
