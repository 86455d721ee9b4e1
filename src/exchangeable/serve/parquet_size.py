"""How large a Parquet file is once it is unpacked, found out without unpacking it.

A few megabytes may hold gigabytes, and what stands at the end of a file may be wrong; so all
headers of pages are read, by which whoever unpacks them goes, too. They are in Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LARGEST_END = 2**20
"""Bytes of what stands at the end of a file: more is not read."""
MOST_PAGES = 100_000
_MAGIC = b"PAR1"
_DEEPEST = 30


class NotParquet(ValueError):
    """What stands there is not Parquet."""


@dataclass(frozen=True)
class Size:
    """Of all pages of a file."""

    bytes: int
    values: int
    """Of the column that has the most."""


def unpacked(content: bytes) -> Size:
    """Of a file's content."""
    if len(content) < 12 or content[-4:] != _MAGIC:
        raise NotParquet("it does not end as it should")
    length = int.from_bytes(content[-8:-4], "little")
    if length > min(LARGEST_END, len(content) - 12):
        raise NotParquet(f"its end takes {length:,} bytes")
    end, _ = _struct(content, len(content) - 8 - length, 0)
    size, values, pages = 0, [0], 0
    for group in _list(end.get(4)):
        for number, column in enumerate(_list(_fields(group).get(1))):
            values += [0] * (number + 1 - len(values))
            for header in _pages(content, _fields(_fields(column).get(3))):
                size += max(_whole(header.get(2)), 0)
                values[number] += _values(header)
                pages += 1
                if pages > MOST_PAGES:  # columns may share pages, so that they would have no end
                    raise NotParquet(f"it has more than {MOST_PAGES:,} pages")
    return Size(size, max(values))


def _pages(content: bytes, column: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """Headers of the pages of a column in a group of rows."""
    at, length = _whole(column.get(9)), _whole(column.get(7))
    dictionary = _whole(column.get(11, 0))
    at = min(at, dictionary) if dictionary > 0 else at
    last = at + length
    if not 4 <= at <= last <= len(content):
        raise NotParquet("a column is beyond its end")
    while at < last:
        header, at = _struct(content, at, 0)
        at += max(_whole(header.get(3)), 0)
        yield header


def _values(header: dict[int, Any]) -> int:
    kinds = (5, 8)  # data, of the first and of the second version
    return sum(max(_whole(_fields(header[kind]).get(1)), 0) for kind in kinds if kind in header)


def _struct(content: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields by number, and where they end."""
    if depth > _DEEPEST:
        raise NotParquet("it is nested too deep")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = _byte(content, at)
        if not head & 15:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _number(content, at)
        kind = head & 15
        if kind in (1, 2):  # the kind itself tells which
            fields[number] = kind == 1
        else:
            fields[number], at = _value(content, at, kind, depth + 1)


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2, 3):
        return _byte(content, at)
    if kind in (4, 5, 6):
        return _number(content, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(content, at)
        return None, at + length  # texts are of no interest
    if kind in (9, 10):
        head, at = _byte(content, at)
        many, kind = head >> 4, head & 15
        if many == 15:
            many, at = _varint(content, at)
        if many > len(content) - at:
            raise NotParquet("a list is longer than all")
        found = []
        for _ in range(many):
            value, at = _value(content, at, kind, depth + 1)
            found.append(value)
        return found, at
    if kind == 12:
        return _struct(content, at, depth)
    raise NotParquet("a kind of value that has no place here")


def _byte(content: bytes, at: int) -> tuple[int, int]:
    if not 0 <= at < len(content):
        raise NotParquet("it ends too early")
    return content[at], at + 1


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while shift < 70:
        part, at = _byte(content, at)
        value |= (part & 127) << shift
        if part < 128:
            return value, at
        shift += 7
    raise NotParquet("a number is too long")


def _number(content: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _whole(value: Any) -> int:
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
