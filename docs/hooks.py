"""Hooks of MkDocs: pages made from files outside docs/, and a check of what was built.

A page may consist of a line ``{{ include README.md }}`` (a Markdown file of the repository) or
``{{ script examples/analyst.py }}`` (a script in percent format, whose ``# %% [markdown]`` cells
become text and whose other cells become code).
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = logging.getLogger("mkdocs.hooks")  # a warning fails a build with --strict
DIRECTIVE = re.compile(r"^\{\{ (include|script) (\S+) \}\}$", flags=re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# Files of the repository that are pages of the site under another name.
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}
# What a browser loads when it shows a page, in HTML and in style sheets.
LOADED = re.compile(
    r"""(?:<(?:script|img|iframe|source|video|audio)\b[^>]*?\bsrc\s*=\s*["']?"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*?\bhref\s*=\s*["']?|@import\s+["']?|url\(["']?)"""
    r"""((?:https?:)?//[^"'\s)>]+)""",
    flags=re.IGNORECASE,
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace directives by the files they name."""

    def made(found: re.Match[str]) -> str:
        text = (ROOT / found[2]).read_text(encoding="utf-8")
        return relink(text) if found[1] == "include" else script_to_markdown(text)

    return DIRECTIVE.sub(made, markdown)


def relink(text: str) -> str:
    """Turn links of a file in the root of the repository into links of a page in the root of docs.

    Files that the site does not have keep their text and lose their link.
    """

    def changed(found: re.Match[str]) -> str:
        mark, title, target = found.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        if path.startswith("docs/"):
            path = path.removeprefix("docs/")
        elif path in PAGES:
            path = PAGES[path]
        else:
            return title
        return f"{mark}[{title}]({path}{'#' + anchor if anchor else ''})"

    return LINK.sub(changed, text)


def script_to_markdown(text: str) -> str:
    """Turn a script in percent format into Markdown."""
    parts = []
    for cell in re.split(r"(?m)^# %%", text)[1:]:
        kind, _, body = cell.partition("\n")
        if kind.strip() == "[markdown]":
            parts.append(re.sub(r"(?m)^# ?", "", body.strip()))
        elif body.strip():
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(parts)


def on_post_build(config: Any, **_: Any) -> None:
    """Warn of every page that would load something from another host."""
    site = Path(config["site_dir"])
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for address in sorted(set(LOADED.findall(path.read_text(encoding="utf-8")))):
            LOG.warning("%s loads %s from another host", path.relative_to(site), address)
