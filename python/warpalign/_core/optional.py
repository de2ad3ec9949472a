"""Packages that only some functions need, loaded when those are called."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def load(module: str, needed_by: str, extra: str) -> ModuleType:
    """The module, or an ImportError that says what needs it and how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the module is there, and one that it needs is not
        package = {"sklearn": "scikit-learn"}.get(error.name, error.name)
        raise ImportError(
            f"{needed_by} needs {package}, which is not installed: pip install 'warpalign[{extra}]'"
        ) from error
