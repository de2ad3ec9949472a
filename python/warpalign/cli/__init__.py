"""The command `warpalign`; `python -m warpalign` is the same. Needs the extra `cli`: pip install "warpalign[cli]"."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> int:
    """Runs the process's command line and returns the exit code.

    `info` runs without the extra, too. 0: done; 1: something failed that is not the caller's fault; 2: wrong input, said in one line
    on stderr; 130: stopped.
    """
    try:
        from warpalign.cli import _app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("warpalign"):
            raise
        if sys.argv[1:] == ["info"]:  # it needs no further package, and says which ones are missing
            from warpalign import __version__
            from warpalign._core.information import information, lines

            print(*lines(information(__version__)), sep="\n")
            return 0
        print(
            f'warpalign: the command needs {error.name}, which is missing: pip install "warpalign[cli]"',
            file=sys.stderr,
        )
        return 1
    signal.signal(signal.SIGTERM, _terminate)
    return _app.run(None)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """So that temporary files are removed before the process ends."""
    raise SystemExit(128 + number)
