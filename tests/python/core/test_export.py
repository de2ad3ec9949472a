"""What docs/support.md claims of operators under torch.export, autocast and forward mode, where no other test does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import warpalign

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Calls(nn.Module):
    """A module around one function, as torch.export wants it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> Any:
        return self.function(*given)


def exported_equals_eager(module: nn.Module, *given: Tensor) -> None:
    found = torch.export.export(module, given).module()(*given)
    torch.testing.assert_close(found, module(*given), rtol=0, atol=0)


def utterances(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, labels and true lengths of two utterances of 7 frames, 3 labels and 6 columns."""
    targets = torch.randint(0, 5, (2, 3), device=device)
    lengths = torch.tensor([[7, 5], [3, 2]], device=device)
    return torch.randn(2, 7, 4, 6, device=device), targets, lengths[0], lengths[1]


def joint(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Encoder outputs, predictor outputs and labels."""
    encoder, predictor = torch.randn(2, 5, 4, device=device), torch.randn(2, 3, 4, device=device)
    return encoder, predictor, torch.randint(0, 5, (2, 2), device=device)


def test_transducer_loss(device: torch.device) -> None:
    exported_equals_eager(warpalign.TransducerLoss(blank=5), *utterances(device))


def test_transducer_loss_from_joint(device: torch.device) -> None:
    exported_equals_eager(warpalign.TransducerJointLoss(4, 6, device=device), *joint(device))


def test_transducer_align(device: torch.device) -> None:
    def best(*given: Tensor) -> tuple[Tensor, Tensor]:
        found = warpalign.transducer_align(*given, blank=5)
        return found.score, found.frames

    exported_equals_eager(Calls(best), *utterances(device))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_alignments_of_every_dtype(dtype: torch.dtype, device: torch.device) -> None:
    logits, *rest = utterances(device)
    logits = logits.to(torch.bfloat16).to(torch.float16).float()  # every dtype has these numbers exactly
    expected = warpalign.transducer_align(logits.double(), *rest, blank=5)
    found = warpalign.transducer_align(logits.to(dtype), *rest, blank=5)
    assert torch.equal(found.frames, expected.frames)
    torch.testing.assert_close(found.score.double(), expected.score, rtol=1e-5, atol=0)


def test_forward_mode_through_the_joint_is_refused(device: torch.device) -> None:
    encoder, *rest = joint(device)
    module = warpalign.TransducerJointLoss(4, 6, device=device)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of the transducer losses"):
        torch.func.jvp(lambda encoder: module(encoder, *rest), (encoder,), (encoder,))


def test_ctc(device: torch.device) -> None:
    logits, targets = torch.randn(2, 9, 6, device=device), torch.randint(1, 6, (2, 3), device=device)
    lengths = torch.tensor([[9, 7], [3, 2]], device=device)
    exported_equals_eager(warpalign.CTCLoss(), logits, targets, *lengths)
    exported_equals_eager(Calls(lambda *given: tuple(warpalign.ctc_align(*given))), logits, targets, *lengths)
    scores = torch.randn(2, 3, 9, device=device)
    exported_equals_eager(Calls(warpalign.monotonic_alignment_search), scores)


def test_forward_mode_through_ctc_is_refused(device: torch.device) -> None:
    logits, targets = torch.randn(2, 9, 6, device=device), torch.randint(1, 6, (2, 3), device=device)
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of ctc_loss .*are not available"):
        torch.func.jvp(lambda x: warpalign.ctc_loss(x, targets), (logits,), (logits,))
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of .*forward_sum_loss are not"):
        torch.func.jvp(warpalign.forward_sum_loss, (logits,), (logits,))
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of ctc_loss_from_encoder are"):
        torch.func.jvp(
            lambda x: warpalign.ctc_loss_from_encoder(x, torch.eye(6).to(x), None, targets),
            (logits,),
            (logits,),
        )


def test_forward_mode_beside_ctc_is_not_refused(device: torch.device) -> None:
    """Of what has no tangent nothing is asked; what torch says of a dual tensor and a transform around it is told."""
    logits, targets = torch.randn(2, 9, 6, device=device), torch.randint(1, 6, (2, 3), device=device)
    loss = warpalign.ctc_loss(logits, targets)
    _, along = torch.func.jvp(lambda z: warpalign.ctc_loss(logits, targets) * z, (loss,), (loss,))
    torch.testing.assert_close(along, loss.square())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(logits, logits)
        with pytest.raises(NotImplementedError, match="forward-mode derivatives of ctc_loss"):
            warpalign.ctc_loss(dual, targets)
    gradient = torch.func.grad(lambda x: warpalign.ctc_loss(x, targets))
    with pytest.raises(NotImplementedError, match="forward-mode derivatives of ctc_loss"):
        torch.func.jvp(gradient, (logits,), (logits,))


def test_sinkhorn(device: torch.device) -> None:
    x, y = torch.rand(30, 2, device=device), torch.rand(20, 2, device=device)
    exported_equals_eager(Calls(lambda x, y: warpalign.sinkhorn(x, y, epsilon=0.1).value), x, y)
    exported_equals_eager(warpalign.SinkhornDivergence(epsilon=0.1), x, y)


def test_sinkhorn_under_autocast(device: torch.device) -> None:
    """Points keep their precision: what autocast would round to bfloat16 stays float32, half types are widened."""
    x, y = torch.rand(30, 2, device=device), torch.rand(20, 2, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        value = warpalign.sinkhorn(x, y, epsilon=0.1).value
        half = warpalign.sinkhorn(x.bfloat16(), y.bfloat16(), epsilon=0.1).value
    assert torch.equal(value, warpalign.sinkhorn(x, y, epsilon=0.1).value)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, value, rtol=0.02, atol=0.01)
