"""The README's Python code runs, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", README)))


def test_python_blocks_run() -> None:
    assert BLOCKS
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    alignment, loss, x = names["alignment"], names["loss"], names["x"]
    assert alignment.shape == (32, 100, 120)  # type: ignore[attr-defined]
    assert loss.shape == (32,)  # type: ignore[attr-defined]
    assert x.grad.isfinite().all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("link", [link for link in LINKS if "://" not in link])
def test_links_exist(link: str) -> None:
    assert (ROOT / link).exists(), f"README.md links to {link}, which does not exist"
