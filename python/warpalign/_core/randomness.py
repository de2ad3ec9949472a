"""Generators of random numbers, as a caller gives them: a torch.Generator, or an int."""

from __future__ import annotations

from numbers import Integral

import torch


def check_generator(given: object, device: torch.device, name: str = "generator") -> torch.Generator | None:
    """A generator of the device; an int seeds a new one. None stays None: torch's own generator."""
    if given is None or isinstance(given, torch.Generator):
        return given
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{name}: expected a torch.Generator, an int or None, got {type(given).__name__}")
    return torch.Generator(device).manual_seed(int(given))


def check_generator_of_module(given: object, name: str = "generator") -> torch.Generator | None:
    """A generator, or None. A module is called many times, and an int would make each call draw the same numbers."""
    if given is not None and not isinstance(given, torch.Generator):
        remedy = f": write torch.Generator().manual_seed({given})" if isinstance(given, int) else ""
        raise TypeError(f"{name}: expected a torch.Generator or None, got {type(given).__name__}{remedy}")
    return given
