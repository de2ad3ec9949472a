"""The reference and the CPU path, which are written apart, agree: for every option, in first and second order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import warpalign
from tests.python.helpers import numpy64, randn, relative_error
from tests.python.soft_dtw.option_cases import CASES, SMOOTH, placed, series
from tests.python.soft_dtw.reference_series import soft_dtw64, subsequence64, values_of_costs

F64, CPU = torch.float64, torch.device("cpu")


def close(got: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    """Within 100 times the rounding of 160 steps in float64. Products with the Hessian cancel: they were up to 2e-12 apart."""
    for one, other in zip(got, expected, strict=True):
        finite = other.isfinite()
        assert torch.equal(one.isfinite(), finite)
        assert relative_error(one[finite], numpy64(other[finite])) <= 160 * 100 * 2**-52


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str) -> None:
    options = placed(CASES[case], CPU, F64)
    leaves = [t.requires_grad_() for t in series(3, F64)]
    leaves += [v for v in options.values() if isinstance(v, torch.Tensor) and v.requires_grad]

    def results(function: Any) -> tuple[torch.Tensor, ...]:
        value = function(*leaves[:2], **options)
        return value.detach(), *torch.autograd.grad((value * torch.arange(1, 4)).sum(), leaves)

    close(results(warpalign.soft_dtw), results(soft_dtw64))


@pytest.mark.parametrize("case", SMOOTH)
def test_hessian_vector_products(case: str) -> None:
    leaves = [t.requires_grad_() for t in series(3, F64)]
    directions = [randn(*t.shape, seed=7, dtype=F64) for t in leaves]

    def results(function: Any) -> tuple[torch.Tensor, ...]:
        value = function(*leaves, **CASES[case])
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        along = sum((g * v).sum() for g, v in zip(first, directions, strict=True))
        return torch.autograd.grad(along, leaves)

    close(results(warpalign.soft_dtw), results(soft_dtw64))


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_subsequences(gamma: float) -> None:
    query, long = (t[:, :20] if k == 0 else t for k, t in enumerate(series(3, F64)))
    query.requires_grad_()
    options: dict[str, Any] = {
        "gamma": gamma,
        "step_penalty": 0.1,
        "series_lengths": torch.tensor([90, 40, 77]),
    }
    found = warpalign.soft_dtw_subsequence(query, long, **options)
    value, ends = subsequence64(query, long, **options)
    got = (found.value, found.end_values, *torch.autograd.grad(found.value.sum(), query))
    close(got, (value, ends, *torch.autograd.grad(value.sum(), query)))


def test_costs_of_any_sign() -> None:
    table = randn(3, 70, 90, seed=1, dtype=F64, grad=True)
    options: dict[str, Any] = {"step_penalty": 0.3, "bandwidth": 12}
    n, m = torch.tensor([70, 9, 60]), torch.tensor([90, 80, 90])
    got = warpalign.soft_dtw_cost(table, gamma=0.5, x_lengths=n, y_lengths=m, **options)
    expected = values_of_costs(table, 0.5, n, m, **options)
    close(
        (got, *torch.autograd.grad(got.sum(), table)), (expected, *torch.autograd.grad(expected.sum(), table))
    )
