"""Docstrings of the public interface: every argument has a line of its own, and every field of a result a sentence.

Drop-ins take the arguments of other packages, and describe all of them too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

import warpalign
from tests.python.core.test_public_api import modules, names
from warpalign import ctc, decoding, estimators, recurrent, timeseries, transducer, transport

NOT_CONSTRUCTED = ("ConvergenceWarning", "InputError", "LowRankPlan", "TransportPlan")  # by users
PUBLIC = [
    name
    for module in (timeseries, transducer, ctc, decoding, transport, recurrent, estimators)
    for name in module.__all__
]


def arguments(docstring: str) -> list[str]:
    """The names at the beginning of the entries of the section Args."""
    found: list[str] = []
    is_inside = False
    for line in docstring.splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            is_inside = line == "Args:"
        elif is_inside and (entry := re.match(r"    (\S[^:]*):", line)):
            found.append(entry[1].lstrip("*"))
    return found


def documented() -> Iterator[tuple[str, Any]]:
    """Functions, classes with arguments, and the calls of modules."""
    for name in PUBLIC:
        value = getattr(warpalign, name)
        if hasattr(value, "_fields") or getattr(value, "_is_protocol", False) or name in NOT_CONSTRUCTED:
            continue
        yield name, value
        if inspect.isclass(value) and "forward" in vars(value):
            yield f"{name}.forward", value.forward


def described() -> Iterator[tuple[str, Any]]:
    """Functions and classes of other public modules, such as plots and drop-ins, and the calls of modules with arguments of their own."""
    found = dict(documented())
    for path in modules():
        module = importlib.import_module(path)
        for name in names(module):
            value = getattr(module, name)
            is_public = callable(value) and value.__module__.startswith("warpalign.")
            if (
                not is_public
                or value in found.values()
                or name in NOT_CONSTRUCTED
                or has_described_fields(value)
            ):
                continue
            yield f"{path}.{name}".removeprefix("warpalign."), value
            if inspect.isclass(value) and "forward" in vars(value) and not takes_any(value.forward):
                yield f"{path}.{name}.forward".removeprefix("warpalign."), value.forward


def has_described_fields(value: Any) -> bool:
    """Whether this is a protocol, or a class whose fields have a sentence each in the place of Args."""
    is_data = hasattr(value, "_fields") or (is_dataclass(value) and not fields_without_text(value))
    return is_data or getattr(value, "_is_protocol", False)


def takes_any(function: Any) -> bool:
    """Whether a call takes ``*args``, whose forms the class describes."""
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())


def fields_without_text(value: type) -> list[str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    return [
        ast.unparse(field.target)
        for field, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]


CASES = dict([*documented(), *described()])


def test_a_section_of_arguments_is_read_by_entries() -> None:
    text = "One.\n\nArgs:\n    x: first: (B,)\n        more: text\n    **y: second\n\n    z: third\n\nReturns:\n    a: no argument"
    assert arguments(text) == ["x", "y", "z"]
    assert arguments("Args:\n    a, b: both") == ["a, b"]


@pytest.mark.parametrize("name", CASES)
def test_every_argument_is_documented(name: str) -> None:
    value = CASES[name]
    docstring = inspect.cleandoc(value.__doc__ or "")
    parameters = [p for p in inspect.signature(value).parameters if p != "self"]
    assert arguments(docstring) == parameters, f"{name}: Args are not the signature's arguments, in its order"


@pytest.mark.parametrize("name", [name for name in PUBLIC if hasattr(getattr(warpalign, name), "_fields")])
def test_every_field_is_documented(name: str) -> None:
    value = getattr(warpalign, name)
    assert value.__doc__ and not value.__doc__.startswith(f"{name}(")
    assert not fields_without_text(value)
