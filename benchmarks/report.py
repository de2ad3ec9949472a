#!/usr/bin/env python3
"""Writes the benchmark tables of README.md and pages of docs/ from the committed result files.

    python -m benchmarks.report [--check]

A table stands between the comments <!-- report: NAME --> and <!-- /report -->. `TABLES` in benchmarks/<operator>/tables.py has
the tables by name; benchmarks/summary.py has the one of all operators. --check changes nothing and exits with 1 if a table is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module

from benchmarks import summary
from benchmarks.harness.results import ROOT
from benchmarks.harness.suite import operators
from benchmarks.harness.tables import check_table, jax_table
from benchmarks.kernels import census_table

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IMAGES = ROOT / "docs" / "images"
MODULES = [import_module(f"benchmarks.{operator}.tables") for operator in operators("tables")]
MODULES.append(summary)


def tables() -> dict[str, Callable[[], str]]:
    """The tables of all operators by name."""
    found: dict[str, Callable[[], str]] = {
        "gpu-checks": check_table,
        "jax-packages": jax_table,
        "kernels": census_table,
    }
    for module in MODULES:
        if twice := found.keys() & module.TABLES.keys():
            raise ValueError(f"{module.__name__}: tables of other operators have these names: {twice}")
        found |= module.TABLES
    return found


def wrapped(text: str) -> str:
    """The text with its prose in lines of at most 120 columns, as the pages have it; a table's row stays one line."""
    return "\n".join(line if line.startswith("|") else _wrapped_line(line) for line in text.split("\n"))


def _wrapped_line(line: str) -> str:
    # A line that began with one of these signs would be an item of a list: no break before them.
    bound = re.sub(r" ([-+*]) ", "\0\\1 ", line)
    return textwrap.fill(bound, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def filled(text: str) -> str:
    """The page with every table written anew."""
    known = tables()

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in known:
            raise ValueError(f"no table is called {name!r}; there are {', '.join(known)}")
        return f"<!-- report: {name} -->\n\n{wrapped(known[name]())}\n\n<!-- /report -->"

    return re.sub(r"<!-- report: ([\w-]+) -->.*?<!-- /report -->", table, text, flags=re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 where a table is stale"
    )
    parser.add_argument("--no-plots", action="store_true", help="write the tables only")
    arguments = parser.parse_args()
    stale = []
    for page in (page for page in PAGES if page.exists()):
        before = page.read_text()
        after = filled(before)
        if after != before:
            stale.append(page.relative_to(ROOT))
            if not arguments.check:
                page.write_text(after)
    for name in stale:
        print(f"{name}: {'stale, run python -m benchmarks.report' if arguments.check else 'written'}")
    if not (arguments.check or arguments.no_plots):
        for module in MODULES:
            for path in module.draw(IMAGES):
                print(f"{path.relative_to(ROOT)}: drawn")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
