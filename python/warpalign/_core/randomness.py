"""Randomness: generator= of functions and modules, and random_state= of estimators."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch

_SEEDS = 2**63


def device_generator(given: object, device: torch.device) -> torch.Generator | None:
    """The generator that a function draws from on a device; an int seeds a new one. None stays None: torch's own generator."""
    if given is None or isinstance(given, torch.Generator):
        return given
    return torch.Generator(device).manual_seed(_check_seed(given))


def cpu_generator(given: object) -> torch.Generator:
    """The generator that a function draws from on the CPU, for every device. None: torch's default generator."""
    if given is None:
        return torch.default_generator
    if isinstance(given, torch.Generator):
        if given.device.type != "cpu":
            raise ValueError(
                "generator: expected a torch.Generator on the CPU, where numbers are drawn for every device, got one on "
                f"{given.device}: write torch.Generator().manual_seed(seed)"
            )
        return given
    return torch.Generator().manual_seed(_check_seed(given))


def seed_of(given: object) -> int:
    """A seed for an operator that makes its own random numbers: the int itself, or a number drawn from the generator."""
    if given is None or isinstance(given, torch.Generator):
        return int(torch.randint(_SEEDS - 1, (), generator=cpu_generator(given)))
    return _check_seed(given)


def check_generator_of_module(given: object) -> torch.Generator | None:
    """A generator, or None. A module is called many times, and an int would make each call draw the same numbers."""
    if given is not None and not isinstance(given, torch.Generator):
        remedy = f": write torch.Generator().manual_seed({given})" if isinstance(given, int) else ""
        raise TypeError(f"generator: expected a torch.Generator or None, got {type(given).__name__}{remedy}")
    return given


def generator_of_state(random_state: Any) -> torch.Generator:
    """The generator of an estimator's random_state: None, an int or a numpy.random.RandomState, as scikit-learn's estimators take it.

    An int gives the generator that the functions make of this int.
    """
    from sklearn.utils import check_random_state  # estimators have loaded scikit-learn

    state = check_random_state(random_state)
    seed = random_state if isinstance(random_state, int) else int(state.randint(2**31 - 1))
    return torch.Generator().manual_seed(seed)


def _check_seed(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"generator: expected a torch.Generator, an int or None, got {type(given).__name__}")
    seed = int(given)
    if not 0 <= seed < _SEEDS:
        raise ValueError(f"generator: expected a seed from 0 to 2^63 − 1, got {given}")
    return seed
