"""Delimited text files: open them, plain or compressed, and detect their layout.

``text_parser`` parses them, and ``bad_lines`` names the lines that do not fit.
"""

from __future__ import annotations

import csv
import gzip
import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from exchangeable.errors import InputError
from exchangeable.files.column_names import KNOWN_NAMES

Source = Path | bytes

_SEPARATORS = ("::", "\t", ",", ";", "|")
_INNER = "\x1f"  # replaces "::", because polars separates by one character


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
    def inner(self) -> str:
        """The separator in the bytes that are parsed."""
        return _INNER if self.separator == "::" else self.separator

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


def open_source(path: Path) -> Source:
    """Return the path of a plain file, or the bytes inside a compressed one; write nothing."""
    name = str(path)
    try:
        if not path.exists():
            raise InputError(f"{name}: no such file")
        if not path.is_file():
            what = "a directory" if path.is_dir() else "a pipe or device, which is read only once"
            raise InputError(f"{name}: a file is needed, but this is {what}")
        with path.open("rb") as file:
            start = file.read(4)
        if not start:
            raise InputError(f"{name}: the file is empty")
        if start[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                return packed.read()
        return _unzip(path) if start == b"PK\x03\x04" else path
    except PermissionError:
        raise InputError(f"{name}: no permission to read the file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: the archive is damaged or cut short ({error})") from None
    except NotImplementedError as error:
        raise InputError(f"{name}: the archive cannot be unpacked ({error})") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None


def _unzip(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        files = [info for info in archive.infolist() if not info.is_dir()]
        if len(files) != 1:
            raise InputError(
                f"{path}: a zip must hold one file, but holds {len(files)}"
                + (f": {', '.join(f.filename for f in files[:3])}" if files else "")
            )
        inside = Path(files[0].filename)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError(f"{path}: the name {files[0].filename!r} leads out of the archive")
        if files[0].flag_bits & 1:
            raise InputError(f"{path}: the archive is encrypted; unpack it first")
        return archive.read(files[0])


def detect_layout(
    name: str, source: Source, *, separator: str | None = None, header: bool | None = None
) -> TextFile:
    """Detect the separator, the header and the columns from the first lines."""
    if separator is not None and separator != "::" and len(separator.encode()) != 1:
        raise InputError(
            f"{name}: the separator must be one character or '::', but is {separator!r}"
        )
    start = source[:65536] if isinstance(source, bytes) else _read_start(source)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in start:
        raise InputError(f"{name}: a UTF-8 text or Parquet file is needed, but this is binary")
    text = start.decode("utf-8-sig", errors="ignore")
    # Not splitlines(): that breaks lines at characters that may be in a label.
    physical = [line.removesuffix("\r") for line in text.split("\n")][:50]
    lines = [line for line in physical if line.strip()]
    if not lines:
        raise InputError(f"{name}: the file holds no line of text")
    if "\n" not in text and "\r" in text:
        raise InputError(f"{name}: lines must end in a line feed, but end in carriage returns")
    used = separator or _guess_separator(lines)
    if used is None or used not in lines[0]:
        needed = f"{used!r}" if used else "comma, tab, semicolon, '|' or '::'"
        raise InputError(
            f"{name}: line 1: two columns or more are needed, separated by {needed}, but this is "
            f"one: {lines[0][:60]!r}"
        )
    rows = [_fields(line, used) for line in lines]
    titled = _looks_like_header(rows) if header is None else header
    if titled:
        columns = [title.strip() for title in rows[0]]
        repeated = next((c for i, c in enumerate(columns) if c in columns[:i]), None)
        if repeated is not None:
            raise InputError(
                f"{name}: line 1: column names must differ, but {repeated!r} comes twice"
            )
        if len(lines) == 1:
            raise InputError(
                f"{name}: rows are needed, but there is only a header: {lines[0][:60]!r}"
            )
    else:
        columns = [f"column {position}" for position in range(1, len(rows[0]) + 1)]
    blank = next(position for position, line in enumerate(physical) if line.strip())
    layout = Layout(name, used, titled, tuple(columns), quoted=used != "::", blank=blank)
    if used == "::":
        content = source if isinstance(source, bytes) else source.read_bytes()
        source = content.replace(b"::", _INNER.encode())
    return TextFile(layout, _end_last_line(source))


def _end_last_line(source: Source) -> Source:
    """Add a line feed at the end: without it polars overlooks an empty field too many."""
    if isinstance(source, bytes):
        return source if source.endswith(b"\n") else source + b"\n"
    with source.open("rb") as file:
        file.seek(-1, 2)
        return source if file.read(1) == b"\n" else source.read_bytes() + b"\n"


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(65536)


def _guess_separator(lines: list[str]) -> str | None:
    """Return the separator by which most lines have as many fields as the first one."""
    votes: dict[str, tuple[int, int]] = {}
    for separator in _SEPARATORS:
        counts = [len(_fields(line, separator)) for line in lines]
        if counts[0] > 1:
            votes[separator] = (counts.count(counts[0]), counts[0])
    return max(votes, key=lambda separator: votes[separator]) if votes else None


def _fields(line: str, separator: str) -> list[str]:
    if separator == "::":
        return line.split("::")
    return next(csv.reader([line.replace("\r", " ")], delimiter=separator), [])


def _looks_like_header(rows: list[list[str]]) -> bool:
    """Whether two titles are well known, or one is above a column of numbers, and none is one."""
    titles = {title.strip().lower() for title in rows[0]}
    if len(titles & KNOWN_NAMES) >= 2:
        return True
    if any(_is_number(field) or not field.strip() for field in rows[0]):
        return False
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    numeric = [
        bool(below)
        and all(_is_number(row[column]) or not row[column].strip() for row in below)
        and any(_is_number(row[column]) for row in below)
        for column in range(len(rows[0]))
    ]
    return any(numeric) or bool(titles & KNOWN_NAMES)


def _is_number(field: str) -> bool:
    """Whether a field is a finite number; "nan" and "inf" are as likely to be labels."""
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False
