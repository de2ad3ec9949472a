"""Calls every operator of the installed package once and compares the results with torch's (`make release`).

Needs torch and warpalign alone. Prints what works, and exits with 1 where something does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

import warpalign


def soft_dtw() -> None:
    """At a tiny gamma the value is DTW's, and the gradient that of the only path."""
    x = torch.tensor([[[0.0], [1.0], [2.0]]], requires_grad=True)
    y = torch.tensor([[[0.0], [2.0]]])
    value = warpalign.soft_dtw(x, y, gamma=1e-3)
    value.sum().backward()
    assert abs(value.item() - 1) < 1e-2 and x.grad is not None and x.grad.isfinite().all()


def ctc() -> None:
    """The loss is torch's; labels are aligned in their order, and of logits that name them all a search finds them."""
    logits = torch.randn(2, 9, 6, requires_grad=True)
    targets, frames, labels = torch.randint(1, 6, (2, 3)), torch.tensor([9, 7]), torch.tensor([3, 2])
    loss = warpalign.ctc_loss(logits, targets, frames, labels, reduction="sum")
    log_probs = logits.log_softmax(-1).transpose(0, 1)
    expected = torch.nn.functional.ctc_loss(log_probs, targets, frames, labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    loss.backward()
    spans = warpalign.ctc_align(logits, targets, frames, labels).spans
    assert spans.shape == (2, 3, 2) and bool((spans[0, 1:, 0] > spans[0, :-1, 1]).all())
    named = torch.nn.functional.one_hot(torch.tensor([[0, 3, 3, 0, 2]]), 6).float()
    assert warpalign.ctc_greedy_decode(named).tokens[0, :2].tolist() == [3, 2]


def transducer() -> None:
    """One frame and no label: the loss is minus the log-probability of the blank."""
    logits = torch.randn(1, 1, 1, 5, requires_grad=True)
    loss = warpalign.transducer_loss(logits, torch.zeros(1, 0, dtype=torch.long), blank=4)
    torch.testing.assert_close(loss, -logits.log_softmax(-1)[0, 0, 0, 4])
    loss.backward()
    joint = warpalign.TransducerJointLoss(8, 5)
    encoder, predictor = torch.randn(2, 6, 8), torch.randn(2, 3, 8)
    targets = torch.randint(0, 4, (2, 2))
    value = joint(encoder, predictor, targets)
    assert joint.bias is not None
    logits = (encoder[:, :, None] + predictor[:, None]).relu() @ joint.weight.T + joint.bias
    torch.testing.assert_close(value, warpalign.transducer_loss(logits, targets))
    assert warpalign.transducer_align(logits, targets).frames.shape == (2, 2)


def decoding() -> None:
    """A boosted phrase is found where two labels are about as probable, and errors of hypotheses are counted."""
    logits = torch.tensor([[[0.0, 9, 0, 0], [9, 0, 0, 0], [0, 0, 5, 5.1]]])
    boost = warpalign.PhraseBoost([[1, 2]], labels=4, bonus=2.0)
    (alone,) = warpalign.ctc_beam_decode(logits, beam=8)
    (boosted,) = warpalign.ctc_beam_decode(logits, beam=8, language_model=boost, lm_weight=1.0)
    said = torch.tensor([[1, 2]])
    assert warpalign.edit_distance(alone.tokens, said).tolist() == [1]
    assert warpalign.edit_distance(boosted.tokens, said).tolist() == [0]


def transport() -> None:
    """Marginals of a plan are the weights; equal sets are matched to themselves."""
    x = torch.rand(12, 2)
    plan = warpalign.sinkhorn(x, x, epsilon=1e-3, max_iter=5000).plan
    assert torch.equal(plan.argmax(), torch.arange(12))
    torch.testing.assert_close(plan.marginal(0), torch.full((12,), 1 / 12), rtol=1e-3, atol=1e-5)
    matched = warpalign.gromov_wasserstein(x, x, epsilon=0.01)
    assert bool(matched.value.isfinite())


def recurrent() -> None:
    """The same weights give what torch.nn.LSTM gives."""
    theirs, ours = torch.nn.LSTM(4, 8), warpalign.LSTM(4, 8)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 3, 4)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])


CHECKS: dict[str, Callable[[], None]] = {
    "soft-DTW": soft_dtw,
    "CTC": ctc,
    "transducers": transducer,
    "decoding": decoding,
    "transport": transport,
    "LSTM": recurrent,
}


def main() -> int:
    torch.manual_seed(0)
    failed = 0
    for name, check in CHECKS.items():
        try:
            check()
        except Exception as error:  # noqa: BLE001  every operator is tried, whatever the one before did
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    where = f"warpalign {warpalign.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}"
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} operators work ({where})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
