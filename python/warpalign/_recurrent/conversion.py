"""Models between torch.nn.LSTM and this package's modules, in place and with the same parameters."""

from __future__ import annotations

import logging
from typing import Any, Literal

import torch
from torch import nn

from warpalign._recurrent.configuration import checked_options, configure
from warpalign._recurrent.modules import DEFAULTS, LSTM, HardLSTM, LSTMCell

_LOGGER = logging.getLogger("warpalign")

Unsupported = Literal["raise", "leave"]
# Of initial values, memory and speed alone: without them torch's module computes the same.
_WITHOUT_EFFECT = ("forget_bias", "recompute", "precision", "hard_slope", "hard_offset", "layer_norm_eps")


def replace_lstm(model: nn.Module, **options: Any) -> nn.Module:
    """Replaces every torch.nn.LSTM within a model by an :class:`LSTM`, in place, with the same parameters and hooks.

    Optimizers, tied parameters and the state_dict are unchanged. Pruned layers, and those with torch.nn.utils'
    ``weight_norm`` and ``spectral_norm``, are replaced with their hooks. :func:`restore_lstm` is the inverse.

    What is left as it is: subclasses of torch.nn.LSTM, among them parametrized layers
    (:mod:`torch.nn.utils.parametrize`), torch.nn.LSTMCell, quantized and scripted layers, and modules of this package. The logger
    "warpalign" names the modules that are replaced (level INFO), and in one warning those that are not, with the reason. It also
    warns if a model has no LSTM.

    Args:
        model: any module; a torch.nn.LSTM itself too.
        options: keyword arguments of :class:`LSTM` for all of them: activation, zoneout, ...

    Returns:
        The model. When an error is raised, it is unchanged.

    Raises:
        TypeError: the model is not a module, or :class:`LSTM` has no such option.
        ValueError: an option has a wrong value, or ``forget_bias`` is given for a layer without bias.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.LSTM(40, 128))
        >>> replace_lstm(model, activation="hard")
        Sequential(
          (0): LSTM(40, 128, activation='hard')
        )
    """
    _check_model(model)
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise TypeError(f"options: expected options of LSTM ({', '.join(DEFAULTS)}), got {unknown[0]}")
    found = {name: module for name, module in model.named_modules() if type(module) is nn.LSTM}
    for module in found.values():  # all of them before the first is changed
        checked_options(DEFAULTS | options, module.dropout, module.bias)
    skipped = {name: _why_skipped(module, options) for name, module in model.named_modules()}
    has_ours = any(isinstance(module, (LSTM, LSTMCell)) for module in model.modules())
    for module in found.values():
        module.__class__ = LSTM  # type: ignore[assignment]
        configure(module, DEFAULTS | options, module.dropout)
    if found:
        _LOGGER.info("replace_lstm: replaced %s", ", ".join(map(_shown, found)))
    reasons = [f"{_shown(name)} ({why})" for name, why in skipped.items() if why]
    if reasons:
        _LOGGER.warning(
            "replace_lstm: expected torch.nn.LSTM modules, left as they are: %s", "; ".join(reasons)
        )
    elif not found and not has_ours:
        _LOGGER.warning(
            "replace_lstm: model: expected a torch.nn.LSTM within it, got none: nothing is replaced"
        )
    return model


