"""Bad calls: the type of the exception, and a message that names the argument, what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch

import warpalign
from reference import randn

Call = Callable[..., object]

SERIES_CALLS: dict[str, Call] = {
    "soft_dtw": warpalign.soft_dtw,
    "soft_dtw_alignment": warpalign.soft_dtw_alignment,
    "SoftDTW": lambda x, y, *, gamma=1.0, **options: warpalign.SoftDTW(gamma)(x, y, **options),
}
TABLE_CALLS: dict[str, tuple[str, Call]] = {
    "x": ("x", lambda t: warpalign.soft_dtw(t, series())),
    "y": ("y", lambda t: warpalign.soft_dtw(series(), t)),
    "x of alignment": ("x", lambda t: warpalign.soft_dtw_alignment(t, series())),
    "y of alignment": ("y", lambda t: warpalign.soft_dtw_alignment(series(), t)),
    "cost_matrix": ("cost_matrix", warpalign.soft_dtw_cost),
}


def series(*shape: int, **options: object) -> torch.Tensor:
    return torch.zeros(shape or (2, 5, 3), **options)


def assert_raises(call: Call, exception: type[Exception], argument: str, expected: str, came: str) -> None:
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{argument}: expected "), message
    wanted, separator, got = message.partition(", got ")
    assert separator and expected in wanted and came in got, message
    assert "\n" not in message


# Series and cost matrices.


@pytest.mark.parametrize("case", TABLE_CALLS)
@pytest.mark.parametrize(
    ("bad", "came"), [(None, "NoneType"), ([[0.0]], "list"), (1.0, "float"), ("x", "str")]
)
def test_not_a_tensor(case: str, bad: object, came: str) -> None:
    argument, call = TABLE_CALLS[case]
    assert_raises(lambda: call(bad), TypeError, argument, "torch.Tensor", came)


def test_a_numpy_array_is_not_a_tensor() -> None:
    array = series().numpy()
    assert_raises(lambda: warpalign.soft_dtw(array, series()), TypeError, "x", "torch.Tensor", "ndarray")


@pytest.mark.parametrize("case", TABLE_CALLS)
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64], ids=str
)
def test_dtype(case: str, dtype: torch.dtype) -> None:
    argument, call = TABLE_CALLS[case]
    assert_raises(lambda: call(series(dtype=dtype)), TypeError, argument, "float64, float32", str(dtype))


@pytest.mark.parametrize("case", TABLE_CALLS)
@pytest.mark.parametrize("shape", [(5,), (1, 2, 5, 3)])
def test_rank(device: torch.device, case: str, shape: tuple[int, ...]) -> None:
    argument, _ = TABLE_CALLS[case]
    calls = {
        "x": lambda t: warpalign.soft_dtw(t, series(device=device)),
        "y": lambda t: warpalign.soft_dtw(series(device=device), t),
        "cost_matrix": warpalign.soft_dtw_cost,
    }
    bad = series(*shape, device=device)
    assert_raises(lambda: calls[argument](bad), ValueError, argument, "(B, ", f"shape {shape}")


@pytest.mark.parametrize("case", TABLE_CALLS)
def test_rank_zero(case: str) -> None:
    argument, call = TABLE_CALLS[case]
    assert_raises(lambda: call(torch.tensor(1.0)), ValueError, argument, "(B, ", "shape ()")


@pytest.mark.parametrize("case", TABLE_CALLS)
@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 5, 0), (0, 0, 0), (0, 3), (5, 0)])
def test_empty_axes(case: str, shape: tuple[int, ...]) -> None:
    argument, call = TABLE_CALLS[case]
    assert_raises(lambda: call(series(*shape)), ValueError, argument, "empty", f"shape {shape}")


@pytest.mark.parametrize("name", SERIES_CALLS)
@pytest.mark.parametrize(
    ("x_shape", "y_shape", "expected"),
    [
        ((2, 5, 3), (3, 5, 3), "batch of 2"),
        ((4, 5, 3), (2, 5, 3), "batch of 4"),
        ((0, 5, 3), (2, 5, 3), "batch of 0"),
        ((2, 5, 3), (2, 5, 4), "D = 3"),
        ((1, 5, 3), (2, 5, 1), "D = 3"),
        ((5, 3), (5, 2), "D = 3"),
        ((2, 5, 3), (5, 3), "as many axes as x"),
        ((5, 3), (2, 5, 3), "as many axes as x"),
    ],
)
def test_series_that_do_not_fit(
    device: torch.device, name: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...], expected: str
) -> None:
    x, y = series(*x_shape, device=device), series(*y_shape, device=device)
    assert_raises(lambda: SERIES_CALLS[name](x, y), ValueError, "y", expected, f"shape {y_shape}")


@pytest.mark.parametrize("name", SERIES_CALLS)
def test_different_dtypes(device: torch.device, name: str) -> None:
    x, y = series(device=device), series(device=device, dtype=torch.float64)
    call = SERIES_CALLS[name]
    assert_raises(lambda: call(x, y), TypeError, "y", "torch.float32", "torch.float64")
    assert_raises(lambda: call(y, x), TypeError, "y", "torch.float64", "torch.float32")


@pytest.mark.parametrize("name", SERIES_CALLS)
def test_different_devices(device: torch.device, name: str) -> None:
    x, y = series(device=device), series(device="meta")
    call = SERIES_CALLS[name]
    assert_raises(lambda: call(x, y), ValueError, "y", str(x.device), "meta")
    assert_raises(lambda: call(y, x), ValueError, "y", "meta", str(x.device))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SERIES_CALLS)
def test_cpu_and_cuda(cuda: torch.device, name: str) -> None:
    x, y = series(device=cuda), series()
    call = SERIES_CALLS[name]
    assert_raises(lambda: call(x, y), ValueError, "y", "cuda:0", "cpu")
    assert_raises(lambda: call(y, x), ValueError, "y", "cpu", "cuda:0")
    lengths = torch.tensor([5, 5])
    assert_raises(lambda: call(x, x, x_lengths=lengths), ValueError, "x_lengths", "cuda:0", "cpu")


# Lengths.

LENGTH_CALLS: dict[str, Call] = {
    "x_lengths": lambda lengths: warpalign.soft_dtw(
        series(device=_device(lengths)), series(2, 7, 3, device=_device(lengths)), x_lengths=lengths
    ),
    "y_lengths": lambda lengths: warpalign.soft_dtw_alignment(
        series(2, 7, 3, device=_device(lengths)), series(device=_device(lengths)), y_lengths=lengths
    ),
    "n_lengths": lambda lengths: warpalign.soft_dtw_cost(
        series(2, 5, 7, device=_device(lengths)), n_lengths=lengths
    ),
    "m_lengths": lambda lengths: warpalign.soft_dtw_cost(
        series(2, 7, 5, device=_device(lengths)), m_lengths=lengths
    ),
}


def _device(lengths: object) -> torch.device | str:
    on_cuda = isinstance(lengths, torch.Tensor) and lengths.is_cuda
    return "cuda" if on_cuda else "cpu"


@pytest.mark.parametrize("name", LENGTH_CALLS)
@pytest.mark.parametrize(("bad", "came"), [([5, 5], "list"), (5, "int"), ((5, 5), "tuple")])
def test_lengths_that_are_no_tensor(name: str, bad: object, came: str) -> None:
    assert_raises(lambda: LENGTH_CALLS[name](bad), TypeError, name, "integer tensor", came)


@pytest.mark.parametrize("name", LENGTH_CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.complex64], ids=str)
def test_dtype_of_lengths(device: torch.device, name: str, dtype: torch.dtype) -> None:
    lengths = torch.ones(2, dtype=dtype, device=device)
    assert_raises(lambda: LENGTH_CALLS[name](lengths), TypeError, name, "int64, int32", str(dtype))


@pytest.mark.parametrize("name", LENGTH_CALLS)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (0,)])
def test_shape_of_lengths(device: torch.device, name: str, shape: tuple[int, ...]) -> None:
    lengths = torch.ones(shape, dtype=torch.int64, device=device)
    assert_raises(lambda: LENGTH_CALLS[name](lengths), ValueError, name, "(2,)", str(shape))


@pytest.mark.parametrize("name", LENGTH_CALLS)
def test_device_of_lengths(name: str) -> None:
    lengths = torch.ones(2, dtype=torch.int64, device="meta")
    assert_raises(lambda: LENGTH_CALLS[name](lengths), ValueError, name, "cpu", "meta")


@pytest.mark.parametrize("name", LENGTH_CALLS)
@pytest.mark.parametrize("bad", [0, 6, -1, 2**31, 2**32 + 3, -(2**32) + 3, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("index", [0, 1])
def test_range_of_lengths(name: str, bad: int, index: int) -> None:
    """On the CPU. What int64 holds and int32 does not must not wrap around into the range."""
    lengths = torch.tensor([5, 1])
    lengths[index] = bad
    limit = {"x": "N = 5", "n": "N = 5"}.get(name[0], "M = 5")
    assert_raises(
        lambda: LENGTH_CALLS[name](lengths), ValueError, name, f"1 to {limit}", f"{bad} at index {index}"
    )


def test_the_first_bad_length_is_named() -> None:
    lengths = torch.tensor([5, 9, 0, 5], dtype=torch.int32)
    x = series(4, 5, 3)
    assert_raises(
        lambda: warpalign.soft_dtw(x, x, x_lengths=lengths), ValueError, "x_lengths", "", "9 at index 1"
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_narrow_integer_lengths(device: torch.device, dtype: torch.dtype) -> None:
    """A series longer than the dtype of the lengths can count."""
    x = randn(2, 300, 2, seed=0, device=device)
    lengths = [100, 3]
    got = warpalign.soft_dtw(x, x, x_lengths=torch.tensor(lengths, dtype=dtype, device=device))
    expected = warpalign.soft_dtw(x, x, x_lengths=torch.tensor(lengths, dtype=torch.int32, device=device))
    assert torch.equal(got, expected)
    if device.type == "cpu":
        zero = torch.tensor([100, 0], dtype=dtype)
        assert_raises(
            lambda: warpalign.soft_dtw(x, x, x_lengths=zero), ValueError, "x_lengths", "1 to", "0 at index 1"
        )


# gamma and reduction.


def call_with_gamma(call: Call, gamma: object) -> object:
    return call(series(), series(), gamma=gamma)


GAMMA_CALLS: dict[str, Call] = {
    **{name: partial(call_with_gamma, call) for name, call in SERIES_CALLS.items()},
    "soft_dtw_cost": lambda gamma: warpalign.soft_dtw_cost(series(), gamma=gamma),
    "SoftDTW itself": warpalign.SoftDTW,
}


@pytest.mark.parametrize("name", GAMMA_CALLS)
@pytest.mark.parametrize("gamma", [-1, -1e-3, math.nan, math.inf, -math.inf])
def test_range_of_gamma(name: str, gamma: float) -> None:
    assert_raises(lambda: GAMMA_CALLS[name](gamma), ValueError, "gamma", "finite number >= 0", str(gamma))


@pytest.mark.parametrize("name", GAMMA_CALLS)
@pytest.mark.parametrize("gamma", ["1", True, None, [1.0], 1j], ids=repr)
def test_type_of_gamma(name: str, gamma: object) -> None:
    assert_raises(lambda: GAMMA_CALLS[name](gamma), TypeError, "gamma", "float", type(gamma).__name__)


@pytest.mark.parametrize("gamma", [10**400, -(10**400)], ids=["huge", "minus huge"])
def test_an_integer_gamma_beyond_float(gamma: int) -> None:
    with pytest.raises(ValueError, match="^gamma: expected a finite number >= 0"):
        warpalign.soft_dtw(series(), series(), gamma=gamma)


@pytest.mark.parametrize("reduction", ["max", "", "Mean", None, 1, ["mean"]], ids=repr)
def test_reduction(reduction: object) -> None:
    calls: list[Call] = [
        lambda: warpalign.soft_dtw(series(), series(), reduction=reduction),
        lambda: warpalign.soft_dtw_cost(series(), reduction=reduction),
        lambda: warpalign.SoftDTW(reduction=reduction),
    ]
    for call in calls:
        assert_raises(call, ValueError, "reduction", '"none", "mean" or "sum"', repr(reduction))


def test_options_are_keywords_alone() -> None:
    for call in (
        lambda: warpalign.soft_dtw(series(), series(), 1.0),
        lambda: warpalign.soft_dtw_cost(series(), 1.0),
        lambda: warpalign.soft_dtw_alignment(series(), series(), 1.0),
        lambda: warpalign.SoftDTW(1.0, "mean"),
        lambda: warpalign.soft_dtw(series(), series(), bandwith=3),
    ):
        with pytest.raises(TypeError, match="argument"):
            call()


def test_a_bad_call_leaves_no_trace(device: torch.device) -> None:
    x = randn(2, 5, 3, seed=0, device=device)
    before = warpalign.soft_dtw(x, x)
    with pytest.raises(ValueError, match="^gamma"):
        warpalign.soft_dtw(x, x, gamma=-1.0)
    with pytest.raises(ValueError, match="^y"):
        warpalign.soft_dtw(x, x[..., :2])
    assert torch.equal(warpalign.soft_dtw(x, x), before)


# Raw operators: nonsense raises, and the process lives on.


def raw_series(
    x: torch.Tensor, y: torch.Tensor, p: object = None, q: object = None, gamma: float = 1.0
) -> object:
    torch.ops.warpalign.soft_dtw_alignment(x, y, p, q, gamma, True, True)
    return torch.ops.warpalign.soft_dtw(x, y, p, q, gamma, True, True)


def raw_cost(c: torch.Tensor, p: object = None, q: object = None, gamma: float = 1.0) -> object:
    return torch.ops.warpalign.soft_dtw_cost(c, p, q, gamma, True)


def int32(*values: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


# Each takes tensors of the device under test from s and lengths from i.
RAW_CASES: dict[str, Callable[[Call, Call], object]] = {
    "x: rank 0": lambda s, i: raw_series(s().sum(), s()),
    "x: rank 1": lambda s, i: raw_series(s(5), s(5)),
    "x: rank 2": lambda s, i: raw_series(s(5, 3), s(5, 3)),
    "x: rank 4": lambda s, i: raw_series(s(1, 2, 5, 3), s(1, 2, 5, 3)),
    "y: rank 2": lambda s, i: raw_series(s(), s(5, 3)),
    "y: batch": lambda s, i: raw_series(s(2, 5, 3), s(3, 5, 3)),
    "y: batch of 1": lambda s, i: raw_series(s(2, 5, 3), s(1, 5, 3)),
    "y: features": lambda s, i: raw_series(s(2, 5, 3), s(2, 5, 4)),
    "x: no steps": lambda s, i: raw_series(s(2, 0, 3), s()),
    "y: no steps": lambda s, i: raw_series(s(), s(2, 0, 3)),
    "x: no features": lambda s, i: raw_series(s(2, 5, 0), s(2, 5, 0)),
    "x: int64": lambda s, i: raw_series(s().long(), s().long()),
    "x: complex": lambda s, i: raw_series(s().to(torch.complex64), s().to(torch.complex64)),
    "x: float16": lambda s, i: raw_series(s().half(), s().half()),
    "y: dtype": lambda s, i: raw_series(s(), s().double()),
    "x: 2^31 steps": lambda s, i: raw_series(s(1, 1, 1).expand(1, 2**31, 1), s(1, 1, 1)),
    "y: 2^31 steps": lambda s, i: raw_series(s(1, 1, 1), s(1, 1, 1).expand(1, 2**31, 1)),
    "x: 2^31 features": lambda s, i: raw_series(*[s(1, 1, 1).expand(1, 1, 2**31)] * 2),
    "x: 2^31 pairs": lambda s, i: raw_series(*[s(1, 1, 1).expand(2**31, 1, 1)] * 2),
    "x_lengths: int64": lambda s, i: raw_series(s(), s(), i(5, 5).long()),
    "x_lengths: float": lambda s, i: raw_series(s(), s(), i(5, 5).float()),
    "x_lengths: too few": lambda s, i: raw_series(s(), s(), i(5)),
    "y_lengths: too many": lambda s, i: raw_series(s(), s(), None, i(5, 5, 5)),
    "x_lengths: rank 0": lambda s, i: raw_series(s(), s(), i(5)[0]),
    "y_lengths: rank 2": lambda s, i: raw_series(s(), s(), None, i(5, 5)[:, None]),
    "x_lengths: strided": lambda s, i: raw_series(s(), s(), i(5, 5, 5, 5)[::2]),
    "gamma: negative": lambda s, i: raw_series(s(), s(), gamma=-1.0),
    "gamma: NaN": lambda s, i: raw_series(s(), s(), gamma=math.nan),
    "gamma: inf": lambda s, i: raw_series(s(), s(), gamma=math.inf),
    "cost: rank 2": lambda s, i: raw_cost(s(5, 3)),
    "cost: rank 4": lambda s, i: raw_cost(s(1, 2, 5, 3)),
    "cost: no rows": lambda s, i: raw_cost(s(2, 0, 3)),
    "cost: no columns": lambda s, i: raw_cost(s(2, 5, 0)),
    "cost: int64": lambda s, i: raw_cost(s().long()),
    "cost: 2^31 rows": lambda s, i: raw_cost(s(1, 1, 1).expand(1, 2**31, 1)),
    "n_lengths: int64": lambda s, i: raw_cost(s(), i(5, 5).long()),
    "m_lengths: too few": lambda s, i: raw_cost(s(), None, i(3)),
    "gamma: negative for costs": lambda s, i: raw_cost(s(), gamma=-1.0),
}


@pytest.mark.parametrize("case", RAW_CASES)
def test_raw_operators_refuse_nonsense(device: torch.device, case: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        RAW_CASES[case](
            lambda *shape: series(*shape, device=device), lambda *values: int32(*values, device=device)
        )
    argument = case.partition(":")[0]
    message = str(caught.value)
    assert f"warpalign: {argument}" in message and "expected" in message and "got" in message, message


@pytest.mark.parametrize("bad", [0, -1, 6, 2**31 - 1, -(2**31)])
def test_raw_operators_refuse_lengths_out_of_range_on_the_cpu(bad: int) -> None:
    for call in (
        lambda: raw_series(series(), series(), int32(5, bad)),
        lambda: raw_series(series(), series(), None, int32(5, bad)),
        lambda: raw_cost(series(2, 5, 5), int32(5, bad)),
        lambda: raw_cost(series(2, 5, 5), None, int32(5, bad)),
    ):
        with pytest.raises(RuntimeError, match=f"_lengths.*expected.*got {bad} at index 1"):
            call()


@pytest.mark.gpu
def test_raw_operators_refuse_mixed_devices(cuda: torch.device) -> None:
    x = series(device=cuda)
    for call in (
        lambda: raw_series(x, series()),
        lambda: raw_series(series(), x),
        lambda: raw_series(x, x, int32(5, 5)),
        lambda: raw_series(series(), series(), int32(5, 5, device=cuda)),
        lambda: raw_cost(x, int32(5, 5)),
    ):
        with pytest.raises(RuntimeError, match="expected the device of"):
            call()


def test_raw_operators_refuse_what_is_no_tensor() -> None:
    for bad in (None, 1.0, "x", [1.0]):
        with pytest.raises((RuntimeError, TypeError)):
            torch.ops.warpalign.soft_dtw(bad, series(), None, None, 1.0, True, True)
    with pytest.raises((RuntimeError, TypeError)):
        torch.ops.warpalign.soft_dtw(series(), series())
