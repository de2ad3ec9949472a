"""Benchmarks: programs that are run from the repository's root, as in `python -m benchmarks.soft_dtw.sweep`.

They measure the package of this tree, which need not be installed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
