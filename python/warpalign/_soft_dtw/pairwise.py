"""Soft-DTW between all pairs of two sets of series: in blocks, on one device, several, or several processes.

Series are sorted by length on both sides, and the (n, m) result is cut into tiles of at most `block_size` pairs of
similar lengths. Tiles are shared out by their work, the sum of N * M over their pairs. A pair's value does not depend on
the tile, the device or the process that computes it, so the result has the same bits however it is shared out.

A tile costs the host a few slices and one call of the operator. Nothing waits for a device until all tiles are under way, and each
device hands over its values in one piece: otherwise the host would be what several GPUs share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_count, check_device_list, check_flag, check_group, check_number
from warpalign._core.series import Lengths, Mask, SeriesSet, Taken, alike, as_series, check_no_hole
from warpalign._core.transforms import not_compiled
from warpalign._soft_dtw.checks import check_options
from warpalign._soft_dtw.functional import soft_dtw
from warpalign._soft_dtw.gamma import gamma_of_set
from warpalign._soft_dtw.settings import MetricOptions
from warpalign._soft_dtw.tiles import Side, Tile, default_block_size, pairs_of, shared_out, tiles_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Device = torch.device | str | int
T = TypeVar("T")

_TILES_PER_WORKER = 8  # few enough to be cheap, many enough to be shared out evenly


@not_compiled
def cdist_soft_dtw(
    X: object,
    Y: object = None,
    *,
    gamma: float | Literal["auto"] = 1.0,
    normalize: bool = False,
    x_lengths: Lengths | None = None,
    y_lengths: Lengths | None = None,
    x_mask: Mask | None = None,
    y_mask: Mask | None = None,
    devices: Sequence[Device] | None = None,
    block_size: int | None = None,
    progress: bool = False,
    distributed: bool | dist.ProcessGroup = False,
    **options: Unpack[MetricOptions],
) -> Tensor:
    """Soft-DTW between every series of X and every series of Y.

    At most `block_size` pairs per device are in memory at once, also in the backward pass, which recomputes each block.

    Args:
        X: n series: a tensor or array (n, N, D); (n, N) for n univariate series (in :func:`warpalign.soft_dtw` (N, D) is
            one series); a list of series (N_i, D) or (N_i,) of unequal lengths, an array of such arrays, a
            PackedSequence or a nested tensor. Time steps at a series' end whose
            features are all NaN are padding, as in tslearn; NaN elsewhere is an error. Those that a NumPy masked array masks are
            missing. Time comes before features: write X.swapaxes(1, 2) for aeon's and sktime's arrays (n, D, N). Series of one time
            step with several features cause a warning, once. A data frame is a table with a row per series. float64, float32,
            float16 or bfloat16; integers in arrays and lists become float64.
        Y: m series, of the same dtype, device and D. Under torch.autocast the dtypes may differ. None: X itself; then only one
            half is computed, and the result is exactly symmetric.
        gamma: smoothing, in units of the cost; finite and >= 0. 0: hard DTW. "auto": tslearn's heuristic for the data X, twice
            the longest length times the squared median distance between (at most 100 of) the time steps: much smoothing.
        normalize: soft-DTW divergences s(x, y) - (s(x, x) + s(y, y)) / 2 instead (Blondel, Mensch & Vert, "Differentiable
            divergences between time series", AISTATS 2021): nonnegative up to rounding, exactly 0 for equal series.
        x_lengths: (n,) integers, a tensor on the device of X, an array or a list: true lengths, instead of NaN as padding.
        y_lengths: (m,) true lengths of Y; with Y only.
        x_mask: (n, N) bools, True where a time step is missing: its cost to every other step is 0, as in :func:`warpalign.soft_dtw`.
        y_mask: (m, M) bools for Y; with Y only.
        devices: where to compute, one thread each: ["cuda:0", "cuda:1"] for instance. Default: the device of X.
        block_size: pairs computed at once on each device. Default: at most 4096, fewer for long series.
        progress: show a progress bar (needs tqdm). It waits for every block, which costs a little on a GPU.
        distributed: True, or a process group: every process of torch.distributed calls with the same arguments (devices
            may differ) and computes its share; all get the whole result. Not differentiable.
        options: cost, bandwidth, band, max_slope, step_penalty and precision of :func:`warpalign.soft_dtw`, the same for all pairs. A
            function as cost must be symmetric where Y is None.

    Returns:
        (n, m) tensor on the device of X, float64 for float64 input, else float32; differentiable once in X and Y.
        Bitwise identical on any number of devices and processes of one kind.

    Raises:
        TypeError, ValueError: as :func:`warpalign.soft_dtw`, and for data frames that hold a time step in each row, or series in
            cells; the message names the argument, and the remedy.
        ImportError: progress without tqdm.
        NotImplementedError: as :func:`warpalign.soft_dtw`; for second derivatives.

    Examples:
        >>> X = [torch.randn(50, 3), torch.randn(70, 3), torch.randn(60, 3)]
        >>> cdist_soft_dtw(X, gamma=0.1, normalize=True).diagonal()
        tensor([0., 0., 0.])
    """
    normalize = check_flag(normalize, "normalize")
    check_options({**options}, "cdist_soft_dtw")
    x = as_series(X, "X", x_lengths, "x_lengths", x_mask, "x_mask")
    check_no_hole(x, "X", "x_mask")
    y = None
    if Y is not None:
        y = as_series(Y, "Y", y_lengths, "y_lengths", y_mask, "y_mask")
        check_no_hole(y, "Y", "y_mask")
        x, y = alike(y, "Y", x, "X")
    for argument, name in ((y_lengths, "y_lengths"), (y_mask, "y_mask")):
        if y is None and argument is not None:
            raise ValueError(f"{name}: expected None where Y is None, got {type(argument).__name__}")
    return all_pairs(
        x,
        y,
        gamma=gamma_of_set(gamma, x),
        normalize=normalize,
        devices=devices,
        block_size=block_size,
        progress=progress,
        distributed=distributed,
        **options,
    )


def all_pairs(
    x: SeriesSet,
    y: SeriesSet | None,
    *,
    gamma: float,
    normalize: bool = False,
    devices: Sequence[Device] | None = None,
    block_size: int | None = None,
    progress: bool = False,
    distributed: bool | dist.ProcessGroup = False,
    **options: Any,
) -> Tensor:
    """:func:`cdist_soft_dtw` of sets that have been read; a pair with NaN gets NaN."""
    gamma = check_number(gamma, "gamma")
    group = check_group(distributed)
    needs_grad = torch.is_grad_enabled() and any(s is not None and s.values.requires_grad for s in (x, y))
    if group is not None and needs_grad:
        raise ValueError("distributed: expected series that require no gradient, got some that do")
    block_size = None if block_size is None else check_count(block_size, "block_size")
    for_pairs = {"gamma": gamma, **options}
    where = check_device_list(devices, "devices", x.values)
    job = _plan(x, y, for_pairs, where, block_size, group, needs_grad)
    with _progress_bar(progress, job) as job.step:
        if needs_grad:
            values: Tensor = _Pairs.apply(job, x.values, None if y is None else y.values)  # type: ignore[no-untyped-call]
        else:
            values = _forward(job, x.values, None if y is None else y.values)
    if group is not None and dist.get_world_size(group) > 1:
        # Every cell is 0 in all processes but one: the sum is exact. NCCL sums on GPUs alone.
        shared = values.to(job.devices[0]) if dist.get_backend(group) == "nccl" else values
        dist.all_reduce(shared, group=group)
        values = shared.to(values.device)
    if not normalize:
        return values
    if y is None:
        own = other = values.diagonal()
    else:
        own, other = (self_values(side, for_pairs, job.devices[0], job.block_size) for side in (x, y))
    return values - (own[:, None] / 2 + other / 2)


def cdist_soft_dtw_normalized(
    X: object, Y: object = None, *, gamma: float | Literal["auto"] = 1.0, **options: Any
) -> Tensor:
    """:func:`cdist_soft_dtw` with normalize=True, under tslearn's name: (n, m) soft-DTW divergences.

    Args:
        X: n series: a tensor or array (n, N, D), (n, N), or a list of unequal ones.
        Y: m series, in the same forms. None: X itself.
        gamma: smoothing, in units of the cost; finite and >= 0, or "auto".
        options: further keyword arguments of :func:`cdist_soft_dtw`.
    """
    return cdist_soft_dtw(X, Y, gamma=gamma, normalize=True, **options)


def _value(x: Taken, y: Taken, options: dict[str, Any]) -> Tensor:
    """(B,) soft-DTW of pairs."""
    return soft_dtw(
        x.values,
        y.values,
        x_lengths=x.lengths,
        y_lengths=y.lengths,
        x_mask=x.mask,
        y_mask=y.mask,
        batch_invariant=True,
        **options,
    )


@dataclass
class _Job:
    sizes: tuple[Tensor, Tensor]  # true lengths, the longest first
    orders: tuple[Tensor | None, Tensor | None]  # the series that have them; None: all are equally long
    masks: tuple[Tensor | None, Tensor | None]  # of the series as they come
    is_symmetric: bool
    options: dict[str, Any]  # of soft_dtw
    block_size: int
    devices: list[torch.device]
    tiles: list[list[Tile]]  # of each device
    step: Callable[[int], None] | None = None  # called with a number of computed pairs

    def sides(self, x: Tensor, y: Tensor | None, device: torch.device) -> tuple[Side, Side]:
        def side(values: Tensor, which: int) -> Side:
            sizes, order, mask = self.sizes[which], self.orders[which], self.masks[which]
            values = values.to(device, non_blocking=True)
            mask = None if mask is None else mask.to(device, non_blocking=True)
            if order is None:
                return Side(values, None, mask, sizes.tolist())
            order = order.to(device)
            mask = None if mask is None else mask.index_select(0, order)
            return Side(values.index_select(0, order), sizes.to(device), mask, sizes.tolist())

        left = side(x, 0)
        return left, left if y is None else side(y, 1)

    def places(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """Where the rows and columns of a table in the orders belong in the result; None: where they are."""
        if self.orders[0] is None and self.orders[1] is None:
            return None
        rows, columns = (
            torch.arange(len(sizes), device=like.device) if order is None else order.to(like.device)
            for sizes, order in zip(self.sizes, self.orders, strict=True)
        )
        return rows[:, None], columns

    def on_every_device(
        self,
        work: Callable[[torch.device, tuple[Side, Side], list[Tile]], T],
        x: Tensor,
        y: Tensor | None,
        in_threads: bool = True,
    ) -> list[T]:
        """One thread per device, in the caller's CUDA streams; or one after the other.

        Inside a backward other threads must not differentiate: autograd has one thread per GPU, and this backward holds
        one of them. GPUs work at the same time all the same, since nothing waits for them.
        """
        # Copied here and not in the threads: the stream that x comes from is the caller's.
        sides = [self.sides(x, y, device) for device in self.devices]
        if len(self.devices) == 1 or not in_threads:
            return list(map(work, self.devices, sides, self.tiles))
        streams = [torch.cuda.current_stream(d) if d.type == "cuda" else None for d in self.devices]

        def run(
            device: torch.device,
            stream: torch.cuda.Stream | None,
            sides: tuple[Side, Side],
            tiles: list[Tile],
        ) -> T:
            with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                return work(device, sides, tiles)

        with ThreadPoolExecutor(len(self.devices)) as pool:
            return list(pool.map(run, self.devices, streams, sides, self.tiles))


def _plan(
    x: SeriesSet,
    y: SeriesSet | None,
    options: dict[str, Any],
    devices: list[torch.device],
    block_size: int | None,
    group: dist.ProcessGroup | None,
    needs_grad: bool,
) -> _Job:
    sides = (x, x if y is None else y)
    lengths = [side.true_lengths() for side in sides]
    orders = [length.argsort(descending=True, stable=True) for length in lengths]
    sizes = [length[order] for length, order in zip(lengths, orders, strict=True)]
    processes = 1 if group is None else dist.get_world_size(group)
    if block_size is None:
        block_size = default_block_size(x.values, sides[1].values.shape[1], needs_grad=needs_grad)
        # Not by the number of devices, in which processes may differ: all must cut the same tiles.
        workers = len(devices) if group is None else 8 * processes
        if workers > 1:
            pairs = len(x.values) * len(sides[1].values)
            block_size = min(block_size, max(1, pairs // (_TILES_PER_WORKER * workers)))
    tiles = tiles_of(sizes[0], None if y is None else sizes[1], block_size)
    if group is not None:
        tiles = shared_out(tiles, processes)[dist.get_rank(group)]
    return _Job(
        sizes=(sizes[0], sizes[1]),
        orders=(
            None if x.lengths is None else orders[0],
            None if sides[1].lengths is None else orders[1],
        ),
        masks=(x.mask, sides[1].mask),
        is_symmetric=y is None,
        options=options,
        block_size=block_size,
        devices=devices,
        tiles=shared_out(tiles, len(devices)),
    )


@torch.no_grad()
def _forward(job: _Job, x: Tensor, y: Tensor | None) -> Tensor:
    def work(device: torch.device, sides: tuple[Side, Side], tiles: list[Tile]) -> Tensor:
        values = [x.new_empty(0, device=device)]
        for tile in tiles:
            values.append(_value(*pairs_of(tile, *sides), job.options))
            if job.step is not None:
                if device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()
                job.step(tile.pairs)
        return torch.cat(values)

    places = job.places(x)  # before the work: a copy from the host waits for all that the device has to do
    table = x.new_zeros(len(x), len(x if y is None else y))
    for tiles, values in zip(job.tiles, job.on_every_device(work, x, y), strict=True):
        parts = values.to(table.device).split([tile.pairs for tile in tiles])
        for tile, part in zip(tiles, parts, strict=True):
            block = table[tile.rows, tile.columns]
            if tile.is_triangle:
                i, j = torch.triu_indices(*tile.shape, device=table.device)
                block[i, j] = part
                block[j, i] = part
                continue
            block.copy_(part.view(tile.shape))
            if job.is_symmetric:
                table[tile.columns, tile.rows] = block.T
    if places is None:
        return table
    result = torch.empty_like(table)
    result[places] = table
    return result


@torch.no_grad()
def _backward(
    job: _Job, x: Tensor, y: Tensor | None, grad: Tensor, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and y; of x on both sides where y is None. Each tile is computed a second time."""
    needs = (True, True) if y is None else needs
    if job.is_symmetric:
        # A pair stands for two cells, but on the diagonal.
        both = grad + grad.T
        both.diagonal().copy_(grad.diagonal())
        grad = both
    places = job.places(grad)
    weights = grad if places is None else grad[places]

    def work(device: torch.device, sides: tuple[Side, Side], tiles: list[Tile]) -> list[Tensor | None]:
        # Symmetric: both sides' gradients go into one tensor.
        sums = [torch.zeros_like(sides[0].values) if needs[0] else None]
        sums.append(sums[0] if y is None else torch.zeros_like(sides[1].values) if needs[1] else None)
        for tile in tiles:
            height, width = tile.shape
            pairs = pairs_of(tile, *sides)
            wanted = [block.values.requires_grad_(need) for block, need in zip(pairs, needs, strict=True)]
            weight = weights[tile.rows, tile.columns].to(device, non_blocking=True)
            if tile.is_triangle:
                i, j = torch.triu_indices(height, width, device=device)
                weight = weight[i, j]
            with torch.enable_grad():
                # Each value's gradient is its weight, exactly. Given to autograd as a tensor, it would make torch import sympy.
                total_value = (_value(*pairs, job.options) * weight.reshape(-1)).sum()
            inputs = [block for block in wanted if block.requires_grad]
            found = iter(torch.autograd.grad(total_value, inputs))
            for total, tile_places, over in zip(sums, (tile.rows, tile.columns), (1, 0), strict=True):
                if total is None:
                    continue
                part = next(found)
                if tile.is_triangle:
                    square = part.new_zeros(height, width, *part.shape[1:])
                    square[i, j] = part
                else:
                    square = part.view(height, width, *part.shape[1:])
                # Summed in this order and added to each series once: the same bits in every run.
                total[tile_places, : part.shape[1]] += square.sum(over)
        return sums

    by_device = job.on_every_device(work, x, y, in_threads=False)

    def total(side: int) -> Tensor:
        parts = [sums[side] for sums in by_device]
        first, *rest = (part.to(grad.device) for part in parts if part is not None)
        for part in rest:
            first += part
        order = job.orders[side]
        if order is None:
            return first
        return torch.empty_like(first).index_copy_(0, order.to(first.device), first)

    return total(0) if needs[0] else None, total(1) if needs[1] and y is not None else None


class _Pairs(torch.autograd.Function):
    """Keeps the series alone for the backward pass, where autograd would keep a gradient per pair."""

    @staticmethod
    def forward(ctx: Any, job: _Job, x: Tensor, y: Tensor | None) -> Tensor:
        ctx.job = job
        ctx.save_for_backward(x, y)
        return _forward(job, x, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        grads = _backward(ctx.job, x, y, grad.detach(), ctx.needs_input_grad[1:])
        return None, *(None if g is None else _Once.apply(g, grad, x, y) for g in grads)  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """A gradient that depends on inputs through which it cannot be differentiated: that must not go unnoticed."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *inputs: Tensor | None) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("warpalign: second derivatives of cdist_soft_dtw are not available")


def self_values(
    series: SeriesSet, options: dict[str, Any], device: torch.device, block_size: int | None = None
) -> Tensor:
    """Soft-DTW of every series with itself: (n,). Few values: one device computes them, in every process."""
    home = series.values.device
    series = series.to(device)
    if block_size is None:
        block_size = default_block_size(series.values, series.values.shape[1], needs_grad=False)
    parts = []
    for index in torch.arange(len(series.values)).split(block_size):
        block = series.take(index)
        parts.append(_value(block, block, options))
    return torch.cat(parts).to(home)


@contextlib.contextmanager
def _progress_bar(wanted: bool, job: _Job) -> Iterator[Callable[[int], None] | None]:
    if not wanted:
        yield None
        return
    tqdm: Any = optional.load("tqdm.auto", "progress=True", "progress").tqdm
    total = sum(tile.pairs for tiles in job.tiles for tile in tiles)
    with tqdm(total=total, desc="soft-DTW", unit="pair", unit_scale=True) as bar:

        def step(count: int) -> None:
            with bar.get_lock():
                bar.update(count)

        yield step
