"""Jagged nested tensors are read where they are; all results are those of padded series."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.soft_dtw.reference import randn
from warpalign._soft_dtw import packed
from warpalign._soft_dtw.packed import packed_problem
from warpalign._soft_dtw.settings import Settings

F64 = torch.float64
LENGTHS_X, LENGTHS_Y = [5, 40, 1, 17], [33, 2, 9, 17]


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call stayed packed."""
    calls: list[bool] = []
    run = packed._run

    def counting(*arguments: Any) -> Any:
        calls.append(True)
        return run(*arguments)

    monkeypatch.setattr(packed, "_run", counting)
    return calls


def values_of(
    lengths: list[int], features: int, seed: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return randn(sum(lengths), features, seed=seed, dtype=dtype).to(device).requires_grad_()


def offsets_of(lengths: list[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *lengths], device=device).cumsum(0)


def jagged(values: Tensor, lengths: list[int]) -> Tensor:
    nested: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets_of(lengths, values.device))
    return nested


def padded(values: Tensor, lengths: list[int]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        list(values.split(lengths)), batch_first=True, padding_value=torch.nan
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gamma 0": {"gamma": 0.0},
    "euclidean": {"cost": "euclidean"},
    "l1": {"cost": "l1"},
    "huber": {"cost": "huber"},
    "band": {"bandwidth": 3, "step_penalty": 0.1},
    "divergence": {"normalize": True},
    "mean": {"reduction": "mean"},
    "high": {"precision": "high"},
    "batch_invariant": {"batch_invariant": True},
}


@pytest.mark.parametrize("features", [1, 3, 20])
@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_those_of_padded_series(
    name: str, features: int, device: torch.device, _counted: list[bool]
) -> None:
    options = OPTIONS[name]
    x = values_of(LENGTHS_X, features, 1, torch.float32, device)
    y = values_of(LENGTHS_Y, features, 2, torch.float32, device)
    lengths = {"x_lengths": LENGTHS_X, "y_lengths": LENGTHS_Y}
    expected = warpalign.soft_dtw(padded(x, LENGTHS_X), padded(y, LENGTHS_Y), **lengths, **options)
    found = warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y), **options)
    assert len(_counted) == (3 if name == "divergence" else 1)
    assert torch.equal(found, expected)
    weights = torch.arange(1.0, 1 + found.numel(), device=device).view_as(found)
    for a, b in zip(
        torch.autograd.grad(found, (x, y), weights),
        torch.autograd.grad(expected, (x, y), weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dense", ["x", "y"])
def test_one_side_may_be_dense(dense: str, device: torch.device, _counted: list[bool]) -> None:
    values = values_of(LENGTHS_X, 3, 1, F64, device)
    others = randn(4, 12, 3, seed=2, dtype=F64).to(device).requires_grad_()
    given = jagged(values, LENGTHS_X)
    found = warpalign.soft_dtw(*((others, given) if dense == "x" else (given, others)))
    assert len(_counted) == 1
    parts = values.split(LENGTHS_X)
    expected = torch.stack(
        [warpalign.soft_dtw(a, b, unbatched=True) for a, b in zip(parts, others, strict=True)]
    )
    assert torch.allclose(found, expected, rtol=1e-12)
    of_found = torch.autograd.grad(found.sum(), (values, others))
    for a, b in zip(of_found, torch.autograd.grad(expected.sum(), (values, others)), strict=True):
        torch.testing.assert_close(a, b)


def test_gamma_per_pair_has_a_gradient(device: torch.device, _counted: list[bool]) -> None:
    x, y = (values_of(n, 2, s, F64, device) for n, s in ((LENGTHS_X, 1), (LENGTHS_Y, 2)))
    gamma = torch.tensor([0.1, 1.0, 3.0, 0.5], dtype=F64, device=device, requires_grad=True)
    found = warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y), gamma=gamma)
    assert len(_counted) == 1
    lengths = {"x_lengths": LENGTHS_X, "y_lengths": LENGTHS_Y}
    expected = warpalign.soft_dtw(padded(x, LENGTHS_X), padded(y, LENGTHS_Y), gamma=gamma, **lengths)
    torch.testing.assert_close(found, expected)
    a, b = (torch.autograd.grad(v.sum(), gamma)[0] for v in (found, expected))
    torch.testing.assert_close(a, b)


def test_gradgradcheck() -> None:
    """Second derivatives by the dense side: torch has none of a nested tensor's values."""
    x = jagged(randn(8, 2, seed=1, dtype=F64), [3, 1, 4])
    y = randn(3, 4, 2, seed=2, dtype=F64, grad=True)

    def value(y: Tensor) -> Tensor:
        return warpalign.soft_dtw(x, y, gamma=0.7)

    assert torch.autograd.gradcheck(value, y)
    assert torch.autograd.gradgradcheck(value, y)


