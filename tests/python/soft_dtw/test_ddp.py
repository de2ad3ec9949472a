"""The loss in DistributedDataParallel: two processes with half of the batch each take the step of one with all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from tests.python.helpers import run_python
from tests.python.soft_dtw.reference import pair
from warpalign import SoftDTW


class Model(nn.Module):
    """A forecaster and its loss, whose gamma is learnt too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 2, dtype=torch.float64)
        self.loss = SoftDTW(nn.Parameter(torch.tensor(0.5, dtype=torch.float64)), reduction="mean")

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = self.loss(self.layer(x), y)
        return value


def steps(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """The parameters after three steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def _process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    x, y = (side.chunk(2)[rank] for side in pair(6, 20, 17, 2, dtype=torch.float64))
    torch.save(steps(nn.parallel.DistributedDataParallel(Model()), x, y), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    mp.spawn(_process, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    before = [parameter.detach() for parameter in Model().parameters()]
    expected = steps(Model(), *pair(6, 20, 17, 2, dtype=torch.float64))
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert len(expected) == 3
    for start, wanted, a, b in zip(before, expected, first, second, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, wanted, rtol=1e-12, atol=1e-14)
        assert (wanted - start).abs().max() > 1e-6


def test_the_benchmark_of_throughput_on_the_cpu(tmp_path: Path) -> None:
    """Two processes of torchrun, with batches of their own, end with the same weights."""
    options = ["--device", "cpu", "--quick", "--processes", "2", "--commit", "test", "--out", str(tmp_path)]
    done = run_python("-m", "benchmarks.soft_dtw.ddp_training", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("*/*-test-ddp.json")
    (row,) = json.loads(file.read_text())
    assert row["processes"] == 2 and row["same_weights"] and row["efficiency"] is None
    assert row["pairs_per_s"] == pytest.approx(2 * row["B"] / (1e-3 * row["step_ms"]), rel=1e-3)
