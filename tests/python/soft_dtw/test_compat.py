"""What all drop-ins have in common: shapes, use_cuda, GPUs. Each one is compared with its original in a file of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.python.soft_dtw.compat_cases import pair, with_gradients
from warpalign.compat import pysdtw as our_pysdtw
from warpalign.compat import soft_dtw_cuda, softdtw_cuda
from warpalign.compat import tslearn as ours


def test_what_the_originals_assert_is_a_value_error_too() -> None:
    """Their callers catch AssertionError, ours ValueError. The calls and their texts are in bad_calls/compat.py."""
    for error in (AssertionError, ValueError):
        with pytest.raises(error, match="expected a batch of 2"):
            ours.SoftDTWLossPyTorch()(torch.zeros(2, 5, 1), torch.zeros(3, 5, 1))


def test_use_cuda_warns_and_moves_nothing() -> None:
    x, y = pair(4, 5)
    for loss in (soft_dtw_cuda.SoftDTW(True), our_pysdtw.SoftDTW()):
        with pytest.warns(UserWarning, match="use_cuda=True, but the series are on cpu"):
            assert loss(x, y).device.type == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soft_dtw_cuda.SoftDTW(False)(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("bandwidth", [None, 4])
@pytest.mark.parametrize("package", ["soft_dtw_cuda", "softdtw_cuda", "pysdtw", "tslearn"])
def test_on_a_gpu(cuda: torch.device, package: str, bandwidth: int | None) -> None:
    """The same numbers as on the CPU, in float64: only the order of sums differs."""
    if package == "tslearn":
        bandwidth = None
    losses: dict[str, Callable[[bool], nn.Module]] = {
        "soft_dtw_cuda": lambda on: soft_dtw_cuda.SoftDTW(on, gamma=0.5, bandwidth=bandwidth, normalize=True),
        "softdtw_cuda": lambda on: softdtw_cuda.SoftDTW(
            gamma=0.5, bandwidth=bandwidth, fused=True if on else None
        ),
        "pysdtw": lambda on: our_pysdtw.SoftDTW(gamma=0.5, use_cuda=on, bandwidth=bandwidth),
        "tslearn": lambda on: ours.SoftDTWLossPyTorch(gamma=0.5),
    }
    x, y = pair(9, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = with_gradients(losses[package](False), x, y)
        on_gpu = [t.detach().to(cuda).requires_grad_() for t in (x, y)]
        value = losses[package](True)(*on_gpu)
    weights = torch.linspace(1, 2, 3, dtype=torch.float64, device=cuda)
    gradients = torch.autograd.grad(weights @ value, on_gpu)
    assert value.device == on_gpu[0].device
    for got, wanted in zip((value, *gradients), expected, strict=True):
        assert torch.allclose(got.detach().cpu(), wanted, rtol=1e-10, atol=1e-10)
