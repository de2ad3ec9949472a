"""The table of edges: what others crash on or get wrong. Every row on every device."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.python.transducer.cases import FAMILIES, labels_for, logits_for, loss
from warpalign import TDTLoss, tdt_loss, transducer_loss

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def run(x: Tensor, y: Tensor, *lengths: Tensor | None, **options: object) -> tuple[Tensor, Tensor]:
    leaf = x.detach().requires_grad_()
    value = transducer_loss(leaf, y, *lengths, blank=0, reduction="none", **options)  # type: ignore[arg-type]
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def batch(device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 7, 4, 9, device=device, dtype=dtype), torch.randint(1, 9, (4, 3), device=device)


def test_no_frames_no_labels(device: torch.device) -> None:
    x, y = batch(device)
    t, u = torch.tensor([0, 1, 0, 7], device=device), torch.tensor([0, 0, 2, 0], device=device)
    value, gradient = run(x, y, t, u)
    assert value[0] == math.inf and value[2] == math.inf
    assert value[1].item() == pytest.approx(-x[1, 0, 0].log_softmax(0)[0].item(), rel=1e-6)
    assert value[3].item() == pytest.approx(-x[3, :, 0].log_softmax(-1)[:, 0].sum().item(), rel=1e-6)
    assert not gradient[[0, 2]].any() and gradient[[1, 3]].isfinite().all()
    zero, _ = run(x, y, t, u, zero_infinity=True)
    assert zero.tolist() == [0.0, value[1].item(), 0.0, value[3].item()]


def test_empty_batch_and_empty_axes(device: torch.device) -> None:
    x, y = batch(device)
    value, gradient = run(x[:0], y[:0])
    assert value.shape == (0,) and gradient.shape == (0, 7, 4, 9)
    value, gradient = run(x[:, :0], y)
    assert (value == math.inf).all() and gradient.shape == (4, 0, 4, 9)
    value, gradient = run(x[:, :, :1], y[:, :0])
    assert value.isfinite().all() and gradient.isfinite().all()


def test_lengths_all_below_the_dims(device: torch.device) -> None:
    x, y = batch(device)
    t, u = torch.full((4,), 5, device=device), torch.full((4,), 2, device=device)
    value, gradient = run(x, y, t, u)
    small, inner = run(x[:, :5, :3].contiguous(), y[:, :2].contiguous())
    assert torch.equal(value, small) and torch.equal(gradient[:, :5, :3], inner)
    assert not gradient[:, 5:].any() and not gradient[:, :, 3:].any()


@pytest.mark.gpu
def test_lengths_beyond_the_dims_are_clamped_on_a_gpu(cuda: torch.device) -> None:
    x, y = batch(cuda)
    value, gradient = run(
        x, y, torch.tensor([7, 99, -3, 2**40], device=cuda), torch.tensor([-1, 3, 2, 2**33], device=cuda)
    )
    wanted, wanted_gradient = run(
        x, y, torch.tensor([7, 7, 0, 7], device=cuda), torch.tensor([0, 3, 2, 3], device=cuda)
    )
    assert torch.equal(value, wanted) and torch.equal(gradient, wanted_gradient)


@pytest.mark.gpu
@pytest.mark.parametrize("label", [0, 9, -1, 2**31 - 1, 2**40, -(2**40)])
def test_invalid_labels_on_a_gpu(cuda: torch.device, label: int) -> None:
    x, y = batch(cuda)
    wanted, wanted_gradient = run(x, y)
    y = y.clone()
    y[1, 2] = label
    value, gradient = run(x, y)
    others = [0, 2, 3]
    assert value[1].isnan() and gradient[1].isnan().all()
    assert torch.equal(value[others], wanted[others]) and torch.equal(
        gradient[others], wanted_gradient[others]
    )
    value, _ = run(x, y, None, torch.full((4,), 2, device=cuda))  # it is not read there
    assert value.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_infinity(device: torch.device, dtype: torch.dtype) -> None:
    x, y = batch(device, dtype)
    x[0, 3, 1, 0] = -math.inf
    x[1, 3, 1] = -math.inf
    x[2, 4, :, 0] = -math.inf  # no blank leaves frame 4
    x[3, 0, 0] = -math.inf
    value, gradient = run(x, y)
    assert value[:2].isfinite().all() and (value[2:] == math.inf).all()
    assert gradient.isfinite().all() and not gradient[2:].any() and not gradient[1, 3, 1].any()
    assert gradient[0, 3, 1, 0] == 0
    value, gradient = run(x, y, zero_infinity=True)
    assert (value[2:] == 0).all() and not gradient[2:].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_stays_in_its_utterance(device: torch.device, dtype: torch.dtype, bad: float) -> None:
    x, y = batch(device, dtype)
    wanted, wanted_gradient = run(x, y)
    x[2, 6, 3, 5] = bad
    value, gradient = run(x, y)
    others = [0, 1, 3]
    assert value[2].isnan() and gradient[2].isnan().all()
    assert torch.equal(value[others], wanted[others]) and torch.equal(
        gradient[others], wanted_gradient[others]
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_padding_is_never_read(device: torch.device, bad: float) -> None:
    x, y = batch(device)
    t, u = torch.tensor([7, 3, 5, 1], device=device), torch.tensor([1, 3, 0, 2], device=device)
    wanted = run(x, y, t, u)
    for b in range(4):
        x[b, t[b] :], x[b, :, u[b] + 1 :] = bad, bad
        y[b, u[b] :] = 1000
    for in_place in (False, True):
        leaf = x.clone().requires_grad_()
        given = leaf * 1 if not in_place else leaf.clone()
        value = transducer_loss(given, y, t, u, blank=0, reduction="none", inplace_grad=in_place)
        (gradient,) = torch.autograd.grad(value.sum(), given)
        assert torch.equal(value, wanted[0]) and torch.equal(gradient, wanted[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_upstream_factors_of_any_sign(device: torch.device, dtype: torch.dtype) -> None:
    x, y = batch(device, dtype)
    _, gradient = run(x, y)
    factors = torch.tensor([-1.0, 0.0, 2.0, -0.5], device=device)  # powers of two: exact
    leaf = x.requires_grad_()
    value = transducer_loss(leaf, y, blank=0, reduction="none")
    (found,) = torch.autograd.grad(value, leaf, factors.to(value.dtype))
    assert torch.equal(found, gradient * factors.to(dtype)[:, None, None, None]) or dtype == torch.float16
    torch.testing.assert_close(
        found, gradient * factors.to(dtype)[:, None, None, None], rtol=0, atol=2.0**-24
    )
    assert not found[1].any()


def test_more_frames_and_states_than_a_grid_axis(device: torch.device) -> None:
    x = torch.randn(1, 66_000, 2, 3, device=device)
    assert run(x, torch.tensor([[1]], device=device))[1].isfinite().all()
    x = torch.randn(1, 3, 1_300, 3, device=device)
    value, gradient = run(x, torch.randint(1, 3, (1, 1_299), device=device))
    assert value.isfinite().all() and gradient.isfinite().all() and gradient.any()


def test_strides(device: torch.device) -> None:
    wide = torch.randn(7, 4, 4, 12, device=device)
    x = wide[..., 2:11].permute(2, 0, 1, 3)
    y = torch.randint(1, 9, (4, 3), device=device)
    value, gradient = run(x, y)
    wanted, wanted_gradient = run(x.contiguous(), y)
    assert torch.equal(value, wanted) and torch.equal(gradient, wanted_gradient)
    one = torch.randn(1, 7, 4, 9, device=device)
    value, gradient = run(one.expand(4, 7, 4, 9), y)
    wanted, wanted_gradient = run(one.expand(4, 7, 4, 9).contiguous(), y)
    assert torch.equal(value, wanted) and torch.equal(gradient, wanted_gradient)


@pytest.mark.parametrize("integers", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_integer_types(device: torch.device, integers: torch.dtype) -> None:
    x, y = batch(device)
    t, u = torch.tensor([7, 3, 5, 1], device=device), torch.tensor([1, 3, 0, 2], device=device)
    assert torch.equal(run(x, y.to(integers), t.to(integers), u.to(integers))[0], run(x, y, t, u)[0])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_flat_in_place_and_alone_have_the_same_bits(
    family: str, dtype: torch.dtype, device: torch.device
) -> None:
    options = FAMILIES[family]
    t, u = torch.tensor([9, 4, 6]), torch.tensor([3, 5, 0])
    x, z = logits_for(options, 3, 9, 6, dtype=torch.float32)
    x, z = x.to(dtype), None if z is None else z.to(dtype)
    y = labels_for(options, 3, 5)
    inside = (torch.arange(9)[:, None] < t[:, None, None]) & (torch.arange(6) <= u[:, None, None])
    flat = torch.cat([y[b, : u[b]] for b in range(3)])

    def gradients(
        x: Tensor, z: Tensor | None, *rest: Tensor, in_place: bool = False, **more: bool
    ) -> list[Tensor]:
        leaves = [None if s is None else s.to(device).clone().requires_grad_() for s in (x, z)]
        given = [None if s is None else s.clone() if in_place else s for s in leaves]
        assert given[0] is not None
        moved = [s.to(device) for s in rest]
        value = loss(given[0], given[1], moved[0], options, *moved[1:], inplace_grad=in_place, **more)
        return [value.detach(), *torch.autograd.grad(value.sum(), [s for s in given if s is not None])]

    padded = gradients(x, z, y, t, u)
    for other in (gradients(x, z, y, t, u, in_place=True), gradients(x, z, flat, t, u)):
        assert all(torch.equal(a, b) for a, b in zip(padded, other, strict=True))
    mask = inside.to(device)
    for labels in (y, flat):
        packed = gradients(x[inside], None if z is None else z[inside], labels, t, u, packed=True)
        assert torch.equal(packed[0], padded[0])
        assert all(torch.equal(a, b[mask]) for a, b in zip(packed[1:], padded[1:], strict=True))
    for b in range(3):
        part = (slice(b, b + 1), slice(0, int(t[b])), slice(0, int(u[b]) + 1))
        alone = gradients(x[part], None if z is None else z[part], y[b : b + 1, : u[b]])
        assert torch.equal(alone[0], padded[0][b : b + 1])
        assert all(torch.equal(a, s[part]) for a, s in zip(alone[1:], padded[1:], strict=True))


def test_omega(device: torch.device) -> None:
    x = torch.randn(64, 5, 3, 6, device=device, requires_grad=True)
    z = torch.randn(64, 5, 3, 3, device=device, requires_grad=True)
    y = torch.randint(0, 5, (64, 2), device=device)
    plain = transducer_loss(x, y, reduction="none")
    timed = tdt_loss(x, z, y, durations=(0, 1, 2), sigma=0.1, reduction="none")
    every = tdt_loss(x, z, y, durations=(0, 1, 2), sigma=0.1, omega=1.0, reduction="none")
    assert torch.equal(every, plain)
    assert not torch.autograd.grad(every.sum(), z)[0].any()
    generator = torch.Generator(device).manual_seed(3)
    mixed = tdt_loss(
        x, z, y, durations=(0, 1, 2), sigma=0.1, omega=0.5, generator=generator, reduction="none"
    )
    drawn = torch.rand(64, generator=torch.Generator(device).manual_seed(3), device=device) < 0.5
    assert torch.equal(mixed, torch.where(drawn, plain, timed)) and 10 < int(drawn.sum()) < 54
    module = TDTLoss(durations=(0, 1, 2), sigma=0.1, omega=1.0, reduction="none")
    assert torch.equal(module(x, z, y), plain) and torch.equal(module.eval()(x, z, y), timed)


def test_more_than_2_to_the_31_logits(device: torch.device) -> None:
    """Zeros, which take no memory on a CPU until they are written; one row behind the 2³¹st number differs."""
    frames, states, columns = 2100, 1001, 1024
    x = torch.zeros(1, frames, states, columns, dtype=torch.float16, device=device)
    assert x.numel() > 2**31
    x[0, -1, -1, 0] = -3.0  # the last blank
    y = torch.ones(1, states - 1, dtype=torch.int64, device=device)
    value = float(transducer_loss(x, y, blank=0, reduction="sum"))
    paths = math.lgamma(frames + states - 1) - math.lgamma(frames) - math.lgamma(states)
    steps = (frames + states - 2) * math.log(columns) + 3 + math.log(columns - 1 + math.exp(-3))
    assert value == pytest.approx(steps - paths, rel=1e-6)
