"""Published cases of torchaudio's forced_align and of NeMo's forward-sum loss, written anew for the drop-ins.

The cases are those of torchaudio's forced_align_test_impl.py, and NeMo's formula: one call of torch's ctc_loss for each
utterance, on a log_softmax over its own positions alone.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from warpalign.compat.nemo import ForwardSumLoss
from warpalign.compat.torchaudio import forced_align, merge_tokens

DTYPES = [torch.float32, torch.float64, torch.float16]


def log_probs_of(path: list[int], classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """(1, T, C): a probability of 0.7 for the path's classes, the rest shared out among the others."""
    probabilities = torch.full((len(path), classes), 0.3 / (classes - 1), dtype=torch.float64)
    probabilities[torch.arange(len(path)), torch.tensor(path)] = 0.7
    return probabilities.log().to(dtype)[None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("targets_dtype", [torch.int32, torch.int64])
def test_path_of_the_greatest_probabilities(dtype: torch.dtype, targets_dtype: torch.dtype) -> None:
    path = [5, 0, 0, 1, 1, 2, 0, 3]
    targets = torch.tensor([[0, 1, 2, 3]], dtype=targets_dtype)
    log_probs = log_probs_of(path, 6, dtype)
    found, scores = forced_align(log_probs, targets, torch.tensor([8]), torch.tensor([4]), blank=5)
    # 0 in the seventh frame is no label of this place: the best that the path may have there is one of its neighbours.
    assert found.dtype == targets_dtype and scores.dtype == dtype
    assert found[0, :6].tolist() == path[:6] and found[0, 7] == 3 and found[0, 6] in (2, 3, 5)
    torch.testing.assert_close(scores[0], log_probs[0, torch.arange(8), found[0].long()])


@pytest.mark.parametrize("blank", [0, 4])
def test_equal_neighbours_have_a_blank_between_them(blank: int) -> None:
    a, b = 1, 2
    path = [a, a, blank, a, b, blank, b]
    found, _ = forced_align(log_probs_of(path, 5), torch.tensor([[a, a, b, b]]), blank=blank)
    assert found[0].tolist() == path
    # Without a blank in the outputs there is one in the path, where it costs least.
    unsure = log_probs_of([a, a, a, a], 5)
    unsure[0, 2, blank] += 1
    found, _ = forced_align(unsure, torch.tensor([[a, a]]), blank=blank)
    assert found[0].tolist() == [a, a, blank, a]


def test_exactly_as_many_frames_as_needed() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(1, 5, 4, generator=generator).log_softmax(-1)
    found, scores = forced_align(log_probs, torch.tensor([[1, 1, 2, 2]][:1])[:, :3])
    assert found.shape == scores.shape == (1, 5)
    found, _ = forced_align(log_probs, torch.tensor([[1, 2, 3, 2, 1]]))
    assert found.tolist() == [[1, 2, 3, 2, 1]]
    found, _ = forced_align(log_probs, torch.tensor([[1, 1, 1]]))
    assert found.tolist() == [[1, 0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("labels", "repeats"), [([1, 2, 3, 2, 1, 3], 0), ([1, 1, 1, 2], 2), ([3, 3, 3, 3], 3)]
)
def test_targets_that_are_too_long(labels: list[int], repeats: int) -> None:
    message = (
        f"targets length is too long for CTC. Found log_probs length: 5, targets length: {len(labels)}, and number of "
        f"repeats: {repeats}"
    )
    with pytest.raises(RuntimeError, match=message):
        forced_align(torch.zeros(1, 5, 4), torch.tensor([labels]))
    with pytest.raises(RuntimeError, match="Found log_probs length: 2, targets length: 3"):
        forced_align(torch.zeros(1, 5, 4), torch.tensor([[1, 2, 3]]), torch.tensor([2]), torch.tensor([3]))


@pytest.mark.parametrize("blank", [0, 2])
def test_blank_among_the_targets(blank: int) -> None:
    targets = torch.tensor([[1, blank, 3]])
    with pytest.raises(ValueError, match="targets Tensor shouldn't contain blank index. Found tensor"):
        forced_align(torch.zeros(1, 9, 4), targets, blank=blank)


@pytest.mark.parametrize("label", [4, 7])
def test_labels_beyond_the_classes(label: int) -> None:
    with pytest.raises(ValueError, match="targets values must be less than the CTC dimension"):
        forced_align(torch.zeros(1, 9, 4), torch.tensor([[1, label]]))


def test_types_and_shapes_that_are_refused() -> None:
    targets = torch.tensor([[1, 2]])
    for log_probs, labels, error in (
        (torch.zeros(1, 9, 4, dtype=torch.int64), targets, "int64"),
        (torch.zeros(1, 9, 4), targets.float(), "float32"),
        (torch.zeros(1, 1, 9, 4), targets, "logits"),
        (torch.zeros(2, 9, 4), targets, "targets"),
    ):
        with pytest.raises((TypeError, ValueError), match=error):
            forced_align(log_probs, labels)


def test_a_batch_is_its_utterances() -> None:
    """torchaudio refuses more than one utterance."""
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.randn(3, 20, 6, generator=generator, dtype=torch.float64).log_softmax(-1)
    targets = torch.randint(1, 6, (3, 5), generator=generator)
    frames, counts = torch.tensor([20, 13, 17]), torch.tensor([5, 0, 3])
    paths, scores = forced_align(log_probs, targets, frames, counts)
    for b in range(3):
        t, u = int(frames[b]), int(counts[b])
        path, score = forced_align(log_probs[b : b + 1, :t], targets[b : b + 1, :u])
        assert torch.equal(paths[b, :t], path[0]) and torch.equal(scores[b, :t], score[0])
        assert not paths[b, t:].any() and not scores[b, t:].any()


def test_merged_tokens() -> None:
    path = torch.tensor([0, 3, 3, 0, 3, 1, 1, 1, 0, 0, 2])
    scores = torch.arange(11.0)
    spans = merge_tokens(path, scores)
    assert [(s.token, s.start, s.end, s.score) for s in spans] == [
        (3, 1, 3, 1.5), (3, 4, 5, 4.0), (1, 5, 8, 6.0), (2, 10, 11, 10.0)
    ]  # fmt: skip
    assert [len(s) for s in spans] == [2, 1, 3, 1]
    assert [s.token for s in merge_tokens(path, scores, blank=3)] == [0, 0, 1, 0, 2]
    assert merge_tokens(torch.zeros(4), torch.zeros(4)) == []


# NeMo's forward-sum loss.


def nemo_loop(attention: Tensor, texts: Tensor, frames: Tensor, blank_logprob: float) -> Tensor:
    """The mean over utterances of −log p(1, 2, …, S_b), each divided by S_b; attention: (B, 1, T, S)."""
    losses = []
    for scores, s, t in zip(attention[:, 0], texts.tolist(), frames.tolist(), strict=True):
        blank = scores.new_full((t, 1), blank_logprob)
        log_probs = torch.cat([blank, scores[:t, :s]], 1).log_softmax(-1)
        losses.append(
            F.ctc_loss(log_probs[:, None], torch.arange(1, s + 1)[None], (t,), (s,), zero_infinity=True)
        )
    return torch.stack(losses).mean()


@pytest.mark.parametrize("blank_logprob", [-1.0, -3.0, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_sum(blank_logprob: float, dtype: torch.dtype) -> None:
    """Utterances with as many frames as positions, with one position, and with too few frames, which count 0."""
    generator = torch.Generator().manual_seed(3)
    texts, frames = torch.tensor([12, 12, 1, 9, 7]), torch.tensor([40, 12, 31, 8, 22])
    results = []
    for name in ("nemo", "ours"):
        attention = torch.randn(
            5, 1, 40, 12, generator=generator.manual_seed(3), dtype=dtype
        ).requires_grad_()
        if name == "nemo":
            loss = nemo_loop(attention, texts, frames, blank_logprob)
        else:
            loss = ForwardSumLoss(blank_logprob=blank_logprob)(attention, texts, frames)
        (gradient,) = torch.autograd.grad(loss, attention)
        results.append((loss.detach(), gradient))
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(results[1], results[0], **tolerance)
    gradient = results[1][1]
    assert gradient[0].any() and not gradient[3].any()
    for b, (s, t) in enumerate(zip(texts.tolist(), frames.tolist(), strict=True)):
        assert not gradient[b, 0, t:].any() and not gradient[b, 0, :, s:].any()
