"""Sets of series in the forms that they come in: tensors, arrays, lists of unequal series, NaN as padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence, pad_sequence

from warpalign._core.checks import check_mask, check_table, of_one_dtype
from warpalign._core.lengths import check_lengths
from warpalign._core.panels import check_panel, time_comes_first, warn_of_one_step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

SeriesInput = Tensor | PackedSequence
# Where no gradient can flow; a list is one of series (N, D) or (N,).
AnySeries: TypeAlias = "SeriesInput | ArrayLike | Sequence[Tensor] | Sequence[ArrayLike]"
Lengths: TypeAlias = "Tensor | Sequence[int] | NDArray[np.integer[Any]]"
Mask: TypeAlias = "Tensor | NDArray[np.bool_]"

_FORMS = "expected (n, N, D), (n, N) for univariate series, or a list of series (N, D) or (N,)"


class SeriesSet(NamedTuple):
    """n series behind each other in one tensor."""

    values: Tensor
    """(n, N, D), float64 or float32; what lies behind a series' length is arbitrary, NaN for instance."""
    lengths: Tensor | None
    """(n,) true lengths, int64 on the CPU: work is planned with them. None: all are N long."""
    mask: Tensor | None = None
    """(n, N) bool, on the values' device: time steps that are missing, whose values are 0. None: there are all."""

    def true_lengths(self) -> Tensor:
        n, size, _ = self.values.shape
        return torch.full((n,), size) if self.lengths is None else self.lengths

    def take(self, index: Tensor) -> Taken:
        """The series of an index (CPU), no longer than the longest of them."""
        # non_blocking: torch would otherwise wait for all that runs on the device. CUDA has read the index when it returns.
        on_device = index.to(self.values.device, non_blocking=True)
        mask = None if self.mask is None else self.mask.index_select(0, on_device)
        if self.lengths is None:
            return Taken(self.values.index_select(0, on_device), None, mask)
        lengths = self.lengths[index]
        longest = int(lengths.max())
        values = self.values[:, :longest].index_select(0, on_device)
        mask = None if mask is None else mask[:, :longest]
        return Taken(values, lengths.to(values.device, non_blocking=True), mask)

    def to(self, device: torch.device) -> SeriesSet:
        mask = None if self.mask is None else self.mask.to(device)
        return self._replace(values=self.values.to(device), mask=mask)


class Taken(NamedTuple):
    """Some series of a set, as soft_dtw takes them: lengths are on the values' device."""

    values: Tensor
    lengths: Tensor | None
    mask: Tensor | None


def as_series(
    given: object,
    name: str,
    lengths: object = None,
    lengths_name: str = "lengths",
    mask: object = None,
    mask_name: str = "mask",
) -> SeriesSet:
    """The set of series behind an argument of a public function.

    Without `lengths`, time steps at the end of a series whose features are all NaN are padding. Half-precision values
    are widened to float32, integers of arrays and lists become float64. A PackedSequence or a nested tensor has its own lengths.
    NumPy's masked arrays have their own mask. Series of one time step with several features bring a warning where neither lengths
    nor a mask say so; data frames that are no tables of series are refused.
    """
    check_panel(given, name)
    given, own_mask = without_mask(as_list(given), name)
    mask = one_mask(mask, own_mask, mask_name, name)
    given, lengths = padded(given, lengths, name, lengths_name)
    if isinstance(given, (list, tuple)):
        values = _stacked(given, name)
    else:
        values = as_tensor(given, name)
        if values.dim() == 2:
            values = values.unsqueeze(-1)
    if values.dim() != 3:
        raise ValueError(f"{name}: {_FORMS}, got shape {tuple(values.shape)}")
    values = check_table(values, name, "N, D")
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    missing = check_mask(mask, mask_name, values, len(values))
    if missing is not None:
        values = values.masked_fill(missing[:, :, None], 0.0)  # NaN there is no padding
    if lengths is not None:
        checked = check_lengths(lengths, lengths_name, "N", values, len(values))
        assert checked is not None
        known = checked.cpu().long().clamp(1, values.shape[1])  # on a GPU nothing has checked the range
    else:
        if missing is None:
            warn_of_one_step(values, given, name)
        known = _lengths_before_padding(values.detach(), name)
    _, steps, features = values.shape
    # One step of several features: soft_dtw warns of that unless it is given lengths, and has been said here.
    is_full = bool((known == steps).all()) and not steps == 1 < features
    return SeriesSet(values, None if is_full else known, missing)


def without_mask(given: Any, name: str) -> tuple[Any, Any]:
    """NumPy's masked arrays, or a list with some, as arrays with 0 in masked time steps, and the mask (n, N); None: nothing is masked."""
    if _is_masked(given):
        mask = _masked_steps(given, given.ndim > 2, name)
        return given.filled(0), mask if mask.any() else None
    if not (isinstance(given, (list, tuple)) and any(map(_is_masked, given))):
        return given, None
    import numpy as np  # who brings masked arrays has it

    steps = [
        _masked_steps(one, one.ndim > 1, f"{name}[{index}]") if _is_masked(one) else np.zeros(len(one), bool)
        for index, one in enumerate(given)
    ]
    mask = np.zeros((len(given), max(map(len, steps))), bool)
    for row, one in zip(mask, steps, strict=True):
        row[: len(one)] = one
    parts = [one.filled(0) if _is_masked(one) else one for one in given]
    return parts, mask if mask.any() else None


