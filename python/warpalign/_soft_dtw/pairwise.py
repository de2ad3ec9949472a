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
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from warpalign._core import optional
from warpalign._core.checks import check_count, check_device_list, check_flag, check_group, check_number
from warpalign._core.costs import Mahalanobis, without_padding
from warpalign._core.series import Lengths, Mask, SeriesSet, alike, as_series, check_no_hole
from warpalign._core.transforms import apply, not_compiled
from warpalign._soft_dtw.checks import check_options
from warpalign._soft_dtw.gamma import gamma_of_set
from warpalign._soft_dtw.pairwise_job import DifferentiablePairs, Job, compute_pairs, pair_values, plan_job
from warpalign._soft_dtw.settings import MetricOptions
from warpalign._soft_dtw.tiles import default_block_size

if TYPE_CHECKING:
    from typing_extensions import Unpack

Device = torch.device | str | int


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
        NotImplementedError: as :func:`warpalign.soft_dtw`; for second derivatives, and under torch.func.vmap.

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
    if isinstance(metric := options.get("cost"), Mahalanobis):
        # Once, and not in every tile: so that the gradients of the features reach the factor.
        x, y = _features(x, metric), None if y is None else _features(y, metric)
        options["cost"] = "sqeuclidean"
    group = check_group(distributed)
    needs_grad = torch.is_grad_enabled() and any(s is not None and s.values.requires_grad for s in (x, y))
    if group is not None and needs_grad:
        raise ValueError("distributed: expected series that require no gradient, got some that do")
    block_size = None if block_size is None else check_count(block_size, "block_size")
    for_pairs = {"gamma": gamma, **options}
    where = check_device_list(devices, "devices", x.values)
    job = plan_job(x, y, for_pairs, where, block_size, group, needs_grad)
    with _progress_bar(progress, job) as job.step:
        if needs_grad:
            values: Tensor = apply(DifferentiablePairs, job, x.values, None if y is None else y.values)
        else:
            values = compute_pairs(job, x.values, None if y is None else y.values)
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


def _features(series: SeriesSet, metric: Mahalanobis) -> SeriesSet:
    """Series whose squared distances are the metric's costs."""
    lengths = None if series.lengths is None else series.lengths.to(series.values.device)
    return series._replace(values=metric.features(without_padding(series.values, lengths)))


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
        parts.append(pair_values(block, block, options))
    return torch.cat(parts).to(home)


@contextlib.contextmanager
def _progress_bar(wanted: bool, job: Job) -> Iterator[Callable[[int], None] | None]:
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
