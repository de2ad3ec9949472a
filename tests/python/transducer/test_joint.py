"""The fused joint beside the losses on its logits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import warpalign
from tests.python.transducer.cases import FAMILIES, labels_for, loss
from tests.python.transducer.joint_cases import CASES, H, V, fused, materialised, network
from warpalign import JointWeights, transducer_loss_from_joint


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", CASES)
def test_is_the_loss_of_its_logits(name: str, activation: str, device: torch.device) -> None:
    """Losses and gradients in float64, ragged, to 1e-10; FastEmit and clamp besides."""
    options = CASES[name]
    y = labels_for(options, 3, 4).to(device)
    lengths = torch.tensor([8, 3, 5], device=device), torch.tensor([4, 2, 0], device=device)
    more: dict[str, Any] = {"fastemit_lambda": 0.02, "clamp": 0.3} if activation == "tanh" else {}
    upstream = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64, device=device)
    results = []
    leaves = network(options, 3, 8, 5, dtype=torch.float64, device=device)
    leaves[0][1, 3:] = leaves[1][1, 3:] = 1e3  # padding
    for function in (fused, materialised):
        given = [t.clone().requires_grad_() for t in leaves]
        values = function(given, y, options, *lengths, activation=activation, **more)
        results.append((values.detach(), *torch.autograd.grad(values, given, upstream)))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    assert not results[0][1][1, 3:].any() and not results[0][2][1, 3:].any()


@pytest.mark.parametrize("name", [name for name in CASES if "all" in name or "none" in name])
def test_gradcheck(name: str, device: torch.device) -> None:
    options = CASES[name]
    y = labels_for(options, 2, 2).to(device)
    lengths = torch.tensor([4, 3], device=device), torch.tensor([2, 1], device=device)
    given = [t.requires_grad_() for t in network(options, 2, 4, 3, dtype=torch.float64, device=device)]
    assert torch.autograd.gradcheck(
        lambda *tensors: -1.5 * fused(tensors, y, options, *lengths, activation="tanh"), given
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FAMILIES)
def test_no_less_exact_than_materialised(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Errors against float64 at most twice those of the same formula in torch, plus the rounding of the result."""
    options = FAMILIES[name]
    y = labels_for(options, 2, 6).to(device)
    leaves = [t.to(device, dtype) for t in network(options, 2, 20, 7)]
    results = []
    for function, kind in ((materialised, torch.float64), (materialised, dtype), (fused, dtype)):
        given = [t.to(kind).requires_grad_() for t in leaves]
        values = function(given, y, options, activation="tanh")
        gradients = torch.autograd.grad(values.sum(), given)
        results.append([values.detach().double(), *(g.double() for g in gradients)])
    for exact, naive, mine in zip(*results, strict=True):
        own = torch.finfo(dtype).eps * exact.norm()
        assert (mine - exact).norm() <= 2 * (naive - exact).norm() + own


