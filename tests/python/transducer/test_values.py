"""Values and gradients against known results and the float64 reference, on every device."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.transducer import reference
from tests.python.transducer.cases import every_family_and_penalty, labels_for, logits_for, loss
from tests.python.transducer.reference import pattern
from warpalign import TransducerPenalties, tdt_loss, transducer_loss

A = torch.tensor(
    [[[.1, .6, .1, .1, .1], [.1, .1, .6, .1, .1], [.1, .1, .2, .8, .1]], [[.1, .6, .1, .1, .1], [.1, .1, .2, .1, .1], [.7, .1, .2, .1, .1]]],
    dtype=torch.float64,
)  # fmt: skip
EOS: dict[str, Any] = {"eos_id": 4, "eos_penalty": 0.1}
STAR: dict[str, Any] = {"star_id": 3, "star_penalty": 0.5}
P = TransducerPenalties
# name: logits, targets, arguments, loss, sum of |gradient| where it is known.
KNOWN: dict[str, tuple[Tensor, list[int], dict[str, Any], float, float | None]] = {
    "a": (A, [1, 2], {"blank": 0}, 4.495666773770732, None),
    "a, blank 4": (A, [1, 2], {}, 5.095666773770732, None),
    "a, one frame": (A[:1], [1, 2], {"blank": 0}, 4.274244594423859, None),
    "a, one node": (A[:1, :1], [], {"blank": 0}, 1.7314291957733714, None),
    "a, frames 0 1 0": (A[[0, 1, 0]], [1, 2], {"blank": 0}, 5.736725042810161, None),
    "multi-blank": (pattern(5, 3, 6), [1, 2], {"big_blanks": (2, 4)}, 5.906419350568, 5.8632923249),
    "multi-blank, sigma": (pattern(5, 3, 6), [1, 2], {"big_blanks": (2, 4), "sigma": 0.05}, 6.130807916630, 5.8495939993),
    "three big blanks": (pattern(8, 4, 12), [1, 2, 3], {"big_blanks": (2, 4, 8), "sigma": 0.1}, 8.826298395694, 7.0934416824),
    "plain": (pattern(5, 3, 4), [1, 2], {}, 6.883348431804, 8.4945065679),
    "six": (pattern(6, 4, 5), [1, 2, 1], {"blank": 0}, 13.116505378391, 12.7282019423),
    "delay .01": (pattern(6, 4, 5), [1, 2, 1], {"blank": 0, "penalties": P(delay_penalty=0.01)}, 13.098762181338, 12.7341434784),
    "delay .1": (pattern(6, 4, 5), [1, 2, 1], {"blank": 0, "penalties": P(delay_penalty=0.1)}, 12.895947857038, 12.8204660232),
    "fastemit .01": (pattern(6, 4, 5), [1, 2, 1], {"blank": 0, "fastemit_lambda": 0.01}, 13.116505378391, 12.7654781832),
    "fastemit 1": (pattern(6, 4, 5), [1, 2, 1], {"blank": 0, "fastemit_lambda": 1}, 13.116505378391, 16.7057932113),
    "eos": (pattern(6, 4, 5), [1, 2, 4], {"blank": 0, "penalties": P(**EOS)}, 13.472892402395, 13.2516151073),
    "star": (pattern(6, 4, 5), [1, 3, 2], {"blank": 0, "penalties": P(**STAR)}, 7.780726364410, 5.9403406376),
    "star last": (pattern(6, 4, 5), [1, 2, 3], {"blank": 0, "penalties": P(**STAR)}, 6.455237082621, 3.3618021444),
    "all penalties": (pattern(6, 4, 5), [1, 3, 4], {"blank": 0, "penalties": P(**EOS, **STAR, delay_penalty=0.01)}, 8.282190287939, 6.3720239570),
    "repeated label": (pattern(6, 4, 5), [1, 1, 1], {"blank": 0}, 12.667277570896, 12.3307613923),
    "frame 0": (pattern(6, 4, 5)[:1], [1, 2, 1], {"blank": 0}, 7.131883933326, 6.4158280295),
    "column 0": (pattern(6, 4, 5)[:, :1], [], {"blank": 0}, 12.782788594822, 10.4268761186),
}  # fmt: skip


def compared(x: Tensor, found: Tensor, value: Tensor, expected: float, total: float | None) -> None:
    narrow = x.dtype == torch.float32
    assert float(value.detach()) == pytest.approx(expected, rel=5e-7 if narrow else 1e-12, abs=2e-12)
    if total is not None:
        assert float(found.double().abs().sum()) == pytest.approx(total, rel=3e-6 if narrow else 1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", KNOWN)
def test_known_results(name: str, dtype: torch.dtype, device: torch.device) -> None:
    logits, targets, arguments, expected, total = KNOWN[name]
    x = logits.to(device, dtype, copy=True).contiguous().requires_grad_()
    value = transducer_loss(x, torch.tensor(targets, dtype=torch.int64, device=device), **arguments)
    value.backward()
    assert x.grad is not None
    compared(x, x.grad, value, expected, total)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_known_results_of_tdt(dtype: torch.dtype, device: torch.device) -> None:
    targets = torch.tensor([1, 2], device=device)
    x = pattern(5, 3, 7).to(device, dtype).requires_grad_()
    value = tdt_loss(*x.split([4, 3], -1), targets, durations=(0, 1, 2), sigma=0.05)
    value.backward()
    assert x.grad is not None
    compared(x, x.grad, value, 6.025570248721, 7.4697495434)
    x = torch.zeros(3, 2, 7, device=device, dtype=dtype, requires_grad=True)
    value = tdt_loss(*x.split([4, 3], -1), targets[:1] * 0, durations=(0, 1, 2), sigma=0.05)
    value.backward()
    assert x.grad is not None
    assert float(value.detach()) == pytest.approx(4.155738825070, rel=1e-6)
    row = [-0.64962798, 0.25, 0.25, 0.14962798, 0.26725832, -0.16792617, -0.09933215]
    assert x.grad[0, 0].tolist() == pytest.approx(row, abs=3e-7)


def test_known_rows_of_the_gradient(device: torch.device) -> None:
    x = A.to(device).requires_grad_()
    targets = torch.tensor([1, 2], device=device)
    for clamp in (None, 0.1):
        (gradient,) = torch.autograd.grad(transducer_loss(x, targets, blank=0, clamp=clamp), x)
        rows = torch.stack([gradient[0, 0], gradient[1, 2]]).cpu()
        known = torch.tensor(
            [[-.13116686, -.3999268, .17703122, .17703122, .17703122], [-.6925882, .16871117, .18645468, .16871117, .16871117]],
            dtype=torch.float64,
        )  # fmt: skip
        torch.testing.assert_close(
            rows, known if clamp is None else known.clamp(-clamp, clamp), atol=6e-9, rtol=0
        )


CASES = every_family_and_penalty()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_against_the_reference(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Ragged, with NaN in the padding. Tolerances: tests/cpp/transducer/testing.h has them with their reasons."""
    options = CASES[name]
    batch, frames, states = 4, 12, 6
    x, z = logits_for(options, batch, frames, states)
    targets = labels_for(options, batch, states - 1)
    t_lengths, u_lengths = torch.tensor([12, 5, 9, 1]), torch.tensor([5, 3, 0, 2])
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    for b in range(batch):
        x[b, t_lengths[b] :], x[b, :, u_lengths[b] + 1 :] = math.nan, math.nan
    x = x.to(dtype)
    z = None if z is None else z.to(dtype)
    given = [None if t is None else t.to(device).requires_grad_() for t in (x, z)]
    assert given[0] is not None
    values = loss(given[0], given[1], targets.to(device), options, t_lengths.to(device), u_lengths.to(device))
    values.backward(upstream.to(device, values.dtype))
    assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    epsilon, limit = (2.3e-16, 1e-10) if dtype == torch.float64 else (1.2e-7, 1e-5)
    rounding = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(dtype, 0.0)
    for b in range(batch):
        t, u = int(t_lengths[b]), int(u_lengths[b])
        wide = [
            None if s is None else s.detach()[b, :t, : u + 1].double().clone().requires_grad_()
            for s in (x, z)
        ]
        assert wide[0] is not None
        expected = reference.loss(wide[0], targets[b, :u].tolist(), options, wide[1])
        if math.isinf(expected.detach()):
            assert values[b] == math.inf
        else:
            allowed = 4 * epsilon * abs(float(expected.detach())) + 2 * (t + u) * epsilon
            assert abs(float(values[b].detach()) - float(expected.detach())) <= allowed
            (expected * upstream[b]).backward()
        for source, tensor in zip(wide, given, strict=True):
            if source is None or tensor is None:
                continue
            assert tensor.grad is not None
            found = tensor.grad[b].cpu().double()
            wanted = torch.zeros_like(found)
            if not math.isinf(expected.detach()) and source.grad is not None:
                wanted[:t, : u + 1] = source.grad
            outside = torch.ones_like(found, dtype=torch.bool)
            outside[:t, : u + 1] = False
            assert not found[outside].any()
            error = (
                (found - wanted).abs() - rounding * wanted.abs() - 2.0**-25 * (rounding == 2.0**-11)
            ).clamp(min=0)
            assert error.norm() <= limit * wanted.norm()


