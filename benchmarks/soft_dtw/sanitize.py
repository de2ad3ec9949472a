"""Runs every soft-DTW kernel on small odd shapes: meant to be run under compute-sanitizer, and so kept short.

Inputs are made on the CPU. Results are compared there with the float64 reference, so that nearly all device work is
warpalign's.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

import warpalign
from benchmarks.harness.sanitizer_cases import Case, main
from tests.python.soft_dtw.reference import soft_dtw_float64
from tests.python.soft_dtw.reference_series import soft_dtw64, subsequence64

# B, N, M, D: few and many features, lanes of every width, one strip of columns and several rounds of strips.
SHAPES = [
    (1, 1, 1, 1),
    (2, 1, 33, 2),
    (3, 33, 1, 1),
    *((2, 31, 32, d) for d in (2, 3)),
    (2, 70, 33, 1),
    (3, 65, 70, 8),
    (2, 130, 97, 17),
    (1, 20, 280, 64),
    (1, 18, 530, 1),
    (1, 18, 530, 3),
    (1, 18, 530, 20),
    (2, 66, 130, 1),  # from both ends, as the next ones
    (2, 66, 130, 2),
    (1, 70, 330, 3),
    (1, 100, 65, 3),
    (1, 65, 200, 24),
    (2, 20, 70, 132),
]
# With the products of TF32: below, at and above chunks of 32 features and blocks of 64.
MATRIX_SHAPES = [
    (2, 70, 33, 17),
    (2, 33, 130, 40),
    (1, 20, 280, 64),
    (2, 40, 70, 132),
    (1, 66, 130, 25),
]


LONG = 8200  # steps of pairs whose panel would be above 256 MiB


def crowded_shapes(multiprocessors: int) -> list[tuple[int, int, int, int]]:
    """As many strips for a multiprocessor as make each kernel for many pairs the choice (`select.cu`)."""
    m = multiprocessors
    return [
        *((8 * m, 2, 66, d) for d in (1, 2, 3)),  # values: 4 columns per lane
        *((max(1, 6 * m // 10), 64, 200, d) for d in (1, 2, 3)),  # from both ends: one helper per strip
        *((max(1, 9 * m // 10), 64, 260, d) for d in (1, 2, 3)),  # from both ends: no helper
        (max(1, 6 * m // 10), 64, 200, 8),  # a panel, from both ends: one helper per strip
        (2 * m + 1, 18, 20, 8),  # a panel, from one end
    ]


TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def error(ours: Tensor, reference: Tensor) -> float:
    """Relative to the norm. The floor is for the cosine of numbers, a sign: its slope is 0, and rounding in the reference."""
    return float((ours.cpu().double() - reference).norm() / reference.norm().clamp_min(1e-6))


def check_pair(
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    precision: Literal["highest", "high"] = "highest",
) -> float:
    """Value, both gradients and the value alone: the largest relative error. Odd D: x is not contiguous."""
    batch, n, m, dim = shape
    generator = torch.Generator().manual_seed(n * m)
    x = torch.randn(batch, dim, n, generator=generator).to(dtype)
    y = torch.randn(batch, m, dim, generator=generator).to(dtype)
    reference = soft_dtw_float64(x.transpose(1, 2), y, 0.5)
    left = x.to(device).transpose(1, 2)
    left = (left if dim % 2 else left.contiguous()).requires_grad_()
    right = y.to(device).requires_grad_()
    value = warpalign.soft_dtw(left, right, gamma=0.5, precision=precision)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (left, right))
    with torch.no_grad():
        alone = warpalign.soft_dtw(left, right, gamma=0.5, precision=precision)
    pairs = ((value.detach(), reference.value), (alone, reference.value))
    return max(error(*p) for p in (*pairs, (grad_x, reference.grad_x), (grad_y, reference.grad_y)))


def check_near(device: torch.device) -> float:
    """Gradients whose products cancel are made by differences."""
    x = torch.randn(1, 40, 70)
    y = x + 1e-3 * torch.randn(1, 40, 70)
    reference = soft_dtw_float64(x, y, 1e-3)
    left, right = x.to(device).requires_grad_(), y.to(device).requires_grad_()
    value = warpalign.soft_dtw(left, right, gamma=1e-3)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (left, right))
    return max(error(grad_x, reference.grad_x), error(grad_y, reference.grad_y))


def check_long(device: torch.device) -> float:
    """Pairs with no room in a panel come in tiles. One pair has larger crews than two: both must find the same."""
    x, y = (torch.randn(2, LONG, 5).to(device) for _ in range(2))
    worst = 0.0
    for penalty in (0.0, 0.5):  # a penalty has kernels of its own
        found = []
        for pairs in (1, 2):
            left, right = x[:pairs].clone().requires_grad_(), y[:pairs].clone().requires_grad_()
            value = warpalign.soft_dtw(left, right, step_penalty=penalty)
            with torch.no_grad():
                alone = warpalign.soft_dtw(left, right, step_penalty=penalty)
            gradients = torch.autograd.grad(value.sum(), (left, right))
            found.append([t[0].detach().cpu().double() for t in (value, alone, *gradients)])
        worst = max(worst, *(error(*p) for p in zip(*found, strict=True)))
    return worst


def check_ragged(dtype: torch.dtype, device: torch.device) -> float:
    """True lengths, with NaN as padding, must give what the shortened pairs give."""
    lengths = [(1, 40), (37, 1), (37, 40), (20, 33)]
    x, y = torch.randn(4, 37, 2).to(dtype), torch.randn(4, 40, 2).to(dtype)
    for b, (n, m) in enumerate(lengths):
        x[b, n:], y[b, m:] = float("nan"), float("nan")
    counts = torch.tensor(lengths, dtype=torch.int32, device=device)
    left, right = x.to(device).requires_grad_(), y.to(device).requires_grad_()
    value = warpalign.soft_dtw(left, right, x_lengths=counts[:, 0], y_lengths=counts[:, 1])
    grad_x, grad_y = (g.cpu() for g in torch.autograd.grad(value.sum(), (left, right)))
    worst = 0.0
    for b, (n, m) in enumerate(lengths):
        reference = soft_dtw_float64(x[b : b + 1, :n], y[b : b + 1, :m])
        worst = max(worst, error(value[b : b + 1].detach(), reference.value))
        worst = max(worst, error(grad_x[b : b + 1, :n], reference.grad_x), grad_x[b, n:].abs().sum().item())
        worst = max(worst, error(grad_y[b : b + 1, :m], reference.grad_y), grad_y[b, m:].abs().sum().item())
    return worst


def check_alignment(dtype: torch.dtype, device: torch.device) -> float:
    """The expected alignment, and the operator on a cost matrix with its gradient, which is the same."""
    x, y = torch.randn(2, 35, 3).to(dtype), torch.randn(2, 67, 3).to(dtype)
    reference = soft_dtw_float64(x, y)
    alignment = warpalign.soft_dtw_alignment(x.to(device), y.to(device))[1]
    cost = torch.cdist(x.double(), y.double()).square().to(dtype).to(device).requires_grad_()
    value = warpalign.soft_dtw_cost(cost)
    (grad,) = torch.autograd.grad(value.sum(), cost)
    return max(
        error(value.detach(), reference.value), *(error(e, reference.alignment) for e in (alignment, grad))
    )


def check_banded_alignment(dtype: torch.dtype, device: torch.device) -> float:
    """The alignment within a band, and the gradient of a cost matrix, by what they make of the gradient by x."""
    x, y = torch.randn(2, 35, 6).to(dtype), torch.randn(2, 67, 6).to(dtype)
    exact = x.double().requires_grad_()
    value = soft_dtw64(exact, y.double(), bandwidth=9)
    (expected,) = torch.autograd.grad(value.sum(), exact)
    alignment = warpalign.soft_dtw_alignment(x.to(device), y.to(device), bandwidth=9)[1]
    cost = torch.cdist(x.double(), y.double()).square().to(dtype).to(device).requires_grad_()
    found = warpalign.soft_dtw_cost(cost, bandwidth=9)
    (grad,) = torch.autograd.grad(found.sum(), cost)

    def grad_x(e: Tensor) -> Tensor:
        e = e.cpu().double()
        return 2 * (e.sum(2, keepdim=True) * x.double() - e @ y.double())

    return max(
        error(found.detach(), value.detach()), *(error(grad_x(e), expected) for e in (alignment, grad))
    )


def check_extremes(device: torch.device) -> float:
    """Large values at a small gamma; a NaN or an infinity in one pair, which must stay there."""
    x, y = torch.randn(4, 40, 2), torch.randn(4, 45, 2)
    x[1], x[2, 20, 1], x[3, 7, 0] = 1e4 * x[1], float("nan"), float("inf")
    left, right = x.to(device).requires_grad_(), y.to(device).requires_grad_()
    value = warpalign.soft_dtw(left, right, gamma=1e-3)
    grad_x, grad_y = torch.autograd.grad(value.sum(), (left, right))
    if not (value[2].isnan() and value[3].isposinf() and grad_x[3].count_nonzero() == 0):
        return float("inf")
    reference = soft_dtw_float64(x[:2], y[:2], 1e-3)
    return max(
        error(value[:2].detach(), reference.value),
        error(grad_x[:2], reference.grad_x),
        error(grad_y[:2], reference.grad_y),
    )


OPTIONS: tuple[dict[str, Any], ...] = (
    {"bandwidth": 5, "step_penalty": 0.2},
    {"cost": "euclidean", "band": "itakura", "max_slope": 8.0},
    {"cost": "cosine", "x_mask": torch.arange(70) % 5 == 1},
    {"cost": "huber", "gamma": torch.tensor([0.1, 1.0])},
    {"cost": "l1", "gamma": 0.0, "bandwidth": 40, "band": "slanted"},
)


def check_options(
    options: dict[str, Any], dim: int, dtype: torch.dtype, device: torch.device, length: int = 70
) -> float:
    """Kernels with options, for gradients and for values alone; panels on several multiprocessors."""
    x, y = torch.randn(2, length, dim).to(dtype), torch.randn(2, 290, dim).to(dtype)

    def results(function: Callable[..., Tensor], where: torch.device, width: torch.dtype) -> list[Tensor]:
        own: dict[str, Any] = {k: v.to(where) if isinstance(v, Tensor) else v for k, v in options.items()}
        leaves = [t.to(where, width).requires_grad_() for t in (x, y)]
        if isinstance(own.get("gamma"), Tensor):
            own["gamma"] = own["gamma"].to(width).requires_grad_()
            leaves.append(own["gamma"])
        with torch.no_grad():
            alone = function(leaves[0], leaves[1], **own)
        value = function(leaves[0], leaves[1], **own)
        return [alone, value.detach(), *torch.autograd.grad(value.sum(), leaves)]

    expected = results(soft_dtw64, torch.device("cpu"), torch.float64)
    return max(error(*p) for p in zip(results(warpalign.soft_dtw, device, dtype), expected, strict=True))


def check_subsequence(dtype: torch.dtype, device: torch.device) -> float:
    query, series = torch.randn(2, 20, 3).to(dtype), torch.randn(2, 150, 3).to(dtype)
    leaf = query.to(device).requires_grad_()
    found = warpalign.soft_dtw_subsequence(leaf, series.to(device))
    exact = query.double().requires_grad_()
    value, ends = subsequence64(exact, series.double())
    pairs = [
        (found.value.detach(), value.detach()),
        (found.end_values, ends.detach()),
        (*torch.autograd.grad(found.value.sum(), leaf), *torch.autograd.grad(value.sum(), exact)),
    ]
    return max(error(*p) for p in pairs)


def check_second_order(dtype: torch.dtype, device: torch.device, cost: str) -> float:
    """The Hessian of a pair's value times tangents."""
    x, y, x_tangent, y_tangent = (torch.randn(2, n, 3).to(dtype) for n in (20, 70, 20, 70))

    def products(function: Callable[..., Tensor], where: torch.device, width: torch.dtype) -> list[Tensor]:
        leaves = [t.to(where, width).requires_grad_() for t in (x, y)]
        first = torch.autograd.grad(function(*leaves, cost=cost).sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(first, leaves, [t.to(where, width) for t in (x_tangent, y_tangent)]))

    expected = products(soft_dtw64, torch.device("cpu"), torch.float64)
    return max(error(*p) for p in zip(products(warpalign.soft_dtw, device, dtype), expected, strict=True))


