"""The libraries of JAX operators: their schemas, their handlers for XLA, and the shapes of their results."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

LIBRARIES = Path(__file__).parents[1] / "lib"
# In the order of ScalarType (bindings/jax/front_end.h).
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
_MOST_AXES, _MOST_RESULTS = 8, 16
_ERROR_BYTES = 1024


class _Array(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_int32),
        ("axes", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * _MOST_AXES),
    ]


class _Setting(ctypes.Structure):
    _fields_ = [
        ("number", ctypes.c_double),
        ("integer", ctypes.c_int64),
        ("integers", ctypes.POINTER(ctypes.c_int64)),
        ("count", ctypes.c_int64),
    ]


class Parameter(NamedTuple):
    """A parameter of an operator's schema."""

    type: str
    """ "Tensor", "Tensor?", "float", "int", "bool" or "int[]"."""
    name: str
    default: Any
    """None where there is none."""

    @property
    def is_array(self) -> bool:
        return self.type.startswith("Tensor")


class Operator(NamedTuple):
    name: str
    parameters: tuple[Parameter, ...]

    @property
    def arrays(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if one.is_array)

    @property
    def settings(self) -> tuple[Parameter, ...]:
        return tuple(one for one in self.parameters if not one.is_array)


def _load(name: str) -> ctypes.CDLL | None:
    path = LIBRARIES / f"lib{name}.so"
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    library.warpalign_jax_schema.restype = ctypes.c_char_p
    library.warpalign_jax_schema.argtypes = (ctypes.c_int,)
    library.warpalign_jax_handler.restype = ctypes.c_void_p
    library.warpalign_jax_handler.argtypes = (ctypes.c_char_p,)
    library.warpalign_jax_describe.restype = ctypes.c_int
    library.warpalign_jax_describe.argtypes = (
        ctypes.c_char_p,
        ctypes.POINTER(_Array),
        ctypes.c_int,
        ctypes.POINTER(_Setting),
        ctypes.c_int,
        ctypes.POINTER(_Array),
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )
    return library


@cache
def _cpu() -> ctypes.CDLL:
    library = _load("warpalign_jax_cpu")
    if library is None:
        raise ImportError(
            f"warpalign: {LIBRARIES / 'libwarpalign_jax_cpu.so'} is missing; install a wheel with the JAX operators, or build with "
            "-DWARPALIGN_BUILD_JAX=ON"
        )
    return library


@cache
def operators() -> dict[str, Operator]:
    """All operators by name, whose handlers XLA knows from now on, on CPUs and, where there is the library for it, on CUDA."""
    libraries = {"cpu": _cpu(), "CUDA": _load("warpalign_jax_cuda")}
    found: dict[str, Operator] = {}
    while (schema := _cpu().warpalign_jax_schema(len(found))) is not None:
        operator = _parsed(schema.decode())
        found[operator.name] = operator
    for platform, library in libraries.items():
        if library is None:
            continue
        for name in found:
            handler = ctypes.c_void_p(library.warpalign_jax_handler(name.encode()))
            jax.ffi.register_ffi_target(target(name), jax.ffi.pycapsule(handler), platform=platform)
    return found


def target(name: str) -> str:
    """The name by which XLA knows an operator."""
    return f"warpalign_{name}"


def _parsed(schema: str) -> Operator:
    """ "name(Tensor x, *, float gamma=1.0) -> ..."."""
    name, rest = schema.split("(", 1)
    declared = [one.strip() for one in rest.split(") ->")[0].split(",")]
    return Operator(name, tuple(_parameter(one) for one in declared if one != "*"))


def _parameter(declared: str) -> Parameter:
    head, _, default = declared.partition("=")
    kind, name = head.rsplit(" ", 1)
    values = {"True": True, "False": False, "None": None, "[]": (), "": None}
    if default in values:
        return Parameter(kind, name, values[default])
    return Parameter(kind, name, float(default) if kind == "float" else int(default))


def describe(
    operator: Operator, arrays: Sequence[Any], settings: Sequence[Any]
) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes and dtypes of an operator's results.

    Args:
        operator: one of operators().
        arrays: for each array parameter what has a shape and a dtype, or None.
        settings: the other arguments, in the order of the parameters.

    Raises:
        ValueError: arrays do not fit, in the operator's own words.
    """
    given = (_Array * len(arrays))(*(_described(one) for one in arrays))
    numbers = (_Setting * len(settings))(
        *(_setting(one, value) for one, value in zip(operator.settings, settings, strict=True))
    )
    results = (_Array * _MOST_RESULTS)()
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    count = _cpu().warpalign_jax_describe(
        operator.name.encode(),
        given,
        len(arrays),
        numbers,
        len(settings),
        results,
        _MOST_RESULTS,
        error,
        _ERROR_BYTES,
    )
    if count < 0:
        raise ValueError(error.value.decode().removeprefix("warpalign: "))
    return tuple(
        jax.ShapeDtypeStruct(tuple(one.sizes[: one.axes]), np.dtype(_DTYPES[one.dtype]))
        for one in results[:count]
    )


def _described(array: Any) -> _Array:
    if array is None:
        return _Array(-1, 0)
    return _Array(
        _DTYPES.index(str(array.dtype)), len(array.shape), (ctypes.c_int64 * _MOST_AXES)(*array.shape)
    )


def _setting(parameter: Parameter, value: Any) -> _Setting:
    if parameter.type == "float":
        return _Setting(number=value)
    if parameter.type == "int[]":
        return _Setting(integers=(ctypes.c_int64 * len(value))(*value), count=len(value))
    return _Setting(integer=value)
