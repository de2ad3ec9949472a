"""The same two jobs, timed here and in tslearn, a public CPU implementation (compiled with Numba)."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import warpalign

SAME = 1e-2  # relative L2 difference: tslearn's gradient is float32, and its errors grow with the values


@dataclass(frozen=True)
class Comparison:
    job: str
    ours_ms: float
    tslearn_ms: float

    @property
    def ratio(self) -> float:
        return self.tslearn_ms / self.ours_ms


def median_ms(job: Callable[[], Tensor], repeats: int, device: torch.device) -> float:
    """Median wall-clock time of a job after one run that warms it up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        job()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def compare(
    job: str, ours: Callable[[], Tensor], theirs: Callable[[], Tensor], device: torch.device
) -> Comparison:
    """Times both, after a check that they compute the same."""
    expected = theirs().double()
    difference = ((ours().cpu().double() - expected).norm() / expected.norm()).item()
    if not difference < SAME:
        raise RuntimeError(f"{job}: the results differ from tslearn's by {difference:.1g}")
    return Comparison(job, median_ms(ours, 5, device), median_ms(theirs, 1, torch.device("cpu")))


def compare_pairwise(x: Tensor, y: Tensor, gamma: float) -> Comparison:
    """All pairs of x (n, N, D) and y (m, M, D), forward only."""
    from tslearn.metrics import cdist_soft_dtw

    from .pairwise import cdist

    x64, y64 = x.cpu().double().numpy(), y.cpu().double().numpy()

    def ours() -> Tensor:
        return cdist(x, y, gamma)

    def theirs() -> Tensor:
        return torch.from_numpy(cdist_soft_dtw(x64, y64, gamma=gamma, n_jobs=os.cpu_count()))

    job = f"{len(x) * len(y)} pairs, {x.shape[1]} x {y.shape[1]} samples"
    return compare(job, ours, theirs, x.device)


def compare_gradient(x: Tensor, y: Tensor, gamma: float) -> Comparison:
    """Value and gradient with respect to x of a batch of pairs."""
    from tslearn.metrics import SoftDTWLossPyTorch

    tslearn_loss = SoftDTWLossPyTorch(gamma=gamma)
    our_loss = warpalign.SoftDTW(gamma=gamma)

    def gradient(loss: torch.nn.Module, x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss(x, y).sum(), x)[0]

    def ours() -> Tensor:
        return gradient(our_loss, x, y)

    def theirs() -> Tensor:
        return gradient(tslearn_loss, x.cpu(), y.cpu())

    job = f"{len(x)} gradients, {x.shape[1]} x {y.shape[1]} samples"
    return compare(job, ours, theirs, x.device)
