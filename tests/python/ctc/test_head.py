"""CTC's loss with the last layer within it: beside ctc_loss on logits that are materialised, on every device."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.python.ctc.cases import problem
from warpalign import CTCHeadLoss, ctc_loss, ctc_loss_from_encoder

H = 6


class Head(NamedTuple):
    encoder: Tensor
    """(B, T, H)."""
    weight: Tensor
    bias: Tensor | None
    labels: tuple[Tensor, Tensor, Tensor]
    """targets (B, U), lengths of encoder outputs and of targets."""

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self[:3] if isinstance(t, Tensor))


def head(
    batch: int,
    frames: int,
    classes: int,
    labels: int,
    seed: int,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    bias: bool = True,
    blank: int = 0,
) -> Head:
    """Random numbers that require gradients, and the labels of problem()."""
    given = problem(batch, frames, classes, labels, seed, blank)
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, frames, H), (classes, H), (classes,))
    numbers = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    encoder, weight, offset = (t.to(device, dtype).requires_grad_() for t in numbers)
    return Head(encoder, weight, offset if bias else None, tuple(t.to(device) for t in given[1:]))  # type: ignore[call-arg]


def fused(given: Head, **options: Any) -> Tensor:
    return ctc_loss_from_encoder(given.encoder, given.weight, given.bias, *given.labels, **options)


def materialised(given: Head, **options: Any) -> Tensor:
    options.pop("workspace_limit", None)
    return ctc_loss(F.linear(given.encoder, given.weight, given.bias), *given.labels, **options)


def gradients(value: Tensor, given: Head, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, given.leaves, upstream)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one chunk": {"workspace_limit": 2**30},
    "blank": {"blank": -1},
    "star": {"star": 4},
    "star beyond the classes": {"star": 99},
    "prior": {"label_prior": torch.linspace(-1, 1, 11, dtype=torch.float64)},
    "star, prior, blank": {
        "star": 3,
        "blank": 5,
        "label_prior": torch.linspace(1, -1, 11, dtype=torch.float64),
    },
    "zero_infinity": {"zero_infinity": True},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_loss_of_logits(name: str, bias: bool, device: torch.device) -> None:
    options = {"workspace_limit": 0, **CASES[name]}
    if "label_prior" in options:
        options["label_prior"] = options["label_prior"].to(device)
    blank = options.get("blank", 0) % 11
    given = head(4, 23, 11, 6, seed=3, device=device, bias=bias, blank=blank)
    given.labels[1][3] = 2  # no path
    upstream = torch.tensor([1.0, -0.5, 2.0, 1.0], dtype=torch.float64, device=device)
    results = []
    for function in (materialised, fused):
        value = function(given, reduction="none", **options)
        results.append((value, *gradients(value, given, upstream)))
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("classes", [40, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_no_less_exact_than_logits(dtype: torch.dtype, classes: int, device: torch.device) -> None:
    """Errors against float64 on the rounded inputs: at most twice those of logits of the same dtype, and a rounding."""
    given = head(3, 60, classes, 9, seed=classes, dtype=dtype, device=device)
    wide = Head(*(t.detach().double().requires_grad_() for t in given.leaves), given.labels)  # type: ignore[call-arg]
    exact = [materialised(wide, reduction="sum")]
    exact += gradients(exact[0], wide)
    results = []
    for function in (materialised, fused):
        value = function(given, reduction="sum", workspace_limit=20 * classes * given.weight.element_size())
        results.append((value, *gradients(value, given)))
    for found, plain, reference in zip(results[1], results[0], exact, strict=True):
        assert found.dtype == plain.dtype
        single = torch.finfo(found.dtype).eps * reference.norm()
        error, of_plain = ((one.double() - reference).norm() for one in (found, plain))
        assert error <= 2 * of_plain + 2 * single


def test_padding_is_ignored(device: torch.device) -> None:
    given = head(3, 30, 9, 4, seed=5, device=device)
    expected = gradients(fused(given, workspace_limit=0), given)
    spoiled = given.encoder.detach().clone()
    past = torch.arange(30, device=device) >= given.labels[1][:, None]
    spoiled[past] = float("nan")
    targets = given.labels[0].clone()
    targets[torch.arange(4, device=device) >= given.labels[2][:, None]] = -7
    other = Head(spoiled.requires_grad_(), given.weight, given.bias, (targets, *given.labels[1:]))
    found = gradients(fused(other, workspace_limit=0), other)
    assert all(map(torch.equal, found, expected))
    assert not found[0][past].any()


def test_special_numbers_stay_in_their_utterance(device: torch.device) -> None:
    given = head(3, 12, 9, 3, seed=6, device=device)
    given.labels[1].fill_(12)
    for bad in (float("nan"), float("inf")):
        spoiled = given.encoder.detach().clone()
        spoiled[1, 4, 2] = bad
        other = Head(spoiled.requires_grad_(), given.weight, given.bias, given.labels)
        value = fused(other, reduction="none")
        assert value.isnan().tolist() == [False, True, False]
        (gradient,) = torch.autograd.grad(value.sum(), other.encoder)
        assert gradient[1].isnan().all() and gradient[[0, 2]].isfinite().all()


def test_without_frames_labels_or_utterances(device: torch.device) -> None:
    for batch, frames, labels in ((0, 5, 2), (2, 0, 0), (2, 0, 3), (2, 4, 0)):
        encoder = torch.zeros(batch, frames, H, device=device, requires_grad=True)
        weight = torch.ones(7, H, device=device, requires_grad=True)
        targets = torch.ones(batch, labels, dtype=torch.int64, device=device)
        value = ctc_loss_from_encoder(encoder, weight, None, targets, reduction="none")
        expected = ctc_loss(F.linear(encoder, weight), targets, reduction="none")
        torch.testing.assert_close(value, expected)
        pairs = (torch.autograd.grad(one.sum(), (encoder, weight)) for one in (value, expected))
        for found, wanted in zip(*pairs, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_one_utterance_and_strided_inputs(device: torch.device) -> None:
    given = head(3, 15, 9, 4, seed=7, device=device)
    whole = fused(given, reduction="none")
    frames, labels = int(given.labels[1][1]), int(given.labels[2][1])
    one = ctc_loss_from_encoder(
        given.encoder[1, :frames], given.weight, given.bias, given.labels[0][1, :labels]
    )
    torch.testing.assert_close(one, whole[1])
    turned = given.encoder.detach().transpose(0, 1).contiguous().transpose(0, 1)
    columns = given.weight.detach().t().contiguous().t()
    again = ctc_loss_from_encoder(turned, columns, given.bias, *given.labels, reduction="none")
    torch.testing.assert_close(again, whole)
    lists = (given.labels[1].tolist(), given.labels[2].tolist())
    torch.testing.assert_close(
        ctc_loss_from_encoder(
            given.encoder, given.weight, given.bias, given.labels[0].short(), *lists, reduction="none"
        ),
        whole,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_bits_are_the_same_every_time(dtype: torch.dtype, device: torch.device) -> None:
    given = head(3, 40, 300, 8, seed=8, dtype=dtype, device=device)
    for star in (None, 300):
        runs = []
        for _ in range(3):
            value = fused(given, star=star, workspace_limit=20 * 300 * given.weight.element_size())
            runs.append((value, *gradients(value, given)))
        for run in runs[1:]:
            assert all(map(torch.equal, run, runs[0]))


def test_memory_is_that_of_a_chunk(device: torch.device) -> None:
    """4 · 500 · 2000 logits are 16 MB; chunks of 1 MB."""
    given = head(4, 500, 2000, 10, seed=9, dtype=torch.float32, device=device)
    limit, logits = 2**20, 4 * 500 * 2000 * 4
    gradients(fused(given, workspace_limit=limit), given)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        gradients(fused(given, workspace_limit=limit), given)
        peak = torch.cuda.max_memory_allocated(device) - before
    else:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            gradients(fused(given, workspace_limit=limit), given)
        now = peak = 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                peak = max(peak, now)
    assert limit / 2 < peak < logits / 5


def test_the_module_owns_the_layer(device: torch.device) -> None:
    given = head(2, 12, 9, 3, seed=10, device=device)
    module = CTCHeadLoss(H, 9, blank=0, star=4, reduction="sum", device=device, dtype=torch.float64)
    prior = torch.linspace(0, 1, 9, device=device)
    value = module(given.encoder, *given.labels, label_prior=prior)
    own = Head(given.encoder, module.weight, module.bias, given.labels)
    torch.testing.assert_close(value, materialised(own, star=4, reduction="sum", label_prior=prior))
    value.backward()
    assert module.weight.grad is not None and module.bias is not None and module.bias.grad is not None
    assert repr(module) == "CTCHeadLoss(6, 9, star=4, reduction='sum')"
    assert CTCHeadLoss(H, 9, bias=False).bias is None
    restored = CTCHeadLoss(H, 9, star=4, reduction="sum", device=device, dtype=torch.float64)
    restored.load_state_dict(module.state_dict())
    assert torch.equal(restored.weight, module.weight)


@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed: int, device: torch.device) -> None:
    draw = random.Random(seed)
    dtype = draw.choice((torch.float64, torch.float32, torch.bfloat16))
    classes = draw.choice((2, 3, 9, 33, 150))
    blank = draw.randrange(classes)
    given = head(
        draw.randint(1, 4),
        draw.randint(1, 50),
        classes,
        draw.randint(0, 12),
        seed,
        dtype=dtype,
        device=device,
        bias=draw.random() < 0.7,
        blank=blank,
    )
    options: dict[str, Any] = {
        "blank": blank,
        "reduction": draw.choice(("none", "sum", "mean", "mean_target", "mean_volume", "mean_frame")),
        "zero_infinity": draw.random() < 0.5,
        "star": draw.choice((None, classes, (blank + 1) % classes)),
        "workspace_limit": draw.choice((0, 2**12, 2**26)),
    }
    wide = Head(
        given.encoder.detach().double().requires_grad_(),
        given.weight.detach().double().requires_grad_(),
        None if given.bias is None else given.bias.detach().double().requires_grad_(),
        given.labels,
    )
    expected = materialised(wide, **options)
    value = fused(given, **options)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 6e-2}[dtype]
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    pairs = (
        gradients(value.nan_to_num(posinf=0).sum(), given),
        gradients(expected.nan_to_num(posinf=0).sum(), wide),
    )
    for found, wanted in zip(*pairs, strict=True):
        torch.testing.assert_close(
            found.double(), wanted, rtol=tolerance, atol=tolerance * (1 + float(wanted.abs().max()))
        )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_rows_take_no_memory(dtype: torch.dtype, cuda: torch.device) -> None:
    """torch's sum over 3200 rows of 5000 columns takes memory of twice the rows."""
    given = head(16, 200, 5000, 10, seed=11, dtype=dtype, device=cuda)
    gradients(fused(given), given)
    torch.cuda.reset_peak_memory_stats(cuda)
    before = torch.cuda.memory_allocated(cuda)
    kept = gradients(fused(given), given)
    peak = torch.cuda.max_memory_allocated(cuda) - before - sum(t.numel() * t.element_size() for t in kept)
    assert peak < 1.3 * 16 * 200 * 5000 * given.weight.element_size()
