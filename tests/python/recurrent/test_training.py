"""The LSTM under torch's tools for training: data parallel, sharded parameters, mixed precision."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from warpalign._recurrent import ops
from warpalign.recurrent import LSTM


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(module: nn.Module, x: Tensor, steps: int = 2) -> list[Tensor]:
    """The outputs of some steps of training."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    outputs = []
    for _ in range(steps):
        optimizer.zero_grad()
        y, (h_n, c_n) = module(x)
        (y.square().sum() + h_n.sum() - c_n.sum()).backward()
        optimizer.step()
        outputs.append(y.detach())
    return outputs


OPTIONS: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "activation": "hard"}


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"])
def test_wrapped_modules_train_alike(group: None, wrapper: str) -> None:
    torch.manual_seed(1)
    alone, x = LSTM(5, 8, layer_norm=True, **OPTIONS), torch.randn(6, 3, 5)
    wrapped = copy.deepcopy(alone)
    if wrapper == "fully_shard":
        fully_shard(wrapped)
        assert all(isinstance(p, DTensor) for p in wrapped.parameters())
    expected = trained(alone, x)
    given: nn.Module = wrapped
    if wrapper == "DistributedDataParallel":
        given = DistributedDataParallel(wrapped)
    elif wrapper == "FullyShardedDataParallel":
        given = FullyShardedDataParallel(wrapped, device_id=torch.device("cpu"), use_orig_params=True)
    for is_, value in zip(trained(given, x), expected, strict=True):
        torch.testing.assert_close(is_, value, rtol=1e-6, atol=1e-7)
    for is_, value in zip(wrapped.parameters(), alone.parameters(), strict=True):
        whole = is_.full_tensor() if isinstance(is_, DTensor) else is_
        torch.testing.assert_close(whole, value, rtol=1e-6, atol=1e-7)


def test_grad_scaler() -> None:
    torch.manual_seed(2)
    module, x = LSTM(5, 8, **OPTIONS), torch.randn(6, 3, 5)
    start = copy.deepcopy(module.state_dict())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step(factor: float) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            y = module(x)[0]
        assert y.dtype == torch.float16
        scaler.scale(y.float().square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    step(float("inf"))  # gradients that are no numbers: no step, and a smaller scale
    assert all(torch.equal(p, start[name]) for name, p in module.named_parameters())
    assert scaler.get_scale() == 2.0**9
    step(1.0)
    alone = LSTM(5, 8, **OPTIONS)
    alone.load_state_dict(start)
    alone(x)[0].square().mean().backward()
    for name, p in alone.named_parameters():
        assert p.grad is not None
        moved, expected = module.state_dict()[name] - start[name], -0.1 * p.grad
        assert (moved - expected).norm() <= 0.02 * expected.norm()


def test_only_the_last_backward_pass_may_change_the_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def telling(name: str) -> Any:
        op = getattr(ops, name)

        def call(*given: Any, **settings: Any) -> Any:
            calls.append(name)
            return op(*given, **settings)

        return call

    for name in ("backward", "backward_"):
        monkeypatch.setattr(ops, name, telling(name))
    x = torch.randn(3, 2, 4, requires_grad=True)
    loss = LSTM(4, 5)(x)[0].sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(loss, x)[0], first)
    torch.autograd.grad(LSTM(4, 5)(x)[0].sum(), x, create_graph=True)
    assert calls == ["backward", "backward_", "backward"]
