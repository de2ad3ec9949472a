"""Runs the Python code of a documentation page: its ```python blocks in order, as one program.

Used by the tests and by the site's hooks, so that what a page shows is what its code does.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path) -> list[tuple[int, str]]:
    """(line in the page, code) of every block."""
    text = page.read_text()
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in _BLOCK.finditer(text)]


def run_page(page: Path, folder: Path) -> list[Path]:
    """Runs a page's code in `folder`, which is made; the .png files that it writes there."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"figure.constrained_layout.use": True, "figure.dpi": 110})
    import matplotlib.pyplot as plt
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, object] = {"__name__": "__page__"}
    torch.manual_seed(0)
    threads, before = torch.get_num_threads(), Path.cwd()
    blocks = python_blocks(page)
    os.chdir(folder)
    try:
        for line, code in blocks:
            # Blank lines in front, so that a traceback shows the page's line.
            exec(compile("\n" * line + code, str(page), "exec"), names)
    finally:
        os.chdir(before)
        plt.close("all")
        torch.set_num_threads(threads)
    return sorted(before.joinpath(folder).glob("*.png"))
