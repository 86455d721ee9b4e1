"""Delimited text files: detect their layout, and rewrite what polars cannot parse.

``text_parser`` parses them, and ``bad_lines`` names the lines that do not fit.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError, option
from exchangeable.files.column_names import KNOWN_NAMES
from exchangeable.files.comments import (
    BLANKS,
    Comments,
    declared_separator,
    is_comment,
    leading_comments,
)
from exchangeable.files.encoding import decode, decode_start
from exchangeable.files.header import is_above_labels, looks_like_header, may_be_titles
from exchangeable.files.source import MAX_START, START, Source, read_all, read_start
from exchangeable.files.titles import check_titles
from exchangeable.runtime.phrases import format_count

MAX_FIELD = 2**31 - 1
"""Characters of a field that Python's reader of CSV takes; by default they are 131,072."""
_SEPARATORS = ("::", "\t", ",", ";", "|")
_INNER = "\x1f"  # replaces "::" and blanks, because polars separates by one character
_PADDED = (",", ";", "|")  # separators that blanks may follow
_SAMPLE = 50  # lines that decide on the layout


@dataclass(frozen=True)
class Layout:
    """How the lines of a text file are laid out."""

    name: str
    separator: str
    header: bool
    columns: tuple[str, ...]
    quoted: bool = True
    blank: int = 0
    """Number of blank lines before the first line of text."""

    @property
    def may_have_decimal_commas(self) -> bool:
        """Whether commas are free to be decimal marks."""
        return self.separator in (";", "\t", BLANKS)

    @property
    def inner(self) -> str:
        """The separator in the bytes that are parsed."""
        return _INNER if self.separator in ("::", BLANKS) else self.separator

    @property
    def before_rows(self) -> int:
        """Number of lines before the first row."""
        return self.blank + (1 if self.header else 0)


@dataclass(frozen=True)
class TextFile:
    """A text file that is ready to be parsed: its layout, and its bytes or path."""

    layout: Layout
    source: Source
    row_lines: NDArray[np.int64] | None = None
    """The line of each row, where lines were skipped before parsing."""
    kept_rows: NDArray[np.int64] | None = None
    """The rows that are used, where others were left out after parsing."""
    bad: int = 0
    """Number of lines that were skipped because they do not fit."""
    notes: tuple[str, ...] = ()
    """Sentences about how the text was read."""


def detect_layout(
    name: str,
    source: Source,
    *,
    separator: str | None = None,
    header: bool | None = None,
    titles: Collection[str] = (),
) -> TextFile:
    """Detect the comments, the separator, the header and the columns from the first lines.

    A first line that holds one of ``titles`` is a header.
    """
    if separator is not None and separator != "::" and len(separator.encode()) != 1:
        raise InputError(
            f"{name}: the separator must be one character or '::', but is {separator!r}"
        )
    lines, first = _sample_lines(name, source)
    comments = leading_comments(name, lines)
    declared = declared_separator(comments, lines[len(comments)])
    lines = lines[len(comments) + (declared is not None) :]
    used = separator or declared or _guess_separator(lines)
    if not lines:
        raise InputError(f"{name}: rows are needed, but there are none")
    if used is None or len(_fields(lines[0], used)) < 2:
        needed = f"{used!r}" if used else "comma, tab, semicolon, '|', '::' or blanks"
        raise InputError(
            f"{name}: line {first}: two columns or more are needed, separated by {needed}, but "
            f"this is one: {lines[0][:60]!r}"
        )
    skipped = _choose_comments(comments, lines, used, declared is not None)
    if skipped.title:
        lines.insert(0, comments[-1].lstrip()[1:])
    elif skipped.leading < len(comments):
        lines[:0] = comments[skipped.leading :]
    rows = [_fields(line, used) for line in lines[:_SAMPLE]]
    titled = header
    doubt: tuple[str, ...] = ()
    if titled is None:
        named = any(title.strip() in titles for title in rows[0])
        titled = named or skipped.title or looks_like_header(rows)
        if not titled and len(rows) > 1 and may_be_titles(rows[0]):
            titled = is_above_labels(rows)
            doubt = _doubt_header(rows[0], titled)
    columns = _titles(name, rows, lines[0], first) if titled else _numbered(len(rows[0]))
    padded = used in _PADDED and _are_padded(lines[:_SAMPLE], used)
    file = _rewrite(name, source, used, titled, tuple(columns), skipped, padded)
    return replace(file, notes=(*doubt, *file.notes))


