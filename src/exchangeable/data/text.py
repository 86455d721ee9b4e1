"""Text into frames: CSV, TSV, ``::``, plain or compressed; every bad line is named.

polars parses. It fills short lines up without a word and cannot say where a long one is, so
lines are counted here, and only where its answer leaves doubt.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zipfile
import zlib
from dataclasses import dataclass, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.data.column_roles import KNOWN_NAMES
from exchangeable.errors import InputError

Source = Path | bytes

_SEPARATORS = ("::", "\t", ",", ";", "|")
_INNER = "\x1f"  # what "::" becomes: polars separates by one character
_LONE_RETURN = re.compile("\r(?!\n)")
_RETURN = "\ue00d"  # stands for one while records are counted; of the area for private use


@dataclass(frozen=True)
class Layout:
    """How the lines of a text file are made."""

    name: str
    separator: str
    header: bool
    columns: tuple[str, ...]
    quoted: bool = True
    blank: int = 0
    """Blank lines before the first line of text."""

    @property
    def inner(self) -> str:
        return _INNER if self.separator == "::" else self.separator


@dataclass(frozen=True)
class TextFile:
    """A text file, ready to be parsed: its layout and its bytes (or its path)."""

    layout: Layout
    source: Source
    numbers: NDArray[np.int64] | None = None
    """The line of each row, where lines were left out before parsing."""
    bad: int = 0
    """How many lines were left out because they do not fit."""


def open_source(path: Path) -> Source:
    """The path of a plain file, or the bytes inside a compressed one; no file is written."""
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
        return _unzipped(path) if start == b"PK\x03\x04" else path
    except PermissionError:
        raise InputError(f"{name}: no permission to read the file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: the archive is damaged or cut short ({error})") from None
    except NotImplementedError as error:
        raise InputError(f"{name}: the archive cannot be unpacked ({error})") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from None


def _unzipped(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        if len(members) != 1:
            raise InputError(
                f"{path}: a zip must hold one file, but holds {len(members)}"
                + (f": {', '.join(m.filename for m in members[:3])}" if members else "")
            )
        inside = Path(members[0].filename)
        if inside.is_absolute() or ".." in inside.parts:
            raise InputError(f"{path}: the name {members[0].filename!r} leads out of the archive")
        if members[0].flag_bits & 1:
            raise InputError(f"{path}: the archive is encrypted; unpack it first")
        return archive.read(members[0])


def detect_layout(
    name: str, source: Source, *, separator: str | None = None, header: bool | None = None
) -> TextFile:
    """Look at the first lines: what separates fields, whether there is a header, which columns."""
    start = source[:65536] if isinstance(source, bytes) else _first_bytes(source)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in start:
        raise InputError(f"{name}: a UTF-8 text or Parquet file is needed, but this is binary")
    text = start.decode("utf-8-sig", errors="ignore")
    # Not splitlines(): that breaks lines at characters that may stand in a label.
    physical = [line.removesuffix("\r") for line in text.split("\n")][:50]
    lines = [line for line in physical if line.strip()]
    if not lines:
        raise InputError(f"{name}: the file holds no line of text")
    if "\n" not in text and "\r" in text:
        raise InputError(f"{name}: lines must end in a line feed, but end in carriage returns")
    used = separator or _guess_separator(lines)
    if used is None or used not in lines[0]:
        wanted = f"{used!r}" if used else "comma, tab, semicolon, '|' or '::'"
        raise InputError(
            f"{name}: line 1: two columns or more are needed, separated by {wanted}, but this is "
            f"one: {lines[0][:60]!r}"
        )
    if used != "::" and len(used.encode()) != 1:
        raise InputError(f"{name}: the separator must be one character or '::', but is {used!r}")
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
        columns = [f"column {number}" for number in range(1, len(rows[0]) + 1)]
    blank = next(number for number, line in enumerate(physical) if line.strip())
    layout = Layout(name, used, titled, tuple(columns), quoted=used != "::", blank=blank)
    if used == "::":
        whole = source if isinstance(source, bytes) else source.read_bytes()
        source = whole.replace(b"::", _INNER.encode())
    return TextFile(layout, _ended(source))


def _ended(source: Source) -> Source:
    """With a line feed at the end: polars overlooks an empty field too many without it."""
    if isinstance(source, bytes):
        return source if source.endswith(b"\n") else source + b"\n"
    with source.open("rb") as file:
        file.seek(-1, 2)
        return source if file.read(1) == b"\n" else source.read_bytes() + b"\n"


def parse(
    lines: TextFile, types: dict[str, type[pl.DataType] | pl.DataType]
) -> tuple[pl.DataFrame, TextFile]:
    """The named columns with the given types; a line that does not fit raises with its number.

    Quotes in the midst of a field are part of the text. polars does not read them so, and a file
    that has them is written anew with every field quoted.
    """
    layout = lines.layout
    if _has_stray_quotes(lines) and _first_misfit(lines) is None:
        lines = without_bad_lines(lines)  # all are good
        layout = lines.layout
    last = layout.columns[-1]
    wanted = {last: pl.String, **types}
    try:
        frame = _polars(lines, wanted)
    except pl.exceptions.NoDataError:
        raise InputError(f"{layout.name}: rows are needed, but there are none") from None
    except pl.exceptions.PolarsError as error:
        raise _explained(lines, wanted, error) from None
    empty = frame[last].is_null()
    short = _first_short(lines, empty.arg_true(), len(frame)) if empty.any() else None
    if short is not None:
        raise InputError(
            f"{layout.name}: line {short[0]}: {len(layout.columns)} fields are needed, but there "
            f"are {short[1]}"
        )
    return frame, lines


def line_of(lines: TextFile, row: int) -> int:
    """The line of the file at which data row ``row``, counted from 0, ends."""
    if lines.numbers is not None:
        return int(lines.numbers[row])
    number = -lines.layout.blank - (1 if lines.layout.header else 0)
    reader = _records(lines)
    for _ in reader:
        if number == row:
            break
        number += 1
    return reader.line_num


def line_numbers(lines: TextFile) -> NDArray[np.int64]:
    """The line at which each data row ends, blank ones included."""
    reader = _records(lines)
    numbers = np.fromiter((reader.line_num for _ in reader), dtype=np.int64)
    return numbers[lines.layout.blank + (1 if lines.layout.header else 0) :]


def _records(lines: TextFile, strict: bool = False) -> Any:
    """A reader that knows its line; slow, and only used to say where something is wrong."""
    layout = lines.layout
    csv.field_size_limit(2**31 - 1)
    # The reader refuses a carriage return inside a field, where polars does not.
    text = io.StringIO(_LONE_RETURN.sub(_RETURN, _decoded(lines)), newline="")
    if layout.quoted:
        return csv.reader(text, delimiter=layout.inner, strict=strict)
    return csv.reader(text, delimiter=layout.inner, quoting=csv.QUOTE_NONE, strict=strict)


def without_bad_lines(lines: TextFile) -> TextFile:
    """The records that fit, with every field quoted; the others are dropped and counted."""
    written, numbers, bad, reader = [], [], 0, _records(lines)
    for fields in reader:
        if len(fields) == len(lines.layout.columns):
            # An empty field stays without quotes: with them it would be a text, not missing.
            texts = [f.replace(_RETURN, "\r").replace('"', '""') for f in fields]
            written.append(lines.layout.inner.join(f'"{t}"' if t else "" for t in texts))
            numbers.append(reader.line_num)
        elif "".join(fields).strip():
            bad += 1
    return replace(
        lines,
        layout=replace(lines.layout, blank=0, quoted=True),
        source="\n".join([*written, ""]).encode(),
        numbers=np.asarray(numbers[1 if lines.layout.header else 0 :], dtype=np.int64),
        bad=bad,
    )


def _has_stray_quotes(lines: TextFile) -> bool:
    """Whether a quote stands in the midst of a field, where polars takes it for an opening one.

    A comma and a quote inside a quoted field look the same, which costs time and nothing else.
    """
    if not lines.layout.quoted or lines.numbers is not None:
        return False
    if isinstance(lines.source, bytes):
        return _stray(lines.source, lines.layout)
    with lines.source.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
        return _stray(whole, lines.layout)


def _stray(whole: bytes | mmap, layout: Layout) -> bool:
    if whole.find(b'"') < 0:
        return False
    ends = re.escape(layout.inner).encode() + rb"\n"
    return re.search(rb"(?:^|[" + ends + rb'])[^"' + ends + rb']+"', whole) is not None


def _counted(raw: pl.Series, layout: Layout) -> tuple[pl.Series, pl.Series]:
    """How many fields each line has if no field is quoted, and whether it is blank."""
    fields = raw.str.count_matches(layout.inner, literal=True).fill_null(0) + 1
    return fields, raw.is_null() | (raw.str.strip_chars() == "")


def _polars(lines: TextFile, types: dict[str, type[pl.DataType] | pl.DataType]) -> pl.DataFrame:
    layout = lines.layout
    places = [layout.columns.index(name) for name in types]
    order = sorted(places)
    source = io.BytesIO(lines.source) if isinstance(lines.source, bytes) else lines.source
    names = [f"column_{place}" for place in range(len(layout.columns))]
    return pl.read_csv(
        source,
        has_header=False,
        skip_lines=layout.blank + (1 if layout.header else 0),
        separator=layout.inner,
        quote_char='"' if layout.quoted else None,
        columns=order,
        missing_columns="insert",
        schema={
            **dict.fromkeys(names, pl.String),
            **{names[layout.columns.index(n)]: kind for n, kind in types.items()},
        },
    ).rename({names[place]: layout.columns[place] for place in order})


def _explained(
    lines: TextFile, types: dict[str, type[pl.DataType] | pl.DataType], error: Exception
) -> InputError:
    """Why polars could not parse, with the line."""
    layout, reason = lines.layout, str(error).splitlines()[0]
    found = _first_misfit(lines)
    if found is not None and found[1] == 0:
        return InputError(f"{layout.name}: line {found[0]}: a quote is opened and not closed")
    if found is not None:
        number, fields = found
        return InputError(
            f"{layout.name}: line {number}: {len(layout.columns)} fields are needed, but there "
            f"are {fields}"
        )
    for name, kind in types.items():
        if kind == pl.Float64:
            try:
                text = _polars(lines, {name: pl.String})[name]
            except pl.exceptions.PolarsError:
                break
            wrong = (
                text.is_not_null() & text.str.strip_chars().cast(pl.Float64, strict=False).is_null()
            ).arg_true()
            if len(wrong):
                return InputError(
                    f"{layout.name}: line {line_of(lines, int(wrong[0]))}: a number is needed in "
                    f"{name!r}, but this is {text[int(wrong[0])]!r}"
                )
    return InputError(f"{layout.name}: cannot be parsed ({reason})")


def _first_misfit(lines: TextFile) -> tuple[int, int] | None:
    """The first line with too few or too many fields, and how many it has."""
    reader = _records(lines, strict=True)
    try:
        for fields in reader:
            if fields and len(fields) != len(lines.layout.columns):
                return reader.line_num, len(fields)
    except csv.Error:
        return reader.line_num, 0
    return None


def _first_short(lines: TextFile, doubtful: pl.Series, rows: int) -> tuple[int, int] | None:
    """Of the rows whose last field is empty, the line of the first that is short."""
    layout, raw = lines.layout, _raw_lines(lines)
    body = raw[layout.blank + (1 if layout.header else 0) :]
    quotes = layout.quoted and bool(raw.str.contains('"', literal=True).any())
    if quotes or len(body) != rows:  # separators and line feeds may stand inside quotes
        return _first_misfit(lines)
    fields, blank = _counted(body.gather(doubtful), layout)
    short = (~blank & (fields < len(layout.columns))).arg_true()
    if not len(short):
        return None
    return line_of(lines, int(doubtful[int(short[0])])), int(fields[int(short[0])])


def _raw_lines(lines: TextFile) -> pl.Series:
    return pl.Series("line", _decoded(lines).split("\n")[:-1]).str.strip_suffix("\r")


def _decoded(lines: TextFile) -> str:
    """The whole text; only looked at where polars left a doubt. Never with letters replaced."""
    whole = lines.source if isinstance(lines.source, bytes) else lines.source.read_bytes()
    try:
        return whole.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = whole[: error.start].count(b"\n") + 1
        raise InputError(
            f"{lines.layout.name}: line {line}: text must be UTF-8; convert the file first"
        ) from None


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(65536)


def _guess_separator(lines: list[str]) -> str | None:
    """The separator by which most lines have as many fields as the first one."""
    found: dict[str, tuple[int, int]] = {}
    for separator in _SEPARATORS:
        counts = [len(_fields(line, separator)) for line in lines]
        if counts[0] > 1:
            found[separator] = (counts.count(counts[0]), counts[0])
    return max(found, key=lambda separator: found[separator]) if found else None


def _fields(line: str, separator: str) -> list[str]:
    if separator == "::":
        return line.split("::")
    return next(csv.reader([line.replace("\r", " ")], delimiter=separator), [])


def _looks_like_header(rows: list[list[str]]) -> bool:
    """Two well-known titles, or a title above a column of numbers, and no number among titles."""
    titles = {title.strip().lower() for title in rows[0]}
    if len(titles & KNOWN_NAMES) >= 2:
        return True
    if any(_is_number(field) or not field.strip() for field in rows[0]):
        return False
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    numeric = [
        bool(below)
        and all(_is_number(row[place]) or not row[place].strip() for row in below)
        and any(_is_number(row[place]) for row in below)
        for place in range(len(rows[0]))
    ]
    return any(numeric) or bool(titles & KNOWN_NAMES)


def _is_number(field: str) -> bool:
    """A finite number; "nan" and "inf" are as likely to be somebody's label."""
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False
