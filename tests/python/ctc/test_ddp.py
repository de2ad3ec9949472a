"""CTC's losses in DistributedDataParallel: two processes with half of the batch each take the step of one with all of it."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from warpalign import CTCHeadLoss, CTCLoss, ForwardSumLoss


class Model(nn.Module):
    """A head with a loss whose gradient is a new tensor, one with its gradient in the logits' memory, and a forward sum; and a
    loss that has a head of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 7, dtype=torch.float64)
        self.plain = CTCLoss(zero_infinity=True)
        self.in_place = CTCLoss(blank=-1, star=9, inplace_grad=True, zero_infinity=True)
        self.forward_sum = ForwardSumLoss()
        self.fused = CTCHeadLoss(4, 7, dtype=torch.float64, zero_infinity=True, workspace_limit=0)

    def forward(self, x: Tensor, targets: Tensor, frames: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = self.plain(self.head(x), targets, frames, labels)
        starred = targets.where(targets < 6, 9)
        value = value + self.in_place(self.head(x.flip(-1)), starred, frames, labels)
        value = value + self.fused(x, targets, frames, labels)
        return value + self.forward_sum(self.head(x.flip(1))[..., :4].contiguous(), labels, frames)


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fifth utterance has one frame and three labels: it has no path."""
    torch.manual_seed(1)
    x, targets = torch.randn(6, 9, 4, dtype=torch.float64), torch.randint(1, 7, (6, 4))
    return x, targets, torch.tensor([9, 8, 7, 9, 1, 8]), torch.tensor([3, 4, 2, 1, 3, 4])


def steps(model: nn.Module, *given: Tensor) -> list[Tensor]:
    """The parameters after three steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model(*given).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def _process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    half = [part.chunk(2)[rank] for part in batch()]
    torch.save(steps(nn.parallel.DistributedDataParallel(Model()), *half), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    mp.spawn(_process, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    before = [parameter.detach() for parameter in Model().parameters()]
    expected = steps(Model(), *batch())
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert len(expected) == 4
    for start, wanted, a, b in zip(before, expected, first, second, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, wanted, rtol=1e-12, atol=1e-14)
        assert (wanted - start).abs().max() > 1e-4
