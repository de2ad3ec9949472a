"""The arguments of what is read off a plan: values, places, dimensions; and its largest entries and the sparse result."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from warpalign._core.checks import shape_of
from warpalign._core.series import widened
from warpalign._core.transforms import not_compiled

_INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_PLACES = "an int, a slice, ints (k,) or a mask"


class PlanTop(NamedTuple):
    """Largest entries of a plan's rows or columns, in falling order."""

    values: Tensor
    """(B, N, k), or (B, M, k) of columns."""
    indices: Tensor
    """The same shape, int64."""


class Places(NamedTuple):
    """What an index picks along a dimension."""

    at: Tensor | None
    """(k,) int64 on the plan's device; None: all places."""
    length: int
    single: bool
    """An int was given: the dimension is dropped."""


def check_columns(v: object, name: str, length: int, first: Tensor, unbatched: bool) -> tuple[Tensor, Tensor]:
    """The values as a tensor, and as (B, length, K) of the dtype and device of `first`, the plan's points or costs."""
    axes = ("(M, K) or (M,)" if unbatched else "(B, M, K) or (B, M)") + f" with M = {length}"
    values = v if isinstance(v, Tensor) else from_array(v, name, first)
    wide = widened(values)
    if wide.dtype != first.dtype or values.device != first.device:
        raise TypeError(
            f"{name}: expected {first.dtype} on {first.device}, as the plan, got {values.dtype} on {values.device}: "
            f"write {name}.to('{first.device}', {first.dtype})"
        )
    batched = wide.unsqueeze(0) if unbatched else wide
    if batched.dim() == 2:
        batched = batched.unsqueeze(-1)
    if batched.dim() != 3 or batched.shape[:2] != (first.shape[0], length) or batched.shape[2] == 0:
        raise ValueError(f"{name}: expected {axes}, got shape {shape_of(values)}")
    return values, batched


def from_array(v: Any, name: str, first: Tensor) -> Tensor:
    """An array or list of numbers with the dtype and device of `first`."""
    array = v.__array__() if hasattr(v, "__array__") else v
    try:
        return torch.tensor(array, dtype=first.dtype, device=first.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name}: expected a torch.Tensor or an array of numbers, got {type(v).__name__}"
        ) from None


def check_copy(copy: object) -> None:
    if copy is False:
        raise ValueError("copy: expected None or True, because the plan's entries are computed, got False")


def check_dim(dim: object) -> int:
    if dim not in (0, 1) or isinstance(dim, bool):
        raise ValueError(f"dim: expected 0 or 1, a dimension of (N, M), got {dim!r}")
    return int(dim)


def check_index(index: object, length: int, device: torch.device) -> Tensor:
    """(k,) int64 on the plan's device, from 0 to length - 1."""
    if not isinstance(index, (Tensor, list)):
        raise TypeError(f"index: expected a tensor or list of ints, got {type(index).__name__}")
    chosen = index if isinstance(index, Tensor) else torch.tensor(index, dtype=torch.int64)
    if chosen.dim() != 1 or chosen.dtype.is_floating_point or chosen.dtype in (torch.bool, torch.complex64):
        raise ValueError(f"index: expected ints (k,), got {chosen.dtype} of shape {shape_of(chosen)}")
    if chosen.device.type == "cpu" and chosen.numel():
        low, high = int(chosen.min()), int(chosen.max())
        if low < 0 or high >= length:
            raise ValueError(f"index: expected places from 0 to {length - 1}, got {low if low < 0 else high}")
    if not chosen.numel():
        raise ValueError("index: expected at least one place, got none")
    return chosen.to(device, torch.int64)


def place_of_problem(index: object, shape: tuple[int, ...]) -> int:
    """The number of a batch's problem, from 0 on."""
    if not _is_int(index):
        raise TypeError(
            f"index: expected an int, the number of a problem, for a batch of plans {shape}, got {type(index).__name__}: "
            "write plan.rows(index) for rows of every problem, or plan[k][index] for those of problem k"
        )
    return _place(index, shape[0])