REDUCTIONS = {
    "none": lambda loss, t, u: loss,
    "sum": lambda loss, t, u: loss.sum(),
    "mean": lambda loss, t, u: loss.mean(),
    "mean_target": lambda loss, t, u: (loss / u.clamp(min=1)).mean(),
    "mean_volume": lambda loss, t, u: loss.sum() / max(int(u.sum()), 1),
    "mean_frame": lambda loss, t, u: (loss / t).mean(),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions(reduction: Any, device: torch.device) -> None:
    x, y = torch.randn(3, 6, 4, 5, device=device), torch.randint(1, 5, (3, 3), device=device)
    t, u = torch.tensor([6, 2, 3], device=device), torch.tensor([3, 0, 2], device=device)
    full = torch.full_like(t, 6), torch.full_like(t, 3)
    for lengths in ((t, u), (None, None)):
        each = transducer_loss(x, y, *lengths, blank=0, reduction="none")
        wanted = REDUCTIONS[reduction](
            each, *(given if given is not None else all_ for given, all_ in zip(lengths, full, strict=True))
        )
        torch.testing.assert_close(transducer_loss(x, y, *lengths, blank=0, reduction=reduction), wanted)
        module = warpalign.TransducerLoss(blank=0, reduction=reduction)
        assert torch.equal(
            module(x, y, *lengths), transducer_loss(x, y, *lengths, blank=0, reduction=reduction)
        )


def test_modules_show_their_settings() -> None:
    assert repr(warpalign.TransducerLoss(blank=0, sigma=0.05)) == "TransducerLoss(blank=0, sigma=0.05)"
    assert (
        repr(warpalign.TDTLoss(durations=(0, 1), reduction="sum"))
        == "TDTLoss(durations=(0, 1), reduction='sum')"
    )
