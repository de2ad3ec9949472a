"""Transport's settings are described once: Settings, from which the operators' schemas and the functions' defaults follow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from warpalign import estimators, transport
from warpalign._transport.checks import check_settings
from warpalign._transport.settings import Settings, settings_of

OPERATORS = (
    *("sinkhorn", "sinkhorn_potentials", "sinkhorn_jvp"),
    *("transport_apply", "transport_gradient", "transport_topk", "transport_sample", "transport_dense"),
)
IN_PYTHON = {"storage"}  # no argument of an operator: the costs are stored before


@pytest.mark.parametrize("name", OPERATORS)
def test_schemas_take_the_settings(name: str) -> None:
    arguments = getattr(torch.ops.warpalign, name).default._schema.arguments
    found = {one.name: one.default_value for one in arguments if one.kwarg_only}
    expected = {name: value for name, value in Settings()._asdict().items() if name not in IN_PYTHON}
    assert list(found) == list(expected)
    assert {name: expected[name] if value is None else value for name, value in found.items()} == expected


def test_defaults_of_functions_are_those_of_the_settings() -> None:
    assert check_settings() == settings_of() == Settings()
    defaults = {
        name: one.default
        for name, one in inspect.signature(settings_of).parameters.items()
        if name not in ("factor", "precision")  # the latter is a number there
    }
    functions: dict[str, tuple[Callable[..., Any], set[str]]] = {
        "sinkhorn": (transport.sinkhorn, set()),
        "sinkhorn_divergence": (transport.sinkhorn_divergence, {"updates"}),
        "SinkhornDivergence": (transport.SinkhornDivergence, {"updates"}),
        "SinkhornTransport": (estimators.SinkhornTransport, set()),
    }
    for name, (function, own) in functions.items():
        given = {key: one.default for key, one in inspect.signature(function).parameters.items()}
        differing = {key for key in defaults.keys() & given.keys() if given[key] != defaults[key]}
        assert differing == own, name