def _case(name: str, dtype: torch.dtype, check: Callable[[], float]) -> Case:
    """A case whose function returns the largest relative error."""

    def wrong() -> str | None:
        torch.manual_seed(0)
        found = check()
        return None if found <= TOLERANCE[dtype] else f"relative error {found:.1e}"

    return f"{name}, {str(dtype)[6:]}", wrong


def cases(device: torch.device) -> Iterator[Case]:
    """Comparisons with float64."""

    def pair(
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        precision: Literal["highest", "high"] = "highest",
    ) -> Case:
        name = "x".join(map(str, shape)) + (" high" if precision == "high" else "")
        return _case(name, dtype, lambda: check_pair(shape, dtype, device, precision))

    for shape, dtype in itertools.product(SHAPES, (torch.float32, torch.float64)):
        yield pair(shape, dtype)
    # float64 has one kernel for any number of strips. A CPU has none of these kernels, and takes small batches.
    cuda = device.type == "cuda"
    count = torch.cuda.get_device_properties(device).multi_processor_count if cuda else 4
    for shape in crowded_shapes(count):
        yield pair(shape, torch.float32)
    if cuda and os.environ.get("SANITIZER") != "racecheck":  # 67 million cells take minutes there
        yield _case("long pairs", torch.float32, partial(check_long, device))
    for shape in MATRIX_SHAPES:
        yield pair(shape, torch.float32, "high")
    yield _case("products that cancel", torch.float32, partial(check_near, device))
    for dtype in (torch.float16, torch.bfloat16):
        for shape in ((3, 65, 70, 2), (3, 65, 70, 8)):  # widened before, and read as they are
            yield pair(shape, dtype)
        for shape in MATRIX_SHAPES[:2]:  # by fours, and one by one
            yield pair(shape, dtype, "high")
    for dtype in (torch.float32, torch.float64):
        yield _case("ragged", dtype, partial(check_ragged, dtype, device))
        yield _case("alignment and cost", dtype, partial(check_alignment, dtype, device))
        for (number, options), dim in itertools.product(enumerate(OPTIONS), (1, 2, 3, 6)):
            if dim in (1, 2) and dtype == torch.float64:  # the kernel of 3 and 6
                continue
            yield _case(
                f"options {number}, D = {dim}", dtype, partial(check_options, options, dim, dtype, device)
            )
        for dim in (1, 2, 3, 6) if dtype == torch.float32 else ():
            # Too short to be swept from both ends.
            yield _case(
                f"a short band, D = {dim}", dtype, partial(check_options, OPTIONS[0], dim, dtype, device, 40)
            )
        yield _case("subsequence", dtype, partial(check_subsequence, dtype, device))
        yield _case("alignment in a band", dtype, partial(check_banded_alignment, dtype, device))
        for cost in ("sqeuclidean", "cosine"):
            yield _case(f"second order, {cost}", dtype, partial(check_second_order, dtype, device, cost))
    yield _case("extremes", torch.float32, partial(check_extremes, device))


if __name__ == "__main__":
    sys.exit(main(__doc__, cases))
