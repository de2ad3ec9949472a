"""An operator's small cases, one after the other: the program that compute-sanitizer watches (`sanitizer.py`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch

Case: TypeAlias = tuple[str, Callable[[], str | None]]
"""A name, and a function that runs the case and says what is wrong, if anything is."""


def run(cases: Iterable[Case], part: tuple[int, int] = (1, 1)) -> int:
    """The number of wrong cases. part: (k, n), the k-th of n parts of the cases, which are dealt out in turn."""
    failures = 0
    dealt = list(cases)[part[0] - 1 :: part[1]]
    for name, check in dealt:
        message = check()
        print(f"{'wrong' if message else 'ok'}: {name}", flush=True)
        if message:
            failures += 1
            print(f"WRONG: {name}: {message}", file=sys.stderr)
    print(f"{len(dealt)} cases, {failures} wrong")
    return failures


def part_of(text: str) -> tuple[int, int]:
    """ "2/5" -> (2, 5)."""
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"expected k/n with 1 <= k <= n, such as 2/5, got {text!r}")
    return int(part), int(parts)


def main(description: str | None, cases: Callable[[torch.device], Iterable[Case]]) -> int:
    """The command line of an operator's module; 1 if a case is wrong."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="K/N", help="the K-th of N parts")
    arguments = parser.parse_args()
    return 1 if run(cases(torch.device(arguments.device)), arguments.part) else 0
