"""Drop-ins of CTC and monotonic alignment. tests/python/ctc/test_compat.py compares torch's errors with torch's own."""

from __future__ import annotations

from typing import Any

import torch

from tests.python.bad_calls import BadCall, BadCalls, Given
from warpalign.compat import monotonic_alignment_search
from warpalign.compat import torch as compat
from warpalign.compat.torchaudio import forced_align, merge_tokens

_WHERE = "(while checking arguments for ctc_loss_allocate_outputs)"


def loss(what: str, message: str, error: type[BaseException] = RuntimeError, **changed: Any) -> BadCalls:
    def call(given: Given) -> object:
        good: dict[str, Any] = {
            "log_probs": torch.zeros(5, 2, 4),
            "targets": torch.tensor([[1, 2], [2, 1]]),
            "input_lengths": torch.tensor([5, 5]),
            "target_lengths": torch.tensor([2, 2]),
        }
        return compat.ctc_loss(**good | changed)

    return {f"compat.torch.ctc_loss: {what}": BadCall(call, error, message, True)}


def align(what: str, error: type[BaseException], message: str, *targets: int) -> BadCalls:
    def call(given: Given) -> object:
        return forced_align(torch.zeros(1, 3, 4), torch.tensor([targets]))

    return {f"compat.torchaudio.forced_align: {what}": BadCall(call, error, message, True)}


CALLS: BadCalls = {
    **loss("no such reduction", "max is not a valid value for reduction", ValueError, reduction="max"),
    **loss("no frames", "log_probs tensor must not be empty", log_probs=torch.zeros(0, 2, 4)),
    **loss("blank", "blank must be in label range", blank=4),
    **loss("one length", "input_lengths must be of size batch_size", input_lengths=torch.tensor([5])),
    **loss("float lengths", "input_lengths must be integral", input_lengths=torch.tensor([5.0, 5.0])),
    **loss("a length below 0", f"Expected input_lengths to have value at least 0, but got value -1 {_WHERE}", input_lengths=(-1, 5)),
    **loss("a length beyond", f"Expected input_lengths to have value at most 5, but got value 6 {_WHERE}", input_lengths=(6, 5)),
    **loss("labels beyond", f"Expected tensor to have size at least 3 at dimension 1, but got size 2 for argument #2 'targets' {_WHERE}", target_lengths=(3, 2)),
    **loss("three axes", f"Expected 1 to 2 dimensions, but got 3-dimensional tensor for argument #2 'targets' {_WHERE}", targets=torch.ones(1, 2, 2)),
    **loss("another batch", f"Expected tensor to have size 2 at dimension 0, but got size 1 for argument #2 'targets' {_WHERE}", targets=torch.ones(1, 2)),
    **loss("too few labels", f"Expected tensor to have size 4 at dimension 0, but got size 3 for argument #2 'targets' {_WHERE}", targets=torch.ones(3)),
    **align("a blank", ValueError, "targets Tensor shouldn't contain blank index. Found tensor([[1, 0]]).", 1, 0),
    **align("a label beyond", ValueError, "targets values must be less than the CTC dimension", 1, 4),
    **align("too many labels", RuntimeError, "targets length is too long for CTC. Found log_probs length: 3, targets length: 3, and number of repeats: 1", 1, 1, 2),
    "compat.torchaudio.merge_tokens: two axes": BadCall(
        lambda given: merge_tokens(torch.zeros(1, 3), torch.zeros(1, 3)), ValueError, "`tokens` and `scores` must be 1D Tensor.", True
    ),
    "compat.torchaudio.merge_tokens: lengths": BadCall(
        lambda given: merge_tokens(torch.zeros(3), torch.zeros(2)), ValueError, "`tokens` and `scores` must be the same length.", True
    ),
    "compat.monotonic_alignment_search.maximum_path: implementation": BadCall(
        lambda given: monotonic_alignment_search.maximum_path(torch.zeros(1, 2, 3), torch.ones(1, 2, 3), "triton"), NotImplementedError, "implementation: expected \"cython\" or \"numpy\", got 'triton'", True
    ),
}  # fmt: skip
