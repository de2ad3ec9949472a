"""The drop-ins of fast_rnnt and k2: the recursion against loops, the losses by their meaning, and fast_rnnt where it is installed."""

from __future__ import annotations

import inspect
import itertools
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from warpalign import transducer_loss
from warpalign.compat import fast_rnnt as drop_in
from warpalign.compat import k2

fast_rnnt: Any = drop_in  # whose functions return what return_grad says

TYPES = ("regular", "modified", "constrained")


def score(px: Tensor, py: Tensor, corners: tuple[int, int, int, int]) -> Tensor:
    """The recursion of one batch entry, node by node."""
    first_state, first_frame, last_state, last_frame = corners
    step = 0 if px.shape[1] > py.shape[1] else 1
    p: dict[tuple[int, int], Tensor] = {}
    for s, t in itertools.product(range(first_state, last_state + 1), range(first_frame, last_frame + 1)):
        terms = [p[s, t - 1] + py[s, t - 1]] if t > first_frame else []
        if s > first_state and t - step >= first_frame:
            terms.append(p[s - 1, t - step] + px[s - 1, t - step])
        empty = 0.0 if (s, t) == (first_state, first_frame) else -torch.inf
        p[s, t] = torch.stack(terms).logsumexp(0) if terms else px.new_tensor(empty)
    return p[last_state, last_frame]


