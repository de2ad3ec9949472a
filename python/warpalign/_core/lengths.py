"""True lengths of a batch's rows, as a caller gives them: a tensor, list, tuple or array of integers."""

from __future__ import annotations

import torch
from torch import Tensor

from warpalign._core.checks import can_be_read, shape_of
from warpalign._core.torch_internals import by_arguments

_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_INT32 = torch.iinfo(torch.int32)


def lengths_tensor(
    value: object,
    name: str,
    count: int | None,
    maximum: int | None,
    device: torch.device,
    *,
    minimum: int = 0,
    maximum_name: str = "T",
    whose: str = "input",
    unit: str = "row",
) -> Tensor | None:
    """Lengths as the operators take them: int32, contiguous, of shape (count,), on the device. None stays None.

    Values are compared with the range only where they are in the host's memory. A tensor on a GPU is never read.

    Args:
        value: a tensor on the device, or a list, tuple or array, which is copied there.
        name: the argument's name in messages.
        count: number of rows. None: any.
        maximum: number of steps. None: values are not compared with a range.
        device: that of the operator's input.
        minimum: the least length.
        maximum_name: what messages call the maximum.
        whose: what messages call the owner of the device.
        unit: what one length belongs to.

    Raises:
        TypeError: not integers.
        ValueError: another shape or device, or a length out of range.
    """
    if value is None:
        return None
    lengths = value if isinstance(value, Tensor) else _from_host(value, name)
    if lengths.dtype not in _DTYPES:
        raise TypeError(
            f"{name}: expected integers of dtype int64, int32, int16, int8 or uint8, got {lengths.dtype}"
            + _remedy_for_floats(lengths, name, maximum, maximum_name)
        )
    if isinstance(value, Tensor) and lengths.device != device:
        raise ValueError(
            f"{name}: expected the device of {whose}, {device}, got {lengths.device}: write {name}.to({str(device)!r})"
        )
    if lengths.dim() != 1 or (count is not None and lengths.shape[0] != count):
        shape = "(B,)" if count is None else f"({count},)"
        raise ValueError(f"{name}: expected shape {shape}, one length per {unit}, got {shape_of(lengths)}")
    if maximum is not None and type(lengths) is Tensor and can_be_read(lengths):
        _check_range(lengths, name, minimum, maximum, maximum_name)
    if lengths.dtype == torch.int64:  # what is beyond int32 must not come back as a small number
        lengths = lengths.clamp(_INT32.min, _INT32.max)
    return on_device(lengths, device).contiguous()


def check_lengths(lengths: object, name: str, limit_name: str, table: Tensor, batch: int) -> Tensor | None:
    """True lengths of the series of table (B, N, ...), from 1 to N, as lengths_tensor() returns them."""
    return lengths_tensor(
        lengths,
        name,
        batch,
        table.shape[1],
        table.device,
        minimum=1,
        maximum_name=limit_name,
        whose="the series",
        unit="pair",
    )


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """int32, on the device. Values of the host are copied there without waiting for it.

    The capture of a CUDA graph takes no copy from pageable memory. Values are arguments of kernels there, and so are
    constants of the graph.
    """
    if (
        device.type == "cuda"
        and values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and torch.cuda.is_current_stream_capturing()
    ):
        return by_arguments(values, device)
    # A copy of a few bytes is staged before the call returns, so that the source may change.
    return values.to(device, torch.int32, non_blocking=True)


def _from_host(value: object, name: str) -> Tensor:
    try:
        if hasattr(value, "__array__"):
            import numpy as np  # only for those who bring arrays

            return _integers_if_empty(torch.tensor(np.asarray(value)))
        if isinstance(value, (list, tuple)):
            return _integers_if_empty(torch.tensor(value, device="cpu"))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name}: expected integers (B,), got {type(value).__name__} of other values"
        ) from None
    raise TypeError(
        f"{name}: expected integers (B,) as a tensor, list, tuple or array, got {type(value).__name__}"
    )


def _integers_if_empty(lengths: Tensor) -> Tensor:
    """NumPy and torch give an empty list a floating-point dtype."""
    return lengths if lengths.numel() else lengths.long()


def _remedy_for_floats(lengths: Tensor, name: str, maximum: int | None, maximum_name: str) -> str:
    if not lengths.is_floating_point():
        return ""
    steps = maximum_name if maximum is None else f"{maximum_name} = {maximum}"
    return (
        f": multiply fractions in [0, 1] by the number of steps, {steps}, and round to integers, "
        f"({name} * {maximum_name}).round().long()"
    )


def _check_range(lengths: Tensor, name: str, minimum: int, maximum: int, maximum_name: str) -> None:
    low, high = (int(bound) for bound in torch.aminmax(lengths))
    if low < minimum or high > maximum:
        wide = lengths.long()  # int8 cannot be compared with 300
        index = int(((wide < minimum) | (wide > maximum)).nonzero()[0])
        raise ValueError(
            f"{name}: expected lengths from {minimum} to {maximum_name} = {maximum}, got {int(wide[index])} at index {index}"
        )
