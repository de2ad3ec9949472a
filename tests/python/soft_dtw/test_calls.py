"""Calls that newcomers make: lists, arrays, (B, N), mixed dtypes under autocast. What is refused is in bad_calls/."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import Tensor

import warpalign
from tests.python.helpers import randn
from warpalign._core import checks
from warpalign.metrics import SoftDTWMetric

ONE_SERIES = "(N, D) is one series of N time steps with D features"


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Warnings come once in a process: here once in a test, and only where they are expected."""
    monkeypatch.setattr(checks, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# (N, D) is one series.


@pytest.mark.parametrize("function", [warpalign.soft_dtw, warpalign.dtw, warpalign.SoftDTW()])
def test_equal_shapes_without_a_batch_warn_once(function: Callable[..., Tensor]) -> None:
    forecast, target = randn(16, 50, seed=0), randn(16, 50, seed=1)
    with pytest.warns(UserWarning, match=r"write x\[\.\.\., None\] and y\[\.\.\., None\]") as caught:
        value = function(forecast, target)
    assert value.shape == () and ONE_SERIES in str(caught[0].message)
    assert caught[0].filename == __file__  # the line of the caller's own code
    function(forecast, target)  # no second warning: it would raise


def test_a_module_warns_of_a_forecast_without_a_batch() -> None:
    forecast, target = randn(16, 50, seed=0, grad=True), randn(12, 50, seed=1)
    with pytest.warns(UserWarning) as caught:
        warpalign.SoftDTW()(forecast, target).backward()
    assert ONE_SERIES in str(caught[0].message) and caught[0].filename == __file__
    warpalign.soft_dtw(forecast, target)  # unequal shapes in a function are no forecast


def test_what_is_no_batch_brings_no_warning() -> None:
    x, y = randn(16, 5, seed=0, grad=True), randn(16, 5, seed=1)
    warpalign.soft_dtw(x, y[:9])
    warpalign.soft_dtw(
        x[:, :1], y[:, :1]
    )  # One feature: reading it as a batch of one step would make no sense.
    warpalign.SoftDTW()(x[:, :1], y[:, :1])
    warpalign.SoftDTW()(x[None], y[None])
    warpalign.soft_dtw_alignment(x, y)  # its shape tells
    warpalign.dtw_path(x, y)
    torch.func.vmap(warpalign.soft_dtw)(x.view(4, 4, 5), y.view(4, 4, 5))
    torch.func.grad(lambda a: warpalign.soft_dtw(a, y))(x.detach())


def test_unbatched_says_so() -> None:
    x, y = randn(16, 5, seed=0, grad=True), randn(16, 5, seed=1)
    expected = warpalign.soft_dtw(x[None], y[None])[0]
    for call in (warpalign.soft_dtw, warpalign.SoftDTW(unbatched=True)):
        options = {} if isinstance(call, warpalign.SoftDTW) else {"unbatched": True}
        assert torch.equal(call(x, y, **options), expected)
    assert torch.equal(warpalign.dtw(x, y, unbatched=True), warpalign.dtw(x[None], y[None])[0])
    metric = SoftDTWMetric(unbatched=True)
    metric.update(x, y)
    assert metric.compute().item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_warning_comes_from_a_compiled_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: warpalign.soft_dtw(x, y), fullgraph=True, backend="aot_eager")
    x = randn(16, 50, seed=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = compiled(x, x)
    assert any(ONE_SERIES in str(warning.message) for warning in caught)
    assert torch.equal(value, warpalign.soft_dtw(x, x))


# Arrays and lists.


def test_what_has_no_gradient_takes_arrays_and_lists() -> None:
    x, y = randn(3, 9, 2, seed=0, dtype=torch.float64), randn(3, 7, 2, seed=1, dtype=torch.float64)
    forms: list[tuple[Any, Any]] = [(x.numpy(), y.numpy()), (list(x), list(y.numpy())), (x, y.tolist())]
    for a, b in forms:
        got, expected = warpalign.dtw_path(a, b), warpalign.dtw_path(x, y)
        assert torch.equal(got.value, expected.value)
        assert all(torch.equal(p, q) for p, q in zip(got.paths, expected.paths, strict=True))
        assert all(
            torch.equal(p, q)
            for p, q in zip(
                warpalign.soft_dtw_alignment(a, b), warpalign.soft_dtw_alignment(x, y), strict=True
            )
        )
        found, sought = warpalign.soft_dtw_subsequence(b, a), warpalign.soft_dtw_subsequence(y, x)
        assert torch.equal(found.end_values, sought.end_values)
        metric = SoftDTWMetric(gamma=0.5)
        metric.update(a, b)
        assert metric.compute().item() == pytest.approx(warpalign.soft_dtw(x, y, gamma=0.5).mean().item())


def test_arrays_of_other_kinds() -> None:
    table = pandas.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 1.0, 0.0]})
    value, path = warpalign.dtw_path(table, table.to_numpy()[::-1].copy())
    expected = torch.tensor(table.to_numpy())
    assert torch.equal(value, warpalign.dtw(expected, expected.flip(0), unbatched=True))
    integers = np.array([[[0], [2], [1]]])
    assert torch.equal(
        warpalign.soft_dtw_alignment(integers, integers).value,
        warpalign.soft_dtw(*[torch.as_tensor(integers).double()] * 2),
    )