def scores_of(rng: random.Random, step: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    labels, frames = rng.randint(1, 4), rng.randint(1, 6)
    px = torch.randn(3, labels, frames + 1 - step, dtype=dtype)
    py = torch.randn(3, labels + 1, frames, dtype=dtype)
    corners = []
    for _ in range(3):
        states, times = (sorted(rng.choices(range(n + 1), k=2)) for n in (labels, frames))
        corners.append([states[0], times[0], states[1], times[1]])
    return px.to(device), py.to(device), torch.tensor(corners)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_recursion_is_that_of_loops(seed: int, step: int, device: torch.device) -> None:
    """With any boundary, values and posteriors; -inf where there is no path."""
    px, py, boundary = scores_of(random.Random(seed), step, torch.float64, device)
    if seed == 0:
        boundary = None  # type: ignore[assignment]
    whole = (0, 0, px.shape[1], py.shape[2])
    corners = [whole] * 3 if boundary is None else [tuple(row) for row in boundary.tolist()]
    px.requires_grad_(), py.requires_grad_()
    expected = torch.stack([score(px[b], py[b], corners[b]) for b in range(3)])
    given = None if boundary is None else boundary.to(device)
    found, (of_px, of_py) = fast_rnnt.mutual_information_recursion(px, py, given, True)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    live = expected.isfinite()
    upstream = torch.randn(3, dtype=torch.float64, device=device)
    exact = torch.autograd.grad(
        (expected[live] * upstream[live]).sum() + 0 * px.sum() + 0 * py.sum(), (px, py)
    )
    mine = torch.autograd.grad((found[live] * upstream[live]).sum(), (px, py))
    for gradient, wanted, posterior in zip(mine, exact, (of_px, of_py), strict=True):
        torch.testing.assert_close(gradient, wanted.nan_to_num(), atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(gradient, posterior * torch.where(live, upstream, 0.0)[:, None, None])


@pytest.mark.parametrize("step", [0, 1])
def test_recursion_gradcheck(step: int, device: torch.device) -> None:
    px = torch.randn(2, 2, 5 - step, dtype=torch.float64, device=device, requires_grad=True)
    py = torch.randn(2, 3, 4, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *given: -2 * fast_rnnt.mutual_information_recursion(*given), (px, py)
    )


def additive(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The example of fast_rnnt's own test."""
    lm = torch.tensor([[[0, 0, 1], [0, 1, 1], [1, 0, 1], [2, 2, 0]]], dtype=torch.float64, device=device)
    am = torch.tensor([[[0, 1, 2], [0, 0, 0], [0, 2, 4], [0, 3, 3]]], dtype=torch.float64, device=device)
    return lm, am, torch.tensor([[0, 1, 0]], device=device)


def test_published_example(device: torch.device) -> None:
    """Every function gives the published loss, also after numbers are added to whole rows."""
    lm, am, symbols = additive(device)
    for shift in (0.0, 1.0):
        lm = lm + shift * torch.randn(1, 4, 1, dtype=lm.dtype, device=device)
        am = am + shift * torch.randn(1, 4, 1, dtype=lm.dtype, device=device)
        logits = am[:, :, None] + lm[:, None]
        px, py = fast_rnnt.get_rnnt_logprobs(lm, am, symbols, 2)
        assert px.shape == (1, 3, 5) and py.shape == (1, 4, 4)
        found = [
            -fast_rnnt.mutual_information_recursion(px, py),
            fast_rnnt.rnnt_loss_simple(lm, am, symbols, 2, reduction="none"),
            fast_rnnt.rnnt_loss_smoothed(lm, am, symbols, 2, 0.0, 0.0, reduction="none"),
            fast_rnnt.rnnt_loss(logits, symbols, 2, reduction="none"),
            k2.rnnt_loss(logits, symbols, 2, reduction="none"),
        ]
        for value in found:
            assert float(value) == pytest.approx(7.504013356021814, abs=1e-12)


def problem(kind: str, device: torch.device, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """lm, am, symbols, boundary: ragged, T >= S."""
    lm = torch.randn(3, 7, 8, dtype=dtype, device=device, requires_grad=True)
    am = torch.randn(3, 11, 8, dtype=dtype, device=device, requires_grad=True)
    boundary = torch.tensor([[0, 0, 6, 11], [0, 0, 4, 7], [0, 0, 1, 9]], device=device)
    return lm, am, torch.randint(0, 7, (3, 6), device=device), boundary


@pytest.mark.parametrize("kind", TYPES)
def test_additive_losses_are_those_of_their_logits(kind: str, device: torch.device) -> None:
    lm, am, symbols, boundary = problem(kind, device)
    logits = am[:, :, None] + lm[:, None]
    options: dict[str, Any] = {
        "boundary": boundary,
        "rnnt_type": kind,
        "delay_penalty": 0.1,
        "reduction": "sum",
    }
    whole = fast_rnnt.rnnt_loss(logits, symbols, 7, **options)
    for loss in (
        fast_rnnt.rnnt_loss_simple(lm, am, symbols, 7, **options),
        fast_rnnt.rnnt_loss_smoothed(lm, am, symbols, 7, 0.0, 0.0, **options),
    ):
        torch.testing.assert_close(loss, whole)
        for gradient, wanted in zip(
            *(torch.autograd.grad(v, (lm, am), retain_graph=True) for v in (loss, whole)), strict=True
        ):
            torch.testing.assert_close(gradient, wanted)


def test_regular_is_the_transducer_loss(device: torch.device) -> None:
    lm, am, symbols, boundary = problem("regular", device)
    logits = am[:, :, None] + lm[:, None]
    found = fast_rnnt.rnnt_loss(logits, symbols, 7, boundary, reduction="none")
    wanted = transducer_loss(logits, symbols, boundary[:, 3], boundary[:, 2], reduction="none")
    torch.testing.assert_close(found, wanted)
    assert float(fast_rnnt.rnnt_loss(logits, symbols, 7, boundary)) == pytest.approx(float(wanted.mean()))


def test_smoothing(device: torch.device) -> None:
    """The scores of lm alone are log-probabilities that do not depend on the frame."""
    lm, am, symbols, _ = problem("regular", device)
    px, py = fast_rnnt.get_rnnt_logprobs_smoothed(lm, am, symbols, 7, 1.0, 0.0)
    alone = lm.log_softmax(2)
    torch.testing.assert_close(py, alone[:, :, 7:].expand_as(py))
    torch.testing.assert_close(px[:, :, :-1], alone[:, :6].gather(2, symbols[..., None]).expand(3, 6, 11))
    assert (px[:, :, -1] == -torch.inf).all()
    px, py = fast_rnnt.get_rnnt_logprobs_smoothed(lm, am, symbols, 7, 0.0, 1.0)
    unigram = lm.softmax(2).mean((0, 1)).log()
    of_frames = (am + unigram).log_softmax(2)
    torch.testing.assert_close(py, of_frames[:, None, :, 7].expand_as(py))
    index = symbols[:, None].expand(3, 11, 6)
    torch.testing.assert_close(px[:, :, :-1], of_frames.gather(2, index).mT)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("width", [2, 3, 7, 30])
def test_ranges(width: int, kind: str, device: torch.device) -> None:
    """They begin at 0, rise by fewer than s states, or by one where a label takes a frame, and end at the last states."""
    lm, am, symbols, boundary = problem(kind, device)
    _, (px, py) = fast_rnnt.rnnt_loss_simple(lm, am, symbols, 7, boundary, kind, return_grad=True)
    ranges = fast_rnnt.get_rnnt_prune_ranges(px, py, boundary, width)
    assert ranges.shape == (3, 11, min(width, 7))
    first = ranges[..., 0]
    assert torch.equal(ranges, first[..., None] + torch.arange(min(width, 7), device=device))
    rise = first.diff(dim=1)
    assert not first[:, 0].any() and (rise >= 0).all()
    assert (rise <= (min(width, 7) - 1 if kind == "regular" else 1)).all()
    for b in range(3):
        labels, frames = boundary[b, 2:].tolist()
        assert int(first[b, frames - 1]) == max(labels - min(width, 7) + 1, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_pruned(kind: str, device: torch.device) -> None:
    """The loss over all states is that of all logits; fewer states have fewer paths."""
    lm, am, symbols, boundary = problem(kind, device)
    _, (px, py) = fast_rnnt.rnnt_loss_simple(lm, am, symbols, 7, boundary, kind, return_grad=True)
    whole = fast_rnnt.rnnt_loss(
        (am[:, :, None] + lm[:, None]).tanh(), symbols, 7, boundary, kind, reduction="none"
    )
    before = torch.full_like(whole, torch.inf)
    for width in (2, 4, 7):
        ranges = fast_rnnt.get_rnnt_prune_ranges(px, py, boundary, width)
        of_am, of_lm = fast_rnnt.do_rnnt_pruning(am, lm, ranges)
        logits = (of_am + of_lm).tanh()
        for module in (fast_rnnt, k2):
            value = module.rnnt_loss_pruned(logits, symbols, ranges, 7, boundary, kind, reduction="none")  # type: ignore[attr-defined]
            assert (value >= whole - 1e-12).all() and value.isfinite().all()
        before = value
    torch.testing.assert_close(before, whole)
    gradients = [torch.autograd.grad(value.sum(), (lm, am), retain_graph=True) for value in (before, whole)]
    for gradient, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, wanted)


def test_too_few_states_for_a_path(device: torch.device) -> None:
    """Six labels in two frames need four states: more are kept than were asked for."""
    lm, am, symbols, _ = problem("regular", device)
    am = am[:, :2]
    boundary = torch.tensor([[0, 0, 6, 2]] * 3, device=device)
    _, (px, py) = fast_rnnt.rnnt_loss_simple(lm, am, symbols, 7, boundary, return_grad=True)
    with pytest.warns(UserWarning, match="s_range: 2 states have no path, computed with 4"):
        ranges = fast_rnnt.get_rnnt_prune_ranges(px, py, boundary, 2)
    of_am, of_lm = fast_rnnt.do_rnnt_pruning(am, lm, ranges)
    assert (
        fast_rnnt.rnnt_loss_pruned(of_am + of_lm, symbols, ranges, 7, boundary, reduction="none")
        .isfinite()
        .all()
    )


def test_hat(device: torch.device) -> None:
    """The blank is a coin of its own; labels share the rest."""
    lm, am, symbols, boundary = problem("regular", device)
    symbols = symbols + 1
    ranges = torch.arange(7, device=device).expand(3, 11, 7)
    logits = am[:, :, None] + lm[:, None]
    blank = logits[..., :1].sigmoid()
    probabilities = torch.cat((blank, (1 - blank) * logits[..., 1:].softmax(3)), 3)
    wanted = fast_rnnt.rnnt_loss(probabilities.log(), symbols, 0, boundary, reduction="none")
    found = k2.rnnt_loss_pruned(logits, symbols, ranges, 0, boundary, reduction="none", use_hat_loss=True)
    torch.testing.assert_close(found, wanted)


def test_parts_add_up_to_the_score(device: torch.device) -> None:
    px, py, boundary = scores_of(random.Random(3), 0, torch.float64, device)
    others = [px.new_tensor(0.1) * torch.randn_like(t) for t in (px, py)]
    boundary = torch.tensor([[0, 0, px.shape[1], py.shape[2]]] * 3, device=device)
    parts = fast_rnnt.joint_mutual_information_recursion((px, others[0]), (py, others[1]), boundary)
    assert parts.shape == (2, 3)
    total = fast_rnnt.mutual_information_recursion(px + others[0], py + others[1], boundary)
    torch.testing.assert_close(parts.sum(0), total)


def test_signatures_of_k2() -> None:
    assert "use_hat_loss" in inspect.signature(k2.rnnt_loss_pruned).parameters
    assert list(inspect.signature(k2.get_rnnt_logprobs_joint).parameters)[3:] == ["rnnt_type", "boundary"]
    assert "return_grad" not in inspect.signature(k2.rnnt_loss).parameters
    assert k2.rnnt_loss_simple is fast_rnnt.rnnt_loss_simple


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", TYPES)
def test_beside_fast_rnnt(kind: str, dtype: torch.dtype) -> None:
    """Losses, posteriors, ranges and gradients of random problems."""
    original = pytest.importorskip("fast_rnnt")
    tolerance: dict[str, float] = (
        {"atol": 1e-8, "rtol": 1e-8} if dtype == torch.float64 else {"atol": 2e-4, "rtol": 2e-4}
    )
    for _ in range(33):
        lm, am, symbols, boundary = problem(kind, torch.device("cpu"), dtype)
        results: list[list[Tensor]] = []
        for module in (original, fast_rnnt):
            loss, posteriors = module.rnnt_loss_smoothed(
                lm, am, symbols, 7, 0.2, 0.1, boundary, kind, 0.1, "sum", True
            )
            px, py = (t.clone() for t in posteriors)  # its backward pass overwrites them
            ranges = module.get_rnnt_prune_ranges(px, py, boundary, 3)
            if results:
                assert torch.equal(ranges, results[0][3])
            pruned = sum(module.do_rnnt_pruning(am, lm, ranges)).tanh()
            value = module.rnnt_loss_pruned(pruned, symbols, ranges, 7, boundary, kind, 0.1, "sum")
            gradients = torch.autograd.grad(loss + value, (lm, am))
            results.append([loss, px, py, ranges, value, *gradients])
        for mine, theirs in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(mine, theirs, **tolerance)