def _is_masked(given: object) -> bool:
    return hasattr(given, "filled") and hasattr(given, "mask")


def _masked_steps(array: Any, has_features: bool, name: str) -> Any:
    import numpy as np

    mask = np.ma.getmaskarray(array)
    if not has_features:
        return mask
    whole = mask.all(-1)
    if (mask.any(-1) != whole).any():
        raise ValueError(
            f"{name}: expected time steps that are masked in all features or in none, got some in between"
        )
    return whole


def as_batch(given: object, lengths: object, name: str, lengths_name: str) -> tuple[Any, Any, Any]:
    """Arrays as tensors of the same axes, lists of series, as in as_series(), as padded batches; with lengths and mask."""
    if isinstance(given, (Tensor, PackedSequence)):
        return given, lengths, None
    check_panel(given, name, is_set=False)
    given = as_list(given)
    if isinstance(given, (list, tuple)) and all(hasattr(one, "__len__") for one in given):
        series = as_series(given, name, lengths, lengths_name)
        known = None if series.lengths is None else series.lengths.to(series.values.device)
        return series.values, known, series.mask
    if _is_masked(given):
        masked: Any = given
        return as_tensor(masked.filled(0), name), lengths, _masked_steps(masked, True, name)
    if isinstance(given, (list, tuple)) or hasattr(given, "__array__"):
        return as_tensor(given, name), lengths, None
    return given, lengths, None


def one_mask(mask: object, own: object, mask_name: str, name: str) -> object:
    """The mask that a caller gives, or that a masked array has."""
    if own is not None and mask is not None:
        raise ValueError(f"{mask_name}: expected None with a masked array as {name}, which has its mask")
    return own if mask is None else mask


def as_list(given: Any) -> Any:
    """NumPy's and pandas' way to hold series of unequal lengths, an array of arrays, as a list; all else as it is."""
    holds_objects = getattr(getattr(given, "dtype", None), "kind", None) == "O"
    return list(given) if holds_objects and given.ndim == 1 else given


def alike(other: SeriesSet, name: str, first: SeriesSet, first_name: str) -> tuple[SeriesSet, SeriesSet]:
    """(first, other), once their series can be aligned with each other; under autocast of one dtype, at least float32."""
    x, y = first.values, other.values
    if y.device != x.device:
        raise ValueError(
            f"{name}: expected the device of {first_name}, {x.device}, got {y.device}: write {name}.to({first_name}.device)"
        )
    if y.shape[2] != x.shape[2]:
        raise ValueError(f"{name}: expected D = {x.shape[2]} features as in {first_name}, got {y.shape[2]}")
    x, y = of_one_dtype(x, y, first_name, name)
    return first._replace(values=x), other._replace(values=y)


_REMEDY = "a numpy.ma.masked_array says which time steps are missing, and NaN at a series' end is padding"


def check_no_hole(series: SeriesSet, name: str, mask_name: str) -> None:
    """No NaN within the true lengths, but where a step is missing."""
    is_nan = series.values.detach().isnan()
    if not bool(is_nan.any()):
        return
    bad = (is_nan.any(-1) & _is_true(series)).nonzero()
    if len(bad):
        index, step = bad[0].tolist()
        raise ValueError(
            f"{name}: expected numbers, got NaN in series {index} at time step {step}: {mask_name}, or {_REMEDY}"
        )


def check_finite(series: SeriesSet, name: str) -> None:
    """At least one series, a time step in each, and only finite values within the true lengths."""
    if not len(series.values):
        raise ValueError(f"{name}: expected at least one series, got none")
    is_true = _is_true(series)
    bad = (~series.values.isfinite().all(-1) & is_true).any(1).nonzero()
    if len(bad):
        raise ValueError(
            f"{name}: expected finite values, got NaN or infinity in series {int(bad[0])}: {_REMEDY}"
        )
    if series.mask is not None:
        empty = (~is_true | series.mask).all(1).nonzero()
        if len(empty):
            raise ValueError(
                f"{name}: expected a time step in every series, got only missing ones in series {int(empty[0])}"
            )


def _is_true(series: SeriesSet) -> Tensor:
    """(n, N): the time steps within the true lengths."""
    steps = torch.arange(series.values.shape[1])
    return (steps < series.true_lengths()[:, None]).to(series.values.device)


def without_gaps(series: SeriesSet) -> SeriesSet:
    """Missing time steps interpolated between their neighbours, at the ends those of the nearest step; for a first guess."""
    if series.mask is None:
        return series
    values, known = series.values, _is_true(series) & ~series.mask
    steps = torch.arange(values.shape[1], device=values.device).expand_as(known)
    before = torch.where(known, steps, -1).cummax(1).values
    after = torch.where(known, steps, values.shape[1]).flip(1).cummin(1).values.flip(1)
    left = torch.where(before >= 0, before, after).clamp(max=values.shape[1] - 1)
    right = torch.where(after < values.shape[1], after, left)
    share = ((steps - left) / (right - left).clamp(min=1)).to(values.dtype).unsqueeze(-1)
    rows = torch.arange(len(values), device=values.device)[:, None]
    filled = (1 - share) * values[rows, left] + share * values[rows, right]
    return SeriesSet(torch.where(series.mask[:, :, None], filled, values), series.lengths)


