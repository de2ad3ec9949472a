"""The fused joint with what torch has around an operator: compile, func, autocast, CUDA graphs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import OPCHECK_OF_SAVED, assert_compiled_equals_eager
from tests.python.transducer.cases import FAMILIES, labels_for
from tests.python.transducer.joint_cases import H, V, fused, network
from tests.python.transducer.reference import Options
from warpalign import JointWeights, transducer_loss_from_joint


def arguments(device: torch.device, tdt: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    options = FAMILIES["tdt" if tdt else "rnnt"]
    y = labels_for(options, 2, 2).to(device, torch.int32)
    lengths = (torch.tensor(n, device=device, dtype=torch.int32) for n in ([5, 3], [2, 1]))
    plain = torch.tensor([True, False], device=device) if tdt else None
    seed = torch.tensor(3, device=device) if tdt else None
    band = None if tdt else torch.tensor([[0, 0, 1, 1, 1]] * 2, device=device, dtype=torch.int32)
    keywords = {"activation": 1, "tdt": tdt, "durations": options.durations or (), "dropout": 0.2 * tdt}
    if band is not None:
        keywords["band_states"] = 2
    return (*network(options, 2, 5, 3, device=device), y, *lengths, plain, seed, band), keywords


@pytest.mark.parametrize("tdt", [False, True])
def test_opcheck(tdt: bool, device: torch.device) -> None:
    ops = torch.ops.warpalign
    inputs, keywords = arguments(device, tdt)
    torch.library.opcheck(ops.transducer_joint.default, (*inputs, False), keywords)
    torch.library.opcheck(
        ops.transducer_joint.default, (*inputs, True), keywords, test_utils=OPCHECK_OF_SAVED
    )
    value, saved = ops.transducer_joint(*inputs, True, **keywords)
    for needs in ((True, True, True, True), (False, True, False, True), (True, False, True, False)):
        torch.library.opcheck(
            ops.transducer_joint_gradient.default, (*inputs, saved, torch.ones_like(value), *needs), keywords
        )


@pytest.mark.parametrize("wanted", range(4))
def test_gradients_of_some_inputs(wanted: int, device: torch.device) -> None:
    options = FAMILIES["rnnt"]
    tensors, y = network(options, 2, 5, 3, device=device), labels_for(options, 2, 2).to(device)
    all_ = [t.clone().requires_grad_() for t in tensors]
    every = torch.autograd.grad(fused(all_, y, options).sum(), all_)
    tensors[wanted].requires_grad_()
    (one,) = torch.autograd.grad(fused(tensors, y, options).sum(), tensors[wanted])
    assert torch.equal(one, every[wanted])


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool, device: torch.device) -> None:
    if device.type == "cuda" and not dynamic:
        pytest.skip("on a GPU one case is enough: what is compiled does not depend on the device")

    def step(*given: Any) -> Tensor:
        e, g, w, b, y, t, u = given
        return transducer_loss_from_joint(e * 2, g, y, JointWeights(w, b, "tanh", durations=(0, 1)), t, u)

    options, calls = Options(durations=(0, 1)), []
    for frames in (5, 6, 7):
        y = torch.randint(0, 6, (2, 2), device=device)
        t, u = torch.tensor([frames, 3], device=device), torch.tensor([2, 1], device=device)
        calls.append((network(options, 2, frames, 3, device=device), (y, t, u)))
    assert_compiled_equals_eager(step, calls, dynamic)


def test_torch_func(device: torch.device) -> None:
    options = FAMILIES["rnnt"]
    tensors = network(options, 3 * 2, 5, 3, device=device)
    e, g = tensors[0].unflatten(0, (3, 2)), tensors[1].unflatten(0, (3, 2))
    w, b, y = tensors[2], tensors[3], labels_for(options, 3, 2, 2).to(device)

    def one(*given: Any) -> Tensor:
        e, g, w, b, y = given
        return transducer_loss_from_joint(e, g, y, JointWeights(w, b, blank=0))

    dims = (0, 0, None, None, 0)
    mapped = torch.func.vmap(one, in_dims=dims)(e, g, w, b, y)
    per_sample = torch.func.vmap(torch.func.grad(one, argnums=(0, 1, 2, 3)), in_dims=dims)(e, g, w, b, y)
    of_sum = torch.func.grad(lambda w: torch.func.vmap(one, in_dims=dims)(e, g, w, b, y).sum())(w)
    for k in range(3):
        leaves: list[Any] = [t.clone().requires_grad_() for t in (e[k], g[k], w, b)]
        value = one(*leaves, y[k])
        torch.testing.assert_close(mapped[k], value)
        for found, wanted in zip(per_sample, torch.autograd.grad(value, leaves), strict=True):
            torch.testing.assert_close(found[k], wanted)
    torch.testing.assert_close(of_sum, per_sample[2].sum(0))
    rows = torch.func.jacrev(
        lambda w: transducer_loss_from_joint(e[0], g[0], y[0], JointWeights(w, b, blank=0), reduction="none")
    )(w)
    torch.testing.assert_close(rows.mean(0), per_sample[2][0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype: torch.dtype, device: torch.device) -> None:
    """Inputs are cast as a linear layer casts them; gradients have the parameters' dtype, and the loss is float32."""
    options = FAMILIES["rnnt"]
    tensors, y = network(options, 2, 5, 3, device=device), labels_for(options, 2, 2).to(device)
    leaves = [t.clone().requires_grad_() for t in tensors]
    with torch.autocast(device.type, dtype=dtype):
        value = fused(leaves, y, options, reduction="mean")
    assert value.dtype == torch.float32
    grads = torch.autograd.grad(value, leaves)
    halves = [t.to(dtype).requires_grad_() for t in tensors]
    by_hand = fused(halves, y, options, reduction="mean")
    torch.testing.assert_close(value, by_hand)
    for grad, half in zip(grads, torch.autograd.grad(by_hand, halves), strict=True):
        assert grad.dtype == torch.float32
        assert torch.equal(grad, half.float())


def test_backward_twice_and_a_copied_module(device: torch.device) -> None:
    module = warpalign.TransducerJointLoss(H, V, device=device, activation="tanh")
    e, g, *_ = network(FAMILIES["rnnt"], 2, 5, 3, device=device)
    y = torch.ones(2, 2, dtype=torch.int64, device=device)
    value = copy.deepcopy(module)(e, g, y)
    assert torch.equal(value, module(e, g, y))
    value = module(e, g, y)
    first = torch.autograd.grad(value, module.parameters(), retain_graph=True)
    second = torch.autograd.grad(value, module.parameters())
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graph_with_changing_lengths(dtype: torch.dtype, cuda: torch.device) -> None:
    """How many nodes are live, and how long utterances are, stays on the device."""
    options = FAMILIES["rnnt"]
    tensors = [t.to(dtype).requires_grad_() for t in network(options, 3, 40, 9, device=cuda)]
    y = labels_for(options, 3, 8).to(cuda)
    t, u = torch.full((3,), 40, device=cuda), torch.full((3,), 8, device=cuda)

    def step() -> tuple[Tensor, ...]:
        value = fused(tensors, y, options, t, u)
        return value, *torch.autograd.grad(value.sum(), tensors)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for lengths in (([40, 17, 1], [8, 0, 3]), ([5, 40, 33], [1, 8, 8])):
        t.copy_(torch.tensor(lengths[0]))
        u.copy_(torch.tensor(lengths[1]))
        with torch.no_grad():
            tensors[0].normal_()
        graph.replay()
        for one, other in zip(found, step(), strict=True):
            assert torch.equal(one, other)