def restore_lstm(model: nn.Module, *, unsupported: Unsupported = "raise") -> nn.Module:
    """Replaces every :class:`LSTM` and :class:`LSTMCell` within a model by torch.nn's, in place, with the same parameters and hooks.

    For ONNX, TorchScript and dynamic quantization, which support torch.nn.LSTM. Optimizers, tied parameters and the state_dict
    are unchanged. The options ``forget_bias``, ``recompute`` and ``precision`` change no values of a trained model, and are lost.
    Apply it to ``copy.deepcopy(model)`` if training continues.

    Args:
        model: any module; one of this package itself too.
        unsupported: what happens to a module with an option that torch.nn.LSTM does not have (hard activations, zoneout,
            rw_dropout, layer norm, return_all_states, state_dtype, batch_invariant), and to subclasses, among them
            parametrized modules. "raise": an error names all of them and the model is unchanged. "leave": they stay as
            they are, and the logger "warpalign" names them in one warning.

    Returns:
        The model.

    Raises:
        TypeError: the model is no module.
        ValueError: a module cannot be a torch.nn.LSTM, or ``unsupported`` has another value.

    Examples:
        >>> model = torch.nn.Sequential(LSTM(40, 128))
        >>> restore_lstm(model)
        Sequential(
          (0): LSTM(40, 128)
        )
        >>> type(model[0]) is torch.nn.LSTM
        True
    """
    _check_model(model)
    if unsupported not in ("raise", "leave"):
        raise ValueError(f'unsupported: expected "raise" or "leave", got {unsupported!r}')
    found = {name: m for name, m in model.named_modules() if isinstance(m, (LSTM, LSTMCell))}
    reasons = {name: why for name, module in found.items() if (why := _why_not_torch(module))}
    if reasons:
        text = "; ".join(f"{_shown(name)} ({why})" for name, why in reasons.items())
        if unsupported == "raise":
            raise ValueError(
                f"model: expected modules that torch.nn.LSTM can express, got {text}: "
                'unsupported="leave" leaves them as they are'
            )
        _LOGGER.warning("restore_lstm: left as they are: %s", text)
    restored = {name: module for name, module in found.items() if name not in reasons}
    for module in restored.values():
        for attribute in ("_options", "_checked", "_plan"):
            delattr(module, attribute)
        kind: Any = nn.LSTMCell if isinstance(module, LSTMCell) else nn.LSTM
        module.__class__ = kind
        if isinstance(module, nn.LSTM):
            module.flatten_parameters()
    if restored:
        _LOGGER.info("restore_lstm: restored %s", ", ".join(map(_shown, restored)))
    return model


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")


def _shown(name: str) -> str:
    return name or "the model itself"


def _why_skipped(module: nn.Module, options: dict[str, Any]) -> str | None:
    """Why replace_lstm leaves what looks like an LSTM; None for what is replaced and for all other modules."""
    kind = type(module)
    if isinstance(module, (LSTM, LSTMCell)):
        other = [name for name, value in options.items() if module._options[name] != value]
        return f"already a warpalign {kind.__name__}, with another {other[0]}" if other else None
    if isinstance(module, torch.jit.ScriptModule) and module.original_name in ("LSTM", "LSTMCell"):
        return "scripted: replace the LSTM before torch.jit"
    if kind.__module__.startswith("torch.ao.nn.quanti") and kind.__name__ in ("LSTM", "LSTMCell"):
        return "quantized: replace the LSTM of the model in floating point"
    if kind is nn.LSTM or not isinstance(module, (nn.LSTM, nn.LSTMCell)):
        return None
    if nn.utils.parametrize.is_parametrized(module):
        names = ", ".join(module.parametrizations)  # type: ignore[arg-type]
        return f"{names} parametrized: replace the LSTM first, and parametrize it then"
    if kind is nn.LSTMCell:
        return "a torch.nn.LSTMCell: construct warpalign.recurrent.LSTMCell in its place"
    return f"{kind.__name__} is a subclass, which may compute something else: derive it from warpalign.recurrent.LSTM"


def _why_not_torch(module: LSTM | LSTMCell) -> str | None:
    """Why a module of ours cannot be torch.nn's."""
    if nn.utils.parametrize.is_parametrized(module):
        names = ", ".join(module.parametrizations)  # type: ignore[arg-type]
        return f"{names} parametrized: call torch.nn.utils.parametrize.remove_parametrizations first"
    if type(module) not in (LSTM, HardLSTM, LSTMCell):
        return f"{type(module).__name__} is a subclass, which may compute something else"
    unlike = [
        f"{name}={value!r}"
        for name, value in module._options.items()
        if name not in _WITHOUT_EFFECT and not _is_off(value, DEFAULTS[name])
    ]
    return ", ".join(unlike) or None


def _is_off(value: object, default: object) -> bool:
    return value == default or (isinstance(value, (tuple, list)) and not any(value))
