"""Fill in a table: the cells to predict, and the frame or file with the predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

from exchangeable.arrays.cells import Floats, Index, cell_keys
from exchangeable.completion.completer import Completer
from exchangeable.completion.fit import Fitted
from exchangeable.completion.inputs import encode_queries
from exchangeable.data.frames import native_frame, with_columns
from exchangeable.data.options import Duplicates
from exchangeable.data.other_columns import OtherColumns, ReadRows
from exchangeable.data.queries import read_queries
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import Vocabulary, recode_cells
from exchangeable.data.wide import WideForm
from exchangeable.errors import InputError, option, where_offered
from exchangeable.predictors.base import COVERAGE, MEAN, interval_ends, predict_chunks
from exchangeable.runtime.progress import SILENT, Progress

_ROWS_PER_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows of a table, as codes of its members: labels of all rows would be too much text."""

    axes: tuple[str, ...]
    vocabularies: tuple[Vocabulary, ...]
    codes: Callable[[Index], Sequence[NDArray[np.integer]]]
    """Returns the codes of some rows, by axis."""
    categories: Mapping[str, pl.DataType]
    """Types of axes whose labels are written as categories."""

    @classmethod
    def of(cls, table: Table, codes: Callable[[Index], Sequence[NDArray[np.integer]]]) -> CodedRows:
        return cls(table.axes, table.vocabularies, codes, table.categories)

    def decode(self, rows: Index) -> pl.DataFrame:
        """Return the labels of some rows, a column per axis."""
        columns = zip(self.axes, self.vocabularies, self.codes(rows), strict=True)
        labels = [v.decode(c.astype(np.int64)).rename(axis) for axis, v, c in columns]
        return pl.DataFrame(labels).cast(dict(self.categories))  # type: ignore[arg-type]

    def encode(self, table: Table, rows: Index) -> Index:
        """Return the cells of some rows in a table that numbers the same members otherwise."""
        return recode_cells(self.codes(rows), self.vocabularies, table.vocabularies)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows from a file, with labels that the table may have or not."""

    labels: pl.DataFrame

    def decode(self, rows: Index) -> pl.DataFrame:
        """Return the labels of some rows, a column per axis."""
        return self.labels[rows]

    def encode(self, table: Table, rows: Index) -> Index:
        """Return the cells of some rows, ``UNKNOWN`` for members that the table does not have."""
        return encode_queries(table, table.parse_labels(self.decode(rows)))


@dataclass(frozen=True, eq=False)
class FillRequest:
    """Rows to write, and their values where these are known."""

    rows: CodedRows | LabelledRows
    values: NDArray[np.floating]  # (R,), NaN where a prediction is wanted
    names: tuple[str, str, str]
    """Names of the columns of values and of the ends of their intervals."""
    others: OtherColumns | None = None
    """Further columns, to be written in their place."""
    times: Floats | None = None
    """Times of the rows (R,), where they have any."""
    wide: WideForm | None = None
    """The form of a wide table, to be written as it came."""

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        queries: Path | None = None,
        every: bool = False,
        limit: int = 2**62,
        encoding: str | None = None,
    ) -> FillRequest:
        """Request the cells without a value, those of a file, or every cell of the table.

        ``encoding`` is that of the file, by default UTF-8.
        Only rows that came from the user have further columns.
        """
        if queries is not None:
            labels, times, others = read_queries(queries, table, encoding)
            names = table.prediction_columns(others.types)
            return cls(LabelledRows(labels), np.full(len(labels), np.nan), names, others, times)
        if every:
            return cls._every(table, limit)
        if len(table.values) == len(table):
            raise InputError(
                "nothing to fill: every row has a value; choose "
                f"{option('all', True)} for every cell"
                + where_offered(f", or name cells of your own with {option('queries')}")
            )
        # In as few bytes as they need, so that the table may go.
        kinds = [np.min_scalar_type(size) for size in table.shape]
        codes = [c.astype(kind) for c, kind in zip(table.index.T, kinds, strict=True)]
        rows = CodedRows.of(table, lambda rows: [c[rows] for c in codes])
        names = table.prediction_columns(() if table.others is None else table.others.types)
        values = _shorten(table.values)
        return cls(rows, values, names, table.others, table.times, table.wide)

    @classmethod
    def _every(cls, table: Table, limit: int) -> FillRequest:
        size, shape = math.prod(table.shape), table.shape
        if size > limit:
            raise InputError(
                f"at most {limit:,} cells are written, but the table has {size:,}"
                + where_offered(
                    f"; raise {option('limit')}, or name the cells with {option('queries')}"
                )
            )
        values = np.full(size, np.nan)
        observed = table.is_observed
        values[cell_keys(table.index[observed], shape)] = table.values[observed]
        rows = CodedRows.of(table, lambda rows: np.unravel_index(rows, shape))
        return cls(rows, values, table.prediction_columns())

    def check_csv(self) -> None:
        """Raise if a CSV file cannot hold one of the columns."""
        if self.others is not None:
            self.others.check_csv()

    @property
    def missing(self) -> int:
        """Number of cells to predict."""
        return int(np.count_nonzero(np.isnan(self.values)))


@dataclass(frozen=True, eq=False)
class FilledTable:
    """Rows with their values filled in; frames of them are built block by block."""

    request: FillRequest
    rows: Index  # (Q,), the rows that were predicted, ascending
    predictions: Floats  # (Q, 3): mean, low, high

    def frame(self) -> pl.DataFrame:
        """Return all rows, or a wide table as it came, with its missing values filled in."""
        if self.request.wide is not None:
            return self.request.wide.filled(self.columns()[0].to_numpy())
        return self._block(0, len(self.request.values), self._open_others())

    def write_csv(self, target: str | Path | BinaryIO, separator: str = ",") -> None:
        """Write all rows to a file, or into one that is open."""
        with ExitStack() as stack:
            if isinstance(target, str | Path):
                target = stack.enter_context(Path(target).open("wb"))
            for number, block in enumerate(self.blocks()):
                block.write_csv(target, separator=separator, include_header=number == 0)

    def write_ndjson(self, target: str | Path) -> None:
        """Write all rows as JSON lines."""
        with Path(target).open("wb") as file:
            for block in self.blocks():
                block.write_ndjson(file)

    def write_parquet(self, path: str | Path) -> None:
        blocks = self.blocks()
        first = next(blocks)
        source = register_io_source(lambda *_: chain([first], blocks), schema=first.schema)
        source.sink_parquet(path)

    def blocks(self) -> Iterator[pl.DataFrame]:
        if self.request.wide is not None:
            yield self.frame()
            return
        read_others = self._open_others()
        for start in range(0, len(self.request.values), _ROWS_PER_BLOCK):
            yield self._block(start, start + _ROWS_PER_BLOCK, read_others)

    def columns(self, start: int = 0, stop: int | None = None) -> list[pl.Series]:
        """Return observed or predicted values, and the ends of the predicted ones' intervals."""
        values = self.request.values[start:stop]
        first, last = np.searchsorted(self.rows, (start, start + len(values)))
        columns = np.full((3, len(values)), np.nan)
        columns[0] = values
        columns[:, self.rows[first:last] - start] = self.predictions[first:last].T
        named = zip(self.request.names, columns, strict=True)
        return [pl.Series(name, column).fill_nan(None) for name, column in named]

    def _open_others(self) -> ReadRows | None:
        return None if self.request.others is None else self.request.others.open()

    def _block(self, start: int, stop: int, read_others: ReadRows | None) -> pl.DataFrame:
        """Return labels, other columns and predictions, in the order of the input's columns."""
        columns = self.columns(start, stop)
        rows = np.arange(start, start + len(columns[0]))
        frame = self.request.rows.decode(rows).with_columns(columns)
        if read_others is None or self.request.others is None:
            return frame
        order = self.request.others.order
        added = [name for name in self.request.names if name not in order]
        return frame.with_columns(read_others(rows).iter_columns()).select(*order, *added)


