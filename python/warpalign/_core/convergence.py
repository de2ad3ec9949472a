"""The warning of functions whose iterations ended before they had converged."""

from __future__ import annotations

import sys
import warnings
from typing import Any

# contextlib: where a decorator turns autocast off.
_NO_CALLERS = ("warpalign", "torch", "contextlib")
_FUNCTIONS = ("_core", "_soft_dtw", "_transport")
_seen: dict[tuple[str, int], dict[Any, Any]] = {}


class ConvergenceWarning(RuntimeWarning):
    """A result has not converged: the message says by how much, and what to change.

    Functions warn once per line that calls them (Python's default filter), for tensors on a CPU. On a GPU, within torch.compile
    and under torch.func's transforms they do not wait for values: look at ``converged`` and ``error`` of the result.
    """


def warn_of_convergence(message: str) -> None:
    """Warns at the line outside of the package that called, once per line under Python's default filter.

    Drop-ins, estimators and the command report convergence themselves, as their originals do: within them nothing is said here.
    """
    frame: Any = sys._getframe(1)
    while frame.f_back is not None:
        package, _, rest = frame.f_globals.get("__name__", "").partition(".")
        if package not in _NO_CALLERS:
            break
        if package == "warpalign" and (not rest.startswith(_FUNCTIONS) or ".estimators" in rest):
            return
        frame = frame.f_back
    path, line, category = frame.f_code.co_filename, frame.f_lineno, ConvergenceWarning
    registry = _seen.setdefault((path, line), {})
    if len(registry) > 1:
        # A warning with other numbers was shown here. Python's filter knows warnings by their text, so this one's replaces it.
        version = registry["version"]
        registry.clear()
        registry.update({"version": version, (message, category, line): 1})
    warnings.warn_explicit(message, category, path, line, frame.f_globals.get("__name__"), registry)