def resampled(series: SeriesSet, size: int) -> Tensor:
    """Every series linearly interpolated to `size` time steps from its first to its last: (n, size, D)."""
    values = series.values
    last = (series.true_lengths() - 1).to(values)
    fractions = torch.linspace(0, 1, size, dtype=values.dtype, device=values.device)
    if size == 1:
        fractions.fill_(0.5)
    positions = last[:, None] * fractions
    before = positions.floor().clamp(max=(last - 1).clamp(min=0)[:, None])
    share = (positions - before).unsqueeze(-1)
    rows = torch.arange(len(values), device=values.device)[:, None]
    left = before.long()
    right = torch.minimum(left + 1, last.long()[:, None])
    # Not left + share * (right - left): at share 1 that is not exactly `right`.
    return (1 - share) * values[rows, left] + share * values[rows, right]


def as_tensor(given: object, name: str) -> Tensor:
    """A tensor as it is; arrays and lists of numbers as one that shares their memory where torch can."""
    if isinstance(given, Tensor):
        return given
    import numpy as np  # only for those who bring arrays or lists

    try:
        array: Any = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name}: {_FORMS}, got {type(given).__name__}: {error}") from error
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in (np.float64, np.float32, np.float16):
        raise TypeError(
            f"{name}: expected floating-point numbers or integers, got {type(given).__name__} of {array.dtype}"
        )
    if not (array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)):
        array = array.astype(
            array.dtype.newbyteorder("=")
        )  # torch has no read-only, swapped or mirrored memory
    return torch.from_numpy(array)


def _stacked(given: list[Any] | tuple[Any, ...], name: str) -> Tensor:
    """Series of a list behind each other, padded with NaN."""
    if not given:
        raise ValueError(f"{name}: {_FORMS}, got an empty list")
    parts: list[Tensor] = []
    for index, one in enumerate(given):
        part = as_tensor(one, f"{name}[{index}]")
        if part.dim() == 1:
            part = part.unsqueeze(-1)
        if part.dim() != 2:
            raise ValueError(f"{name}[{index}]: expected (N, D) or (N,), got shape {tuple(part.shape)}")
        check_table(part, f"{name}[{index}]", "N, D")
        first = parts[0] if parts else part
        if part.shape[1] != first.shape[1]:
            raise ValueError(
                f"{name}[{index}]: expected D = {first.shape[1]} features as in {name}[0], got {part.shape[1]}"
                + time_comes_first(given, name)
            )
        if part.dtype != first.dtype:
            raise TypeError(
                f"{name}[{index}]: expected the dtype of {name}[0], {first.dtype}, got {part.dtype}"
            )
        if part.device != first.device:
            raise ValueError(
                f"{name}[{index}]: expected the device of {name}[0], {first.device}, got {part.device}"
            )
        parts.append(part)
    return pad_sequence(parts, batch_first=True, padding_value=torch.nan)


def _lengths_before_padding(values: Tensor, name: str) -> Tensor:
    n, size, _ = values.shape
    if not bool(values[:, -1].isnan().all(-1).any()):
        return torch.full((n,), size)
    is_step = ~values.isnan().all(-1)
    lengths = torch.where(is_step, torch.arange(1, size + 1, device=values.device), 0).amax(1).cpu()
    empty = (lengths == 0).nonzero()
    if len(empty):
        raise ValueError(
            f"{name}: expected a time step in every series, got only NaN in series {int(empty[0])}"
        )
    return lengths


def padded(series: object, lengths: Any, name: str, lengths_name: str) -> tuple[Any, Any]:
    """Packed and nested series as a padded tensor and lengths; others as they are."""
    packed = isinstance(series, PackedSequence)
    if not packed and not (isinstance(series, Tensor) and series.is_nested):
        return series, lengths
    kind = "a PackedSequence" if packed else "a nested tensor"
    if lengths is not None:
        raise ValueError(f"{lengths_name}: expected None with {kind} as {name}, which has its lengths")
    if isinstance(series, PackedSequence):
        values, own = pad_packed_sequence(series, batch_first=True)
        own = own.to(values.device)
    else:
        assert isinstance(series, Tensor)
        steps = [part.shape[0] for part in series.unbind()]
        # torch pads to as many steps as all series have together where nobody has told it the longest one.
        values = series.to_padded_tensor(0.0)[:, : max(steps, default=0)]
        own = torch.tensor(steps, device=series.device)
    if values.dim() != 3:
        raise ValueError(f"{name}: expected {kind} of series (length, D), got {values.dim() - 1} axes")
    return values, own


def is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16)


def widened(tensor: Tensor) -> Tensor:
    return tensor.float() if is_half(tensor) else tensor