def _doubt_header(fields: list[str], titled: bool) -> tuple[str]:
    """Say how a first line of texts was read, which may be titles or a row."""
    line = ", ".join(fields)
    shown = repr(line if len(line) <= 40 else f"{line[:40]}...")
    if titled:
        return (
            f"the first line, {shown}, is taken for titles; {option('header', False)} reads it as "
            f"a row",
        )
    return (
        f"the first line, {shown}, is read as a row; {option('header', True)} takes it for titles",
    )


def _sample_lines(name: str, source: Source) -> tuple[list[str], int]:
    """Return the first lines that are not blank, and the number of the first row."""
    numbered, size = None, START
    while numbered is None:
        numbered = _read_lines(name, source, size)
        size *= 2
    if not numbered:
        raise InputError(f"{name}: the file holds no line of text")
    comments = leading_comments(name, [line for _, line in numbered])
    kept = numbered[: len(comments) + _SAMPLE]
    return [line for _, line in kept], numbered[len(comments)][0]


def _read_lines(name: str, source: Source, size: int) -> list[tuple[int, str]] | None:
    """Return the whole lines within the first bytes, without blank ones, and their numbers.

    None if these are fewer than two beside comments, and there are further bytes to read.
    """
    start = read_start(source, size)
    if b"\x00" in start:
        raise InputError(
            f"{name}: a UTF-8 text, Parquet, Excel or JSON file is needed, but this is binary"
        )
    text = decode_start(name, start)
    if "\n" not in text and "\r" in text:
        raise InputError(f"{name}: lines must end in a line feed, but end in carriage returns")
    # Not splitlines(): that breaks lines at characters that may be in a label.
    physical = [line.removesuffix("\r") for line in text.split("\n")]
    if len(start) == size:
        physical.pop()  # which is cut
    numbered = [(number, line) for number, line in enumerate(physical, 1) if line.strip()]
    if len(start) < size or sum(not is_comment(line) for _, line in numbered) >= 2:
        return numbered
    if size < MAX_START:
        return None
    if len(numbered) < 2:  # otherwise labels start with the mark of a comment
        raise InputError(
            f"{name}: the first two lines must end within {MAX_START >> 20} MiB, but they do not"
        )
    return numbered


def _choose_comments(
    comments: list[str], lines: list[str], separator: str, preface: bool
) -> Comments:
    """Tell comments from a header behind a mark, and from rows whose labels start with one."""
    if not comments:
        return Comments(preface=preface)
    rows = [_fields(line, separator) for line in lines[:_SAMPLE]]
    marks = tuple({line.lstrip()[0] for line in comments})
    leading = len(comments)
    if not preface and not looks_like_header(rows):
        if _is_marked_header(comments[-1], rows, separator):
            return Comments(leading - 1, marks, title=True)
        while leading and _is_marked_row(comments[leading - 1], rows, separator):
            leading -= 1
    return Comments(leading, marks if leading == len(comments) else (), preface=preface)


def _is_marked_header(line: str, rows: list[list[str]], separator: str) -> bool:
    """Whether a comment before the rows holds their titles, as in ``# user film rating``."""
    titles = _fields(line.lstrip()[1:], separator)
    if len(titles) != len(rows[0]) or len(titles) < 2:
        return False
    if line.lstrip()[1:2].isspace():  # sentences have commas, too
        return len({title.strip().lower() for title in titles} & KNOWN_NAMES) >= 2
    return looks_like_header([titles, *rows])


def _is_marked_row(line: str, rows: list[list[str]], separator: str) -> bool:
    """Whether a line that starts with a mark has a label such as ``#love``."""
    prose = line.lstrip()[1:2].isspace()
    return not prose and len(_fields(line, separator)) == len(rows[0])


def _titles(name: str, rows: list[list[str]], line: str, number: int) -> list[str]:
    columns = [title.strip() for title in rows[0]]
    check_titles(f"{name}: line {number}", columns)
    if len(rows) == 1:
        raise InputError(f"{name}: rows are needed, but there is only a header: {line[:60]!r}")
    return columns


