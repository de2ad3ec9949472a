"""The pruned loss with what torch has around an operator: compile and func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.helpers import assert_compiled_equals_eager
from tests.python.transducer.test_pruned import U, labels, network, pruned


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool, device: torch.device) -> None:
    """Losses of both networks, and the band, in one graph."""
    if device.type == "cuda" and not dynamic:
        pytest.skip("on a GPU one case is enough: what is compiled does not depend on the device")

    def step(*given: Any) -> Tensor:
        encoder, *others, targets, frames, counts = given
        return pruned(
            [encoder * 2, *others],
            targets,
            prune_range=3,
            encoder_lengths=frames,
            target_lengths=counts,
            fastemit_lambda=0.1,
        ).loss

    calls = []
    for frames in (9, 14):
        tensors = [t.detach() for t in network(device)]
        for k in (0, 4):
            tensors[k] = tensors[k][:, :frames]
        counts = (torch.tensor([frames, 7, 5], device=device), torch.tensor([U, 2, 0], device=device))
        calls.append((tensors, (labels(device), *counts)))
    assert_compiled_equals_eager(step, calls, dynamic)


def test_torch_func(device: torch.device) -> None:
    """vmap over utterances of their own, and gradients of each sample."""
    tensors = [t.detach() for t in network(device)]
    targets = labels(device)

    def one(*given: Any) -> Tensor:
        *leaves, targets = given
        return pruned(leaves, targets, prune_range=3).loss

    dims = (0, 0, None, None, 0, 0, 0)
    wanted = (0, 1, 2, 3, 4, 5)
    mapped = torch.func.vmap(one, in_dims=dims)(*tensors, targets)
    grads = torch.func.vmap(torch.func.grad(one, argnums=wanted), in_dims=dims)(*tensors, targets)
    bands = torch.func.vmap(lambda *t: pruned([*t[:-1]], t[-1], prune_range=3).first_states, in_dims=dims)(
        *tensors, targets
    )
    whole = pruned(tensors, targets, prune_range=3)
    assert torch.equal(bands, whole.first_states)
    for k in range(len(targets)):
        leaves = [(t if k_ in (2, 3) else t[k]).clone().requires_grad_() for k_, t in enumerate(tensors)]
        value = one(*leaves, targets[k])
        torch.testing.assert_close(mapped[k], value)
        for found, exact in zip(grads, torch.autograd.grad(value, leaves), strict=True):
            torch.testing.assert_close(found[k], exact)
