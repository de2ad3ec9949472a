"""The raw operators, torch.ops.warpalign.*: what torch demands of them, and what they return. Bad calls are in bad_calls/."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch

import warpalign
from tests.python.helpers import randn
from tests.python.soft_dtw.reference import pair
from warpalign._soft_dtw.settings import Settings


def int32(*values: int, device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


OPCHECK_FLAGS = list(itertools.product([False, True], repeat=2))


def opcheck_inputs(device: torch.device) -> Iterator[tuple[torch.Tensor, ...]]:
    x, y = pair(3, 6, 4, 2, device=device)
    yield x, y, None, None
    yield x, y, int32(6, 1, 3, device=device), int32(4, 4, 2, device=device)
    yield x, y, None, int32(4, 4, 2, device=device)
    yield x.double(), y.double(), None, None
    yield x[:1], y[:1], None, None
    yield x[:0], y[:0], None, None
    yield x.mT.contiguous().mT, y[:1].expand(3, -1, -1), None, None


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize("name", ["soft_dtw", "soft_dtw_alignment"])
def test_opcheck_series(device: torch.device, name: str, index: int) -> None:
    inputs = list(opcheck_inputs(device))[index]
    # What is asked for has nothing to do with how the input lies in memory.
    for flags in OPCHECK_FLAGS if index == 1 else [(True, True)]:
        torch.library.opcheck(getattr(torch.ops.warpalign, name).default, (*inputs, 0.5, *flags))


@pytest.mark.parametrize("needs_grad", [False, True])
def test_opcheck_cost_matrix(device: torch.device, needs_grad: bool) -> None:
    cost = randn(3, 5, 4, seed=0, device=device)
    x_lengths, y_lengths = int32(5, 1, 2, device=device), int32(1, 4, 3, device=device)
    for inputs in (
        (cost, None, None),
        (cost, x_lengths, y_lengths),
        (cost.double(), x_lengths, None),
        (cost.mT, None, None),
        (cost[:0], None, None),
    ):
        torch.library.opcheck(torch.ops.warpalign.soft_dtw_cost.default, (*inputs, 0.5, needs_grad))


def test_raw_operators_return_what_was_asked_for(device: torch.device) -> None:
    x, y = pair(3, 6, 4, 2, device=device)
    for needs_x, needs_y in OPCHECK_FLAGS:
        value, grad_x, grad_y, grad_gamma = torch.ops.warpalign.soft_dtw(
            x, y, None, None, 1.0, needs_x, needs_y
        )
        assert value.shape == (3,)
        assert grad_x.shape == (x.shape if needs_x else (0,))
        assert grad_y.shape == (y.shape if needs_y else (0,))
        assert grad_gamma.shape == (0,)
    value, alignment, _ = torch.ops.warpalign.soft_dtw_cost(x, None, None, 1.0, False)
    assert value.shape == (3,) and alignment.shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_shapes_without_data(dtype: torch.dtype) -> None:
    x = torch.empty(4, 100, 3, device="meta", dtype=dtype, requires_grad=True)
    y = torch.empty(1, 50, 3, device="meta", dtype=dtype)
    lengths = torch.empty(4, device="meta", dtype=torch.int64)
    value = warpalign.soft_dtw(x, y, x_lengths=lengths)
    assert (value.shape, value.device.type) == ((4,), "meta")
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert (gradient.shape, gradient.dtype) == (x.shape, dtype)
    assert warpalign.soft_dtw_alignment(x, y).alignment.shape == (4, 100, 50)
    assert warpalign.soft_dtw_cost(x).shape == (4,)


def test_settings_repeat_the_schemas_defaults() -> None:
    """Only what differs from them is handed to an operator (settings.as_keywords)."""
    found = set()
    for name in (
        "soft_dtw",
        "soft_dtw_alignment",
        "soft_dtw_cost",
        "soft_dtw_subsequence",
        "soft_dtw_jvp",
        "soft_dtw_cost_jvp",
    ):
        for argument in getattr(torch.ops.warpalign, name).default._schema.arguments:
            if argument.kwarg_only and argument.name in Settings._fields:
                assert argument.default_value == Settings._field_defaults[argument.name], (
                    name,
                    argument.name,
                )
                found.add(argument.name)
    assert found == {*Settings._fields} - {"gamma"}
