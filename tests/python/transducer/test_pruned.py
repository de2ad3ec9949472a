"""The native pruned loss beside the composition of fast_rnnt's functions, and what it promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from warpalign import (
    JointWeights,
    PrunedTransducerLoss,
    transducer_loss,
    transducer_loss_from_joint,
    transducer_loss_pruned,
)
from warpalign._transducer.prune_ranges import band, first_states
from warpalign._transducer.simple import passing_posteriors
from warpalign.compat import fast_rnnt as drop_in

fast_rnnt: Any = drop_in  # whose functions return what return_grad says

B, T, U, V, H = 3, 14, 6, 9, 5
LENGTHS = [[14, 9, 6], [6, 0, 4]]


def network(device: torch.device, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """encoder_out, predictor_out, weight, bias, encoder_logits, predictor_logits."""
    shapes = (B, T, H), (B, U + 1, H), (V, H), (V,), (B, T, V), (B, U + 1, V)
    return [
        torch.randn(shape, device=device, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes
    ]


def labels(device: torch.device) -> Tensor:
    """With labels that come twice, whose gradients share a column."""
    return torch.randint(0, V - 4, (B, U), device=device)


def pruned(
    tensors: list[Tensor], targets: Tensor, big_blanks: Any = (), **options: Any
) -> PrunedTransducerLoss:
    encoder, predictor, weight, bias, of_encoder, of_predictor = tensors
    joint = JointWeights(weight, bias, activation="tanh", big_blanks=big_blanks)
    return transducer_loss_pruned(encoder, predictor, targets, joint, of_encoder, of_predictor, **options)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("frames", "states", "width"), [(14, 7, 2), (60, 40, 5), (1, 1, 1), (33, 9, 9)])
def test_the_cores_band_is_that_of_torchs_functions(
    frames: int, states: int, width: int, ragged: bool, device: torch.device
) -> None:
    by_arc = -torch.rand(B, frames, states, 2, device=device)
    lengths = counts = None
    if ragged:
        lengths = torch.tensor([frames, frames // 2, 1], device=device, dtype=torch.int32)
        counts = torch.tensor([states - 1, 0, (states - 1) // 2], device=device, dtype=torch.int32)
    wanted = first_states(
        *passing_posteriors(by_arc, ()),
        frames if lengths is None else lengths,
        states - 1 if counts is None else counts,
        width,
        width - 1,
    )
    torch.testing.assert_close(band(by_arc, lengths, counts, width), wanted.int(), rtol=0, atol=0)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("width", "alone", "delay"), [(2, 0.0, 0.1), (3, 0.25, 0.0), (5, 1.0, 0.1)])
def test_is_the_composition_of_fast_rnnts_functions(
    width: int, alone: float, delay: float, ragged: bool, device: torch.device
) -> None:
    tensors, targets = network(device), labels(device)
    lengths = torch.tensor(LENGTHS if ragged else [[T] * B, [U] * B], device=device)
    if ragged:
        lengths[1, 1] = 1  # fast_rnnt has no utterances without labels
    result = pruned(
        tensors,
        targets,
        **({"encoder_lengths": lengths[0], "target_lengths": lengths[1]} if ragged else {}),
        prune_range=width,
        predictor_only_scale=alone,
        delay_penalty=delay,
        reduction="none",
    )
    encoder, predictor, weight, bias, am, lm = tensors
    boundary = torch.stack((*torch.zeros_like(lengths), lengths[1], lengths[0]), 1)
    given: dict[str, Any] = {"boundary": boundary, "delay_penalty": delay, "reduction": "none"}
    simple, posteriors = fast_rnnt.rnnt_loss_smoothed(
        lm, am, targets, V - 1, alone, 0.0, return_grad=True, **given
    )
    ranges = fast_rnnt.get_rnnt_prune_ranges(*posteriors, boundary, width)
    for b in range(B):
        frames = int(lengths[0, b])
        assert torch.equal(result.first_states[b, :frames], ranges[b, :frames, 0])
    of_am, of_lm = fast_rnnt.do_rnnt_pruning(encoder, predictor, ranges)
    logits = torch.nn.functional.linear((of_am + of_lm).tanh(), weight, bias)
    kept = fast_rnnt.rnnt_loss_pruned(logits, targets, ranges, V - 1, **given)
    torch.testing.assert_close(result.simple, simple)
    torch.testing.assert_close(result.pruned, kept)
    upstream = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64, device=device)
    expected = torch.autograd.grad(((0.5 * simple + kept) * upstream).sum(), tensors)
    for found, wanted in zip(
        torch.autograd.grad((result.loss * upstream).sum(), tensors), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("big_blanks", [(), (2, 4)])
def test_all_states_are_the_exact_losses(big_blanks: tuple[int, ...], device: torch.device) -> None:
    tensors, targets = network(device), labels(device)
    lengths: dict[str, Any] = {"encoder_lengths": LENGTHS[0], "target_lengths": LENGTHS[1]}
    if device.type == "cuda":
        lengths = {name: torch.tensor(value, device=device) for name, value in lengths.items()}
    more: dict[str, Any] = {"sigma": 0.05, "reduction": "none"}
    result = pruned(
        tensors, targets, big_blanks, prune_range=U + 1, predictor_only_scale=0.0, **lengths, **more
    )
    encoder, predictor, weight, bias, am, lm = tensors
    joint = JointWeights(weight, bias, activation="tanh", big_blanks=big_blanks)
    exact = transducer_loss_from_joint(encoder, predictor, targets, joint, *lengths.values(), **more)
    torch.testing.assert_close(result.pruned, exact)
    logits = am[:, :, None] + lm[:, None]
    simple = transducer_loss(logits, targets, *lengths.values(), big_blanks=big_blanks, **more)
    torch.testing.assert_close(result.simple, simple)
    for values in ((result.pruned, exact), (result.simple, simple)):
        leaves = tensors[:4] if values[0] is result.pruned else tensors[4:]
        found, wanted = (torch.autograd.grad(v.sum(), leaves, retain_graph=True) for v in values)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("big_blanks", [(), (2, 3)])
def test_gradcheck(big_blanks: tuple[int, ...], device: torch.device) -> None:
    """The band is the same at all points that differences are taken at: it does not follow from pruned's own inputs."""
    tensors, targets = network(device), labels(device)
    fixed = [t.detach() for t in tensors[4:]]
    lengths = torch.tensor(LENGTHS, device=device)

    def kept(*leaves: Tensor) -> Tensor:
        result = pruned([*leaves, *fixed], targets, big_blanks, prune_range=3, encoder_lengths=lengths[0],
                        target_lengths=lengths[1], reduction="none")  # fmt: skip
        return result.pruned

    def simple(*leaves: Tensor) -> Tensor:
        result = pruned(
            [*(t.detach() for t in tensors[:4]), *leaves], targets, big_blanks, reduction="none", sigma=0.1
        )
        return result.simple

    assert torch.autograd.gradcheck(kept, tensors[:4])
    assert torch.autograd.gradcheck(simple, tensors[4:])


