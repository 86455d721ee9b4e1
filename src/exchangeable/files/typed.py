"""Files whose columns have types of their own: Parquet, Excel and JSON, each read whole."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from exchangeable.errors import InputError
from exchangeable.files import parquet
from exchangeable.files.source import Source, read_all, read_start
from exchangeable.files.titles import check_titles

_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_EXCEL_ENGINES = {"fastexcel": "calamine", "openpyxl": "openpyxl"}


def read_typed(name: str, source: Source) -> pl.DataFrame | None:
    """Read a Parquet, Excel or JSON file; None if a file is none of them."""
    if parquet.is_parquet(source):
        return parquet.read_whole(name, source)
    if is_excel(source):
        frame = _read_excel(name, source)
    elif is_json(source):
        frame = _read_json(name, source)
    else:
        return None
    check_titles(name, frame.columns)
    return frame


def is_excel(source: Source) -> bool:
    """Whether a file is a spreadsheet; other archives are unpacked when they are opened."""
    return read_start(source).startswith((_ZIP, _OLE))


def is_json(source: Source) -> bool:
    """Whether a file holds a JSON object per line, or an array of them."""
    start = read_start(source).removeprefix(b"\xef\xbb\xbf").lstrip()
    if isinstance(source, Path) and source.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        return True
    if start.startswith(b"["):
        return start[1:].lstrip().startswith(b"{")
    if not start.startswith(b"{"):
        return False
    return isinstance(_parse(start.split(b"\n", 1)[0]), dict)


def _read_excel(name: str, source: Source) -> pl.DataFrame:
    if read_start(source).startswith(_OLE):
        raise InputError(f"{name}: .xlsx or CSV is needed, but this is .xls; save it as one")
    engine = next((e for module, e in _EXCEL_ENGINES.items() if find_spec(module)), None)
    if engine is None:
        raise InputError(
            f"{name}: Excel files need fastexcel: pip install fastexcel, or save it as CSV"
        )
    try:
        # All rows decide on a column's type: an engine drops what does not fit.
        options: dict[str, Any] = {"engine": engine, "infer_schema_length": None}
        sheets = pl.read_excel(
            io.BytesIO(read_all(source)), sheet_id=0, raise_if_empty=False, **options
        )
    except Exception as error:  # each engine has its own kinds of errors
        raise InputError(f"{name}: not a whole Excel file ({_first_line(error)})") from None
    filled = [sheet for sheet, frame in sheets.items() if len(frame)]
    if len(filled) != 1:
        raise InputError(
            f"{name}: one sheet with rows is needed, but there are {len(filled) or 'none'}"
            f"{': ' if filled else ''}{', '.join(filled)}; save one as CSV"
        )
    return sheets[filled[0]]


def _read_json(name: str, source: Source) -> pl.DataFrame:
    content = read_all(source).removeprefix(b"\xef\xbb\xbf")
    _check_objects(name, content)
    try:
        if content.lstrip().startswith(b"["):
            return pl.read_json(io.BytesIO(content), infer_schema_length=None)
        return pl.read_ndjson(io.BytesIO(content), infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        where = _first_bad_line(content)
        raise InputError(
            f"{name}: {where}a JSON object per line, or an array of objects, is needed, but this "
            f"cannot be read ({_first_line(error)})"
        ) from None


def _check_objects(name: str, content: bytes) -> None:
    """Raise if the content is one object that holds others rather than fields of a row."""
    if not content.lstrip().startswith(b"{"):
        return
    whole = _parse(content)
    if not isinstance(whole, dict):  # several lines, or no JSON
        return
    inside = [key for key, held in whole.items() if isinstance(held, dict | list)]
    if inside and len(whole) - len(inside) < 2:
        kind = "an array" if isinstance(whole[inside[0]], list) else "an object"
        raise InputError(
            f"{name}: a JSON object per line, or an array of objects, is needed, but this is one "
            f"object, with {kind} in {inside[0]!r}; write the rows alone"
        )


def _first_bad_line(content: bytes) -> str:
    """Name the first line that holds no JSON object; nothing where all do, or in an array."""
    if content.lstrip().startswith(b"["):
        return ""
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip() and not isinstance(_parse(line, int), dict):
            return f"line {number}: "
    return ""


def _parse(content: bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The content of JSON; None if it is none, or too deep. With int, NaN is none."""
    try:
        return json.loads(content, parse_constant=parse_constant)
    except (ValueError, RecursionError):
        return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
