"""The work of soft-DTW between all pairs of two sets: tiles of pairs, on one device or several (pairwise.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from warpalign._core.series import SeriesSet, Taken
from warpalign._core.torch_internals import is_forward_mode
from warpalign._core.transforms import Dim, apply, is_traced, no_derivative, of_each, only_wanted
from warpalign._soft_dtw.functional import soft_dtw
from warpalign._soft_dtw.tiles import Side, Tile, default_block_size, pairs_of, shared_out, tiles_of

T = TypeVar("T")

_TILES_PER_WORKER = 8  # few enough to be cheap, many enough to be shared out evenly


def pair_values(x: Taken, y: Taken, options: dict[str, Any]) -> Tensor:
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
class Job:
    """All pairs of two sets, in tiles that are assigned to devices."""

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


def plan_job(
    x: SeriesSet,
    y: SeriesSet | None,
    options: dict[str, Any],
    devices: list[torch.device],
    block_size: int | None,
    group: dist.ProcessGroup | None,
    needs_grad: bool,
) -> Job:
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
    return Job(
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


def compute_pairs(job: Job, x: Tensor, y: Tensor | None) -> Tensor:
    """(n, m) values without a graph; with one in forward mode, so that derivatives of tangents raise and are not 0."""
    with contextlib.nullcontext() if is_forward_mode() else torch.no_grad():
        return _pairs(job, x, y)


def _pairs(job: Job, x: Tensor, y: Tensor | None) -> Tensor:
    def work(device: torch.device, sides: tuple[Side, Side], tiles: list[Tile]) -> Tensor:
        values = [x.new_empty(0, device=device)]
        for tile in tiles:
            values.append(pair_values(*pairs_of(tile, *sides), job.options))
            if job.step is not None:
                if device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()
                job.step(tile.pairs)
        return torch.cat(values)

    places = job.places(x)  # before the work: a copy from the host waits for all that the device has to do
    table = x.new_zeros(len(x), len(x if y is None else y))
    by_device = job.on_every_device(work, x, y, in_threads=not is_traced())  # transforms are a thread's own
    for tiles, values in zip(job.tiles, by_device, strict=True):
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
def compute_gradients(
    job: Job, x: Tensor, y: Tensor | None, grad: Tensor, needs: tuple[bool, bool]
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
                total_value = (pair_values(*pairs, job.options) * weight.reshape(-1)).sum()
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


class DifferentiablePairs(torch.autograd.Function):
    """Keeps the series alone for the backward pass, where autograd would keep a gradient per pair."""

    @staticmethod
    def forward(job: Job, x: Tensor, y: Tensor | None) -> Tensor:
        return compute_pairs(job, x, y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.job, *sides = inputs
        ctx.save_for_backward(*sides)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        _, *needs = ctx.needs_input_grad
        found = apply(_PairsGradient, ctx.job, tuple(needs), grad, x, y)
        return None, *only_wanted(tuple(needs), found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_derivative("forward-mode derivatives of cdist_soft_dtw of series that require a gradient")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        """Only tangents of a Jacobian in forward mode come here: cdist_soft_dtw refuses vmapped series."""
        raise no_derivative("second derivatives of cdist_soft_dtw")


class _PairsGradient(torch.autograd.Function):
    """Gradients of both sides, empty where not wanted. They depend on inputs through which they cannot be differentiated:
    that must not go unnoticed."""

    @staticmethod
    def forward(
        job: Job, needs: tuple[bool, bool], grad: Tensor, x: Tensor, y: Tensor | None
    ) -> tuple[Tensor, ...]:
        found = compute_gradients(job, x, y, grad, needs)
        return tuple(x.new_empty(0) if gradient is None else gradient for gradient in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise no_derivative("second derivatives of cdist_soft_dtw")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_derivative("second derivatives of cdist_soft_dtw")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[Dim, ...]]:
        return of_each(_PairsGradient, info.batch_size, in_dims, inputs)
