"""README.md as the packages' description: its relative links become links to the site and the repository.

scikit-build-core calls `dynamic_metadata` (pyproject.toml). [project.urls] has the only addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def absolute(text: str, urls: Mapping[str, str]) -> str:
    """The text with every relative link, of pages and of images, turned into an address."""

    def link(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if path.startswith("docs/"):
            page = re.sub(r"\.md$", ".html", path.removeprefix("docs/"))
            return f"]({urls['Documentation']}/{page}{anchor})"
        if path == "CHANGELOG.md":
            return f"]({urls['Changelog']}{anchor})"
        return f"]({urls['Repository']}/blob/main/{path}{anchor})"

    return _RELATIVE.sub(link, text)


def dynamic_metadata(field: str, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, str]:
    """The field `readme` of the package's metadata."""
    if field != "readme" or settings:
        raise ValueError(
            f"pypi_readme: expected the field readme without settings, got {field} and {dict(settings)}"
        )
    text = absolute((ROOT / "README.md").read_text(encoding="utf-8"), project["urls"])
    return {"content-type": "text/markdown", "text": text}
