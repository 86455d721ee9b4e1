"""The size of a Parquet file in memory, measured without uncompressing it.

A few megabytes may hold gigabytes: pages are compressed, and a text that is stored once may be that
of all rows. The sizes in the footer may be wrong, so the headers of all pages are read, which
decoders follow too. They are in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_FOOTER_BYTES = 2**20
MAX_PAGES = 100_000
_MAGIC = b"PAR1"
_MAX_DEPTH = 30
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 8, 4: 4, 5: 8, 6: 16}
"""Bytes of a value in memory, by physical type; of a text (6), those that point to it."""
_TEXT, _FIXED = 6, 7
_DICTIONARY_ENCODINGS, _PREFIX_ENCODING = (2, 8), 7


class NotParquet(ValueError):
    """The content is not a valid Parquet file."""


@dataclass(frozen=True)
class ParquetSize:
    """Sizes of a Parquet file's pages, and of what they hold."""

    bytes: int
    """Uncompressed size of all pages."""
    unpacked: int
    """Size of all values in memory, with texts of a dictionary as often as they are used; these
    count as much as its mean text."""
    values: int
    """Number of values of the longest column."""


def measure(content: bytes) -> ParquetSize:
    """Add up the uncompressed sizes in the headers of all pages."""
    if len(content) < 12 or content[-4:] != _MAGIC:
        raise NotParquet("it does not end with PAR1")
    length = int.from_bytes(content[-8:-4], "little")
    if length > min(MAX_FOOTER_BYTES, len(content) - 12):
        raise NotParquet(f"its footer has {length:,} bytes")
    footer, _ = _read_struct(content, len(content) - 8 - length, 0)
    lengths = _fixed_lengths(footer)
    size, unpacked, values, pages = 0, 0, [0], 0
    for group in _list(footer.get(4)):
        for at, column in enumerate(_list(_fields(group).get(1))):
            values += [0] * (at + 1 - len(values))
            chunk = _fields(_fields(column).get(3))
            kind, text = _integer(chunk.get(1)), 0.0
            width = lengths.get(at, 0) if kind == _FIXED else _WIDTHS.get(kind, 16)
            for header in _page_headers(content, chunk):
                page = max(_integer(header.get(2)), 0)
                size += page
                values[at] += _values(header)
                if kind == _TEXT:
                    text = page / max(_values(header, (7,)), 1) if 7 in header else text
                    unpacked += _text_bytes(header, page, text)
                unpacked += width * _values(header)
                pages += 1
                if pages > MAX_PAGES:  # columns may share pages, which would then never end
                    raise NotParquet(f"it has more than {MAX_PAGES:,} pages")
    return ParquetSize(size, unpacked, max(values))


def _text_bytes(header: dict[int, Any], page: int, text: float) -> int:
    """Most bytes of a page's texts, given the mean size of a text of the dictionary before it."""
    encoding = _encoding(header)
    if encoding in _DICTIONARY_ENCODINGS:
        return int(_values(header) * text)
    if encoding == _PREFIX_ENCODING:  # a text may repeat all of the one before
        return _values(header) * page
    return page


def _encoding(header: dict[int, Any]) -> int:
    """Encoding of a data page; -1 for another page."""
    for kind, field in ((5, 2), (8, 4)):
        if kind in header:
            return _integer(_fields(header[kind]).get(field))
    return -1


def _fixed_lengths(footer: dict[int, Any]) -> dict[int, int]:
    """Bytes of a value by the column's number, where the type has a fixed length."""
    leaves = [e for e in map(_fields, _list(footer.get(2))) if not e.get(5)]
    return {at: max(_integer(leaf.get(2, 0)), 0) for at, leaf in enumerate(leaves)}


def _page_headers(content: bytes, column: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """Yield the headers of the pages of a column in a row group."""
    at, length = _integer(column.get(9)), _integer(column.get(7))
    dictionary = _integer(column.get(11, 0))
    at = min(at, dictionary) if dictionary > 0 else at
    last = at + length
    if not 4 <= at <= last <= len(content):
        raise NotParquet("a column extends beyond the file")
    while at < last:
        header, at = _read_struct(content, at, 0)
        at += max(_integer(header.get(3)), 0)
        yield header


def _values(header: dict[int, Any], kinds: tuple[int, ...] = (5, 8)) -> int:
    """Number of values of a page: by default of a data page, of version 1 or version 2."""
    return sum(max(_integer(_fields(header[kind]).get(1)), 0) for kind in kinds if kind in header)


def _read_struct(content: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields of a struct by number, and the position after it."""
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = _read_byte(content, at)
        if not head & 15:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_zigzag(content, at)
        kind = head & 15
        if kind in (1, 2):  # the type itself holds the value
            fields[number] = kind == 1
        else:
            fields[number], at = _read_value(content, at, kind, depth + 1)


def _read_value(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:  # of structs, and of lists in lists
        raise NotParquet("it is nested too deeply")
    if kind in (1, 2, 3):
        return _read_byte(content, at)
    if kind in (4, 5, 6):
        return _read_zigzag(content, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _read_varint(content, at)
        return None, at + length  # texts are skipped
    if kind in (9, 10):
        head, at = _read_byte(content, at)
        length, kind = head >> 4, head & 15
        if length == 15:
            length, at = _read_varint(content, at)
        if length > len(content) - at:
            raise NotParquet("a list is longer than the file")
        values = []
        for _ in range(length):
            value, at = _read_value(content, at, kind, depth + 1)
            values.append(value)
        return values, at
    if kind == 12:
        return _read_struct(content, at, depth)
    raise NotParquet(f"it has a value of unknown type {kind}")


def _read_byte(content: bytes, at: int) -> tuple[int, int]:
    if not 0 <= at < len(content):
        raise NotParquet("it ends too early")
    return content[at], at + 1


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while shift < 70:
        part, at = _read_byte(content, at)
        value |= (part & 127) << shift
        if part < 128:
            return value, at
        shift += 7
    raise NotParquet("a number is too long")


def _read_zigzag(content: bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise NotParquet("a number is missing")
    return value


def _fields(value: Any) -> dict[int, Any]:
    if not isinstance(value, dict):
        raise NotParquet("a part is missing")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NotParquet("a list is missing")
    return value
