"""Every argument of the methods of transport's classes has its description; core/test_docstrings.py has functions and classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from warpalign import estimators, transport


def described() -> Iterator[tuple[str, Any, list[str]]]:
    """Every public method of transport's classes with its arguments."""
    of_transport = ("DomainAdaptationClassifier", "GromovTransport", "SinkhornTransport")
    for module, names in ((transport, transport.__all__), (estimators, of_transport)):
        for name in names:
            one = getattr(module, name)
            if not inspect.isclass(one) or hasattr(one, "_fields") or issubclass(one, Warning):
                continue
            for method, function in vars(one).items():
                if method.startswith("_") or method.endswith("_request") or not inspect.isfunction(function):
                    continue
                if method in ("forward", "extra_repr") or method.startswith(("fit_", "partial_")):
                    continue
                yield f"{name}.{method}", function, list(inspect.signature(function).parameters)[1:]


CASES = {name: (value, arguments) for name, value, arguments in described()}


@pytest.mark.parametrize("name", CASES)
def test_every_argument_is_documented(name: str) -> None:
    value, arguments = CASES[name]
    text = inspect.getdoc(value) or ""
    assert text, name
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", text + "\n", re.MULTILINE)
    found = [] if section is None else re.findall(r"^    \*{0,2}(\w+): ", section.group(1), re.MULTILINE)
    assert found == arguments, name
