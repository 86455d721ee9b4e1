"""Comments in text files: lines that start with ``#`` or ``%`` before the first row.

They become blank lines, so that every other line keeps its number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from exchangeable.errors import InputError

MARKS = ("#", "%")
BLANKS = " "
"""The separator that stands for one blank or tab, or several of them."""
MATRIX_MARKET = "%%MatrixMarket"


@dataclass(frozen=True)
class Comments:
    """Which lines of a text file are comments."""

    leading: int = 0
    """Number of comments before the first row."""
    marks: tuple[str, ...] = ()
    """Marks of comments after the first row."""
    title: bool = False
    """Whether the line after the leading ones is a header behind a mark."""
    preface: bool = False
    """Whether the first line that is no comment is about the file, not a header or row."""

    def blank_out(self, text: str) -> tuple[str, int]:
        """Replace comments by blank lines, and count them; a marked header loses its mark."""
        lines, count, before, inside = text.split("\n"), 0, True, False
        for number, line in enumerate(lines):
            marked = not inside and is_comment(line)
            if before and marked and count == self.leading and self.title:
                lines[number], before = line.lstrip()[1:], False
                continue
            if marked and (count < self.leading if before else line.lstrip()[0] in self.marks):
                lines[number] = ""
                count += 1
                continue
            if before and line.strip():
                before = False
                if self.preface:
                    lines[number] = ""
            if line.count('"') % 2:  # a line inside a quoted field is no comment
                inside = not inside
        return "\n".join(lines), count


def is_comment(line: str) -> bool:
    return line.lstrip().startswith(MARKS)


def leading_comments(name: str, lines: list[str]) -> list[str]:
    """Return the comments before the first row; none if all lines look like one."""
    leading = list(takewhile(is_comment, lines))
    if len(leading) == len(lines):  # labels may start with '#', too
        if all(line.lstrip()[1:2].isspace() for line in lines):
            raise InputError(f"{name}: rows are needed, but there are only comments")
        return []
    if leading and leading[0].startswith(MATRIX_MARKET):
        kind = leading[0].lower().split()[1:]
        if kind[:2] != ["matrix", "coordinate"] or kind[-1] != "general" or "complex" in kind:
            raise InputError(
                f"{name}: line 1: a Matrix Market file must be 'matrix coordinate', real, integer "
                f"or pattern, and general, but is {' '.join(kind)!r}; convert it first"
            )
    return leading


def declared_separator(comments: list[str], first: str) -> str | None:
    """Return the separator that a file names itself, with a line that is no row.

    In the Matrix Market format the sizes come first. Excel reads and writes ``sep=;``.
    """
    if comments and comments[0].startswith(MATRIX_MARKET):
        return BLANKS
    excel = re.fullmatch(r"\"?sep=(.)\"?", first, re.IGNORECASE)
    return excel[1] if excel else None