def test_a_list_of_unequal_series_has_lengths() -> None:
    series = [randn(n, 2, seed=n) for n in (5, 9, 7)]
    y = randn(3, 6, 2, seed=0)
    alignment = warpalign.soft_dtw_alignment(series, y).alignment
    value, paths = warpalign.dtw_path([one.numpy() for one in series], y)
    for b, one in enumerate(series):
        alone = warpalign.soft_dtw_alignment(one, y[b])
        assert torch.equal(alignment[b, : len(one)], alone.alignment)
        cost, path = warpalign.dtw_path(one, y[b])
        assert torch.equal(paths[b], path) and torch.equal(value[b], cost)


def test_an_array_beside_a_tensor_keeps_its_gradient() -> None:
    x, y = randn(3, 9, 2, seed=0, grad=True), randn(3, 7, 2, seed=1)
    (gradient,) = torch.autograd.grad(warpalign.dtw_path(x, y.numpy()).value.sum(), x)
    assert torch.equal(gradient, torch.autograd.grad(warpalign.dtw(x, y).sum(), x)[0])


def test_the_path_of_one_pair_is_a_tensor() -> None:
    x, y = randn(9, 2, seed=0), randn(7, 2, seed=1)
    path = warpalign.dtw_path(x, y).paths
    assert isinstance(path, Tensor) and path.dtype == torch.int64
    (in_batch,) = warpalign.dtw_path(x[None], y[None]).paths
    assert torch.equal(path, in_batch)


# Lengths and masks have no gradient.


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda n: np.array(n, np.uint8), pandas.Series])
def test_lengths_are_lists_and_arrays(device: torch.device, form: Callable[[list[int]], Any]) -> None:
    x, y = randn(3, 9, 2, seed=0, device=device), randn(3, 7, 2, seed=1, device=device)
    n, m = [3, 9, 5], [7, 1, 2]
    tensors = {
        "x_lengths": torch.tensor(n, device=device),
        "y_lengths": torch.tensor(m, device=device),
    }
    lists = {"x_lengths": form(n), "y_lengths": form(m)}
    assert torch.equal(warpalign.soft_dtw(x, y, **lists), warpalign.soft_dtw(x, y, **tensors))
    costs = torch.cdist(x, y)
    assert torch.equal(
        warpalign.soft_dtw_cost(costs, x_lengths=form(n), y_lengths=form(m)),
        warpalign.soft_dtw_cost(costs, x_lengths=tensors["x_lengths"], y_lengths=tensors["y_lengths"]),
    )
    assert torch.equal(warpalign.cdist_soft_dtw(x, y, **lists), warpalign.cdist_soft_dtw(x, y, **tensors))
    assert torch.equal(
        warpalign.soft_dtw_barycenter(x, x_lengths=form(n), max_iter=2, tol=0).barycenter,
        warpalign.soft_dtw_barycenter(x, x_lengths=tensors["x_lengths"], max_iter=2, tol=0).barycenter,
    )
    empty = warpalign.soft_dtw(x[:0], y[:0], x_lengths=form([]) if form is not pandas.Series else [])
    assert empty.shape == (0,)


