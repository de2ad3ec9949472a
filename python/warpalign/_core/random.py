"""Randomness: generator= of functions, and random_state= of estimators."""

from __future__ import annotations

from typing import Any

import torch

_SEEDS = 2**63


def check_generator(generator: object) -> torch.Generator:
    """The generator that a function draws from, on the CPU. None: torch's default generator; an int: a new one with this seed."""
    if generator is None:
        return torch.default_generator
    if isinstance(generator, torch.Generator):
        if generator.device.type != "cpu":
            raise ValueError(
                "generator: expected a torch.Generator on the CPU, where numbers are drawn for every device, got one on "
                f"{generator.device}: write torch.Generator().manual_seed(seed)"
            )
        return generator
    return torch.Generator().manual_seed(_check_seed(generator))


def seed_of(generator: object) -> int:
    """A seed for an operator that makes its own random numbers: the int itself, or a number drawn from the generator."""
    if generator is None or isinstance(generator, torch.Generator):
        return int(torch.randint(_SEEDS - 1, (), generator=check_generator(generator)))
    return _check_seed(generator)


def generator_of_state(random_state: Any) -> torch.Generator:
    """The generator of an estimator's random_state: None, an int or a numpy.random.RandomState, as scikit-learn's estimators take it.

    An int gives the generator that the functions make of this int.
    """
    from sklearn.utils import check_random_state  # estimators have loaded scikit-learn

    state = check_random_state(random_state)
    seed = random_state if isinstance(random_state, int) else int(state.randint(2**31 - 1))
    return torch.Generator().manual_seed(seed)


def _check_seed(generator: object) -> int:
    if isinstance(generator, bool) or not isinstance(generator, int):
        raise TypeError(
            f"generator: expected a torch.Generator, an int or None, got {type(generator).__name__}"
        )
    if not 0 <= generator < _SEEDS:
        raise ValueError(f"generator: expected a seed from 0 to 2^63 − 1, got {generator}")
    return generator