def fill(fitted: Fitted, request: FillRequest, progress: Progress = SILENT) -> FilledTable:
    """Predict all requested cells, with the ends of an 80 % interval, in one pass."""
    rows = np.flatnonzero(np.isnan(request.values))
    predictions = np.empty((len(rows), 3))
    if not len(rows):
        return FilledTable(request, rows, predictions)
    index = request.rows.encode(fitted.table, rows)
    times = None if request.times is None else request.times[rows]
    statistics = (MEAN, *interval_ends(COVERAGE))
    for chunk, distribution in predict_chunks(fitted.predictor, index, times):
        for at, statistic in enumerate(statistics):
            predictions[chunk, at] = statistic(distribution).double().cpu().numpy()
        progress.at(chunk.start / len(rows), f"predicting: {chunk.start:,} of {len(rows):,}")
    return FilledTable(request, rows, predictions)


def complete(
    data: Any,
    *,
    model: str = "auto",
    axes: Sequence[str | int] | None = None,
    value: str | int | None = None,
    duplicates: Duplicates = "error",
    missing: str | float | Sequence[str | float] = (),
    decimal: str | None = None,
    wide: bool | None = None,
    joint: bool = False,
    seed: int = 0,
    device: str = "auto",
) -> Any:
    """Return a frame with the missing values filled in, and the ends of an 80 % interval.

    ``axes`` names the label columns where there are more than two, and ``missing`` further texts
    and numbers that stand for a missing value. Other columns are returned as they came. A ``wide``
    table, with a column for each member of the second axis, comes back in the same form, without
    intervals. Both axes of a ``joint`` table are one set of members.

    >>> cells = {"user": ["a", "a", "b"], "film": ["x", "y", "x"]}
    >>> complete(pl.DataFrame({**cells, "rating": [4, 2, None]})).columns
    ['user', 'film', 'rating', 'low', 'high']
    """
    options: dict[str, Any] = {"duplicates": duplicates, "missing": missing, "decimal": decimal}
    if wide is None and axes is None and value is None:
        wide = _is_matrix(data)
    options |= {"wide": wide, "joint": joint}
    table = Table.of(data, axes=axes, value=value, **options)
    if table.is_observed.all():
        raise InputError(
            "nothing to fill: every row has a value; Completer.predict predicts other cells"
        )
    request = FillRequest.of(table)
    completer = Completer(model, seed=seed, device=device, joint=joint).fit_table(table)
    filled = fill(completer.fitted_, request)
    if table.wide is not None:
        return _same_form(data, filled.frame(), table)
    if table.native not in ("numpy", "scipy"):
        rows = None if table.others is None else table.others.rows
        return with_columns(data, filled.columns(), rows)
    return native_frame({c.name: c for c in filled.frame().iter_columns()}, table.native)


def _is_matrix(data: Any) -> bool | None:
    """Whether an array must be a wide table, since labels are not missing; None if that is open."""
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.dtype.kind != "f":
        return None
    labels = data[:, :-1]
    may_be_labels = not np.isnan(labels).any() and bool((labels % 1 == 0).all())
    return None if may_be_labels else bool(np.isnan(data).any()) or None


def _same_form(data: Any, filled: pl.DataFrame, table: Table) -> Any:
    """Return a wide table in the kind of frame that it came in."""
    assert table.wide is not None
    if isinstance(data, np.ndarray | list | tuple):
        return filled.to_numpy()
    return with_columns(data, [filled[column] for column in table.wide.lacking])


def _shorten(values: Floats) -> NDArray[np.floating]:
    """Store values in half the bytes if that loses nothing, as with ratings."""
    short = np.empty(len(values), dtype=np.float32)
    for start in range(0, len(values), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        with np.errstate(over="ignore"):
            short[block] = values[block]
        if not np.array_equal(short[block], values[block], equal_nan=True):
            return values
    return short
