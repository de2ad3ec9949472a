"""Every bad call is refused by an error that names the argument, what was expected and what came: word for word."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from warpalign import SoftDTW, _ops, soft_dtw, soft_dtw_alignment, soft_dtw_cost

OPS = torch.ops.warpalign


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device(request.param)


X, Y = torch.zeros(3, 5, 2), torch.zeros(3, 6, 2)

# name: x, y, error, message
PAIRS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "x is a list": ([[1.0]], Y, TypeError, "x: expected a torch.Tensor, got list"),
    "y is an array": (X, np.zeros((3, 6, 2)), TypeError, "y: expected a torch.Tensor, got ndarray"),
    "x is None": (None, Y, TypeError, "x: expected a torch.Tensor, got NoneType"),
    "integers": (
        X.long(),
        Y.long(),
        TypeError,
        "x: expected dtype float64, float32, float16 or bfloat16, got torch.int64",
    ),
    "complex": (
        X,
        Y.to(torch.complex64),
        TypeError,
        "y: expected dtype float64, float32, float16 or bfloat16, got torch.complex64",
    ),
    "dtypes": (X, Y.double(), TypeError, "y: expected the dtype of x, torch.float32, got torch.float64"),
    "sparse": (
        X.to_sparse(),
        Y,
        TypeError,
        "x: expected a dense tensor (layout torch.strided), got a torch.sparse_coo one",
    ),
    "1 axis": (X[0, 0], Y, ValueError, "x: expected (B, N, D) or (N, D), got shape (2,)"),
    "4 axes": (X, Y[None], ValueError, "y: expected (B, M, D) or (M, D), got shape (1, 3, 6, 2)"),
    "ranks": (
        X,
        Y[0],
        ValueError,
        "y: expected as many axes as x, which has shape (3, 5, 2), got shape (6, 2)",
    ),
    "features": (X, Y[:, :, :1], ValueError, "y: expected D = 2 features as in x, got shape (3, 6, 1)"),
    "batches": (X, Y[:2], ValueError, "y: expected a batch of 3 as in x, or of 1, got shape (2, 6, 2)"),
    "an empty batch with a full one": (
        X,
        Y[:0],
        ValueError,
        "y: expected a batch of 3 as in x, or of 1, got shape (0, 6, 2)",
    ),
    "no time steps": (X[:, :0], Y, ValueError, "x: expected no empty axis in (N, D), got shape (3, 0, 2)"),
    "no time steps in y": (
        X[0],
        Y[0, :0],
        ValueError,
        "y: expected no empty axis in (M, D), got shape (0, 2)",
    ),
    "no features": (
        X[:, :, :0],
        Y[:, :, :0],
        ValueError,
        "x: expected no empty axis in (N, D), got shape (3, 5, 0)",
    ),
}


def refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
    assert type(caught.value) is error


def on(device: torch.device, value: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("function", [soft_dtw, soft_dtw_alignment, SoftDTW()])
def test_series(device: torch.device, function: Callable[..., object], case: str) -> None:
    x, y, error, message = PAIRS[case]
    refused(lambda: function(on(device, x), on(device, y)), error, message)


def test_nested_series() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(3, 2), torch.zeros(4, 2)], layout=torch.jagged)
    refused(
        lambda: soft_dtw_cost(nested),
        TypeError,
        "cost_matrix: expected a dense tensor (layout torch.strided), got a nested one",
    )


def test_different_devices(device: torch.device) -> None:
    x = X.to(device)
    refused(
        lambda: soft_dtw(x, Y.to("meta")), ValueError, f"y: expected the device of x, {x.device}, got meta"
    )


@pytest.mark.gpu
def test_cpu_and_cuda_mixed() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    refused(lambda: soft_dtw(X, Y.cuda()), ValueError, "y: expected the device of x, cpu, got cuda:0")
    lengths = torch.tensor([1, 2, 3])
    refused(
        lambda: soft_dtw(X.cuda(), Y.cuda(), x_lengths=lengths),
        ValueError,
        "x_lengths: expected the series' device, cuda:0, got cpu",
    )


def test_cuda_without_cuda_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ops, "has_cuda", False)
    with FakeTensorMode():
        x = torch.empty(3, 5, 2, device="cuda")
        refused(
            lambda: soft_dtw(x, x),
            ValueError,
            "x: expected a CPU tensor, because warpalign was installed without its CUDA operators, got one on cuda:0",
        )


def test_cost_matrices(device: torch.device) -> None:
    cost = torch.zeros(3, 5, 6, device=device)
    axes = "cost_matrix: expected (B, N, M) or (N, M), got shape "
    refused(lambda: soft_dtw_cost(cost[0, 0]), ValueError, axes + "(6,)")
    refused(lambda: soft_dtw_cost(cost[None]), ValueError, axes + "(1, 3, 5, 6)")
    refused(
        lambda: soft_dtw_cost(cost[:, :0]),
        ValueError,
        "cost_matrix: expected no empty axis in (N, M), got shape (3, 0, 6)",
    )
    refused(lambda: soft_dtw_cost("x"), TypeError, "cost_matrix: expected a torch.Tensor, got str")  # type: ignore[arg-type]
    refused(
        lambda: soft_dtw_cost(cost.int()),
        TypeError,
        "cost_matrix: expected dtype float64, float32, float16 or bfloat16, got torch.int32",
    )
    for name in ("n_lengths", "m_lengths"):
        lengths = {name: torch.tensor([1, 2], device=device)}
        refused(
            lambda lengths=lengths: soft_dtw_cost(cost, **lengths),
            ValueError,
            f"{name}: expected shape (3,), one length per pair, got (2,)",
        )


@pytest.mark.parametrize(
    ("gamma", "error", "message"),
    [
        (-1.0, ValueError, "gamma: expected a finite number >= 0, got -1.0"),
        (math.nan, ValueError, "gamma: expected a finite number >= 0, got nan"),
        (math.inf, ValueError, "gamma: expected a finite number >= 0, got inf"),
        (-math.inf, ValueError, "gamma: expected a finite number >= 0, got -inf"),
        (10**400, ValueError, f"gamma: expected a finite number >= 0, got {10**400}"),
        ("1", TypeError, "gamma: expected a float, got str"),
        (None, TypeError, "gamma: expected a float, got NoneType"),
        (True, TypeError, "gamma: expected a float, got bool"),
        (
            torch.tensor(1),
            TypeError,
            "gamma: expected dtype float64, float32, float16 or bfloat16, got torch.int64",
        ),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_gamma(gamma: Any, error: type[Exception], message: str) -> None:
    refused(lambda: soft_dtw(X, Y, gamma=gamma), error, message)
    refused(lambda: soft_dtw_alignment(X, Y, gamma=gamma), error, message)
    refused(lambda: soft_dtw_cost(X, gamma=gamma), error, message)
    refused(lambda: SoftDTW(gamma), error, message)


@pytest.mark.parametrize("reduction", ["average", None, 1, ["mean"]])
def test_reduction(reduction: Any) -> None:
    message = f'reduction: expected "none", "mean" or "sum", got {reduction!r}'
    refused(lambda: soft_dtw(X, Y, reduction=reduction), ValueError, message)
    refused(lambda: soft_dtw_cost(X, reduction=reduction), ValueError, message)
    refused(lambda: SoftDTW(reduction=reduction), ValueError, message)


LENGTH_DTYPES = "expected dtype int64, int32, int16, int8 or uint8, got "


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([1, 2, 3], TypeError, "expected an integer tensor (B,), got list"),
        (3, TypeError, "expected an integer tensor (B,), got int"),
        (torch.ones(3), TypeError, LENGTH_DTYPES + "torch.float32"),
        (torch.ones(3, dtype=torch.bool), TypeError, LENGTH_DTYPES + "torch.bool"),
        (torch.ones(3, dtype=torch.uint64), TypeError, LENGTH_DTYPES + "torch.uint64"),
        (torch.tensor(1), ValueError, "expected shape (3,), one length per pair, got ()"),
        (torch.tensor([1, 2]), ValueError, "expected shape (3,), one length per pair, got (2,)"),
        (torch.tensor([[1, 2, 3]]), ValueError, "expected shape (3,), one length per pair, got (1, 3)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["x_lengths", "y_lengths"])
def test_lengths(device: torch.device, name: str, lengths: Any, error: type[Exception], message: str) -> None:
    x, y = X.to(device), Y.to(device)
    refused(lambda: soft_dtw(x, y, **{name: on(device, lengths)}), error, f"{name}: {message}")
    if device.type == "cpu":
        refused(lambda: SoftDTW()(x, y, **{name: lengths}), error, f"{name}: {message}")


@pytest.mark.parametrize(
    ("wrong", "dtype"),
    [
        (0, torch.int64),
        (-1, torch.int32),
        (7, torch.uint8),
        (2**31, torch.int64),
        (2**32 + 3, torch.int64),
        (-(2**40), torch.int64),
    ],
)
def test_lengths_out_of_range_on_the_cpu(wrong: int, dtype: torch.dtype) -> None:
    """On CUDA they are clamped: test_torch_cuda.py."""
    lengths = torch.tensor([1, 2, wrong], dtype=dtype)
    came = f"got {wrong} at index 2"
    refused(
        lambda: soft_dtw(X, Y, x_lengths=lengths),
        ValueError,
        f"x_lengths: expected lengths from 1 to N = 5, {came}",
    )
    refused(
        lambda: soft_dtw(X, Y, y_lengths=lengths),
        ValueError,
        f"y_lengths: expected lengths from 1 to M = 6, {came}",
    )
    cost = torch.zeros(3, 5, 6)
    for name, limit in (("n_lengths", "N = 5"), ("m_lengths", "M = 6")):
        refused(
            lambda name=name: soft_dtw_cost(cost, **{name: lengths}),
            ValueError,
            f"{name}: expected lengths from 1 to {limit}, {came}",
        )


def test_lengths_out_of_range_where_python_cannot_look() -> None:
    """Under torch.compile and torch.func.vmap the operator itself refuses them."""
    lengths = torch.tensor([1, 2, 9])
    torch._dynamo.reset()
    compiled = torch.compile(lambda n: soft_dtw(X, Y, x_lengths=n), fullgraph=True, backend="aot_eager")
    mapped = torch.func.vmap(lambda n: soft_dtw(X, Y, x_lengths=n))
    message = "warpalign: x_lengths: expected between 1 and N, got 9 at index "
    refused(lambda: compiled(lengths), RuntimeError, message + "2")
    refused(lambda: mapped(lengths.expand(2, 3)), RuntimeError, message + "2")


# The raw operators refuse what would break the core's contract, for whoever calls them directly.

INT = torch.ones(3, dtype=torch.int32)
RAW: dict[str, tuple[dict[str, Any], str]] = {
    "rank": ({"x": X[0]}, "x: expected 3 axes (B, N, D), got shape (5, 2)"),
    "empty": (
        {"x": X[:, :0]},
        "x: expected every axis of (B, N, D) below 2^31, and none but the batch empty, got shape (3, 0, 2)",
    ),
    "dtype": ({"x": X.half()}, "x: expected dtype float32 or float64, got dtype Half"),
    "dtypes": ({"y": Y.double()}, "y: expected the dtype of x, dtype Float, got dtype Double"),
    "batch": (
        {"y": Y[:1]},
        "y: expected (B, M, D) with the B and D of x, which has shape (3, 5, 2), got shape (1, 6, 2)",
    ),
    "gamma": ({"gamma": -1.0}, "gamma: expected finite and >= 0, got -1"),
    "lengths' dtype": ({"x_lengths": INT.long()}, "x_lengths: expected dtype int32, got dtype Long"),
    "lengths' shape": (
        {"y_lengths": INT[:2]},
        "y_lengths: expected a contiguous tensor (B,) with B = 3, got shape (2)",
    ),
    "device": ({"y": Y.to("meta")}, "y: expected the device of x, cpu, got meta"),
    "lengths' device": ({"x_lengths": INT.to("meta")}, "x_lengths: expected the device of x, cpu, got meta"),
}


@pytest.mark.parametrize("case", RAW)
@pytest.mark.parametrize("operator", [OPS.soft_dtw, OPS.soft_dtw_alignment], ids=str)
def test_raw_operators(operator: Callable[..., object], case: str) -> None:
    change, message = RAW[case]
    arguments = {"x": X, "y": Y, "x_lengths": None, "y_lengths": None, "gamma": 1.0} | change
    with pytest.raises(RuntimeError) as caught:
        operator(**arguments, needs_grad_x=True, needs_grad_y=False)
    assert str(caught.value).splitlines()[0] == f"warpalign: {message}"


def test_raw_cost_operator() -> None:
    cost = torch.zeros(3, 5, 6)
    for arguments, message in (
        ((cost[0], None, None, 1.0), "cost: expected 3 axes (B, N, M), got shape (5, 6)"),
        ((cost.int(), None, None, 1.0), "cost: expected dtype float32 or float64, got dtype Int"),
        ((cost, None, None, -0.5), "gamma: expected finite and >= 0, got -0.5"),
        ((cost, INT.to("meta"), None, 1.0), "n_lengths: expected the device of cost, cpu, got meta"),
    ):
        with pytest.raises(RuntimeError) as caught:
            OPS.soft_dtw_cost(*arguments, True)
        assert str(caught.value).splitlines()[0] == f"warpalign: {message}"
