"""Edit distances by dynamic programming in plain Python, and the expected errors by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.python.helpers import randn
from warpalign import ctc_beam_decode, ctc_loss, transducer_loss
from warpalign.decoding import edit_distance, mwer_loss


def distance(x: Sequence[int], y: Sequence[int]) -> int:
    row = list(range(len(y) + 1))
    for i, a in enumerate(x, 1):
        before, row = row, [i]
        for j, b in enumerate(y, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b)))
    return row[-1]


@pytest.mark.parametrize("shape", [(4, 3, 7, 5), (4, 3, 2, 9), (3, 1, 12, 12), (2, 5, 1, 1), (1, 1, 40, 3)])
def test_edit_distances(shape: tuple[int, int, int, int], device: torch.device) -> None:
    batch, many, longest, most = shape
    generator = torch.Generator().manual_seed(sum(shape))
    tokens = torch.randint(0, 3, (batch, many, longest), generator=generator)
    counts = torch.randint(0, longest + 1, (batch, many), generator=generator)
    counts[0, 0] = longest
    tokens[torch.arange(longest) >= counts[..., None]] = -1
    targets = torch.randint(0, 3, (batch, most), generator=generator)
    lengths = torch.randint(0, most + 1, (batch,), generator=generator)
    lengths[-1] = most
    expected = [
        [
            distance(tokens[b, n, : counts[b, n]].tolist(), targets[b, : lengths[b]].tolist())
            for n in range(many)
        ]
        for b in range(batch)
    ]
    padded = targets.masked_fill(torch.arange(most) >= lengths[:, None], -5)
    found = edit_distance(tokens.to(device), padded.to(device), lengths.to(device))
    assert found.dtype == torch.int64 and found.tolist() == expected
    one = edit_distance(tokens[:, 0].int().to(device), targets.to(torch.int16).to(device), lengths.tolist())
    assert one.tolist() == [row[0] for row in expected]
    strided = edit_distance(tokens.mT.contiguous().mT.to(device), targets.T.contiguous().T.to(device))
    assert strided[-1].tolist() == expected[-1]


def test_empty_ones(device: torch.device) -> None:
    tokens, targets = (
        torch.ones(2, 3, 4, dtype=torch.int64, device=device),
        torch.ones(2, 5, dtype=torch.int64, device=device),
    )
    assert edit_distance(tokens[..., :0], targets, [5, 2]).tolist() == [[5] * 3, [2] * 3]
    assert edit_distance(tokens, targets[:, :0]).tolist() == [[4] * 3] * 2
    assert edit_distance(tokens[..., :0], targets[:, :0]).tolist() == [[0] * 3] * 2
    assert edit_distance(tokens[:0], targets[:0]).shape == (0, 3)
    assert edit_distance(tokens[:, :0], targets).shape == (2, 0)


def every_sequence(labels: Sequence[int], longest: int) -> list[tuple[int, ...]]:
    return [s for n in range(longest + 1) for s in itertools.product(labels, repeat=n)]


def padded(sequences: list[tuple[int, ...]], width: int) -> Tensor:
    return torch.tensor([[*s, *[-1] * (width - len(s))] for s in sequences])


def test_ctc_by_enumeration(device: torch.device) -> None:
    """All label sequences of 4 frames as hypotheses: the gradient is that of the expected errors over all 3^4 paths."""
    logits = randn(2, 4, 3, seed=0, dtype=torch.float64, device=device, grad=True)
    references = [(1, 2), (2, 2, 1)]
    expected = torch.zeros((), dtype=torch.float64, device=device)
    log_probs = logits.log_softmax(-1)
    for b, reference in enumerate(references):
        for path in itertools.product(range(3), repeat=4):
            labels = [k for k, _ in itertools.groupby(path) if k != 0]
            probability = torch.stack([log_probs[b, t, k] for t, k in enumerate(path)]).sum().exp()
            expected = expected + probability * distance(labels, reference)
    (wanted,) = torch.autograd.grad(expected, logits)

    sequences = every_sequence((1, 2), 4)
    tokens = padded(sequences, 4).expand(2, -1, -1).to(device)
    targets = padded(references, 3).to(device)
    errors = edit_distance(tokens, targets, [2, 3])
    many = len(sequences)
    losses = ctc_loss(
        logits.repeat_interleave(many, 0),
        tokens.flatten(0, 1).clamp(min=0),
        None,
        (tokens >= 0).sum(2).flatten(),
        reduction="none",
    )
    loss = mwer_loss(-losses.view(2, many), errors, reduction="sum")
    (got,) = torch.autograd.grad(loss, logits)
    impossible = torch.isinf(losses).view(2, many)
    assert impossible.any() and torch.isfinite(loss)  # (1, 1, 1, 1) needs more frames
    mean = torch.stack([errors[b][~impossible[b]].double().mean() for b in range(2)]).sum()
    torch.testing.assert_close(loss + mean, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-9)


def transducer_log_prob(log_probs: Tensor, labels: tuple[int, ...], blank: int) -> Tensor:
    """Of log_probs (T, U + 1, V), by enumeration of the frames in which labels are written."""
    frames, paths = log_probs.shape[0], []
    for places in itertools.combinations_with_replacement(range(frames), len(labels)):
        terms = [log_probs[t, u, labels[u]] for u, t in enumerate(places)]
        terms += [log_probs[t, sum(place <= t for place in places), blank] for t in range(frames)]
        paths.append(torch.stack(terms).sum())
    return torch.stack(paths).logsumexp(0)


def test_transducers_by_enumeration(device: torch.device) -> None:
    """Hypotheses of up to two labels; their probabilities are normalised among them."""
    sequences = every_sequence((0, 1), 2)
    many, reference, heat = len(sequences), (1, 0), 1.7
    logits = randn(many, 3, 3, 3, seed=1, dtype=torch.float64, device=device, grad=True)
    log_probs = logits.log_softmax(-1)
    scores = torch.stack([transducer_log_prob(log_probs[n], s, 2) for n, s in enumerate(sequences)])
    shares = (scores / heat).exp() / (scores / heat).exp().sum()
    wrong = torch.tensor([distance(s, reference) for s in sequences], dtype=torch.float64, device=device)
    expected = (shares * (wrong - wrong.mean())).sum()
    (wanted,) = torch.autograd.grad(expected, logits)

    tokens = padded(sequences, 2)[None].to(device)
    errors = edit_distance(tokens, torch.tensor([reference], device=device))
    assert errors.tolist() == [wrong.tolist()]
    lengths = (tokens >= 0).sum(2).flatten()
    losses = transducer_loss(logits, tokens[0].clamp(min=0), None, lengths, blank=2, reduction="none")
    loss = mwer_loss(-losses[None], errors, temperature=heat)
    (got,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-9)


def test_gradients_and_missing_hypotheses(device: torch.device) -> None:
    scores = randn(3, 4, seed=2, dtype=torch.float64, device=device, grad=True)
    errors = torch.tensor([[0, 3, 1, 2], [2, 2, 2, 2], [1, 0, 5, 4]], device=device)
    assert torch.autograd.gradcheck(
        lambda x: mwer_loss(x, errors, temperature=0.5, reduction="none"), (scores,)
    )
    exists = torch.tensor(
        [[True, True, False, True], [False, False, False, False], [False, True, False, False]], device=device
    )
    masked = scores.masked_fill(~exists, -torch.inf)
    losses = mwer_loss(masked, errors, reduction="none")
    some = mwer_loss(scores[:1, exists[0]], errors[:1, exists[0]], reduction="none")
    torch.testing.assert_close(losses[:1], some)
    assert losses[1:].tolist() == [0, 0]  # none, and one alone
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert gradient.isfinite().all() and not gradient[~exists].any() and not gradient[1:].any()
    assert not mwer_loss(scores[1:2], errors[1:2]).abs() > 1e-12  # equal errors: nothing to choose


def test_reductions_and_dtypes(device: torch.device) -> None:
    scores, errors = randn(3, 4, seed=3, device=device), torch.randint(0, 5, (3, 4), device=device)
    each = mwer_loss(scores, errors, reduction="none")
    torch.testing.assert_close(mwer_loss(scores, errors), each.mean())
    torch.testing.assert_close(mwer_loss(scores, errors.half(), reduction="sum"), each.sum())
    for dtype in (torch.float16, torch.bfloat16):
        half = scores.to(dtype)
        assert torch.equal(mwer_loss(half, errors), mwer_loss(half.float(), errors))
    assert mwer_loss(scores[:0], errors[:0], reduction="sum") == 0
    assert mwer_loss(scores[:, :0], errors[:, :0], reduction="none").tolist() == [0, 0, 0]


def test_training_on_the_errors_of_a_beam(device: torch.device) -> None:
    """The recipe of the manual: n-best of a search, scored again as targets. Expected errors fall."""
    torch.manual_seed(0)
    logits = torch.nn.Parameter(0.3 * torch.randn(4, 20, 6, device=device))
    targets, counts = torch.randint(1, 6, (4, 5), device=device), torch.tensor([5, 4, 5, 3], device=device)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    means = []
    for _ in range(30):
        found = ctc_beam_decode(logits.detach(), beam=8, n_best=4)
        tokens = torch.stack([h.tokens for h in found], 1)
        errors = edit_distance(tokens, targets, counts)
        losses = ctc_loss(
            logits.repeat_interleave(4, 0),
            tokens.flatten(0, 1).clamp(min=0),
            None,
            torch.stack([h.lengths for h in found], 1).flatten(),
            reduction="none",
        )
        loss = mwer_loss(-losses.view(4, 4), errors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means.append(float(errors[:, 0].float().mean()))
    assert means[-1] < 0.5 * means[0]
