"""Files with features of members, as ``--features AXIS=FILE`` names them."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.data.features import check_frames
from exchangeable.data.frames import parse_dates
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError
from exchangeable.files import text
from exchangeable.files.encoding import to_utf8
from exchangeable.files.source import Source, open_source
from exchangeable.files.text_parser import parse, parse_rows
from exchangeable.files.typed import is_excel, read_typed

if TYPE_CHECKING:
    import polars as pl

Frames = dict[str, "pl.DataFrame"]
"""Features of members by the name of their axis, labels in the first column."""


def read_features(arguments: list[str] | None, table: Table, encoding: str | None = None) -> Frames:
    """Read the files of ``--features AXIS=FILE``, with labels as those of the table."""
    paths: dict[str, str] = {}
    for argument in arguments or []:
        axis, _, path = argument.partition("=")
        if not axis or not path:
            raise InputError(f"--features needs AXIS=FILE, but is {argument!r}")
        if axis in paths:
            raise InputError(
                f"--features needs one file for each axis, but {axis} has {paths[axis]} and {path}"
            )
        paths[axis] = path
    check_frames(table, paths)
    vocabularies = dict(zip(table.axes, table.vocabularies, strict=True))
    return {
        axis: _read_file(path, axis, vocabularies[axis], encoding) for axis, path in paths.items()
    }


TITLE_NAMES = ("title", "name", "titles", "names")


def read_titles(
    path: str | None, axis: str, vocabulary: Vocabulary, encoding: str | None = None
) -> dict[Hashable, str]:
    """Read what members are called from a file with labels in its first column.

    Titles are in a column of that name, or else in the first other one that holds texts.
    """
    import polars as pl

    if path is None:
        return {}
    frame = _read_file(path, axis, vocabulary, encoding)
    named = [c for c in frame.columns[1:] if c.strip().lower() in TITLE_NAMES]
    texts = [c for c in frame.columns[1:] if frame[c].dtype == pl.String]
    if not named and not texts:
        raise InputError(
            f"{path}: a column of titles is needed beside the labels, but there are "
            f"{', '.join(frame.columns)}"
        )
    titles = frame[(named or texts)[0]].cast(pl.String)
    pairs = zip(frame.to_series(0), titles, strict=True)
    return {label: title for label, title in pairs if title is not None}


def _read_file(path: str, axis: str, vocabulary: Vocabulary, encoding: str | None) -> pl.DataFrame:
    """Read a file as tables are read: delimited text, Parquet, Excel or JSON, or an archive."""
    source = open_source(Path(path))
    if not is_excel(source):
        source = to_utf8(path, source, encoding)
    frame = read_typed(path, source)
    if frame is None:
        frame = _read_text(path, source, vocabulary)
    if not frame.columns:
        raise InputError(f"{path}: columns are needed, but there are none")
    labels = vocabulary.parse(frame.to_series(0))
    if (vocabulary.encode(labels) == UNKNOWN).all():
        raise InputError(
            f"{path}: labels of {axis} are needed in its first column, but none in "
            f"{labels.name!r} is in the table"
        )
    return frame.with_columns(labels)


def _read_text(name: str, source: Source, vocabulary: Vocabulary) -> pl.DataFrame:
    """Read labels as text, and other columns as numbers or dates where all of their fields are."""
    import polars as pl

    headless = text.detect_layout(name, source, header=False)
    first = headless.layout.columns[0]
    label = parse(headless, {first: pl.String})[0][first][0]
    titled = not _may_be_member(vocabulary, label)
    file = text.detect_layout(name, source, header=True) if titled else headless
    frame, _ = parse_rows(file, dict.fromkeys(file.layout.columns, pl.String))
    return frame.with_columns(_convert(frame[column]) for column in frame.columns[1:])


def _may_be_member(vocabulary: Vocabulary, label: str | None) -> bool:
    """Whether the first field of a file is a label, so that its first line is no header."""
    import polars as pl

    if label is None:  # above the labels of a matrix of similarities
        return False
    parsed = vocabulary.parse(pl.Series([label]))
    return parsed.dtype.is_integer() or bool(vocabulary.encode(parsed)[0] != UNKNOWN)


def _convert(column: pl.Series) -> pl.Series:
    """Convert a column of text to numbers or dates; categories stay text."""
    import polars as pl

    stripped = column.str.strip_chars()
    numbers = stripped.cast(pl.Float64, strict=False)
    if numbers.null_count() == column.null_count():
        return numbers
    dates = parse_dates(stripped)
    return column if dates is None or dates.null_count() > column.null_count() else dates