def test_fewer_states_have_fewer_paths(device: torch.device) -> None:
    tensors, targets = network(device), labels(device)
    losses = [pruned(tensors, targets, prune_range=s, reduction="none").pruned for s in (2, 3, 5, 7)]
    exact = losses[-1]
    assert all((loss >= exact - 1e-12).all() for loss in losses)


def test_fastemit_scales_labels_gradients_alone(device: torch.device) -> None:
    tensors, targets = network(device), labels(device)
    exact = transducer_loss(tensors[4][:, :, None] + tensors[5][:, None], targets, fastemit_lambda=0.3)
    result = pruned(tensors, targets, prune_range=3, predictor_only_scale=0.0, fastemit_lambda=0.3)
    torch.testing.assert_close(result.simple, exact)
    for found, wanted in zip(
        *(torch.autograd.grad(v, tensors[4:]) for v in (result.simple, exact)), strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_types(dtype: torch.dtype, device: torch.device) -> None:
    """Half types give float32 losses and gradients of their own type."""
    cpu = torch.device("cpu")  # bands of these numbers are not nearly tied
    tensors = [t.detach().to(device).requires_grad_() for t in network(cpu, dtype)]
    targets = labels(cpu).to(device)
    result = pruned(tensors, targets, prune_range=3)
    assert result.loss.dtype == torch.float32
    wide = [t.detach().double().requires_grad_() for t in tensors]
    exact = pruned(wide, targets, prune_range=3)
    assert torch.equal(result.first_states, exact.first_states)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(result.loss.double(), exact.loss, rtol=tolerance, atol=tolerance)
    for found, wanted in zip(
        torch.autograd.grad(result.loss, tensors), torch.autograd.grad(exact.loss, wide), strict=True
    ):
        assert found.dtype == dtype
        assert float((found.double() - wanted).norm()) <= tolerance * float(wanted.norm())


def test_padding_is_ignored_and_runs_repeat(device: torch.device) -> None:
    tensors, targets = network(device, torch.float32), labels(device)
    lengths = torch.tensor(LENGTHS, device=device)
    results = []
    for padding in (0.0, torch.nan):
        given = [t.detach().clone() for t in tensors]
        broken = targets.clone()
        for b in range(B):
            frames, count = lengths[:, b].tolist()
            for index, rows in ((0, frames), (4, frames), (1, count + 1), (5, count + 1)):
                given[index][b, rows:] = padding
            broken[b, count:] = -1 if padding else 0
        leaves = [t.requires_grad_() for t in given]
        result = pruned(
            leaves, broken, encoder_lengths=lengths[0], target_lengths=lengths[1], reduction="none"
        )
        assert result.loss.isfinite().all()
        results.append((result.loss, *torch.autograd.grad(result.loss.sum(), leaves)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    gradients = results[0]
    assert not gradients[1][1, 9:].any() and not gradients[5][1, 9:].any() and not gradients[6][1, 1:].any()


def test_parts_of_a_batch(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of logits are made for some utterances at a time."""
    tensors, targets = network(device), labels(device)
    given: dict[str, Any] = {"encoder_lengths": torch.tensor(LENGTHS[0], device=device), "reduction": "none"}
    results = []
    for limit in (1, 2 * T * V * 8, 2**25):
        monkeypatch.setattr("warpalign._transducer.shares._PART_BYTES", limit)
        loss = pruned(tensors, targets, **given).simple
        results.append((loss, *torch.autograd.grad(loss.sum(), tensors[4:])))
    for other in results[:2]:
        for found, wanted in zip(other, results[2], strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("strided", [False, True])
def test_inplace_grad_takes_the_logits_memory(
    strided: bool, dtype: torch.dtype, device: torch.device
) -> None:
    """The gradients are those of a call that does not overwrite, bit by bit, also in parts of logits and of a batch."""
    tensors, targets = network(device, dtype), labels(device)
    lengths = torch.tensor(LENGTHS, device=device)
    upstream = torch.tensor([1.0, -0.5, 2.0], device=device)
    found = []
    for in_place in (False, True):
        logits = [t.detach().clone().requires_grad_() for t in tensors[4:]]
        given = [torch.cat((t, t), 2)[..., ::2] if strided else t * 2 for t in logits]
        pointers = [t.data_ptr() for t in given]
        seen: list[int] = []
        for t in given:
            t.register_hook(lambda g, seen=seen: seen.append(g.data_ptr()))
        options: dict[str, Any] = {"encoder_lengths": lengths[0], "target_lengths": lengths[1]}
        options |= {"prune_range": 3, "reduction": "none", "inplace_grad": in_place}
        loss = pruned([*tensors[:4], *given], targets, **options).loss
        found.append(torch.autograd.grad(loss, logits, upstream.to(loss)))
        assert (sorted(seen) == sorted(pointers)) is in_place
    for one, other in zip(*found, strict=True):
        assert one.any() and torch.equal(one, other)


def test_inplace_grad_of_one_of_both_logits(device: torch.device) -> None:
    """Logits that need no gradient keep their values, and then neither gradient is written in place."""
    tensors, targets = network(device), labels(device)
    fixed, moving = tensors[5].detach(), tensors[4] * 1
    kept = fixed.clone()
    value = pruned([*tensors[:4], moving, fixed], targets, inplace_grad=True).loss
    (found,) = torch.autograd.grad(value, moving)
    assert torch.equal(fixed, kept)
    plain = pruned([*tensors[:4], moving, fixed], targets).loss
    torch.testing.assert_close(found, torch.autograd.grad(plain, moving)[0], rtol=0, atol=0)


def test_edges(device: torch.device) -> None:
    """No frames, no labels, one frame; more labels than a band can pass."""
    tensors, targets = network(device), labels(device)

    def part(frames: int, count: int, **options: Any) -> PrunedTransducerLoss:
        cut = [tensors[0][:, :frames], tensors[1][:, : count + 1], *tensors[2:4]]
        cut += [tensors[4][:, :frames], tensors[5][:, : count + 1]]
        return pruned(cut, targets[:, :count], reduction="none", **options)

    assert (part(0, 2).loss == torch.inf).all()
    assert part(1, 4, prune_range=5).loss.isfinite().all()
    unlabelled = part(4, 0)
    assert unlabelled.loss.isfinite().all()
    # Every path of an utterance without labels is its blanks: the gradient by a frame's logits sums to 0.
    (gradient,) = torch.autograd.grad(unlabelled.loss.sum(), tensors[4])
    assert gradient[:, :4].any() and float(gradient.sum(2).abs().max()) < 1e-12
    tight = part(2, 6, prune_range=2)
    assert tight.simple.isfinite().all() and (tight.pruned == torch.inf).all()
    assert not any(g.any() for g in torch.autograd.grad(tight.pruned.sum(), tensors[:4]))
    assert not part(2, 6, prune_range=2, zero_infinity=True).pruned.any()


def test_one_utterance_without_a_batch_axis(device: torch.device) -> None:
    tensors, targets = network(device), labels(device)
    batched = pruned(tensors, targets, reduction="none")
    single = [t if index in (2, 3) else t[0] for index, t in enumerate(tensors)]
    alone = pruned(single, targets[0], reduction="none")
    torch.testing.assert_close(alone.loss, batched.loss[0])
    assert alone.first_states.shape == (T,)


def test_dropout(device: torch.device) -> None:
    """The generator's seed decides, in both passes."""
    tensors, targets = network(device), labels(device)
    with torch.no_grad():
        same = [pruned(tensors, targets, dropout=0.3, generator=5).pruned for _ in range(2)]
        assert torch.equal(*same)
        assert float(same[0]) != float(pruned(tensors, targets).pruned)


@pytest.mark.parametrize("index", [0, 3, 4, 5])
def test_no_second_derivatives(index: int, device: torch.device) -> None:
    tensors, targets = network(device), labels(device)
    (gradient,) = torch.autograd.grad(pruned(tensors, targets).loss, tensors[index], create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        gradient.sum().backward()


@pytest.mark.parametrize("index", [0, 3, 4, 5])
def test_forward_mode_is_refused(index: int, device: torch.device) -> None:
    tensors, targets = network(device), labels(device)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return pruned([*tensors[:index], x, *tensors[index + 1 :]], targets).loss

    given = tensors[index].detach()
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of the transducer losses are"):
        torch.func.jvp(loss, (given,), (given,))


def test_autocast(device: torch.device) -> None:
    """The additive network stays in the type of its logits; the joint network is cast as a linear layer is."""
    tensors, targets = network(device, torch.float32), labels(device)
    plain = pruned(tensors, targets)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        cast = pruned(tensors, targets)
    assert torch.equal(cast.simple, plain.simple)
    torch.testing.assert_close(cast.pruned, plain.pruned, rtol=0.02, atol=0)


@pytest.mark.gpu
def test_cuda_graph(cuda: torch.device) -> None:
    """A whole step is captured, and its replay takes other numbers and lengths."""
    tensors, targets = network(cuda, torch.float32), labels(cuda)
    lengths = torch.tensor([[T] * B, [U] * B], device=cuda)

    def step() -> tuple[Tensor, ...]:
        loss = pruned(
            tensors, targets, encoder_lengths=lengths[0], target_lengths=lengths[1], prune_range=3
        ).loss
        return loss, *torch.autograd.grad(loss, tensors)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(0.5)
    lengths.copy_(torch.tensor(LENGTHS))
    graph.replay()
    for found, wanted in zip(captured, step(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
