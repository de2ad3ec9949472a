"""Lengths as callers give them, and as the operators take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warpalign._core.lengths import lengths_tensor

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "given",
    [
        [5, 0, 3],
        (5, 0, 3),
        [torch.tensor(5), torch.tensor(0), torch.tensor(3)],
        np.array([5, 0, 3]),
        np.array([5, 0, 3], np.uint8),
        torch.tensor([5, 0, 3]),
        torch.tensor([5, 9, 0, 9, 3, 9], dtype=torch.int32)[::2],
    ],
)
def test_integers_of_any_kind_become_int32(given: Any) -> None:
    lengths = lengths_tensor(given, "lengths", 3, 5, CPU)
    assert lengths is not None
    assert lengths.dtype == torch.int32 and lengths.is_contiguous()
    assert lengths.tolist() == [5, 0, 3]


def test_int32_is_not_copied() -> None:
    given = torch.tensor([5, 0, 3], dtype=torch.int32)
    assert lengths_tensor(given, "lengths", 3, 5, CPU) is given


def test_none_and_empty_batches() -> None:
    assert lengths_tensor(None, "lengths", 3, 5, CPU) is None
    given: tuple[Any, ...] = ([], (), np.zeros(0, np.int64), torch.zeros(0, dtype=torch.int64))
    for empty in given:
        lengths = lengths_tensor(empty, "lengths", 0, 5, CPU)
        assert lengths is not None and lengths.shape == (0,)


def test_values_beyond_int32_do_not_wrap_around() -> None:
    lengths = lengths_tensor(torch.tensor([2**32 + 3, -(2**40)]), "lengths", 2, None, CPU)
    assert lengths is not None and lengths.tolist() == [2**31 - 1, -(2**31)]


def test_values_in_a_compiled_graph_and_under_vmap_are_not_read() -> None:
    def sum_of(lengths: torch.Tensor) -> torch.Tensor:
        checked = lengths_tensor(lengths, "lengths", 2, 5, CPU)
        assert checked is not None
        return checked.sum()

    torch._dynamo.reset()
    compiled = torch.compile(sum_of, fullgraph=True, backend="aot_eager")
    assert compiled(torch.tensor([9, 1])) == 10
    assert torch.func.vmap(sum_of)(torch.tensor([[9, 1], [2, 2]])).tolist() == [10, 4]


FLOATS = (
    "lengths: expected integers of dtype int64, int32, int16, int8 or uint8, got {}: multiply fractions in [0, 1] by "
    "the number of steps, T = 5, and round to integers, (lengths * T).round().long()"
)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([0.2, 1.0], TypeError, FLOATS.format("torch.float32")),
        (torch.tensor([2.0, 5.0]), TypeError, FLOATS.format("torch.float32")),
        (np.array([0.2, 1.0]), TypeError, FLOATS.format("torch.float64")),
        (
            [True, False],
            TypeError,
            "lengths: expected integers of dtype int64, int32, int16, int8 or uint8, got torch.bool",
        ),
        (["5", "4"], TypeError, "lengths: expected integers (B,), got list of other values"),
        ([[5], [4, 3]], TypeError, "lengths: expected integers (B,), got list of other values"),
        (
            5,
            TypeError,
            "lengths: expected integers (B,) as a tensor, list, tuple or array, got int",
        ),
        ([5], ValueError, "lengths: expected shape (2,), one length per row, got (1,)"),
        ([[5, 4]], ValueError, "lengths: expected shape (2,), one length per row, got (1, 2)"),
        ([5, 6], ValueError, "lengths: expected lengths from 0 to T = 5, got 6 at index 1"),
        (torch.tensor([-1, 5]), ValueError, "lengths: expected lengths from 0 to T = 5, got -1 at index 0"),
        (torch.tensor([2**40, 5]), ValueError, f"lengths: expected lengths from 0 to T = 5, got {2**40} at index 0"),
    ],
)  # fmt: skip
def test_other_values_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        lengths_tensor(given, "lengths", 2, 5, CPU)
    assert str(caught.value) == message


def test_another_device_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        lengths_tensor(torch.tensor([1]), "lengths", 1, 5, torch.device("meta"), whose="x")
    assert str(caught.value) == "lengths: expected the device of x, meta, got cpu: write lengths.to('meta')"


@pytest.mark.gpu
def test_sequences_are_copied_to_a_gpu_and_its_tensors_stay(cuda: torch.device) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    copied = lengths_tensor([5, 3], "lengths", 2, 5, device)
    assert copied is not None and copied.device == device and copied.tolist() == [5, 3]
    with pytest.raises(ValueError, match="got 6 at index 1"):
        lengths_tensor([5, 6], "lengths", 2, 5, device)
    given = torch.tensor([9, 3], dtype=torch.int32, device=device)
    assert lengths_tensor(given, "lengths", 2, 5, device) is given
