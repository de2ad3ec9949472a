"""What the modules do beside computing: checkpoints that say which activation they belong to, and a word about quantization."""

from __future__ import annotations

from typing import Any

from torch import nn

from warpalign._core.checks import warn_caller, warn_once

_KEY = "warpalign_lstm"
_HARD_FIELDS = ("hard_slope", "hard_offset")


def activation_text(options: dict[str, Any]) -> str:
    """The activation as it is shown, and as checkpoints are compared."""
    if options["activation"] != "hard":
        return '"soft"'
    return '"hard" ({})'.format(", ".join(f"{name}={options[name]:g}" for name in _HARD_FIELDS))


class Recorded(nn.Module):
    """A base of the modules. The activation stands in a state_dict's metadata, which have no key: keys stay torch.nn's."""

    _options: dict[str, Any]
    _unrecorded_is_soft = True
    """Whether a state_dict of modules without the record is taken for that of a torch.nn.LSTM."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:
            metadata.setdefault(prefix[:-1], {})[_KEY] = activation_text(self._options)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *arguments: Any
    ) -> None:
        name, is_ = prefix[:-1] or type(self).__name__, activation_text(self._options)
        came = local_metadata.get(_KEY)
        if came is not None and came != is_:
            warn_caller(
                f"state_dict: expected weights of activation={is_} for {name}, got those of activation={came}: construct the "
                f"module with the activation of the checkpoint, or load dict(state_dict) to use the weights nevertheless"
            )
        elif came is None and "version" in local_metadata and self._doubts_unrecorded():
            # Every module of torch.nn has a version; a plain dict, or a file without metadata, has none.
            warn_caller(
                f"state_dict: expected weights of activation={is_} for {name}, got those of a module without that record, such as "
                f'torch.nn.LSTM, whose activation is "soft": construct warpalign.recurrent.LSTM for soft weights, or load '
                f"dict(state_dict) if they are hard"
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *arguments)

    def _doubts_unrecorded(self) -> bool:
        return self._unrecorded_is_soft and self._options["activation"] == "hard"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "qconfig":  # torch.ao.quantization sets it on every module, whichever it will convert
            warn_once(
                f"torch.ao.quantization: expected torch.nn.LSTM, got warpalign's {type(self).__name__}, which stays in floating "
                "point: call warpalign.recurrent.restore_lstm(model) first to quantize it"
            )
        super().__setattr__(name, value)
