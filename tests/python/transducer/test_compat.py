"""The drop-ins of transducer losses: what they mean, and the originals beside them where they are installed."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from warpalign import tdt_loss, transducer_loss
from warpalign.compat import apex, caiman, nemo, torchaudio, transformers, warp_rnnt

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def batch(device: torch.device | str = "cpu", columns: int = 9, labels: int = 8) -> Batch:
    x = torch.randn(3, 7, 5, columns, device=device, requires_grad=True)
    y = torch.randint(1, labels, (3, 4), dtype=torch.int32, device=device)
    t = torch.tensor([7, 5, 4], dtype=torch.int32, device=device)
    u = torch.tensor([4, 2, 3], dtype=torch.int32, device=device)
    return x, y, t, u


def gradient(value: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(value.sum(), x)[0]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("clamp", [-1, 0.05])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_torchaudio(reduction: str, clamp: float, fused: bool, device: torch.device) -> None:
    original = pytest.importorskip("torchaudio.functional").rnnt_loss
    x, y, t, u = batch(device)
    given = x if fused else x.log_softmax(-1).detach().requires_grad_()
    arguments = (given, y, t, u, 0, clamp, reduction, fused)
    value = torchaudio.rnnt_loss(*arguments)
    if clamp > 0 and device.type == "cuda":
        # On a GPU torchaudio 2.11 leaves about two entries of every node's gradient unclipped. Its CPU path clips all.
        leaf = given.detach().cpu().requires_grad_()
        wanted = original(leaf, y.cpu(), t.cpu(), u.cpu(), *arguments[4:])
    else:
        leaf, wanted = given, original(*arguments)
    torch.testing.assert_close(value.cpu(), wanted.cpu())
    found, expected = gradient(value, given), gradient(wanted, leaf)
    torch.testing.assert_close(found.cpu(), expected.cpu(), atol=2e-6, rtol=1e-4)


def test_torchaudio_without_it(device: torch.device) -> None:
    x, y, t, u = batch(device)
    plain = transducer_loss(x, y, t, u)
    assert torch.equal(torchaudio.rnnt_loss(x, y, t, u), plain)
    assert torch.equal(torchaudio.RNNTLoss(clamp=-1)(x, y, t, u), plain)
    clipped = gradient(torchaudio.RNNTLoss(clamp=0.01, reduction="sum")(x, y, t, u), x)
    assert float(clipped.abs().max()) == pytest.approx(0.01)


def test_warp_rnnt(device: torch.device) -> None:
    x, y, t, u = batch(device)
    scores = x.log_softmax(-1)
    plain = transducer_loss(x, y, t, u, blank=0, reduction="none")
    value = warp_rnnt.rnnt_loss(scores, y, t, u)
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(gradient(value, x), gradient(plain, x))
    averaged = warp_rnnt.rnnt_loss(scores, y, t, u, average_frames=True, reduction="mean", gather=True)
    torch.testing.assert_close(averaged, (plain / t).mean())
    torch.testing.assert_close(warp_rnnt.rnnt_loss(scores, y, t, u, reduction="sum"), plain.sum())
    inside = (torch.arange(7, device=device)[:, None] < t[:, None, None]) & (
        torch.arange(5, device=device) <= u[:, None, None]
    )
    flat = torch.cat([y[b, : int(u[b])] for b in range(3)])
    compact = warp_rnnt.rnnt_loss(scores[inside], flat, t, u, compact=True)
    torch.testing.assert_close(compact, plain)


def test_apex_and_caiman(device: torch.device) -> None:
    f, g = torch.randn(3, 7, 6, device=device), torch.randn(3, 5, 6, device=device)
    _, y, t, u = batch(device, columns=6, labels=5)
    offset = torch.cumsum(t * (u + 1), 0)
    joint = apex.TransducerJoint(relu=True, probe_mask=True)
    h = joint(f, g, t, u + 1)
    assert torch.equal(h, (f[:, :, None] + g[:, None]).relu())
    assert joint.mask_probe is not None and torch.equal(joint.mask_probe[0], h > 0)
    packed = apex.TransducerJoint(pack_output=True, relu=True)(f, g, t, u + 1, offset, int(offset[-1]))
    inside = (torch.arange(7, device=device)[:, None] < t[:, None, None]) & (
        torch.arange(5, device=device) <= u[:, None, None]
    )
    assert torch.equal(packed, h[inside])
    dropped = apex.TransducerJoint(dropout=True, dropout_prob=0.5)(f, g, t, u + 1)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * (f[:, :, None] + g[:, None])[kept])
    assert 0.3 < kept.float().mean() < 0.7
    plain = transducer_loss(h, y, t, u, blank=5, reduction="none")
    assert torch.equal(apex.TransducerLoss()(h, y, t, u, 5), plain)
    of_rows = apex.TransducerLoss(packed_input=True)(packed, y, t, u, 5, batch_offset=offset, max_f_len=7)
    assert torch.equal(of_rows, plain)
    delayed = transducer_loss(h, y, t, u, blank=5, delay_penalty=0.01, reduction="none")
    assert torch.equal(caiman.TransducerLoss()(h, y, t, u, 5, delay_penalty=0.01), delayed)


def test_nemo(device: torch.device) -> None:
    x, y, t, u = batch(device)
    plain = transducer_loss(x, y, t, u, blank=0, reduction="none")
    for reduction, wanted in (("mean", plain.mean()), ("sum", plain.sum())):
        value = nemo.RNNTLossNumba(reduction=reduction)(x, y, t, u)
        assert value.shape == (1,) and torch.equal(value[0], wanted)
    fast = nemo.RNNTLossNumba(reduction="none", fastemit_lambda=0.5)(x, y, t, u)
    torch.testing.assert_close(fast, 1.5 * plain)
    ours = transducer_loss(x, y, t, u, blank=0, reduction="none", fastemit_lambda=0.5)
    assert torch.equal(gradient(fast, x), gradient(ours, x))
    y = y % 5 + 1
    big = nemo.MultiblankRNNTLossNumba(8, [2, 4], reduction="none", sigma=0.05)(x, y, t, u)
    options = {"big_blank_durations": (2, 4), "big_blank_ids": (7, 6), "sigma": 0.05, "reduction": "none"}
    assert torch.equal(big, transducer_loss(x, y, t, u, blank=8, **options))  # type: ignore[arg-type]
    timed = nemo.TDTLossNumba(5, [0, 1, 2], reduction="none", sigma=0.05)
    y = y % 5
    labels, durations = x[..., :6], x[..., 6:]
    wanted = tdt_loss(labels, durations, y, t, u, durations=(0, 1, 2), blank=5, sigma=0.05, reduction="none")
    assert torch.equal(timed(x, y, t, u), wanted)
    timed.omega = 0.5
    rnnt = transducer_loss(labels, y, t, u, blank=5, reduction="none")
    random.seed(1)
    seen = [timed(x, y, t, u) for _ in range(12)]
    assert all(torch.equal(s, wanted) or torch.equal(s, rnnt) for s in seen)
    assert 0 < sum(torch.equal(s, rnnt) for s in seen) < 12


REDUCTIONS = ["mean_volume", "mean_batch", "mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_transformers(reduction: str, device: torch.device) -> None:
    x, y, t, u = batch(device)
    plain = transducer_loss(x, y, t, u, blank=0, reduction="none")
    wanted = {
        "mean_volume": plain.sum() / u.sum(),
        "mean_batch": plain.mean(),
        "mean": (plain / u).mean(),
        "sum": plain.sum(),
        "none": plain,
    }[reduction]
    torch.testing.assert_close(transformers.rnnt_loss(x, y, t, u, 0, reduction), wanted)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_transformers_beside_the_original(reduction: str, device: torch.device) -> None:
    original = pytest.importorskip("transformers.loss.loss_tdt").tdt_loss
    x, y, t, u = batch(device)
    labels, durations = x.split([6, 3], -1)
    arguments = (labels, durations, y.long() % 5, t.long(), u.long(), 5, [0, 1, 2])
    value = transformers.tdt_loss(*arguments, sigma=0.05, reduction=reduction)
    wanted = original(*arguments, sigma=0.05, reduction=reduction)
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(gradient(value, x), gradient(wanted, x), atol=2e-6, rtol=1e-4)