def places_of(index: Any, sizes: tuple[int, int], device: torch.device) -> tuple[Places, Places]:
    """The rows and columns that an index of a single plan picks."""
    pair = index if isinstance(index, tuple) else (index,)
    if len(pair) > 2:
        raise IndexError(
            f"index: expected at most two, of rows and of columns, got {len(pair)}: plan.to_dense() takes any index"
        )
    pair = (*pair, slice(None))[:2]
    if sum(not _is_int(one) and not isinstance(one, slice) and one is not Ellipsis for one in pair) > 1:
        raise TypeError(
            "index: expected at most one list of places, because two of a tensor are read in pairs, got two: "
            "write plan[rows][:, columns], or plan.to_dense()[rows, columns] for pairs"
        )
    rows, columns = (_places(one, size, device) for one, size in zip(pair, sizes, strict=True))
    return rows, columns


def _places(index: Any, length: int, device: torch.device) -> Places:
    if _is_int(index):
        return Places(torch.tensor([_place(index, length)], device=device), 1, True)
    if index is Ellipsis:
        index = slice(None)
    if isinstance(index, slice):
        chosen = range(*index.indices(length))
        if chosen == range(length):
            return Places(None, length, False)
        return Places(torch.tensor(chosen, dtype=torch.int64, device=device), len(chosen), False)
    if isinstance(index, list):
        given = torch.tensor(index, dtype=None if index else torch.int64)
    elif isinstance(index, Tensor):
        given = index
    elif hasattr(index, "__array__") and index.__array__().dtype.kind in "iub":
        given = torch.tensor(index.__array__())
    else:
        raise TypeError(f"index: expected {_PLACES}, got {type(index).__name__}")
    if given.dtype == torch.bool and given.shape == (length,):
        places = given.to(device).nonzero()[:, 0]
        return Places(places, len(places), False)
    if given.dim() != 1 or given.dtype not in (
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    ):
        raise TypeError(
            f"index: expected {_PLACES} ({length},), got {given.dtype} of shape {shape_of(given)}"
        )
    if given.device.type == "cpu":
        for place in given.aminmax() if given.numel() else ():
            _place(int(place), length)
    places = given.to(device, torch.int64)
    return Places(torch.where(places < 0, places + length, places), len(places), False)


def _is_int(index: object) -> bool:
    if isinstance(index, Tensor):  # without axes: a number
        return index.dim() == 0 and index.dtype in _INTS
    return isinstance(index, Integral) and not isinstance(index, bool)


def _place(index: Any, length: int) -> int:
    """From 0 on; negative ones count from the end."""
    place = int(index)
    if not -length <= place < length:
        raise IndexError(f"index: expected places from {-length} to {length - 1}, got {place}")
    return place % length


def check_one(name: str, unbatched: bool, shape: tuple[int, ...]) -> None:
    if not unbatched:
        raise ValueError(
            f"{name}: expected the plan of one problem (N, M), got a batch {shape}: write plan[k].{name}(), or "
            f"[one.{name}() for one in plan]"
        )


def check_sparsity(k: object, threshold: object) -> None:
    if k is not None and threshold is not None:
        raise ValueError(f"threshold: expected None with k = {k}, got {threshold}: give one of both")


@not_compiled
def compressed_rows(rows: Tensor, columns: Tensor, values: Tensor, sizes: tuple[int, int]) -> Tensor:
    """A sparse CSR tensor of entries in the order of their rows."""
    counts = torch.bincount(rows, minlength=sizes[0])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    with warnings.catch_warnings():
        # Once in a process torch says that CSR tensors are in beta, and that their checks are off; here they are on.
        for message in ("Sparse CSR tensor support", "Sparse invariant checks"):
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, sizes, check_invariants=True)


def known_weights(weights: Tensor | None, lengths: Tensor | None, potential: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N) weights, uniform ones too, and which points are no padding."""
    batch, length = potential.shape
    points = torch.arange(length, device=potential.device).expand(batch, -1)
    exists = points < (length if lengths is None else lengths[:, None])
    if weights is None:
        counts = exists.sum(1, keepdim=True).to(potential.dtype)
        return (1 / counts).expand(batch, length), exists
    return weights, exists
