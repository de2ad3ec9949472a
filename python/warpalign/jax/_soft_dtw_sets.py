"""Best paths of hard DTW, and soft-DTW between all pairs of two sets of series."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from warpalign._core.scalars import Cost, Precision, check_count, check_flag, check_number, precision_number
from warpalign._soft_dtw.settings import Band, Settings, pairs_at_once, settings_of
from warpalign.jax._arrays import check_floats, check_lengths, check_mask, check_numbers, unwrapped, widened
from warpalign.jax._derivatives import solved
from warpalign.jax._soft_dtw_pairs import PAIRS, PAIRS_WITH_ALIGNMENT, Pairs, check_cost, problem

# Cells of the alignments that are held at once.
_PATH_CELLS = 2**24


class DTWPath(NamedTuple):
    """Result of :func:`dtw_path`."""

    value: Array
    """(B,) costs of the paths; 0-d for unbatched input. Differentiable."""
    paths: Array
    """(B, N + M − 1, 2) int32, (N + M − 1, 2) for unbatched input: the cells (i, j) from (0, 0) to (N−1, M−1), then −1."""
    lengths: Array
    """(B,) int32, 0-d for unbatched input: the numbers of cells. 0 for a pair that has no path, or contains NaN."""


def dtw_path(
    x: Array,
    y: Array,
    *,
    cost: Cost = "sqeuclidean",
    x_lengths: Any = None,
    y_lengths: Any = None,
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    x_mask: Array | None = None,
    y_mask: Array | None = None,
    precision: Precision = "highest",
    batch_invariant: bool = False,
) -> DTWPath:
    """Best paths of hard DTW and their costs; :func:`warpalign.dtw_path` for arrays of JAX.

    Ties are resolved in favour of the diagonal step, then of the step from i - 1. A path is the beginning of an array that has
    room for the longest one, because shapes are known before values: ``paths[b][: lengths[b]]``.

    Args:
        x: (B, N, D) series of N time steps with D features, or (N, D) for a single one.
        y: (B, M, D) or (M, D), of the same dtype.
        cost: C[i, j]: "sqeuclidean", "euclidean", "l1", "cosine" or "huber".
        x_lengths: (B,) true lengths within x, from 1 to N. None: all N.
        y_lengths: (B,) true lengths within y, from 1 to M. None: all M.
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal to which paths are restricted. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura".
        max_slope: the largest slope, >= 1, of band="itakura". None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        x_mask: (B, N) bools, True where a time step is missing: its cost to every other step is 0. None: no step is missing.
        y_mask: (B, M) bools for y.
        precision: how a GPU may multiply float32: "highest", "high" or "medium".
        batch_invariant: whether a pair's results are bitwise identical whatever else is in the batch.

    Returns:
        DTWPath(value, paths, lengths). Values are float64 for float64 input, else float32.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`.

    Examples:
        >>> found = dtw_path(jnp.zeros((3, 1)), jnp.zeros((3, 1)))
        >>> found.paths[: found.lengths].tolist()
        [[0, 0], [1, 1], [2, 2]]
    """
    settings = settings_of(
        bandwidth, band, max_slope, step_penalty, precision_number(precision), batch_invariant
    )
    of, settings, unbatched = problem(x, y, 0.0, cost, x_lengths, y_lengths, x_mask, y_mask, settings)
    batch, n, m = of.x.shape[0], of.x.shape[1], of.y.shape[1]
    at_once = max(1, _PATH_CELLS // (n * m))
    if batch <= at_once:
        found = _paths(settings, of)
    else:

        def of_one(one: Pairs) -> DTWPath:
            path: DTWPath = jax.tree.map(lambda array: array[0], _paths(settings, _batch_of_one(one)))
            return path

        found = jax.lax.map(of_one, of, batch_size=at_once)
    return DTWPath(*(part[0] for part in found)) if unbatched else found


def _batch_of_one(of: Pairs) -> Pairs:
    batched: Pairs = jax.tree.map(lambda array: array[None], of)
    return batched


def _paths(settings: Settings, of: Pairs) -> DTWPath:
    value, _, others = solved(PAIRS_WITH_ALIGNMENT, settings, (), of)
    on_path = others["alignment"] > 0  # a NaN is not
    _, n, m = on_path.shape
    # The cells of a row are neighbours. Row i has those from ends[i - 1] to ends[i] - 1 of the path.
    counts, first = on_path.sum(2, dtype=jnp.int32), on_path.argmax(2).astype(jnp.int32)
    ends = counts.cumsum(1, dtype=jnp.int32)
    steps = jnp.arange(n + m - 1, dtype=jnp.int32)
    rows = jax.vmap(lambda of_pair: jnp.searchsorted(of_pair, steps, side="right"))(ends).astype(jnp.int32)
    row = jnp.minimum(rows, n - 1)
    begins = jnp.take_along_axis(ends - counts, row, 1)
    columns = jnp.take_along_axis(first, row, 1) + steps - begins
    cells = jnp.stack([rows, columns], -1)
    lengths = ends[:, -1]
    return DTWPath(value, jnp.where((steps < lengths[:, None])[..., None], cells, -1), lengths)


class _Set(NamedTuple):
    """Series of one length, as pairs take them."""

    values: Array
    """(n, N, D)"""
    lengths: Array | None
    mask: Array | None


def cdist_soft_dtw(
    X: Array,
    Y: Array | None = None,
    *,
    gamma: float | Array = 1.0,
    normalize: bool = False,
    x_lengths: Any = None,
    y_lengths: Any = None,
    x_mask: Array | None = None,
    y_mask: Array | None = None,
    block_size: int | None = None,
    cost: Cost = "sqeuclidean",
    bandwidth: int | None = None,
    band: Band = "sakoe_chiba",
    max_slope: float | None = None,
    step_penalty: float = 0.0,
    precision: Precision = "highest",
) -> Array:
    """Soft-DTW between every series of X and every series of Y; :func:`warpalign.cdist_soft_dtw` for arrays of JAX.

    At most `block_size` pairs are in memory at once, also in the backward pass, which recomputes each block. Series are not
    sorted by their lengths, which may be on a device: every pair takes the time of N × M steps.

    Args:
        X: (n, N, D) series, or (n, N) for n univariate ones (in :func:`soft_dtw` (N, D) is one series); float64, float32,
            float16 or bfloat16.
        Y: (m, M, D) or (m, M), of the same dtype. None: X itself; then only one half is computed, and the result is exactly
            symmetric.
        gamma: smoothing, in units of the cost; finite and >= 0, or an array () > 0, which has a gradient.
        normalize: soft-DTW divergences s(x, y) - (s(x, x) + s(y, y)) / 2 instead: exactly 0 for a series of X and itself where
            Y is None.
        x_lengths: (n,) true lengths within X, from 1 to N. None: all N. NaN is no padding here.
        y_lengths: (m,) true lengths within Y, from 1 to M; with Y only.
        x_mask: (n, N) bools, True where a time step is missing: its cost to every other step is 0.
        y_mask: (m, M) bools for Y; with Y only.
        block_size: pairs computed at once. None: at most 4096, fewer for long series.
        cost: C[i, j]: "sqeuclidean", "euclidean", "l1", "cosine" or "huber".
        bandwidth: radius r >= 0, in time steps, of a band around the diagonal. None: no band.
        band: the kind of band: "sakoe_chiba", "abs", "slanted" or "itakura".
        max_slope: the largest slope, >= 1, of band="itakura". None: 2.
        step_penalty: finite and >= 0, in units of the cost: added for every step that is not diagonal.
        precision: how a GPU may multiply float32: "highest", "high" or "medium".

    Returns:
        (n, m); float64 for float64 input, else float32. A pair's value is bitwise the same whatever the block size. Second
        derivatives by jax.jacrev of jax.jacfwd, and by jax.grad of jax.jvp; with several blocks others are an error of JAX.

    Raises:
        TypeError, ValueError: as :func:`soft_dtw`.

    Examples:
        >>> X = jnp.arange(24.0).reshape(4, 6)
        >>> cdist_soft_dtw(X, gamma=0.1, normalize=True).diagonal().tolist()
        [0.0, 0.0, 0.0, 0.0]
    """
    settings = settings_of(bandwidth, band, max_slope, step_penalty, precision_number(precision), True)
    settings = settings._replace(cost_kind=check_cost(cost))
    X, Y = unwrapped(X), unwrapped(Y)
    x = _check_set(X, "X", x_lengths, "x_lengths", x_mask, "x_mask")
    y = None if Y is None else _check_set(Y, "Y", y_lengths, "y_lengths", y_mask, "y_mask")
    if y is None:
        for argument, name in ((y_lengths, "y_lengths"), (y_mask, "y_mask")):
            if argument is not None:
                raise ValueError(f"{name}: expected None where Y is None, got {type(argument).__name__}")
    else:
        _check_alike(X, x, Y, y)
    gammas = None
    gamma = unwrapped(gamma)
    if isinstance(gamma, (jax.Array, np.ndarray)):
        if gamma.ndim:
            raise ValueError(f"gamma: expected shape (), got {gamma.shape}")
        gammas = check_numbers(gamma, "gamma", 1, x.values.dtype)
    else:
        settings = settings._replace(gamma=check_number(gamma, "gamma"))
    if block_size is None:
        _, n, features = x.values.shape
        m = n if y is None else y.values.shape[1]
        block_size = pairs_at_once(n, m, 2 * features, x.values.dtype.itemsize)
    run = _Table(settings, gammas, check_count(block_size, "block_size"))
    normalize = check_flag(normalize, "normalize")
    if 0 in (len(x.values), len((y or x).values)):
        return jnp.zeros((len(x.values), len((y or x).values)), x.values.dtype)
    if y is None:
        table = run.symmetric(x)
        own = other = table.diagonal()
    else:
        table = run.rectangle(x, y)
        if normalize:
            own, other = run.with_themselves(x), run.with_themselves(y)
    return table - (own[:, None] / 2 + other / 2) if normalize else table


def _check_set(
    given: object, name: str, lengths: object, lengths_name: str, mask: object, mask_name: str
) -> _Set:
    values = check_floats(given, name, "N, D", (2, 3), shapes="(n, N, D) or (n, N)")
    values = widened(values[..., None] if values.ndim == 2 else values)
    count, steps, features = values.shape
    if steps == 0 or features == 0:
        raise ValueError(f"{name}: expected no empty axis in (N, D), got shape {values.shape}")
    most = "N" if name == "X" else "M"
    return _Set(
        values,
        check_lengths(lengths, lengths_name, count, steps, most, least=1, unit="series"),
        check_mask(mask, mask_name, count, steps),
    )


def _check_alike(X: Array, x: _Set, Y: Any, y: _Set) -> None:
    if X.dtype != Y.dtype:
        raise TypeError(f"Y: expected the dtype of X, {X.dtype}, got {Y.dtype}: write Y.astype(X.dtype)")
    if x.values.shape[2] != y.values.shape[2]:
        raise ValueError(f"Y: expected D = {x.values.shape[2]} features as in X, got shape {Y.shape}")


def _part(of: Any, place: Any) -> Any:
    return jax.tree.map(lambda array: array[place], of)


def _cut(of: _Set, size: int) -> _Set:
    """(k, size, ...): the series in parts of one size, the last one repeated as often as that takes."""

    def cut(array: Array) -> Array:
        more = -len(array) % size
        whole = jnp.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1), mode="edge") if more else array
        return whole.reshape(-1, size, *array.shape[1:])

    parts: _Set = jax.tree.map(cut, of)
    return parts


def _evenly(count: int, most: int) -> int:
    """The size of the fewest parts of at most so many elements."""
    return -(-count // -(-count // max(1, min(count, most))))


class _Table(NamedTuple):
    """How values of pairs are computed. Blocks are squares or rectangles of the table, so that the gradients of a series are sums along
    an axis: bitwise the same in every run, where a GPU adds up scattered gradients in an order of its own."""

    settings: Settings
    gammas: Array | None
    """(1,), in the place of settings.gamma."""
    block_size: int

    def values(self, x: _Set, y: _Set) -> Array:
        """(B,) of pairs."""
        batch = len(x.values)
        gammas = None if self.gammas is None else jnp.broadcast_to(self.gammas, (batch,))
        of = Pairs(x.values, y.values, gammas, x.lengths, y.lengths, x.mask, y.mask)
        return solved(PAIRS, self.settings, (), of).value

    def block(self, x: _Set, y: _Set) -> Array:
        """(n, m) of all pairs."""
        n, m = len(x.values), len(y.values)
        return self.values(*_all_pairs(x, y)).reshape(n, m)

    def triangle(self, x: _Set) -> Array:
        """(n, n), of which one half is computed."""
        n = len(x.values)
        places = np.ravel_multi_index(np.triu_indices(n), (n, n))

        def upper(of: _Set) -> Any:
            return jax.tree.map(
                lambda array: array.at[places].get(indices_are_sorted=True, unique_indices=True), of
            )

        values = self.values(*map(upper, _all_pairs(x, x)))
        table = jnp.zeros(n * n, values.dtype)
        table = table.at[places].set(values, indices_are_sorted=True, unique_indices=True).reshape(n, n)
        return jnp.where(np.tri(n, dtype=bool).T, table, table.T)

    def rectangle(self, x: _Set, y: _Set) -> Array:
        n, m = len(x.values), len(y.values)
        height = min(n, math.isqrt(self.block_size))
        width = min(m, self.block_size // height)
        height, width = _evenly(n, self.block_size // width), _evenly(m, width)
        if height == n and width == m:
            return self.block(x, y)
        rows, columns = _cut(x, height), _cut(y, width)
        counts = len(rows.values), len(columns.values)
        blocks = _in_turn(
            lambda place: self.block(_part(rows, place[0]), _part(columns, place[1])),
            np.indices(counts).reshape(2, -1).T,
        )
        return _put_together(blocks.reshape(*counts, height, width))[:n, :m]

    def symmetric(self, x: _Set) -> Array:
        n = len(x.values)
        size = _evenly(n, math.isqrt(self.block_size))
        if size == n:
            return self.triangle(x)
        parts = _cut(x, size)
        k = len(parts.values)
        first, second = np.triu_indices(k, 1)
        on = _in_turn(lambda place: self.triangle(_part(parts, place)), np.arange(k))
        off = _in_turn(
            lambda place: self.block(_part(parts, place[0]), _part(parts, place[1])),
            np.stack([first, second], 1),
        )
        # The place of each block of the table among all that there are.
        order = np.diag(np.arange(k))
        order[first, second] = k + np.arange(len(first))
        order[second, first] = k + len(first) + np.arange(len(first))
        blocks = jnp.concatenate([on, off, off.swapaxes(1, 2)])
        return _put_together(blocks.at[order].get(unique_indices=True))[:n, :n]

    def with_themselves(self, x: _Set) -> Array:
        """(n,): every series with itself."""
        n = len(x.values)
        size = _evenly(n, self.block_size)
        if size == n:
            return self.values(x, x)
        parts = _cut(x, size)
        return _in_turn(
            lambda place: self.values(*[_part(parts, place)] * 2), np.arange(len(parts.values))
        ).ravel()[:n]


def _all_pairs(x: _Set, y: _Set) -> tuple[_Set, _Set]:
    """Row by row of the table."""
    n, m = len(x.values), len(y.values)
    left = jax.tree.map(
        lambda a: jnp.broadcast_to(a[:, None], (n, m, *a.shape[1:])).reshape(n * m, *a.shape[1:]), x
    )
    right = jax.tree.map(lambda a: jnp.broadcast_to(a, (n, m, *a.shape[1:])).reshape(n * m, *a.shape[1:]), y)
    return left, right


def _in_turn(block: Any, places: Any) -> Array:
    """The blocks at these places, one after the other; the backward pass computes each once more."""
    blocks: Array = jax.lax.map(jax.checkpoint(block, prevent_cse=False), jnp.asarray(places, jnp.int32))
    return blocks


def _put_together(blocks: Array) -> Array:
    """The table of blocks (rows, columns, n, m)."""
    rows, columns, n, m = blocks.shape
    return blocks.swapaxes(1, 2).reshape(rows * n, columns * m)
