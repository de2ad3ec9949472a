"""The losses as citizens of torch: gradcheck, opcheck, compile, torch.func, autocast, DDP, graphs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.python.helpers import OPCHECK_OF_SAVED, assert_compiled_equals_eager
from tests.python.transducer.cases import every_family_and_penalty, labels_for, logits_for, loss
from warpalign import tdt_loss, transducer_loss

CASES = every_family_and_penalty()


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name: str, device: torch.device) -> None:
    options = CASES[name]
    x, z = logits_for(options, 2, 4, 3, dtype=torch.float64, device=device)
    y = labels_for(options, 2, 2).to(device)
    t, u = torch.tensor([4, 3], device=device), torch.tensor([2, 1], device=device)
    inputs = tuple(s.requires_grad_() for s in (x, z) if s is not None)
    assert torch.autograd.gradcheck(lambda x, z=None: -1.5 * loss(x, z, y, options, t, u), inputs)


def arguments(device: torch.device, tdt: bool, **changed: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = torch.randn(2, 5, 3, 6, device=device)
    z = torch.randn(2, 5, 3, 2, device=device) if tdt else None
    y = torch.randint(1, 6, (2, 2), device=device, dtype=torch.int32)
    lengths = (
        torch.tensor([5, 3], device=device, dtype=torch.int32),
        torch.tensor([2, 1], device=device, dtype=torch.int32),
    )
    plain = torch.tensor([True, False], device=device) if tdt else None
    return (x, z, y, *lengths, plain), {"durations": (0, 1) if tdt else (), **changed}


@pytest.mark.parametrize("tdt", [False, True])
def test_opcheck(tdt: bool, device: torch.device) -> None:
    ops = torch.ops.warpalign
    inputs, keywords = arguments(device, tdt)
    torch.library.opcheck(ops.transducer.default, (*inputs, False), keywords)
    torch.library.opcheck(ops.transducer.default, (*inputs, True), keywords, test_utils=OPCHECK_OF_SAVED)
    value, saved = ops.transducer(*inputs, True, **keywords)
    torch.library.opcheck(ops.transducer_gradient.default, (*inputs, saved, torch.ones_like(value)), keywords)
    torch.library.opcheck(
        ops.transducer_gradient_.default, (*inputs, saved, torch.ones_like(value)), keywords
    )
    if tdt:
        torch.library.opcheck(
            ops.transducer_gradient_joined.default, (*inputs, saved, torch.ones_like(value)), keywords
        )


class _Operators(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_gradient_of_joined_columns_is_one_tensor(packed: bool, in_place: bool, device: torch.device) -> None:
    (x, z, y, t, u, _), _ = arguments(device, True)
    joint = torch.cat([x, z], -1)
    if packed:
        joint = torch.cat([joint[0].flatten(0, 1), joint[1, :3, :2].flatten(0, 1)])
    joint.requires_grad_()
    given: dict[str, Any] = {"durations": (0, 1), "blank": 0, "reduction": "none", "packed": packed}
    factor = torch.tensor([1.5, -0.5], device=device)
    expected = tdt_loss(*joint.split([x.shape[-1], 2], -1), y, t, u, **given)
    (wanted,) = torch.autograd.grad(expected, joint, factor)
    found = tdt_loss(joint * 1, None, y, t, u, inplace_grad=in_place, **given)
    with _Operators() as operators:
        (gradient,) = torch.autograd.grad(found, joint, factor)
    assert torch.equal(found, expected) and torch.equal(gradient, wanted)
    assert not any("cat" in name or "copy" in name for name in operators.names)


def test_opcheck_packed(device: torch.device) -> None:
    (x, _, y, t, u, _), keywords = arguments(device, False, packed=True)
    rows = x.flatten(0, 2)[: 5 * 3 + 3 * 2].contiguous()
    torch.library.opcheck(
        torch.ops.warpalign.transducer.default, (rows, None, y, t, u, None, False), keywords
    )
    torch.library.opcheck(
        torch.ops.warpalign.transducer.default,
        (rows, None, y, t, u, None, True),
        keywords,
        test_utils=OPCHECK_OF_SAVED,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool, device: torch.device) -> None:
    if device.type == "cuda" and not dynamic:
        pytest.skip("on a GPU one case is enough: what is compiled does not depend on the device")

    def step(x: Tensor, z: Tensor, y: Tensor, t: Tensor, u: Tensor) -> Tensor:
        joint = torch.cat([x, z], -1).tanh()
        return transducer_loss(x * 2, y, t, u, blank=0) + tdt_loss(
            *joint.split([x.shape[-1], 2], -1), y, t, u, blank=0, durations=(0, 1), reduction="mean_volume"
        )

    calls = []
    for frames in (5, 6, 7):
        x, z = torch.randn(2, frames, 3, 6, device=device), torch.randn(2, frames, 3, 2, device=device)
        y = torch.randint(1, 6, (2, 2), device=device)
        t, u = torch.tensor([frames, 3], device=device), torch.tensor([2, 1], device=device)
        calls.append(((x, z), (y, t, u)))
    assert_compiled_equals_eager(step, calls, dynamic)


def test_torch_func(device: torch.device) -> None:
    x, y = torch.randn(3, 2, 5, 3, 6, device=device), torch.randint(1, 6, (3, 2, 2), device=device)

    def one(x: Tensor, y: Tensor) -> Tensor:
        return transducer_loss(x, y, blank=0)

    mapped = torch.func.vmap(one)(x, y)
    gradients = torch.func.vmap(torch.func.grad(one))(x, y)
    moved = torch.func.vmap(torch.func.grad(one), in_dims=(2, 0))(x.movedim(0, 2), y)
    for k in range(3):
        leaf = x[k].clone().requires_grad_()
        value = one(leaf, y[k])
        torch.testing.assert_close(mapped[k], value)
        (gradient,) = torch.autograd.grad(value, leaf)
        torch.testing.assert_close(gradients[k], gradient)
        torch.testing.assert_close(moved[k], gradient)
    shared = torch.func.vmap(one, in_dims=(None, 0))(x[0], y)
    torch.testing.assert_close(shared[1], one(x[0], y[1]))
    jacobian = torch.func.jacrev(lambda x: transducer_loss(x, y[0], blank=0, reduction="none"))(x[0])
    assert not jacobian[0, 1].any() and jacobian[0, 0].any()
    torch.testing.assert_close(jacobian.sum(0) / 2, gradients[0])


def test_omega_under_vmap(device: torch.device) -> None:
    """vmap's randomness says whether utterances of different examples are drawn apart."""
    x, z = torch.randn(1, 2, 5, 3, 6, device=device), torch.randn(1, 2, 5, 3, 2, device=device)
    x, z = x.expand(8, -1, -1, -1, -1), z.expand(8, -1, -1, -1, -1)
    y = torch.randint(1, 6, (2, 2), device=device)

    def one(x: Tensor, z: Tensor, omega: float = 0.5) -> Tensor:
        return tdt_loss(x, z, y, blank=0, durations=(0, 1), sigma=0.3, omega=omega, reduction="none")

    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(one)(x, z)
    drawn, kept = one(x[0], z[0], 1.0), one(x[0], z[0], 0.0)
    torch.manual_seed(3)
    apart = torch.func.vmap(one, randomness="different")(x, z)
    together = torch.func.vmap(one, randomness="same")(x, z)
    for values in (apart, together):
        is_drawn = (values - drawn).abs() < 1e-5
        torch.testing.assert_close(values, torch.where(is_drawn, drawn, kept))
    assert (together == together[0]).all() and not (apart == apart[0]).all()
    torch.manual_seed(3)

    def gradient(x: Tensor, z: Tensor) -> Tensor:
        return torch.func.grad(lambda z: one(x, z).sum())(z)

    gradients = torch.func.vmap(gradient, randomness="different")(x, z)
    for b in range(2):  # a drawn utterance has no gradient by its duration logits
        drawn_at = (apart[:, b] - drawn[b]).abs() < 1e-5
        assert not gradients[drawn_at, b].any() and gradients[~drawn_at, b].abs().sum(-1).amax() > 0


