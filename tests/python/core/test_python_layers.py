"""The package's modules import downwards only, and the check that says so can see a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_python_layers import check_tree
from tests.python.helpers import write_files

ROOT = Path(__file__).resolve().parents[3]
TREE = {
    "__init__.py": "import torch\nfrom warpalign.timeseries import SoftDTW\n",
    "timeseries.py": "from warpalign._soft_dtw.modules import SoftDTW\n",
    "plot.py": "from warpalign._soft_dtw.checks import check_gamma\n",
    "_core/checks.py": "from warpalign._core import library\nimport torch.nn.functional as F\nF.pad(torch.__version__)\n",
    "_core/torch_internals.py": "import torch\ntorch._C.something()\n",
    "_soft_dtw/ops.py": "from warpalign._core.checks import check_table\nfrom warpalign._soft_dtw import settings\n",
    "_transducer/ops.py": "from torch.autograd import forward_ad\nforward_ad.dual_level()\n",
}


def test_this_tree_keeps_the_direction() -> None:
    assert check_tree(ROOT) == []


def test_a_tree_in_order_is_accepted(tmp_path: Path) -> None:
    write_files(tmp_path / "python" / "warpalign", TREE)
    assert check_tree(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("_core/bad.py", "from warpalign._soft_dtw.settings import Settings"),
        ("_core/bad.py", "import warpalign"),
        ("_core/bad.py", "from warpalign import timeseries"),
        ("_core/bad.py", "def f():\n    from warpalign._soft_dtw import ops"),
        ("_soft_dtw/bad.py", "from warpalign.timeseries import soft_dtw"),
        ("_soft_dtw/bad.py", "from warpalign._transducer import ops"),
        ("_soft_dtw/bad.py", "from . import ops"),
        ("plot.py", "import torch\ntorch._C._functorch.something()"),
        ("plot.py", "from torch._C import something"),
        ("plot.py", "import torch._dynamo"),
        ("plot.py", "from torch.autograd import forward_ad\nforward_ad._current_level"),
        ("plot.py", "import torch.autograd.forward_ad as ad\nad._current_level"),
    ],
)
def test_a_planted_violation_is_seen(tmp_path: Path, file: str, text: str) -> None:
    write_files(tmp_path / "python" / "warpalign", TREE | {file: text + "\n"})
    violations = check_tree(tmp_path)
    assert violations
    assert all(violation.startswith(f"python/warpalign/{file}") for violation in violations)