@pytest.mark.gpu
def test_lengths_of_a_list_are_checked_on_a_gpu_too(cuda: torch.device) -> None:
    x = randn(3, 9, 2, seed=0, device=cuda)
    with pytest.raises(ValueError, match="^x_lengths: expected lengths from 1 to N = 9, got 10 at index 2"):
        warpalign.soft_dtw(x, x, x_lengths=[1, 2, 10])


def test_masks_are_lists_and_arrays(device: torch.device) -> None:
    x, y = randn(2, 4, 2, seed=0, device=device), randn(2, 5, 2, seed=1, device=device)
    mask = [[False, True, False, False], [True, False, False, False]]
    expected = warpalign.soft_dtw(x, y, x_mask=torch.tensor(mask, device=device))
    for form in (mask, np.array(mask)):
        assert torch.equal(warpalign.soft_dtw(x, y, x_mask=form), expected)


# gamma of the module.


def test_gamma_is_annealed_by_assignment() -> None:
    x, y = randn(3, 9, 2, seed=0), randn(3, 7, 2, seed=1)
    loss = warpalign.SoftDTW(gamma=1.0)
    for gamma in (1.0, 0.1, 0.0):
        loss.gamma = gamma
        assert torch.equal(loss(x, y), warpalign.soft_dtw(x, y, gamma=gamma))
    loss.gamma = -1.0
    with pytest.raises(ValueError, match="^gamma: expected a finite number >= 0"):
        loss(x, y)


def test_a_number_and_a_tensor_as_gamma_have_other_state_dicts() -> None:
    number, tensor = warpalign.SoftDTW(0.5), warpalign.SoftDTW(torch.tensor(0.5))
    assert list(number.state_dict()) == [] and list(tensor.state_dict()) == ["gamma"]
    with pytest.raises(RuntimeError, match="Unexpected key"):
        number.load_state_dict(tensor.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        tensor.load_state_dict(number.state_dict())


def test_the_alignment_has_no_gradient_and_the_cost_has() -> None:
    x, y = randn(1, 5, 2, seed=0, grad=True), randn(1, 4, 2, seed=1)
    value, alignment = warpalign.soft_dtw_alignment(x, y)
    assert value.requires_grad and not alignment.requires_grad
    costs = torch.cdist(x, y).square()
    (gradient,) = torch.autograd.grad(warpalign.soft_dtw_cost(costs), costs, create_graph=True)
    torch.testing.assert_close(gradient, alignment, rtol=1e-5, atol=1e-6)
    assert gradient.requires_grad and (torch.autograd.grad(gradient[0, 2, 2], x)[0] != 0).any()


# Lengths.


FORMS_OF_LENGTHS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "int32 array": lambda lengths: np.array(lengths, dtype=np.int32),
    "list of NumPy's integers": lambda lengths: list(np.array(lengths)),
    "Series": pandas.Series,
    "narrow tensor": lambda lengths: torch.tensor(lengths, dtype=torch.uint8),
}