def test_many_upstream_factors_at_once(device: torch.device) -> None:
    x, y = (
        torch.randn(2, 5, 3, 6, device=device, requires_grad=True),
        torch.randint(1, 6, (2, 2), device=device),
    )
    value = transducer_loss(x, y, blank=0, reduction="none")
    (rows,) = torch.autograd.grad(
        value, x, torch.eye(2, device=device), is_grads_batched=True, retain_graph=True
    )
    (both,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(rows.sum(0), both)


def test_forward_mode_is_refused(device: torch.device) -> None:
    x, y = torch.randn(2, 5, 3, 6, device=device), torch.randint(1, 6, (2, 2), device=device)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of the transducer losses are"):
        torch.func.jvp(lambda x: transducer_loss(x, y, blank=0), (x,), (x,))


def test_backward_twice_and_checkpoint(device: torch.device) -> None:
    from torch.utils.checkpoint import checkpoint

    x, y = (
        torch.randn(2, 5, 3, 6, device=device, requires_grad=True),
        torch.randint(1, 6, (2, 2), device=device),
    )
    value = transducer_loss(x, y, blank=0)
    first, second = (torch.autograd.grad(value, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    again = checkpoint(lambda x: transducer_loss(x, y, blank=0), x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(again, x)[0], first)


def test_inplace_grad_takes_the_logits_memory(device: torch.device) -> None:
    joint = nn.Linear(4, 8, device=device)
    twin = copy.deepcopy(joint)
    h, y = torch.randn(2, 5, 3, 4, device=device), torch.randint(0, 5, (2, 2), device=device)
    for layer, in_place in ((joint, True), (twin, False)):
        logits = layer(h)
        labels, durations = logits.split([6, 2], -1)
        before = logits._version
        tdt_loss(labels, durations, y, durations=(0, 1), inplace_grad=in_place).backward()
        assert (logits._version > before) == in_place
    for a, b in zip(joint.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)  # type: ignore[arg-type]


def test_inplace_grad_is_seen_by_who_else_needs_the_logits(device: torch.device) -> None:
    leaf, y = (
        torch.randn(2, 5, 3, 6, device=device, requires_grad=True),
        torch.randint(1, 6, (2, 2), device=device),
    )
    logits = leaf * 2
    squares = logits.square().sum()
    value = transducer_loss(logits, y, blank=0, inplace_grad=True)
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype: torch.dtype, device: torch.device) -> None:
    """Half logits are taken as they are; the loss is float32."""
    layer = nn.Linear(4, 6, device=device)
    h, y = torch.randn(2, 5, 3, 4, device=device), torch.randint(1, 6, (2, 2), device=device)
    with torch.autocast(device.type, dtype=dtype):
        logits = layer(h)
        value = transducer_loss(logits, y, blank=0)
    assert logits.dtype == dtype and value.dtype == torch.float32
    value.backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    wide = transducer_loss(logits.detach().float(), y, blank=0)
    torch.testing.assert_close(value.detach(), wide, rtol=1e-6, atol=0)


def test_a_loss_scale_of_65536(device: torch.device) -> None:
    """What a GradScaler starts with: float16 gradients of a batch's mean do not overflow."""
    x, y = (
        torch.randn(4, 20, 6, 30, device=device).half().requires_grad_(),
        torch.randint(1, 30, (4, 5), device=device),
    )
    (scaled,) = torch.autograd.grad(transducer_loss(x, y, blank=0) * 65536, x)
    (wide,) = torch.autograd.grad(transducer_loss(x.float(), y, blank=0), x)
    assert scaled.isfinite().all()
    torch.testing.assert_close(scaled.float() / 65536, wide.float(), rtol=2e-3, atol=1e-7)


def test_steps_of_a_gradscaler(device: torch.device) -> None:
    """A step is the one without a scale; one with a NaN is left out, and the scale is halved."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 30, device=device)
    twin = copy.deepcopy(layer)
    h, y = torch.randn(2, 20, 6, 8, device=device), torch.randint(1, 30, (2, 5), device=device)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    with torch.autocast(device.type, dtype=torch.float16):
        value = transducer_loss(layer(h), y, blank=0)
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()
    transducer_loss(twin(h), y, blank=0).backward()
    with torch.no_grad():
        for mine, plain in zip(layer.parameters(), twin.parameters(), strict=True):
            assert plain.grad is not None
            step = 0.01 * plain.grad
            assert (plain - step - mine).norm() <= 5e-3 * step.norm()
    before = layer.weight.detach().clone()
    optimizer.zero_grad()
    h[1, 3, 2, 0] = torch.nan
    scaler.scale(transducer_loss(layer(h), y, blank=0)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, before) and scaler.get_scale() == 512.0


@pytest.mark.gpu
def test_cuda_graph_with_changing_lengths(cuda: torch.device) -> None:
    x, y = (
        torch.randn(3, 40, 9, 33, device=cuda, requires_grad=True),
        torch.randint(1, 33, (3, 8), device=cuda),
    )
    t, u = torch.full((3,), 40, device=cuda), torch.full((3,), 8, device=cuda)

    def step() -> tuple[Tensor, Tensor]:
        value = transducer_loss(x, y, t, u, blank=0, reduction="none")
        return value, torch.autograd.grad(value.sum(), x)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, gradient = step()
    for lengths in (([40, 17, 1], [8, 0, 3]), ([5, 40, 33], [1, 8, 8])):
        t.copy_(torch.tensor(lengths[0]))
        u.copy_(torch.tensor(lengths[1]))
        with torch.no_grad():
            x.normal_()
        graph.replay()
        wanted = step()
        assert torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])


@pytest.mark.gpu
def test_side_streams_and_no_synchronisation(cuda: torch.device) -> None:
    x, y = (
        torch.randn(3, 40, 9, 33, device=cuda, requires_grad=True),
        torch.randint(1, 33, (3, 8), device=cuda),
    )
    t = torch.full((3,), 30, device=cuda)
    wanted = transducer_loss(x, y, t, blank=0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.stream(stream):
            value = transducer_loss(x, y, t, blank=0)
            value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert torch.equal(value, wanted)
