"""Loads the operator libraries, and helps to tell torch the shapes of what their operators return."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

LIBRARIES = Path(__file__).parents[1] / "lib"


def _load(name: str, *, required: bool) -> bool:
    path = LIBRARIES / f"lib{name}.so"
    if not path.exists():
        if required:
            raise ImportError(
                f"warpalign: {path} is missing; install the package with `pip install .`, or run `make build` in a checkout"
            )
        return False
    torch.ops.load_library(str(path))
    return True


_load("warpalign_torch_cpu", required=True)
# A build without nvcc, or beside a torch without CUDA, has no CUDA operators.
has_cuda = torch.version.cuda is not None and _load("warpalign_torch_cuda", required=False)


def empty_unless(wanted: bool, like: Tensor, *shape: int | torch.SymInt) -> Tensor:
    return like.new_empty(shape if wanted else (0,))


def check_devices(first: str, **tensors: Tensor | None) -> None:
    """One device for all: CPU tensors mixed with meta tensors come to the functions below, not to the operators."""
    given = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    for name, device in given.items():
        if device != given[first]:
            raise RuntimeError(
                f"warpalign: {name}: expected the device of {first}, {given[first]}, got {device}"
            )
