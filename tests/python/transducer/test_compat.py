"""The drop-ins of transducer losses: what they mean, and the originals beside them where they are installed."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from warpalign import JointWeights, TransducerPenalties, tdt_loss, transducer_loss, transducer_loss_from_joint
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
    inside = (torch.arange(7, device=device)[:, None] < t[:, None, None]) & (
        torch.arange(5, device=device) <= u[:, None, None]
    )
    assert torch.equal(h, torch.where(inside[..., None], (f[:, :, None] + g[:, None]).relu(), -1))
    assert joint.mask_probe is not None and torch.equal(joint.mask_probe[0][inside], h[inside] > 0)
    packed = apex.TransducerJoint(pack_output=True, relu=True)(f, g, t, u + 1, offset, int(offset[-1]))
    assert torch.equal(packed, h[inside])
    dropped = apex.TransducerJoint(dropout=True, dropout_prob=0.5)(f, g, t, u + 1)
    kept = (dropped != 0) & inside[..., None]
    torch.testing.assert_close(dropped[kept], 2 * (f[:, :, None] + g[:, None])[kept])
    kept = kept[inside]
    assert 0.3 < kept.float().mean() < 0.7
    plain = transducer_loss(h, y, t, u, blank=5, reduction="none")
    assert torch.equal(apex.TransducerLoss()(h, y, t, u, 5), plain)
    of_rows = apex.TransducerLoss(packed_input=True)(packed, y, t, u, 5, batch_offset=offset, max_f_len=7)
    assert torch.equal(of_rows, plain)
    delayed = transducer_loss(
        h, y, t, u, blank=5, penalties=TransducerPenalties(delay_penalty=0.01), reduction="none"
    )
    assert torch.equal(caiman.TransducerLoss()(h, y, t, u, 5, delay_penalty=0.01), delayed)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_the_half_joint_are_summed_in_float32(
    dtype: torch.dtype, packed: bool, device: torch.device
) -> None:
    """The sizes of apex's own test, where sums of up to 101 gradients in half types are off by ten roundings."""
    torch.manual_seed(1)
    f, g = (torch.randn(4, size, 16, device=device).to(dtype).requires_grad_() for size in (101, 25))
    t, u = torch.tensor([101, 60, 51, 90], device=device), torch.tensor([25, 12, 20, 13], device=device)
    offset = torch.cumsum(t * u, 0)
    h = apex.TransducerJoint(pack_output=packed)(f, g, t, u, offset, int(offset[-1]))
    assert h.dtype == dtype
    inside = (torch.arange(101, device=device)[:, None] < t[:, None, None]) & (
        torch.arange(25, device=device) < u[:, None, None]
    )
    upstream = torch.randn(4, 101, 25, 16, device=device).to(dtype)
    if not packed:
        assert bool((h[~inside] == -1).all())
    found = torch.autograd.grad(h, (f, g), upstream[inside] if packed else upstream)
    exact = torch.where(inside[..., None], upstream.double(), 0)
    for is_, wanted in zip(found, (exact.sum(2), exact.sum(1)), strict=True):
        assert is_.dtype == dtype
        # One rounding of the sum; the sums in float32 add far less.
        torch.testing.assert_close(is_.double(), wanted, rtol=0.51 * torch.finfo(dtype).eps, atol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_caiman_penalties(packed: bool, device: torch.device) -> None:
    """CAIMAN-ASR 1.14, training/lib/src/rnnt_ext/transducer/loss.py: these names, in this order."""
    x, y, t, u = batch(device)
    y[:, 1], y[0, 3] = 2, 3  # stars, and an end
    offset = torch.cumsum(t * (u + 1), 0)
    inside = (torch.arange(7, device=device)[:, None] < t[:, None, None]) & (
        torch.arange(5, device=device) <= u[:, None, None]
    )
    more: dict[str, Any] = {"batch_offset": offset, "max_f_len": 7} if packed else {}
    loss = caiman.TransducerLoss(packed_input=packed)
    for eos, star, penalties in (
        (None, None, (0.0, 0.5, 0.25)),
        (3, None, (0.05, 0.5, 1.0)),
        (None, 2, (0.05, 0.0, 0.25)),
        (3, 2, (0.05, 0.5, 0.25)),
    ):
        delay, of_eos, of_star = penalties
        own = {"eos_penalty": of_eos, "star_penalty": of_star, "delay_penalty": delay}
        given = x[inside] if packed else x
        found = loss(given, y, t, u, 8, eos, star, **more, **own)
        of_loss = TransducerPenalties(eos_id=eos, star_id=star, **own)
        wanted = transducer_loss(x, y, t, u, blank=8, penalties=of_loss, reduction="none")
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(gradient(found, x), gradient(wanted, x))
    plain = loss(given, y, t, u, 8, **more)
    assert torch.equal(loss(given, y, t, u, 8, -1, -2, **more, eos_penalty=0.5, star_penalty=0.5), plain)
    changed = loss(given, y, t, u, 8, 3, 2, **more, eos_penalty=0.5, star_penalty=0.5)
    assert bool((changed != plain).all())


def test_an_undefined_upstream_gradient_gives_zeros(device: torch.device) -> None:
    """As torchaudio's loss, and functions of torch whose gradients nobody asks for."""
    undefined = torch._C._functions.UndefinedGrad()
    x, y, t, u = batch(device)
    loss = undefined(torchaudio.rnnt_loss(x, y, t, u))
    (grad,) = torch.autograd.grad(loss, x)
    assert torch.equal(grad, torch.zeros_like(x))
    f, g, w = (
        torch.randn(*shape, device=device, requires_grad=True) for shape in ((3, 7, 4), (3, 5, 4), (9, 4))
    )
    fused = undefined(transducer_loss_from_joint(f, g, y, JointWeights(w), t, u))
    grads = torch.autograd.grad(fused, (f, g, w))
    assert all(torch.equal(d, torch.zeros_like(p)) for d, p in zip(grads, (f, g, w), strict=True))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_torchaudio_in_torchscript(device: torch.device) -> None:
    x, y, t, u = batch(device)
    expected = torchaudio.rnnt_loss(x, y, t, u, clamp=0.05, reduction="none")
    by_logits = gradient(expected, x)
    function = torch.jit.script(torchaudio.rnnt_loss)
    module = torch.jit.script(torchaudio.RNNTLoss(clamp=0.05, reduction="none"))
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    for found in (
        function(x, y, t, u, clamp=0.05, reduction="none"),
        module(x, y, t, u),
        torch.jit.load(file)(x, y, t, u),
    ):
        assert torch.equal(found, expected)
        assert torch.equal(gradient(found, x), by_logits)


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
    options = {"big_blanks": {7: 2, 6: 4}, "sigma": 0.05, "reduction": "none"}
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
