"""Hooks of the documentation site (mkdocs.yml): pages and plots that docs/ does not hold, and links that Markdown lacks."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs_code import ROOT, files_key, run_page_once
from docs_notebooks import notebook

log = logging.getLogger("mkdocs.hooks.docs")  # a warning here fails a strict build

NOTEBOOKS = "howto/"  # the pages that become notebooks too
DEVELOPER = "developer/"  # the pages that the search leaves out
# Of the search. What becomes a notebook has no front matter.
BOOSTS = {"howto/forced-alignment.md": 8, "howto/decoding.md": 4}
STAMP = "inputs"  # a file of the site that says what it was built from

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)\)")
_ROLE = re.compile(r":(?:func|class|mod|meth):<code>~?([\w.]+)</code>")
_PLOT = re.compile(r"!\[[^\]]*\]\(([\w-]+\.png)\)")


def inputs_key() -> str:
    """A hash of everything that the site is built from."""
    names = ["docs", "tools", "python/warpalign", "mkdocs.yml", "CHANGELOG.md", "examples/cpp"]
    return files_key(*(ROOT / name for name in names))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the changelog, notebooks, and the plots that the pages' own code writes."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    files.append(File.generated(config, "changelog.md", content=changelog))
    for page in list(files.documentation_pages()):
        if page.src_uri.startswith(NOTEBOOKS):
            uri = page.src_uri.removesuffix(".md") + ".ipynb"
            files.append(File.generated(config, uri, content=notebook(page.content_string)))
        wanted = set(_PLOT.findall(page.content_string))
        if not wanted:
            continue
        written = {path.name: path for path in run_page_once(Path(page.abs_src_path or ""))}
        for name in sorted(wanted - written.keys()):
            log.warning("%s shows %s, which its code does not write", page.src_uri, name)
        for name in sorted(wanted & written.keys()):
            uri = str(Path(page.src_uri).with_name(name))
            files.append(File.generated(config, uri, abs_src_path=str(written[name])))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Links out of docs/ become file names; how-to pages get a link to their notebook, the search leaves out developers' pages."""
    docs = Path(config.docs_dir)

    def rewritten(match: re.Match[str]) -> str:
        text, up, rest = match.groups()
        target = (docs / page.file.src_uri).parent.joinpath(up + rest).resolve()
        if target.is_relative_to(docs.resolve()):
            return match.group()
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, up + rest)
        return f"{text} (`{target.relative_to(docs.resolve().parent)}`)"

    if page.file.src_uri.startswith(DEVELOPER):
        page.meta["search"] = {"exclude": True}
    if page.file.src_uri in BOOSTS:
        page.meta["search"] = {"boost": BOOSTS[page.file.src_uri]}
    if page.file.src_uri.startswith(NOTEBOOKS):
        name = Path(page.file.src_uri).stem
        markdown = f"{markdown.rstrip()}\n\n[This page as a Jupyter notebook]({name}.ipynb){{ .notebook download }}\n"
    return _OUTSIDE.sub(rewritten, markdown)


def on_page_content(html: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """:func:`warpalign.soft_dtw` of a docstring becomes a link."""

    def link(match: re.Match[str]) -> str:
        name = match.group(1)
        return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'

    return _ROLE.sub(link, html)


def on_post_page(output: str, page: Any, config: MkDocsConfig) -> str:
    """The theme's dialog of the search gets a name, which readers of a screen need."""
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )


def on_post_build(config: MkDocsConfig) -> None:
    """Says what the site was built from, so that the tests need not build it again."""
    Path(config.site_dir, STAMP).write_text(inputs_key())
