"""What is public is what public_api.txt lists: names, signatures and defaults, of the command too. So a change is always seen.

To accept one: PYTHONPATH=python python -m tests.python.core.test_public_api
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click
import pytest

LISTED = Path(__file__).with_name("public_api.txt")


def modules() -> list[str]:
    """Every module of the package that has no private name; the command has no functions for its users."""
    import warpalign

    found = [name for _, name, _ in pkgutil.walk_packages(warpalign.__path__, "warpalign.")]
    public = [name for name in found if not any(part.startswith("_") for part in name.split("."))]
    left = ["cli"] if find_spec("jax") else ["cli", "jax"]
    return ["warpalign", *(name for name in public if name.split(".")[1] not in left)]


def names(module: ModuleType) -> list[str]:
    """Those in __all__, or that dir() is made to offer; of a module without either, those that it makes."""
    if "__all__" in vars(module) and "__dir__" not in vars(module):
        return list(module.__all__)
    found = [name for name in dir(module) if not name.startswith("_")]
    if "__dir__" in vars(module):
        return found
    maker = {name: getattr(getattr(module, name), "__module__", None) or "" for name in found}
    return [name for name in found if f"{maker[name]}.".startswith(f"{module.__name__}.")]


def signature(function: Any) -> str:
    """Annotations and defaults as they are written."""
    try:
        return str(inspect.signature(function)).replace("'", "")
    except (ValueError, TypeError):  # of C functions and of exceptions
        return "(...)"


def described(path: str, value: Any) -> Iterator[str]:
    """The lines of one name."""
    if not inspect.isclass(value):
        yield f"{path}{signature(value)}" if callable(value) else f"{path}: {type(value).__name__}"
        return
    fields = getattr(value, "_fields", None)
    arguments = signature(value) if fields is None else f"({', '.join(fields)})"
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"class {path}{arguments}" + (f" of {bases}" if bases else "")
    for name, member in sorted(vars(value).items()):
        if (
            name.startswith("_") or name in (fields or ()) or name.endswith("_request")
        ):  # scikit-learn makes those
            continue
        if isinstance(member, property):
            yield f"  {path}.{name}: property"
        elif callable(getattr(value, name)):  # of scikit-learn's available_if, too
            yield f"  {path}.{name}{signature(getattr(value, name))}"
        else:
            yield f"  {path}.{name} = {member!r}"


def options() -> Iterator[str]:
    """Every sub-command of `warpalign`, with its arguments and options."""
    from warpalign.cli import _app

    for name, command in sorted(_app.warpalign.commands.items()):
        yield f"$ warpalign {name}"
        for parameter in command.params:
            shown = " ".join([*parameter.opts, *parameter.secondary_opts])
            kind = "flag" if getattr(parameter, "is_flag", False) else parameter.type.name
            if isinstance(parameter.type, click.Choice):
                kind = "|".join(map(str, parameter.type.choices))
            least = getattr(parameter.type, "min", None)
            facts = [
                kind,
                "required" if parameter.required else f"default {parameter.to_info_dict()['default']}",
            ]
            facts += [f"least {least}"] * (least is not None) + ["many"] * (
                parameter.nargs == -1 or parameter.multiple
            )
            yield f"  {shown}: {', '.join(facts)}"


def public_api() -> str:
    lines: list[str] = []
    known: dict[int, str] = {}
    for name in modules():
        module = importlib.import_module(name)
        for public in sorted(names(module)):
            path, value = f"{name}.{public}", getattr(module, public)
            if isinstance(value, TypeVar):
                continue
            if isinstance(value, ModuleType):
                lines.append(f"module {path}")  # has lines of its own
            elif id(value) in known:
                lines.append(f"{path} is {known[id(value)]}")
            else:
                lines += described(path, value)
                known |= {id(value): path} if callable(value) else {}
    return "\n".join([*lines, *options()]) + "\n"


def test_the_public_names_and_signatures_are_the_listed_ones() -> None:
    for package in ("sklearn", "matplotlib", "torchmetrics", "scipy", "jax"):
        pytest.importorskip(package)
    found, listed = public_api().splitlines(), LISTED.read_text().splitlines()
    changes = "\n".join(difflib.unified_diff(listed, found, LISTED.name, "the package", lineterm="", n=0))
    assert not changes, f"{changes}\n{(__doc__ or '').splitlines()[-1]}"


if __name__ == "__main__":
    LISTED.write_text(public_api())
