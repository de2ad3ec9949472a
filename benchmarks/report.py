#!/usr/bin/env python3
"""Writes the benchmark tables of README.md and docs/benchmarks.md from the committed result files.

A table (report_tables.py) stands between the comments <!-- report: NAME --> and <!-- /report -->. --check changes nothing and
exits with 1 if a table is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import report_tables as tables
from results import ROOT
from soft_dtw_rows import Size

PAGES = [ROOT / "README.md", ROOT / "docs" / "benchmarks.md"]
IMAGES = ROOT / "docs" / "images"
# The sizes that the README shows; docs/benchmarks.md has all.
SHORT = [
    Size(32, 128, 128, 1),
    Size(32, 512, 512, 1),
    Size(32, 512, 512, 64),
    Size(32, 512, 512, 64, 0.01),
    Size(32, 1024, 1024, 1),
    Size(32, 2048, 2048, 64),
    Size(512, 64, 64, 2),
    Size(32, 256, 2048, 16),
    Size(4, 8192, 8192, 16),
]


def images() -> str:
    """Links to the plots, where there are results to draw."""
    names = {"time": "Time of a training step against N and D", "memory": "Memory against N and D"}
    if not tables.gpu_rows():
        return tables.NOTHING
    if tables.sweep_rows():
        names["sweep"] = "Time over every length"
    return "\n\n".join(f"![{text}](images/soft_dtw_{name}.png)" for name, text in names.items())


TABLES = {
    "gpu": lambda: tables.gpu_table(SHORT),
    "gpu-all": lambda: tables.gpu_table(None),
    "gpu-detail": tables.gpu_detail,
    "gpu-precision": tables.gpu_precision,
    "gpu-limits": tables.gpu_limits,
    "gpu-checks": tables.gpu_checks,
    "options": tables.options_table,
    "scaling": tables.scaling_table,
    "training": tables.training_table,
    "cpu": tables.cpu_table,
    "bands": tables.band_table,
    "one-pair": tables.one_pair_table,
    "estimators": tables.estimator_table,
    "images": images,
}


def filled(text: str) -> str:
    """The page with every table written anew."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        if name not in TABLES:
            raise ValueError(f"no table is called {name!r}; there are {', '.join(TABLES)}")
        return f"<!-- report: {name} -->\n\n{TABLES[name]()}\n\n<!-- /report -->"

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
        print(f"{name}: {'stale, run benchmarks/report.py' if arguments.check else 'written'}")
    if not arguments.check and not arguments.no_plots and tables.gpu_rows():
        from report_plots import draw, draw_sweep

        drawn = draw(tables.gpu_rows(), tables.load("peers/*.json"), IMAGES)
        if tables.sweep_rows():
            drawn.append(draw_sweep(tables.sweep_rows(), IMAGES))
        for path in drawn:
            print(f"{Path(path).relative_to(ROOT)}: drawn")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
