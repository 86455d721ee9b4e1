"""Find the lines of a text file that do not fit, and skip them.

polars fills short lines up silently and does not say where a long one is, so lines are counted
here, and only where its result leaves doubt.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.files.encoding import decode
from exchangeable.files.source import read_all
from exchangeable.files.text import MAX_FIELD, Layout, TextFile

_LONE_RETURN = re.compile("\r(?!\n)")
_RETURN = "\ue00d"  # replaces a lone return while records are counted; of the private-use area


def line_of(file: TextFile, row: int) -> int:
    """Return the line of the file at which data row ``row``, counted from 0, ends."""
    if file.row_lines is not None:
        return int(file.row_lines[row])
    reader = _records(file)
    for record, _ in enumerate(reader):
        if record - file.layout.before_rows == row:
            break
    return int(reader.line_num)


def line_numbers(file: TextFile) -> NDArray[np.int64]:
    """Return the line at which each data row ends, blank rows included."""
    reader = _records(file)
    lines = np.fromiter((reader.line_num for _ in reader), dtype=np.int64)
    return lines[file.layout.before_rows :]


def without_bad_lines(file: TextFile) -> TextFile:
    """Rewrite the records that fit with every field quoted; drop and count the others."""
    written, lines, bad, reader = [], [], 0, _records(file)
    for fields in reader:
        if len(fields) == len(file.layout.columns):
            # An empty field stays without quotes: with them it would be a text, not missing.
            texts = [f.replace(_RETURN, "\r").replace('"', '""') for f in fields]
            written.append(file.layout.inner.join(f'"{t}"' if t else "" for t in texts))
            lines.append(reader.line_num)
        elif "".join(fields).strip():
            bad += 1
    return replace(
        file,
        layout=replace(file.layout, blank=0, quoted=True),
        source="\n".join([*written, ""]).encode(),
        row_lines=np.asarray(lines[1 if file.layout.header else 0 :], dtype=np.int64),
        bad=bad,
    )


def has_stray_quotes(file: TextFile) -> bool:
    """Whether a quote is in the midst of a field, where polars takes it for an opening one.

    A comma and a quote inside a quoted field look the same, which costs time and nothing else.
    """
    if not file.layout.quoted or file.row_lines is not None:
        return False
    if isinstance(file.source, bytes):
        return _contains_stray_quote(file.source, file.layout)
    with file.source.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return _contains_stray_quote(content, file.layout)


def _contains_stray_quote(content: bytes | mmap, layout: Layout) -> bool:
    if content.find(b'"') < 0:
        return False
    ends = re.escape(layout.inner).encode() + rb"\n"
    return re.search(rb"(?:^|[" + ends + rb'])[^"' + ends + rb']+"', content) is not None


def first_misfit(file: TextFile) -> tuple[int, int] | None:
    """Return the first line with too few or too many fields, and its number of fields.

    The number is 0 where a quote is not closed.
    """
    reader = _records(file, strict=True)
    try:
        for fields in reader:
            if fields and len(fields) != len(file.layout.columns):
                return reader.line_num, len(fields)
    except csv.Error:
        return reader.line_num, 0
    return None


def first_short(file: TextFile, doubtful: pl.Series, rows: int) -> tuple[int, int] | None:
    """Return the first short line among the rows with an empty last field, and its fields."""
    layout = file.layout
    raw = pl.Series("line", _decode(file).split("\n")[:-1]).str.strip_suffix("\r")
    body = raw[layout.before_rows :]
    quotes = layout.quoted and bool(raw.str.contains('"', literal=True).any())
    if quotes or len(body) != rows:  # separators and line feeds may be inside quotes
        return first_misfit(file)
    fields, blank = _count_fields(body.gather(doubtful), layout)
    short = (~blank & (fields < len(layout.columns))).arg_true()
    if not len(short):
        return None
    return line_of(file, int(doubtful[int(short[0])])), int(fields[int(short[0])])


def _count_fields(raw: pl.Series, layout: Layout) -> tuple[pl.Series, pl.Series]:
    """Count the fields of each line as if none were quoted, and mark blank lines."""
    fields = raw.str.count_matches(layout.inner, literal=True).fill_null(0) + 1
    return fields, raw.is_null() | (raw.str.strip_chars() == "")


def _records(file: TextFile, strict: bool = False) -> Any:
    """Return a reader that counts lines; slow, and only used to say where something is wrong."""
    csv.field_size_limit(MAX_FIELD)
    # The reader refuses a carriage return inside a field, where polars does not.
    text = io.StringIO(_LONE_RETURN.sub(_RETURN, _decode(file)), newline="")
    delimiter = file.layout.inner
    if file.layout.quoted:
        return csv.reader(text, delimiter=delimiter, strict=strict)
    return csv.reader(text, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=strict)


def _decode(file: TextFile) -> str:
    return decode(file.layout.name, read_all(file.source))
