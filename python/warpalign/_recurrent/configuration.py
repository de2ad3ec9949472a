"""What the modules make of their options: checked settings, the parameters of layer norm, and initial values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from warpalign._core.checks import check_flag, check_number
from warpalign._recurrent.checks import check_dtype, check_options, parameter_name
from warpalign._recurrent.planned import Plan, changed
from warpalign._recurrent.settings import LSTMWeights, Options

_NORMS = ("ln_ih", "ln_hh", "ln_cell", "ln_cell_bias")


def checked_options(options: dict[str, Any], dropout: float, bias: bool) -> Options:
    """The options of a module, once they are known to fit."""
    check_flag(options["layer_norm"], "layer_norm")
    check_flag(options["return_all_states"], "return_all_states")
    check_flag(options["recompute"], "recompute")
    check_dtype(options["state_dtype"])
    if options["forget_bias"] is not None:
        check_number(options["forget_bias"], "forget_bias", -float("inf"))
        if not bias:
            raise ValueError("forget_bias: expected None without bias, got a number")
    return check_options(
        dropout=dropout,
        **{
            name: options[name]
            for name in (
                "activation",
                "hard_slope",
                "hard_offset",
                "layer_norm_eps",
                "rw_dropout",
                "zoneout",
                "precision",
                "batch_invariant",
            )
        },
    )


def configure(module: Any, options: dict[str, Any], dropout: float) -> None:
    """Gives a module of torch.nn the options of ours, and the parameters of layer norm."""
    module._checked = checked_options(options, dropout, module.bias)
    module._options = options
    if options["layer_norm"]:
        for suffix in module._suffixes():
            like = getattr(module, f"weight_ih{suffix}")
            for field in _NORMS:
                size = module.hidden_size * (1 if field in ("ln_cell", "ln_cell_bias") else 4)
                empty = torch.empty(size, device=like.device, dtype=like.dtype)
                module.register_parameter(parameter_name(field) + suffix, nn.Parameter(empty))
    module._plan = plan_of(module)
    reset_own(module)


def plan_of(module: Any) -> Plan:
    """How plain calls of the module reach the operator."""
    kinds = {
        "bidirectional": getattr(module, "bidirectional", False),
        "bias": module.bias,
        "projection": getattr(module, "proj_size", 0) > 0,
        "layer_norm": module._options["layer_norm"],
    }
    fields = fields_of(module, kinds["projection"])
    names = tuple(parameter_name(field) + suffix for suffix in module._suffixes() for field in fields)
    defaults = {"bidirectional": False, "bias": True, "projection": False, "layer_norm": False}
    settings = {name: value for name, value in kinds.items() if value != defaults[name]}
    options: Options = module._checked
    return Plan(names, settings | changed(options), options.draws_masks(), options.precision is None)


def reset_own(module: Any) -> None:
    """Initial values of layer norm and of the forget gates' bias."""
    options = module.__dict__.get("_options")
    if options is None:
        return  # torch.nn's constructor, before configure()
    with torch.no_grad():
        for suffix in module._suffixes():
            if options["layer_norm"]:
                for field in _NORMS:
                    getattr(module, parameter_name(field) + suffix).fill_(float(field != "ln_cell_bias"))
            if options["forget_bias"] is not None:
                gate = slice(module.hidden_size, 2 * module.hidden_size)
                getattr(module, f"bias_ih{suffix}")[gate] = options["forget_bias"]
                getattr(module, f"bias_hh{suffix}")[gate] = 0


def fields_of(module: Any, projected: bool) -> list[str]:
    """The weights of a layer and direction, in the operator's order."""
    fields = ["ih", "hh"]
    fields += ["bias_ih", "bias_hh"] if module.bias else []
    fields += ["hr"] if projected else []
    fields += _NORMS if module._options["layer_norm"] else []
    return fields


def weights_of(module: Any, projected: bool) -> list[LSTMWeights]:
    """The weights, looked up by name in every call: parametrizations, functional_call and sharding replace them."""
    fields = fields_of(module, projected)
    return [
        LSTMWeights(**{field: getattr(module, parameter_name(field) + suffix) for field in fields})
        for suffix in module._suffixes()
    ]


def changed_options(options: dict[str, Any], defaults: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in options.items() if value != defaults[name])
