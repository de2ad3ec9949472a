"""Runs the Python code of a documentation page: its ```python blocks in order, as one program.

Used by the tests and by the site's hooks, so that what a page shows is what its code does. Whoever comes second finds the
plots of the first: a page runs again only when the page or the package has changed.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "build" / "docs"

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """(line in the page, code) of every block."""
    text = page.read_text()
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in _BLOCK.finditer(text)]


def run_page_once(page: Path) -> list[Path]:
    """The .png files that a page's code writes: of an earlier run, where nothing has changed since."""
    folder = RUNS / page.resolve().relative_to(ROOT)
    key = hashlib.sha256(page.read_bytes() + _package_key().encode()).hexdigest()
    with locked(folder):
        stamp = folder / "ran"
        if not stamp.exists() or stamp.read_text() != key:
            stamp.unlink(missing_ok=True)
            for old in folder.glob("*.png"):
                old.unlink()
            run_page(page, folder)
            stamp.write_text(key)  # not reached when the code raises
    return sorted(folder.glob("*.png"))


def run_page(page: Path, folder: Path) -> list[Path]:
    """Runs a page's code in `folder`, which is made; the .png files that it writes there.

    A warning about a line of the page is an error: a reader who runs the line would see it.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["figure.dpi"] = 110
    import matplotlib.pyplot as plt
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, object] = {"__name__": "__page__"}
    torch.manual_seed(0)
    threads, before = torch.get_num_threads(), Path.cwd()
    blocks = python_blocks(page)
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", module="__page__")
            for line, code in blocks:
                # Blank lines in front, so that a traceback shows the page's line.
                exec(compile("\n" * line + code, str(page), "exec"), names)
    finally:
        os.chdir(before)
        plt.close("all")
        torch.set_num_threads(threads)
    return sorted(before.joinpath(folder).glob("*.png"))


def files_key(*paths: Path) -> str:
    """A hash of files and of everything below folders, by name and contents."""
    total = hashlib.sha256()
    for path in paths:
        inside = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        for one in inside:
            if "__pycache__" not in one.parts:
                total.update(f"{one.relative_to(ROOT)}\0".encode())
                total.update(hashlib.sha256(one.read_bytes()).digest())
    return total.hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lets one process at a time into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def _package_key() -> str:
    """What a page's results depend on besides the page."""
    import matplotlib
    import numpy as np
    import torch

    versions = (torch.__version__, np.__version__, matplotlib.__version__, str(torch.cuda.is_available()))
    return files_key(ROOT / "python" / "warpalign", Path(__file__)) + " ".join(versions)
