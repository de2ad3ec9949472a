"""Best paths and posteriors: values, layouts, special values, and as citizens of torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.python.transducer import reference
from tests.python.transducer.cases import every_family_and_penalty, labels_for, logits_for
from tests.python.transducer.reference import Options, keywords
from tests.python.transducer.test_autograd import arguments
from warpalign import TransducerAlignment, TransducerPosteriors, tdt_loss, transducer_align, transducer_loss

CASES = every_family_and_penalty()


def align(
    logits: Tensor, durations: Tensor | None, targets: Tensor, options: Options, *lengths: Any, **more: Any
) -> TransducerAlignment:
    return transducer_align(logits, targets, *lengths, duration_logits=durations, **keywords(options) | more)


def posteriors_of(alignment: TransducerAlignment) -> TransducerPosteriors:
    assert alignment.posteriors is not None
    return alignment.posteriors


def assert_same(a: TransducerAlignment, b: TransducerAlignment) -> None:
    for one, other in zip(a[:4], b[:4], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(posteriors_of(a), posteriors_of(b), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_every_path_one_by_one(name: str, device: torch.device) -> None:
    options = CASES[name]
    torch.manual_seed(1)
    for frames, states in ((1, 1), (1, 3), (3, 4), (4, 3), (5, 1)):
        x, z = logits_for(options, 1, frames, states, dtype=torch.float64)
        y = labels_for(options, 1, states - 1)
        one = None if z is None else z[0]
        wanted = reference.all_paths(x[0], y[0].tolist(), options, one)
        on_device = [None if s is None else s.to(device) for s in (x, z, y)]
        found = align(*on_device, options, posteriors=True)  # type: ignore[arg-type]
        assert float(found.score) == pytest.approx(wanted.best, abs=1e-12)
        if wanted.best == -math.inf:
            assert all(bool((part == -1).all()) for part in found[1:4])
        else:
            path = (found.frames[0].cpu(), found.durations[0].cpu(), found.blanks[0].cpu())
            weight = reference.weight_of(x[0], y[0].tolist(), options, *path, one)
            assert weight == pytest.approx(wanted.best, abs=1e-12)
        got = posteriors_of(found)
        torch.testing.assert_close(got.blank[0].cpu(), wanted.blank, rtol=0, atol=1e-13)
        torch.testing.assert_close(got.label[0].cpu(), wanted.label, rtol=0, atol=1e-13)
        grouped = got.big_blank if options.durations is None else got.duration
        torch.testing.assert_close(grouped[:, 0].cpu(), wanted.grouped, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_posteriors_are_minus_the_gradient_by_log_probabilities(name: str, device: torch.device) -> None:
    """What a node's posteriors sum to is what the loss's gradient says, and the score is no better than all paths."""
    options = CASES[name]._replace(star=None, from_log_probs=True)
    x, z = (
        None if s is None else s.log_softmax(-1) for s in logits_for(options, 2, 9, 4, dtype=torch.float64)
    )
    assert x is not None
    y = labels_for(options, 2, 3).to(device)
    t, u = torch.tensor([9, 6], device=device), torch.tensor([3, 2], device=device)
    leaves = [s.to(device).requires_grad_() for s in (x, z) if s is not None]
    found = align(leaves[0], leaves[1] if z is not None else None, y, options, t, u, posteriors=True)
    given = keywords(options) | {"reduction": "none"}
    value = transducer_loss(leaves[0], y, t, u, **given) if z is None else tdt_loss(*leaves, y, t, u, **given)
    gradients = torch.autograd.grad(value.sum(), leaves)
    got = posteriors_of(found)
    at_node = got.blank + got.big_blank.sum(0)
    at_node[:, :, :-1] += got.label
    torch.testing.assert_close(at_node, -gradients[0].sum(-1), rtol=0, atol=1e-13)
    if z is not None:
        torch.testing.assert_close(got.duration.movedim(0, -1), -gradients[1], rtol=0, atol=1e-13)
    assert (found.score <= -value + 1e-12).all()
    assert not found.score.requires_grad and not got.blank.requires_grad
    labels_of = got.label.sum(1)
    torch.testing.assert_close(labels_of[0], torch.ones_like(labels_of[0]), rtol=0, atol=1e-12)
    assert labels_of[1, 2] == 0


def test_posteriors_of_a_long_utterance(cuda: torch.device) -> None:
    """float32 against float64 of the same logits, on a CPU. alpha + beta - log Z in float32 would be off by percents."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 3000, 601, 12, generator=generator)
    y = torch.randint(1, 12, (1, 600), generator=generator)
    mine = posteriors_of(transducer_align(x.to(cuda), y.to(cuda), blank=0, posteriors=True))
    exact = posteriors_of(transducer_align(x.double(), y, blank=0, posteriors=True))
    for got, wanted in ((mine.blank, exact.blank), (mine.label, exact.label)):
        error = (got.cpu().double() - wanted).abs()
        assert error.max() <= 2e-5
        assert (error / wanted)[wanted > 1e-3].max() <= 2e-5


