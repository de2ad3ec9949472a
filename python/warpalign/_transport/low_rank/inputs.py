"""The arguments of the low-rank solvers: points or factored costs, weights and settings, checked and widened."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import check_count, check_number, check_pair, check_table, shape_of
from warpalign._core.series import widened
from warpalign._transport.checks import check_rows, with_equal_sums
from warpalign._transport.convergence import is_known
from warpalign._transport.low_rank.descent import Course, Factors

EQUAL_SUMS = 1e-4  # sums may differ by this share


class PointPair(NamedTuple):
    """x (B, N, D) and y (B, M, E), float64 or float32."""

    x: Tensor
    y: Tensor
    unbatched: bool


def points_of(x: object, y: object) -> PointPair:
    """Sets in one space."""
    for name, given in (("x", x), ("y", y)):
        if given is None:
            raise ValueError(f"{name}: expected points, or cost_factors in the place of x and y, got None")
    one, other = check_pair(x, y, ("x", "y"), series=False)
    return _one_batch(one, other)


def sets_of(x: object, y: object) -> PointPair:
    """Sets in spaces of their own."""
    one, other = (
        check_table(t, name, f"{n}, D", series=False) for name, t, n in (("x", x, "N"), ("y", y, "M"))
    )
    return _alike(one, other, ("x", "y"))


def factors_of(given: object, name: str, axes: tuple[str, str]) -> tuple[Factors, bool]:
    """The pair (A, B) of a cost A Bᵀ, and whether it had no batch axis."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{name}: expected a pair (A, B) of tensors, got {type(given).__name__}")
    names = (f"{name}: A", f"{name}: B")
    one, other = (
        check_table(t, part, f"{axis}, K", series=False)
        for t, part, axis in zip(given, names, axes, strict=True)
    )
    pair = _alike(one, other, names)
    if pair.x.shape[2] != pair.y.shape[2]:
        raise ValueError(
            f"{names[1]}: expected K = {pair.x.shape[2]} columns as in A, got shape {shape_of(other)}"
        )
    return Factors(pair.x, pair.y), pair.unbatched


def _alike(one: Tensor, other: Tensor, names: tuple[str, str]) -> PointPair:
    """Of one dtype, device, and number of axes."""
    if other.dtype != one.dtype or other.device != one.device:
        raise TypeError(
            f"{names[1]}: expected {one.dtype} on {one.device}, as {names[0]}, got {other.dtype} on {other.device}"
        )
    fits = one.dim() == other.dim() and (
        one.dim() == 2 or one.shape[0] == other.shape[0] or 1 in (len(one), len(other))
    )
    if not fits:
        raise ValueError(
            f"{names[1]}: expected the batch of {names[0]}, which has shape {shape_of(one)}, got shape {shape_of(other)}"
        )
    return _one_batch(one, other)


def _one_batch(one: Tensor, other: Tensor) -> PointPair:
    unbatched = one.dim() == 2
    if unbatched:
        one, other = one[None], other[None]
    batch = max(len(one), len(other)) if 0 not in (len(one), len(other)) else 0
    x, y = (t.expand(batch, -1, -1) for t in (widened(one), widened(other)))
    return PointPair(x, y, unbatched)


def squared_distances(x: Tensor, y: Tensor) -> Factors:
    """Squared Euclidean distances as A Bᵀ, of points relative to the middle of both means, near which squares lose fewer digits."""
    middle = (x.detach().mean(1, keepdim=True) + y.detach().mean(1, keepdim=True)) / 2
    x, y = x - middle, y - middle
    squares = [t.square().sum(-1, keepdim=True) for t in (x, y)]
    return Factors(
        torch.cat([squares[0], torch.ones_like(squares[0]), -2 * x], -1),
        torch.cat([torch.ones_like(squares[1]), squares[1], y], -1),
    )


def weights_of(a: object, b: object, like: tuple[Tensor, Tensor], first: str) -> tuple[Tensor, Tensor]:
    """a (B, N) and b (B, M), uniform ones too, without a graph.

    Raises:
        NotImplementedError: weights require a gradient.
        ValueError: on a CPU: weights are negative or not finite, or their sums differ.
    """
    found = [
        check_rows(given, name, table, first, table.shape[1])
        for name, given, table in (("a", a, like[0]), ("b", b, like[1]))
    ]
    for name, rows in zip("ab", found, strict=True):
        if rows is not None and rows.requires_grad and torch.is_grad_enabled():
            raise NotImplementedError(
                f"{name}: expected weights without a gradient, because derivatives of low-rank transport with respect to weights are "
                f"not available, got one that requires it: write {name}.detach()"
            )
    pair = with_equal_sums((a, b), (found[0], found[1]), (None, None))
    a_found, b_found = (
        table.new_full(table.shape[:2], 1 / table.shape[1]) if rows is None else rows.detach()
        for rows, table in zip(pair, like, strict=True)
    )
    _check_weights(a_found, b_found)
    return a_found, b_found


def _check_weights(a: Tensor, b: Tensor) -> None:
    """Reads values on a CPU alone."""
    if not is_known(a) or not is_known(b):
        return
    for name, rows in (("a", a), ("b", b)):
        fits = (rows >= 0) & rows.isfinite()
        if not bool(fits.all()):
            raise ValueError(f"{name}: expected finite weights >= 0, got {float(rows[~fits][0]):g}")
    sums = a.double().sum(-1), b.double().sum(-1)
    if not bool((sums[0] > 0).all()):
        raise ValueError("a: expected some weight above 0, got none")
    apart = (sums[0] - sums[1]).abs() > EQUAL_SUMS * torch.maximum(*sums)
    if bool(apart.any()):
        at = int(apart.nonzero()[0, 0])
        raise ValueError(
            f"b: expected the sum of a, {float(sums[0][at]):g}: write b / b.sum(), got {float(sums[1][at]):g}"
        )


def check_rank(rank: object, sizes: tuple[int, int]) -> int:
    count = check_count(rank, "rank")
    if count > min(sizes):
        raise ValueError(f"rank: expected at most the smaller number of points, {min(sizes)}, got {count}")
    return count


def check_course(
    *, step: object, epsilon: object, max_iter: object, tol: object, projection_iters: object, polish_iters: object, least: object,
    rank: int,
) -> Course:  # fmt: skip
    course = Course(
        check_number(step, "step", None),
        check_number(epsilon, "epsilon"),
        check_count(max_iter, "max_iter"),
        check_number(tol, "tol"),
        check_count(projection_iters, "projection_iters", 2),
        check_count(polish_iters, "polish_iters"),
        check_number(least, "min_weight", None),
    )
    if course.least * rank > 1:
        raise ValueError(f"min_weight: expected at most 1 / rank = {1 / rank:g}, got {least}")
    return course
