"""Signs of life on stderr, where that is a terminal and something takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

_DELAY_S = 1.0


def show_progress() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr.isatty()


def progress(items: Iterable[Item], label: str) -> Iterable[Item]:
    """A progress bar over `items`."""
    bar: Iterable[Item] = tqdm(items, desc=label, delay=_DELAY_S, leave=False, disable=None)
    return bar


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """The time that the block has taken so far, for a block that is one call."""
    if not show_progress():
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def tick() -> None:
        was_shown = False
        while not done.wait(_DELAY_S):
            was_shown = True
            print(f"\r{label}: {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
        if was_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # clears the line

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