@pytest.mark.parametrize("name", ["rnnt-none", "multi_blank-all", "tdt-all"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_an_utterance_is_the_same_alone_padded_and_packed(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    options = CASES[name]
    x, z = (None if s is None else s.to(dtype) for s in logits_for(options, 3, 20, 7, device=device))
    assert x is not None
    y = labels_for(options, 3, 6).to(device)
    t, u = [20, 13, 1], [6, 3, 0]
    lengths = torch.tensor(t, device=device), torch.tensor(u, device=device)
    padded = align(x, z, y, options, *lengths, posteriors=True)
    got = posteriors_of(padded)
    assert (
        padded.score.dtype == got.label.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    )
    wide = align(x.double(), None if z is None else z.double(), y, options, *lengths, posteriors=True)
    for ours, exact in zip(got, posteriors_of(wide), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=0, atol=2e-5)

    def rows(s: Tensor) -> Tensor:
        return torch.cat([s[b, : t[b], : u[b] + 1].flatten(0, 1) for b in range(3)])

    flat = torch.cat([y[b, : u[b]] for b in range(3)])
    packed = align(
        rows(x), None if z is None else rows(z), flat, options, *lengths, packed=True, posteriors=True
    )
    of_packed = posteriors_of(packed)
    assert torch.equal(packed.score, padded.score)
    assert torch.equal(of_packed.blank, rows(got.blank))
    first_row = first_label = 0
    for b in range(3):
        alone = align(
            x[b, : t[b], : u[b] + 1],
            None if z is None else z[b, : t[b], : u[b] + 1],
            y[b, : u[b]],
            options,
            posteriors=True,
        )
        assert alone.score.dim() == 0 and torch.equal(alone.score, padded.score[b])
        assert torch.equal(alone.frames, padded.frames[b, : u[b]])
        assert torch.equal(alone.durations, padded.durations[b, : u[b]])
        assert torch.equal(alone.blanks, padded.blanks[b, : t[b]])
        own = posteriors_of(alone)
        assert torch.equal(own.blank, got.blank[b, : t[b], : u[b] + 1])
        assert torch.equal(own.label, got.label[b, : t[b], : u[b]])
        assert torch.equal(own.big_blank, got.big_blank[:, b, : t[b], : u[b] + 1])
        assert torch.equal(own.duration, got.duration[:, b, : t[b], : u[b] + 1])
        count = t[b] * (u[b] + 1)
        assert torch.equal(packed.frames[first_label : first_label + u[b]], alone.frames)
        by_node = packed.blanks[first_row : first_row + count].view(t[b], u[b] + 1)
        assert torch.equal(by_node.max(1).values, alone.blanks)
        assert torch.equal(
            of_packed.label[first_row : first_row + count].view(t[b], u[b] + 1)[:, : u[b]], own.label
        )
        first_row, first_label = first_row + count, first_label + u[b]
    assert (padded.frames[1, 3:] == -1).all() and (padded.blanks[1, 13:] == -1).all()
    assert not got.blank[1, 13:].any() and not got.label[1, :, 3:].any()


def test_special_values_stay_in_their_utterance(device: torch.device) -> None:
    x, y = torch.randn(4, 6, 3, 5, device=device), torch.randint(1, 5, (4, 2), device=device)
    wanted = transducer_align(x, y, blank=0, posteriors=True)
    x[0, 2, 1, 3] = math.nan
    x[1, 5, :, 0] = -math.inf
    found = transducer_align(x, y, torch.tensor([6, 6, 0, 6], device=device), blank=0, posteriors=True)
    assert found.score[0].isnan() and posteriors_of(found).blank[0].isnan().all()
    for b in (1, 2):
        assert found.score[b] == -math.inf and not posteriors_of(found).blank[b].any()
    for b in (0, 1, 2):
        assert all(bool((part[b] == -1).all()) for part in found[1:4])
    assert found.score[3] == wanted.score[3] and torch.equal(found.frames[3], wanted.frames[3])


def test_empty_batches_and_no_labels(device: torch.device) -> None:
    x, y = torch.randn(0, 6, 3, 5, device=device), torch.zeros(0, 2, dtype=torch.long, device=device)
    found = transducer_align(x, y, posteriors=True)
    assert found.score.shape == (0,) and posteriors_of(found).label.shape == (0, 6, 2)
    x, y = torch.randn(2, 3, 1, 5, device=device), torch.zeros(2, 0, dtype=torch.long, device=device)
    found = transducer_align(x, y, blank=0, posteriors=True)
    assert found.frames.shape == (2, 0) and (found.blanks == 1).all()
    torch.testing.assert_close(found.score, x.log_softmax(-1)[:, :, 0, 0].sum(1))
    assert (posteriors_of(found).blank == 1).all() and posteriors_of(found).label.shape == (2, 3, 0)


@pytest.mark.parametrize("tdt", [False, True])
@pytest.mark.parametrize("posteriors", [False, True])
def test_opcheck(tdt: bool, posteriors: bool, device: torch.device) -> None:
    inputs, given = arguments(device, tdt)
    torch.library.opcheck(torch.ops.warpalign.transducer_align.default, (*inputs, posteriors), given)


def test_opcheck_packed(device: torch.device) -> None:
    (x, _, y, t, u, _), given = arguments(device, False, packed=True)
    rows = x.flatten(0, 2)[: 5 * 3 + 3 * 2].contiguous()
    torch.library.opcheck(
        torch.ops.warpalign.transducer_align.default, (rows, None, y, t, u, None, True), given
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool, device: torch.device) -> None:
    if device.type == "cuda" and not dynamic:
        pytest.skip("on a GPU one case is enough: what is compiled does not depend on the device")

    def step(x: Tensor, z: Tensor, y: Tensor, t: Tensor) -> TransducerAlignment:
        return transducer_align(x * 2, y, t, duration_logits=z, durations=(0, 1), blank=0, posteriors=True)

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for frames in (5, 6, 7):
        x, z = torch.randn(2, frames, 3, 6, device=device), torch.randn(2, frames, 3, 2, device=device)
        y, t = torch.randint(1, 6, (2, 2), device=device), torch.tensor([frames, 3], device=device)
        assert_same(compiled(x, z, y, t), step(x, z, y, t))


@pytest.mark.parametrize("posteriors", [False, True])
def test_vmap(posteriors: bool, device: torch.device) -> None:
    x, y = torch.randn(3, 2, 5, 3, 6, device=device), torch.randint(1, 5, (3, 2, 2), device=device)

    def one(x: Tensor, y: Tensor) -> Any:
        found = transducer_align(x, y, blank=0, big_blanks={5: 2}, posteriors=posteriors)
        return found if posteriors else found[:4]

    mapped = torch.func.vmap(one)(x, y)
    moved = torch.func.vmap(one, in_dims=(2, 0))(x.movedim(0, 2), y)
    shared = torch.func.vmap(one, in_dims=(None, 0))(x[0], y)
    for k in range(3):
        for got, wanted in ((mapped, one(x[k], y[k])), (moved, one(x[k], y[k])), (shared, one(x[0], y[k]))):
            for part, own in zip(got[:4], wanted[:4], strict=True):
                assert torch.equal(part[k], own)
            if posteriors:
                for part, own in zip(got[4], wanted[4], strict=True):
                    assert torch.equal(part[k], own)


def test_it_has_no_gradient(device: torch.device) -> None:
    x, y = (
        torch.randn(2, 5, 3, 6, device=device, requires_grad=True),
        torch.randint(1, 6, (2, 2), device=device),
    )
    assert not transducer_align(x, y, blank=0).score.requires_grad

    def score(x: Tensor) -> Tensor:
        return transducer_align(x, y, blank=0).score.sum()

    assert not torch.func.grad(lambda x: score(x) + x.sum() * 0)(x).any()


@pytest.mark.gpu
def test_cuda_graph_with_changing_lengths(cuda: torch.device) -> None:
    x, y = torch.randn(3, 40, 9, 33, device=cuda), torch.randint(1, 33, (3, 8), device=cuda)
    t, u = torch.full((3,), 40, device=cuda), torch.full((3,), 8, device=cuda)

    def step() -> TransducerAlignment:
        return transducer_align(x, y, t, u, blank=0, posteriors=True)

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
        graph.replay()
        assert_same(found, step())