def test_a_second_backward_through_the_same_graph(device: torch.device) -> None:
    x, y = (values_of(n, 3, s, F64, device) for n, s in ((LENGTHS_X, 1), (LENGTHS_Y, 2)))
    value = warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y))
    first, second = (
        torch.autograd.grad(value, (x, y), torch.full_like(value, factor), retain_graph=True)
        for factor in (1.0, 3.0)
    )
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(3 * a, b)
    assert torch.equal(first[0], torch.autograd.grad(value.sum(), x)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype: torch.dtype, device: torch.device) -> None:
    x, y = (values_of(n, 20, s, dtype, device) for n, s in ((LENGTHS_X, 1), (LENGTHS_Y, 2)))
    found = warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y), gamma=2.0)
    assert found.dtype == torch.float32
    wide_x, wide_y = (t.detach().float().requires_grad_() for t in (x, y))
    expected = warpalign.soft_dtw(jagged(wide_x, LENGTHS_X), jagged(wide_y, LENGTHS_Y), gamma=2.0)
    torch.testing.assert_close(found, expected)
    of_found = torch.autograd.grad(found.sum(), (x, y))
    for a, b in zip(of_found, torch.autograd.grad(expected.sum(), (wide_x, wide_y)), strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b.to(dtype))


def test_a_module_between_takes_a_nested_tensor(device: torch.device, _counted: list[bool]) -> None:
    """As in a training: a layer, the loss, and a gradient for the layer."""
    x = values_of(LENGTHS_X, 5, 1, torch.float32, device).detach()
    y = values_of(LENGTHS_Y, 3, 2, torch.float32, device).detach()
    layer = torch.nn.Linear(5, 3).to(device)
    loss = warpalign.SoftDTW(gamma=0.5, reduction="mean")
    loss(layer(jagged(x, LENGTHS_X)), jagged(y, LENGTHS_Y)).backward()
    assert len(_counted) == 1 and layer.weight.grad is not None
    lengths = {
        "x_lengths": torch.tensor(LENGTHS_X, device=device),
        "y_lengths": torch.tensor(LENGTHS_Y, device=device),
    }
    zeros = [
        torch.nn.utils.rnn.pad_sequence(list(v.split(n)), batch_first=True)
        for v, n in ((x, LENGTHS_X), (y, LENGTHS_Y))
    ]
    expected = torch.autograd.grad(loss(layer(zeros[0]), zeros[1], **lengths), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-5, atol=1e-5)


PADDED: dict[str, Any] = {
    "cosine": {"cost": "cosine"},
    "a function": {"cost": lambda x, y: torch.cdist(x, y)},
    "a mask": {"x_mask": torch.zeros(4, 40, dtype=torch.bool)},
}


@pytest.mark.parametrize("name", PADDED)
def test_what_is_padded(name: str, _counted: list[bool]) -> None:
    x, y = (values_of(n, 3, s, F64, torch.device("cpu")) for n, s in ((LENGTHS_X, 1), (LENGTHS_Y, 2)))
    found = warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y), **PADDED[name])
    assert not _counted
    options = {k: v for k, v in PADDED[name].items() if k == "cost"}
    parts = zip(x.split(LENGTHS_X), y.split(LENGTHS_Y), strict=True)
    expected = torch.stack([warpalign.soft_dtw(a, b, unbatched=True, **options) for a, b in parts])
    torch.testing.assert_close(found, expected)


def test_series_without_steps_are_not_packed() -> None:
    empty = torch.nested.nested_tensor_from_jagged(torch.ones(4, 2), torch.tensor([0, 2, 2, 4]))
    assert packed_problem(empty, empty, 1.0, 0, Settings()) is None
    with pytest.raises(ValueError, match="x_lengths"):
        warpalign.soft_dtw(empty, empty)


def test_a_band_without_a_path_is_a_value_error() -> None:
    x, y = (values_of(n, 1, 1, F64, torch.device("cpu")) for n in (LENGTHS_X, LENGTHS_Y))
    with pytest.raises(ValueError, match="^band: expected a radius that leaves a path"):
        warpalign.soft_dtw(jagged(x, LENGTHS_X), jagged(y, LENGTHS_Y), bandwidth=1, band="abs")


def test_steps_that_no_offset_covers_have_no_gradient() -> None:
    """values may be longer than the last offset."""
    values = randn(12, 2, seed=1, dtype=F64, grad=True)
    given = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 4, 9]))
    (gradient,) = torch.autograd.grad(
        warpalign.soft_dtw(given, randn(2, 5, 2, seed=2, dtype=F64)).sum(), values
    )
    assert gradient[:9].any(-1).all() and not gradient[9:].any()


def test_opcheck(device: torch.device) -> None:
    x, y = (values_of(n, 3, s, F64, device).detach()[None] for n, s in ((LENGTHS_X, 1), (LENGTHS_Y, 2)))
    ragged = [offsets_of(n, device)[:-1].contiguous() for n in (LENGTHS_X, LENGTHS_Y)]
    ragged += [torch.tensor(n, dtype=torch.int32, device=device) for n in (LENGTHS_X, LENGTHS_Y)]
    operator = torch.ops.warpalign.soft_dtw_packed.default
    torch.library.opcheck(operator, (x, y, *ragged, 40, 33, 1.0, True, True))
