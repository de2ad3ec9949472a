"""Builds the source distribution (`make sdist`).

Usage: make_sdist.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make_sdist(folder: Path) -> Path:
    """The archive in `folder`, of the files that git tracks or does not ignore."""
    from scikit_build_core.build import build_sdist

    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        return folder / build_sdist(str(folder))
    finally:
        os.chdir(before)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(make_sdist(Path(sys.argv[1]).resolve()))
