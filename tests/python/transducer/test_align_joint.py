"""The alignment of a joint network, beside that of its logits; the methods of the module that owns one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import warpalign
from tests.python.helpers import randn
from tests.python.transducer.cases import labels_for
from tests.python.transducer.decoding_reference import FAMILIES, model
from tests.python.transducer.joint_cases import CASES, V, joint_of, network
from tests.python.transducer.reference import Options, keywords
from warpalign import transducer_align, transducer_align_from_joint


def of_logits(tensors: list[Tensor], y: Tensor, options: Options, *lengths: Tensor, **more: Any) -> Any:
    encoder, predictor, weight, bias = tensors
    rows = nn.functional.linear((encoder[..., :, None, :] + predictor[..., None, :, :]).relu(), weight, bias)
    return transducer_align(rows, y, *lengths, posteriors=True, **keywords(options) | more)


def of_joint(tensors: list[Tensor], y: Tensor, options: Options, *lengths: Tensor, **more: Any) -> Any:
    encoder, predictor, weight, bias = tensors
    joint, given = joint_of(weight, bias, options)
    return transducer_align_from_joint(
        encoder, predictor, y, joint, *lengths, posteriors=True, **given | more
    )


def assert_same(mine: Any, wanted: Any) -> None:
    """The same path; scores and posteriors to rounding."""
    for name in ("frames", "durations", "blanks"):
        assert torch.equal(getattr(mine, name), getattr(wanted, name)), name
    torch.testing.assert_close(mine.score, wanted.score)
    for one, other in zip(mine.posteriors, wanted.posteriors, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("limit", [0, 48 << 20])
@pytest.mark.parametrize("name", CASES)
def test_is_the_alignment_of_its_logits(name: str, limit: int, device: torch.device) -> None:
    """Every family and penalty, ragged, with labels of one axis, and one utterance; a frame at a time, and all at once."""
    options = CASES[name]
    tensors = network(options, 3, 8, 5, dtype=torch.float64, device=device)
    y, counts = labels_for(options, 3, 4).to(device), torch.tensor([4, 2, 0], device=device)
    lengths = torch.tensor([8, 3, 5], device=device), counts
    wanted = of_logits(tensors, y, options, *lengths)
    assert_same(of_joint(tensors, y, options, *lengths, workspace_limit=limit), wanted)
    flat = torch.cat([y[b, : counts[b]] for b in range(3)])
    assert_same(
        of_joint(tensors, flat, options, *lengths, workspace_limit=limit),
        of_logits(tensors, flat, options, *lengths),
    )
    one = [tensors[0][0], tensors[1][0], *tensors[2:]]
    assert_same(of_joint(one, y[0], options, workspace_limit=limit), of_logits(one, y[0], options))


def test_memory_is_the_limit_and_the_small_lattice() -> None:
    """The largest allocation of a CPU call is far below the logits, 4 x 120 x 41 x 2000 numbers."""
    batch, frames, states, hidden, columns = 4, 120, 41, 64, 2000
    tensors = [torch.randn(*s) for s in ((batch, frames, hidden), (batch, states, hidden), (columns, hidden))]
    y = torch.randint(0, columns - 1, (batch, states - 1))
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as trace:
        transducer_align_from_joint(
            tensors[0], tensors[1], y, warpalign.JointWeights(tensors[2]), workspace_limit=1 << 24
        )
    largest = max(event.cpu_memory_usage for event in trace.events())
    assert largest <= 1 << 24 < batch * frames * states * columns * 4 / 8


@pytest.mark.gpu
def test_an_invalid_label_on_a_gpu(cuda: torch.device) -> None:
    options = CASES["rnnt-none"]
    tensors, y = network(options, 3, 5, 3, device=cuda), labels_for(options, 3, 2).to(cuda)
    y[1, 0] = V + 3
    assert of_joint(tensors, y, options).score.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_module_decodes_and_aligns_with_its_own_joint(name: str, device: torch.device) -> None:
    """Methods are the functions with the module's joint network, sigma and penalties."""
    family = FAMILIES[name]
    predictor, joint = model(family)
    module = warpalign.TransducerJointLoss(
        12,
        family.vocabulary,
        durations=family.durations,
        big_blanks=family.big_blanks,
        sigma=0.3,
        device=device,
    )
    with torch.no_grad():
        module.weight.copy_(joint.weight)
        assert module.bias is not None and joint.bias is not None
        module.bias.copy_(joint.bias)
    predictor, encoder = predictor.to(device), randn(2, 20, 12, seed=3).to(device)
    joint = joint._replace(weight=joint.weight.to(device), bias=joint.bias.to(device))
    assert module.joint[2:] == joint[2:]
    limit = {"max_symbols_per_frame": 3}
    greedy = module.greedy_decode(encoder, [20, 11], predictor, **limit)
    wanted = warpalign.transducer_greedy_decode(encoder, [20, 11], predictor, joint, **limit)  # type: ignore[arg-type]
    assert torch.equal(greedy.tokens, wanted.tokens) and torch.equal(greedy.scores, wanted.scores)
    assert greedy.tokens.numel() > 0
    found = module.beam_decode(encoder, None, predictor, beam=3, n_best=2)
    expected = warpalign.transducer_beam_decode(encoder, None, predictor, joint, beam=3, n_best=2)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.scores, other.scores)
    states, y = randn(2, 4, 12, seed=4).to(device), torch.tensor([[1, 2, 3], [3, 0, 1]], device=device)
    aligned = module.align(encoder, states, y, [20, 11], [3, 2], posteriors=True)
    by_hand = transducer_align_from_joint(
        encoder, states, y, joint, [20, 11], [3, 2], sigma=0.3, posteriors=True
    )
    assert_same(aligned, by_hand)
    without = transducer_align_from_joint(encoder, states, y, joint, [20, 11], [3, 2])
    assert not torch.allclose(aligned.score, without.score)


def test_a_blank_or_durations_that_do_not_fit_the_layer_are_refused() -> None:
    """Where the layer is made, before anything is trained."""
    for options, message in (
        ({"blank": 6}, r"^blank: expected a column of 6"),
        ({"durations": (0, 0)}, r"^durations: expected one at least above 0"),
        ({"big_blanks": (2, 3, 4), "blank": 2}, r"^big_blanks: expected \{column: frames\} where blank = 2"),
        ({"big_blanks": {5: 2}}, r"^big_blanks: expected different columns"),
    ):
        with pytest.raises(ValueError, match=message):
            warpalign.TransducerJointLoss(4, 6, **options)  # type: ignore[arg-type]


def test_an_int_seeds_the_draws_of_a_call(device: torch.device) -> None:
    options = CASES["tdt-none"]
    (encoder, predictor, weight, bias), y = (
        network(options, 20, 4, 3, device=device),
        labels_for(options, 20, 2).to(device),
    )
    joint, _ = joint_of(weight, bias, options)

    def loss(generator: Any) -> Tensor:
        return warpalign.transducer_loss_from_joint(
            encoder, predictor, y, joint, omega=0.5, dropout=0.2, generator=generator, reduction="none"
        )

    assert torch.equal(loss(3), loss(torch.Generator(device).manual_seed(3)))
    assert not torch.equal(loss(3), loss(4))
    logits = randn(20, 4, 3, 7, seed=1).to(device)
    drawn = [
        warpalign.tdt_loss(
            logits, None, y, durations=(0, 1, 2), omega=0.5, blank=0, generator=g, reduction="none"
        )
        for g in (3, torch.Generator(device).manual_seed(3), 4)
    ]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
