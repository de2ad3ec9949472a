"""An operator that finds no memory says so in torch's words, by which trainers recognise that a smaller batch is needed."""

from __future__ import annotations

import pytest
import torch

import warpalign as wa


def test_out_of_memory() -> None:
    x = torch.zeros(1, 1).expand(2**22, 1)  # the alignment would take 128 TiB
    with pytest.raises(
        RuntimeError,
        match=r"DefaultCPUAllocator: can't allocate memory: .*tried to allocate \d+ MiB for a tensor",
    ):
        wa.soft_dtw_alignment(x, x)


@pytest.mark.gpu
def test_out_of_memory_of_a_gpu(cuda: torch.device) -> None:
    x = torch.zeros(1, 1, device=cuda).expand(2**20, 1)  # the alignment would take 4 TiB
    with pytest.raises(RuntimeError, match=r"^CUDA out of memory\. .*tried to allocate \d+ MiB for a tensor"):
        wa.soft_dtw_alignment(x, x)
    assert torch.isfinite(wa.soft_dtw(x[:8], x[:8]))