@pytest.mark.parametrize("form", FORMS_OF_LENGTHS)
def test_lengths_come_in_every_form_a_cpu_has(form: str) -> None:
    """As getting-started promises, in every function that takes lengths."""
    make = FORMS_OF_LENGTHS[form]
    x, y = randn(3, 9, 2, seed=0), randn(3, 7, 2, seed=1)
    n, m = [9, 4, 1], [3, 7, 5]
    costs = torch.cdist(x, y).square()

    def metric(**lengths: Any) -> Tensor:
        total = SoftDTWMetric()
        total.update(x, y, *lengths.values())
        return total.compute()

    calls: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
        (lambda **o: warpalign.soft_dtw(x, y, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.soft_dtw(x, y, normalize=True, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.SoftDTW()(x, y, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.dtw(x, y, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.dtw_path(x, y, **o).value, ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.soft_dtw_alignment(x, y, **o).alignment, ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.soft_dtw_subsequence(x, y, **o).value, ("query_lengths", "series_lengths")),
        (lambda **o: warpalign.soft_dtw_cost(costs, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.cdist_soft_dtw(x, y, **o), ("x_lengths", "y_lengths")),
        (lambda **o: warpalign.soft_dtw_barycenter(x, max_iter=1, tol=0, **o).barycenter, ("x_lengths",)),
        (metric, ("preds_lengths", "target_lengths")),
    ]
    for call, names in calls:
        expected = call(**{name: torch.tensor(of) for name, of in zip(names, (n, m), strict=False)})
        got = call(**{name: make(of) for name, of in zip(names, (n, m), strict=False)})
        assert torch.equal(got, expected)


# Autocast.


@pytest.mark.parametrize(
    ("of_x", "of_y"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float16), (torch.float16, torch.bfloat16)],
    ids=str,
)
def test_mixed_dtypes_under_autocast(device: torch.device, of_x: torch.dtype, of_y: torch.dtype) -> None:
    x = randn(3, 9, 2, seed=0, device=device, dtype=of_x, grad=True)
    y = randn(3, 7, 2, seed=1, device=device, dtype=of_y, grad=True)
    module = warpalign.SoftDTW(gamma=0.5, reduction="mean")
    with torch.autocast(device.type, torch.bfloat16):
        values = [module(x, y), torch.nn.functional.mse_loss(x[:, :7], y)]
        tables = [
            warpalign.soft_dtw_alignment(x, y).alignment,
            warpalign.cdist_soft_dtw(x, y),
            warpalign.dtw_path(x, y).value,
        ]
    assert [value.dtype for value in values + tables] == [torch.float32] * 5
    expected = module(x.float(), y.float())
    assert torch.equal(values[0], expected)
    for got, want in zip(
        torch.autograd.grad(values[0], (x, y)), torch.autograd.grad(expected, (x, y)), strict=True
    ):
        assert torch.equal(got, want)
    assert torch.equal(tables[1], warpalign.cdist_soft_dtw(x.float(), y.float()))


def test_float64_under_autocast_stays(device: torch.device) -> None:
    x = randn(3, 9, 2, seed=0, device=device, dtype=torch.float64)
    with torch.autocast(device.type, torch.bfloat16):
        assert warpalign.soft_dtw(x, x.bfloat16()).dtype == torch.float64


def test_the_callers_cost_is_computed_in_float32_under_autocast(device: torch.device) -> None:
    x, y = randn(3, 9, 8, seed=0, device=device), randn(3, 7, 8, seed=1, device=device)

    def cost(a: Tensor, b: Tensor) -> Tensor:
        return 1 - a @ b.mT

    with torch.autocast(device.type, torch.bfloat16):
        assert cost(x, y).dtype == torch.bfloat16
        got = warpalign.soft_dtw(x, y, cost=cost)
    assert torch.equal(got, warpalign.soft_dtw(x, y, cost=cost))


def test_mixed_dtypes_under_autocast_compile() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: warpalign.soft_dtw(x, y), fullgraph=True, backend="aot_eager")
    x, y = randn(3, 9, 2, seed=0, dtype=torch.bfloat16), randn(3, 7, 2, seed=1)
    with torch.autocast("cpu", torch.bfloat16):
        got = compiled(x, y)
    assert torch.equal(got, warpalign.soft_dtw(x.float(), y))