def _numbered(number: int) -> list[str]:
    return [f"column {position}" for position in range(1, number + 1)]


def _rewrite(
    name: str,
    source: Source,
    separator: str,
    header: bool,
    columns: tuple[str, ...],
    comments: Comments,
    padded: bool,
) -> TextFile:
    """Return a file that polars can parse: comments blanked out, one character as separator."""
    notes = []
    if comments != Comments():
        text, count = comments.blank_out(decode(name, read_all(source)))
        source = text.encode()
        if count:
            notes.append(f"{format_count(count, 'comment line')} skipped")
        if comments.preface:
            says = "of sizes" if separator == BLANKS else "that names the separator"
            notes.append(f"the line {says} skipped")
    if separator == "::":
        source = read_all(source).replace(b"::", _INNER.encode())
    elif separator == BLANKS:
        source = _separate_blanks(decode(name, read_all(source))).encode()
        notes.append("fields separated by blanks")
    elif padded:
        source = _without_padding(decode(name, read_all(source)), separator).encode()
        notes.append(f"blanks after {separator!r} left out")
    source = _end_last_line(source)
    layout = Layout(
        name,
        separator,
        header,
        columns,
        quoted=separator not in ("::", BLANKS),
        blank=_count_blank_lines(source),
    )
    return TextFile(layout, source, notes=tuple(notes))


def _separate_blanks(text: str) -> str:
    """Put one character between fields that blanks separate, and none around lines."""
    if '"' in text:
        return "\n".join(_INNER.join(_fields(line, BLANKS)) for line in text.split("\n"))
    text = re.sub(r"(?m)^[ \t]+|[ \t]+(?=\r?$)", "", text)
    return re.sub(r"[ \t]+", _INNER, text)


def _are_padded(lines: list[str], separator: str) -> bool:
    """Whether a blank follows every separator, as in ``ann, Heat, 4``, unless nothing does."""
    other = re.compile(rf"{re.escape(separator)}\S")
    return f"{separator} " in lines[0] and not any(other.search(line) for line in lines)


def _without_padding(text: str, separator: str) -> str:
    """Remove blanks after separators, but not inside quotes."""
    if '"' not in text:
        return re.sub(rf"{re.escape(separator)} +", separator, text)
    written = io.StringIO()
    lines = io.StringIO(text, newline="")
    records = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    csv.writer(written, delimiter=separator, lineterminator="\n").writerows(records)
    return written.getvalue()


def _count_blank_lines(source: Source) -> int:
    """Count the blank lines before the first line of text."""
    content = source if isinstance(source, bytes) else read_start(source, MAX_START)
    blank = re.match(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*\n)*", content)
    return blank.group().count(b"\n") if blank else 0


def _end_last_line(source: Source) -> Source:
    """Add a line feed at the end: without it polars overlooks an empty field too many."""
    if isinstance(source, bytes):
        return source if source.endswith(b"\n") else source + b"\n"
    with source.open("rb") as file:
        file.seek(-1, 2)
        return source if file.read(1) == b"\n" else source.read_bytes() + b"\n"


def _guess_separator(lines: list[str]) -> str | None:
    """Return the separator by which most lines have as many fields as the first one."""
    lines = lines[:_SAMPLE]
    votes: dict[str, tuple[int, int]] = {}
    for separator in _SEPARATORS:
        counts = [len(_fields(line, separator)) for line in lines]
        if counts and counts[0] > 1:
            votes[separator] = (counts.count(counts[0]), counts[0])
    guess = max(votes, key=lambda separator: votes[separator]) if votes else None
    decimal = guess == "," and not any("," in re.sub(r"\d,\d", "", line) for line in lines)
    return BLANKS if (guess is None or decimal) and _fit_blanks(lines) else guess


def _fit_blanks(lines: list[str]) -> bool:
    """Whether blanks separate every line into as many fields, two or more."""
    counts = {len(_fields(line, BLANKS)) for line in lines}
    return len(lines) > 1 and len(counts) == 1 and min(counts) > 1


def _fields(line: str, separator: str) -> list[str]:
    if separator == "::":
        return line.split("::")
    line = line.replace("\r", " ")
    if separator == BLANKS:
        line = line.replace("\t", " ").strip(" ")
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader([line], delimiter=separator, skipinitialspace=separator == BLANKS)
    return next(reader, [])