def _in_tf32(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _in_two_bfloat16(x: Tensor) -> Tensor:
    first = x.bfloat16().float()
    return first + (x - first).bfloat16().float()


class _RoundedLinear(torch.autograd.Function):
    """A linear layer whose products, the gradients' too, have rounded factors."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, rounded: Callable[[Tensor], Tensor]
    ) -> Tensor:
        h, weight = rounded(h), rounded(weight)
        ctx.save_for_backward(h, weight)
        ctx.rounded = rounded
        return nn.functional.linear(h, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        h, weight = ctx.saved_tensors
        g = ctx.rounded(grads[0].contiguous())
        return g @ weight, g.flatten(0, -2).T @ h.flatten(0, -2), grads[0].flatten(0, -2).sum(0), None


def _rounding(precision: str, labels: int, device: torch.device) -> Callable[[Tensor], Tensor] | None:
    """How the factors of float32 products are rounded: None, if they have all bits."""
    if device.type == "cpu" or precision == "highest":
        return None
    if labels >= 8 and torch.cuda.get_device_capability(device) == (9, 0):
        return _in_two_bfloat16
    return _in_tf32 if precision == "medium" else None


@pytest.mark.parametrize("labels", [13, 140, 4100])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_precision(precision: Any, labels: int, device: torch.device) -> None:
    """Errors at most twice those of torch with factors of the same precision, plus a floor.

    The floor is 4 epsilon of the result, and with one product of TF32 2^-14, as which way a factor near the middle of two
    numbers is rounded is chance.
    """
    options = FAMILIES["rnnt"]
    sizes = ((2, 20, 40), (2, 7, 40), (labels, 40), (labels,))
    generator = torch.Generator().manual_seed(4)
    leaves = [torch.randn(*s, generator=generator).to(device) for s in sizes]
    leaves[2] /= 40**0.5
    y = torch.randint(1, labels, (2, 6), generator=generator).to(device)
    rounding = _rounding(precision, labels, device)

    def naive(given: list[Tensor]) -> Tensor:
        encoder, predictor, weight, bias = given
        hidden = torch.tanh(encoder[:, :, None] + predictor[:, None])
        if rounding and hidden.dtype == torch.float32:
            logits: Tensor = _RoundedLinear.apply(hidden, weight, bias, rounding)  # type: ignore[no-untyped-call]
        else:
            logits = nn.functional.linear(hidden, weight, bias)
        return loss(logits, None, y, options)

    def mine(given: list[Tensor], **more: Any) -> Tensor:
        return fused(given, y, options, activation="tanh", **more)

    results = []
    for kind in (torch.float64, torch.float32, None):
        given = [t.to(kind or torch.float32).requires_grad_() for t in leaves]
        values = naive(given) if kind else mine(given, precision=precision)
        results.append([values.detach().double(), *torch.autograd.grad(values.sum(), given)])
    floor = 2.0**-14 if rounding is _in_tf32 else 4 * torch.finfo().eps
    for exact, theirs, ours in zip(*results, strict=True):
        assert (ours - exact).norm() <= 2 * (theirs - exact).norm() + floor * exact.norm()
    if device.type == "cpu" or rounding:
        highest = mine(leaves, precision="highest")
        assert torch.equal(mine(leaves, precision=precision), highest) == (device.type == "cpu")


def test_dropout(device: torch.device) -> None:
    """Both calls have the same mask, the generator decides it, and a module in evaluation has none."""
    options = FAMILIES["rnnt"]
    y = labels_for(options, 2, 2).to(device)
    given = [t.requires_grad_() for t in network(options, 2, 4, 3, dtype=torch.float64, device=device)]

    def dropped(*tensors: Tensor, seed: int = 5) -> Tensor:
        generator = torch.Generator(device).manual_seed(seed)
        return fused(tensors, y, options, dropout=0.4, generator=generator, activation="tanh")

    assert torch.autograd.gradcheck(dropped, given)
    assert torch.equal(dropped(*given), dropped(*given))
    assert not torch.equal(dropped(*given), dropped(*given, seed=6))
    module = warpalign.TransducerJointLoss(H, V, blank=0, dropout=0.4, device=device, dtype=torch.float64)
    assert not torch.equal(module(*given[:2], y), module(*given[:2], y))
    module.eval()
    assert torch.equal(module(*given[:2], y), module(*given[:2], y))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_small_workspace_changes_no_bit_but_of_weights(dtype: torch.dtype, device: torch.device) -> None:
    """Losses and gradients by encoder and predictor. Gradients by weight and bias are sums of chunks."""
    generator = torch.Generator().manual_seed(3)
    sizes = ((2, 40, 16), (2, 12, 16), (200, 16), (200,))
    given = [torch.randn(*s, generator=generator).to(device, dtype).requires_grad_() for s in sizes]
    y = torch.randint(1, 199, (2, 11), generator=generator).to(device)
    results = []
    for limit in (48 << 20, 0):
        loss = transducer_loss_from_joint(
            *given[:2], y, JointWeights(*given[2:]), reduction="none", workspace_limit=limit
        )
        results.append((loss.detach(), *torch.autograd.grad(loss.sum(), given)))
    for wide, narrow in zip(*[r[:3] for r in results], strict=True):
        assert torch.equal(wide, narrow)
    for wide, narrow in zip(*[r[3:] for r in results], strict=True):
        torch.testing.assert_close(wide, narrow, rtol=4 * torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "mean", "mean_target", "mean_volume", "mean_frame"])
def test_reductions_and_the_module(reduction: Any, device: torch.device) -> None:
    options = FAMILIES["rnnt"]
    tensors = network(options, 3, 6, 4, device=device)
    y = labels_for(options, 3, 3).to(device)
    for lengths in ((), (torch.tensor([6, 2, 3], device=device), torch.tensor([3, 0, 2], device=device))):
        value = fused(tensors, y, options, *lengths, reduction=reduction)
        torch.testing.assert_close(value, materialised(tensors, y, options, *lengths, reduction=reduction))
        module = warpalign.TransducerJointLoss(H, V, blank=0, reduction=reduction, device=device)
        assert module.bias is not None
        with torch.no_grad():
            module.weight.copy_(tensors[2])
            module.bias.copy_(tensors[3])
        assert torch.equal(module(*tensors[:2], y, *lengths), value)


def test_the_module_shows_its_settings() -> None:
    module = warpalign.TransducerJointLoss(4, 6, durations=(0, 1), omega=1.0, bias=False, activation="tanh")
    assert module.bias is None and module.weight.shape == (8, 4)
    assert (
        repr(module)
        == "TransducerJointLoss(hidden=4, columns=8, bias=False, activation='tanh', durations=(0, 1), omega=1.0)"
    )
    e, g, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.ones(2, 2, dtype=torch.int64)
    plain = transducer_loss_from_joint(e, g, y, JointWeights(module.weight[:6], activation="tanh"))
    torch.testing.assert_close(module(e, g, y), plain)  # every utterance is drawn
    assert not torch.allclose(module.eval()(e, g, y), plain)


def test_omega(device: torch.device) -> None:
    options = FAMILIES["tdt"]
    tensors, y = network(options, 40, 4, 3, device=device), labels_for(options, 40, 2).to(device)
    generator = torch.Generator(device).manual_seed(1)
    values = fused(tensors, y, options, omega=0.5, generator=generator)
    with_durations = fused(tensors, y, options)
    encoder, predictor, weight, bias = tensors
    without = transducer_loss_from_joint(
        encoder, predictor, y, JointWeights(weight[:V], bias[:V], blank=options.blank), reduction="none"
    )
    drawn = torch.rand(40, generator=generator.manual_seed(1), device=device) < 0.5
    torch.testing.assert_close(values, torch.where(drawn, without, with_durations))
    assert 5 < int(drawn.sum()) < 35


def test_edges(device: torch.device) -> None:
    options = FAMILIES["rnnt"]
    none = fused(network(options, 0, 4, 3, device=device), labels_for(options, 0, 2).to(device), options)
    assert none.shape == (0,)
    tensors = [t.requires_grad_() for t in network(options, 0, 4, 3, device=device)]
    fused(tensors, labels_for(options, 0, 2).to(device), options, reduction="sum").backward()
    assert tensors[2].grad is not None and not tensors[2].grad.any()
    tensors = [t.requires_grad_() for t in network(options, 2, 0, 3, device=device)]
    values = fused(tensors, labels_for(options, 2, 2).to(device), options)
    assert values.tolist() == [math.inf, math.inf]
    assert fused(tensors, labels_for(options, 2, 2).to(device), options, zero_infinity=True).tolist() == [
        0,
        0,
    ]
    values.sum().backward()
    assert tensors[3].grad is not None and not tensors[3].grad.any()
    one = network(options, 1, 4, 3, device=device)
    y = labels_for(options, 1, 2).to(device)
    batched = fused(one, y, options)
    assert torch.equal(fused([one[0][0], one[1][0], *one[2:]], y[0], options), batched[0])
    assert torch.equal(
        fused([*one[:3], None], y, options), fused([*one[:3], torch.zeros_like(one[3])], y, options)
    )


def test_strides_flat_targets_and_alone_have_the_same_bits(device: torch.device) -> None:
    options = FAMILIES["multi_blank"]
    tensors = network(options, 3, 9, 4, device=device)
    y, lengths = labels_for(options, 3, 3).to(device), torch.tensor([9, 4, 7], device=device)
    counts = torch.tensor([3, 1, 2], device=device)
    leaves = [t.clone().requires_grad_() for t in tensors]
    values = fused(leaves, y, options, lengths, counts)
    grads = torch.autograd.grad(values.sum(), leaves)

    def again(given: list[Tensor], targets: Tensor) -> None:
        leaf = [t.detach().requires_grad_() for t in given]
        more = fused(leaf, targets, options, lengths, counts)
        assert torch.equal(more, values)
        for one, other in zip(torch.autograd.grad(more.sum(), leaf), grads, strict=True):
            assert torch.equal(one, other)

    again(tensors, torch.cat([y[b, : counts[b]] for b in range(3)]))
    wide = torch.full((3, 9, H + 3), math.nan, device=device)
    wide[..., 2:-1] = tensors[0]
    moved = tensors[1].transpose(0, 2).contiguous().transpose(0, 2)
    again([wide[..., 2:-1], moved, tensors[2].T.contiguous().T, tensors[3]], y)
    for b in range(3):
        alone = [tensors[0][b : b + 1], tensors[1][b : b + 1], *tensors[2:]]
        leaf = [t.clone().requires_grad_() for t in alone]
        value = fused(leaf, y[b : b + 1], options, lengths[b : b + 1], counts[b : b + 1])
        assert torch.equal(value[0], values[b])
        for one, other in zip(torch.autograd.grad(value.sum(), leaf[:2]), grads[:2], strict=True):
            assert torch.equal(one[0], other[b])


def test_nan_stays_in_its_utterance(device: torch.device) -> None:
    options = FAMILIES["rnnt"]
    tensors, y = network(options, 3, 5, 3, device=device), labels_for(options, 3, 2).to(device)
    tensors[0][1, 2, 0] = math.nan
    leaves = [t.requires_grad_() for t in tensors]
    values = fused(leaves, y, options)
    values.sum().backward()
    for tensor in leaves[:2]:
        assert tensor.grad is not None
        assert tensor.grad[1].isnan().all() and not tensor.grad[[0, 2]].isnan().any()
    assert values.isnan().tolist() == [False, True, False]


def test_peak_memory_is_far_below_the_logits() -> None:
    """The operators' own memory: 16 MiB of a chunk, weights, and 12 bytes a node."""
    batch, frames, states, hidden, columns = 4, 120, 41, 64, 2000
    ops = torch.ops.warpalign
    tensors = [torch.randn(*s) for s in ((batch, frames, hidden), (batch, states, hidden), (columns, hidden))]
    y = torch.randint(1, columns, (batch, states - 1), dtype=torch.int32)
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as trace:
        value, saved = ops.transducer_joint(*tensors, None, y, None, None, None, None, None, True)
        ops.transducer_joint_gradient(
            *tensors, None, y, None, None, None, None, None, saved, value, True, True, True, False
        )
    largest = max(event.cpu_memory_usage for event in trace.events())
    nodes = batch * frames * states
    assert largest <= 40 << 20 < nodes * columns * 4 / 3


@pytest.mark.parametrize("name", CASES)
def test_random_calls(name: str, device: torch.device) -> None:
    options = CASES[name]
    for seed in range(6):
        draw = random.Random(f"{name} {seed}")
        torch.manual_seed(draw.randrange(2**31))
        dtype = draw.choice((torch.float64, torch.float32, torch.float16, torch.bfloat16))
        batch, frames, states = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 6)
        activation = draw.choice(("relu", "tanh"))
        tensors = [
            (t * draw.choice((0.1, 1.0, 3.0))).to(dtype) for t in network(options, batch, frames, states)
        ]
        if draw.random() < 0.3:
            tensors[3][draw.randrange(V)] = -math.inf  # a column that is masked out
        lengths = (
            torch.tensor([draw.randint(0, frames) for _ in range(batch)], device=device),
            torch.tensor([draw.randint(0, states - 1) for _ in range(batch)], device=device),
        )
        y, more = labels_for(options, batch, states - 1).to(device), {"zero_infinity": draw.random() < 0.5}
        upstream = torch.randn(batch, dtype=torch.float64)
        found = [t.to(device).requires_grad_() for t in tensors]
        values = fused(found, y, options, *lengths, activation=activation, **more)
        gradients = torch.autograd.grad(values, found, upstream.to(device, values.dtype))
        exact = [t.double().to(device).requires_grad_() for t in tensors]
        wanted = materialised(exact, y, options, *lengths, activation=activation, **more)
        where = f"{name}, seed {seed}"
        single = 2.3e-16 if dtype == torch.float64 else 1.2e-7
        half = dtype in (torch.float16, torch.bfloat16)
        # Products of GPUs, and of CPUs with AVX512_BF16, round the hidden layer to the half type.
        in_pairs = dtype == torch.bfloat16 and torch.cpu._is_avx512_bf16_supported()
        rounds = half and (device.type != "cpu" or in_pairs)
        product = torch.finfo(dtype).eps if rounds else single
        torch.testing.assert_close(
            values.double(), wanted, rtol=16 * product, atol=400 * product, equal_nan=True, msg=where
        )
        # -inf in the bias makes NaN of 0 times inf in torch's own backward, not here.
        known = torch.autograd.grad(wanted, exact, upstream.to(device))
        for one, other in zip(gradients, known, strict=True):
            assert not one.isnan().any(), where
            if not other.isfinite().all():
                continue
            rounding = torch.finfo(dtype).eps * other.abs()
            error = ((one.double() - other).abs() - rounding).clamp(min=0)
            scale = other.norm() + float(upstream.abs().sum())
            assert error.norm() <= 100 * product * scale + (2.0**-24 if half else 0) * other.numel(), where


@pytest.mark.gpu
def test_an_invalid_label_on_a_gpu(cuda: torch.device) -> None:
    options = FAMILIES["rnnt"]
    tensors = [t.requires_grad_() for t in network(options, 3, 5, 3, device=cuda)]
    y = labels_for(options, 3, 2).to(cuda)
    y[1, 0] = options.blank
    values = fused(tensors, y, options)
    values.sum().backward()
    assert values.isnan().tolist() == [False, True, False]
    for tensor in tensors[:2]:
        assert tensor.grad is not None
        assert tensor.grad[1].isnan().all() and not tensor.grad[[0, 2]].isnan().any()
