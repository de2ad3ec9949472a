"""The README's Python code runs, its links lead somewhere, and it stays a front page."""

import re
from pathlib import Path

import pytest

from pypi_readme import absolute, dynamic_metadata

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", README)))


def test_python_blocks_run() -> None:
    """One after the other in one namespace, as a reader pastes them."""
    assert len(BLOCKS) == 5, "a snippet per family of operators"
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    shapes = {
        "loss": (32,),
        "alignment": (32, 100, 120),
        "distances": (20, 20),
        "rnnt": (),
        "moved": (300, 2),
        "output": (100, 8, 256),
    }
    assert {name: tuple(names[name].shape) for name in shapes} == shapes  # type: ignore[attr-defined]
    for name in ("x", "source", "predictor_out"):
        assert names[name].grad.isfinite().all(), name  # type: ignore[attr-defined]


@pytest.mark.parametrize("link", [link for link in LINKS if "://" not in link])
def test_links_exist(link: str) -> None:
    assert (ROOT / link).exists(), f"README.md links to {link}, which does not exist"


URLS = {
    "Documentation": "https://docs.test",
    "Changelog": "https://docs.test/changelog.html",
    "Repository": "https://code.test/warpalign",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/howto/ctc.md)", "[a](https://docs.test/howto/ctc.html)"),
        ("[a](docs/numerics.md#ctc)", "[a](https://docs.test/numerics.html#ctc)"),
        ("![a](docs/images/overview.png)", "![a](https://docs.test/images/overview.png)"),
        ("[a](CHANGELOG.md)", "[a](https://docs.test/changelog.html)"),
        ("[a](SECURITY.md)", "[a](https://code.test/warpalign/blob/main/SECURITY.md)"),
        ("[a](https://else.test/b.md) [b](#install)", "[a](https://else.test/b.md) [b](#install)"),
    ],
)
def test_links_of_the_description_are_addresses(text: str, expected: str) -> None:
    assert absolute(text, URLS) == expected


def test_the_description_on_a_package_index_has_no_relative_link() -> None:
    described = dynamic_metadata("readme", {}, {"urls": URLS})
    links = re.findall(r"\]\(([^)]+)\)", described["text"])
    assert described["content-type"] == "text/markdown" and len(links) > 20
    assert not [link for link in links if not link.startswith("https://")]


def test_it_is_a_front_page() -> None:
    """No lab report: what does not fit belongs to a page of docs/."""
    assert len(README.splitlines()) <= 130
    assert not re.search(r"commit `[0-9a-f]{7}", README)
