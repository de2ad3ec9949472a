"""What an install() of a drop-in does: names of another package stand for this one's, until they are put back."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

_LOGGER = logging.getLogger("warpalign")
_MISSING = object()


class Replacement(NamedTuple):
    """One attribute, and what takes its place."""

    owner: Any
    """A module, a class or an object."""
    attribute: str
    """Of the owner; it need not exist."""
    value: object
    name: str
    """For people, such as "nemo.collections.asr.losses.rnnt.RNNTLossNumba"."""


class _Modules:
    """The table of imported modules, as an owner of attributes."""

    def __setattr__(self, name: str, module: ModuleType) -> None:
        sys.modules[name] = module

    def __delattr__(self, name: str) -> None:
        del sys.modules[name]


class Installation:
    """Names of another package that stand for warpalign's, until the end of a ``with`` block or :meth:`uninstall`.

    Attributes:
        replaced: the replaced names; empty if an earlier call of install() has replaced them already.
    """

    def __init__(self, replacements: Iterable[Replacement]) -> None:
        self._originals: list[Replacement] = []
        for owner, attribute, value, name in replacements:
            held = sys.modules if isinstance(owner, _Modules) else vars(owner)
            original = held.get(attribute, _MISSING)
            if original is value:
                continue
            self._originals.append(Replacement(owner, attribute, original, name))
            setattr(owner, attribute, value)
        self.replaced: tuple[str, ...] = tuple(original.name for original in self._originals)
        if self.replaced:
            _LOGGER.info("warpalign takes the place of %s", ", ".join(self.replaced))

    @classmethod
    def of_module(cls, name: str, module: ModuleType) -> Installation:
        """A module under another name, as imports find it."""
        return cls([Replacement(_Modules(), name, module, name)])

    def uninstall(self) -> None:
        """Puts the originals back. A second call does nothing."""
        while self._originals:
            owner, attribute, original, _ = self._originals.pop()
            if original is _MISSING:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, original)

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def __repr__(self) -> str:
        return f"Installation(replaced={self.replaced})"


class Installations:
    """What the calls of a drop-in's install() have replaced and not put back."""

    def __init__(self) -> None:
        self._made: list[Installation] = []

    def make(self, replacements: Iterable[Replacement]) -> Installation:
        made = Installation(replacements)
        if made.replaced:
            self._made.append(made)
        return made

    def undo(self) -> None:
        while self._made:
            self._made.pop().uninstall()
