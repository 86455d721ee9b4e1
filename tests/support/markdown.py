"""Markdown pages as tests see them: code with what it prints, headings and links."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(```+)([^\n]*)\n(.*?)^\1\s*$", flags=re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e-?\d+)?")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of Python, and what it prints if the page says so."""

    code: str
    line: int
    output: str | None


def pages() -> list[Path]:
    """All pages that people read, the record of experiments included."""
    top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "paper/README.md"]
    return [*(ROOT / name for name in top), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """The Python of a page; a block of text right after one is what it prints."""
    fences = list(FENCE.finditer(text))
    made = []
    for at, fence in enumerate(fences):
        if fence[2].strip() != "python":
            continue
        following = fences[at + 1] if at + 1 < len(fences) else None
        printed = None
        if following and following[2].strip() == "text":
            between = text[fence.end() : following.start()]
            printed = following[3] if not between.strip() else None
        made.append(Block(fence[3], text.count("\n", 0, fence.start()) + 2, printed))
    return made


def same_output(printed: str, expected: str) -> bool:
    """Whether two outputs agree, in words exactly and in numbers to a thousandth."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", expected).split():
        return False
    numbers = zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-3) for a, b in numbers)


def prose(text: str) -> str:
    """A page without its blocks and code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Targets of the links and images of a page."""
    return LINK.findall(FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), flags=re.MULTILINE)
    return {slug(title) for title in titles}


def slug(title: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title)
    words = re.sub(r"[^\w\s-]", "", plain.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", words)
