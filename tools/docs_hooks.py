"""Hooks of the documentation site (mkdocs.yml): plots from the pages' own code, and links that Markdown alone lacks."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from docs_code import run_page

log = logging.getLogger("mkdocs.hooks.docs")  # a warning here fails a strict build

_OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)\)")
_ROLE = re.compile(r":(?:func|class|mod|meth):<code>~?([\w.]+)</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Runs the code of every page that shows a plot which is not in docs/, and adds the plots it writes."""
    folder = Path(config.config_file_path).parent / "build" / "docs"
    for page in list(files.documentation_pages()):
        wanted = set(re.findall(r"!\[[^\]]*\]\(([\w-]+\.png)\)", page.content_string))
        if not wanted:
            continue
        log.info("running the code of %s", page.src_uri)
        written = {path.name: path for path in run_page(Path(page.abs_src_path or ""), folder / page.src_uri)}
        for name in sorted(wanted - written.keys()):
            log.warning("%s shows %s, which its code does not write", page.src_uri, name)
        for name in sorted(wanted & written.keys()):
            uri = str(Path(page.src_uri).with_name(name))
            files.append(File.generated(config, uri, abs_src_path=str(written[name])))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository outside docs/ become their names: the site does not hold them."""
    docs = Path(config.docs_dir)

    def rewritten(match: re.Match[str]) -> str:
        text, up, rest = match.groups()
        target = (docs / page.file.src_uri).parent.joinpath(up + rest).resolve()
        if target.is_relative_to(docs.resolve()):
            return match.group()
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, up + rest)
        return f"{text} (`{target.relative_to(docs.resolve().parent)}`)"

    return _OUTSIDE.sub(rewritten, markdown)


def on_page_content(html: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """:func:`warpalign.soft_dtw` of a docstring becomes a link."""

    def link(match: re.Match[str]) -> str:
        name = match.group(1)
        return f'<autoref identifier="{name}" optional><code>{name}</code></autoref>'

    return _ROLE.sub(link, html)
