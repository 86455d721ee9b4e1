"""Labelled tables: the user's rows in, coordinates inside, the user's labels out again.

A table has one label column per axis and one value column, or none for interactions that
either happened or are not known. What was found in the input is told in ``Table.found``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.data import text
from exchangeable.data.column_roles import Roles, guess_roles
from exchangeable.data.columns import Columns
from exchangeable.data.duplicates import Duplicates as Duplicates
from exchangeable.data.duplicates import cell_numbers, merged
from exchangeable.data.frames import frame_of, native_frame, numbers_of
from exchangeable.data.parquet import is_parquet
from exchangeable.data.text import TextFile
from exchangeable.data.vocabulary import Vocabulary, column_of
from exchangeable.errors import InputError
from exchangeable.values.scale import Kind, Scale

if TYPE_CHECKING:
    from exchangeable.arrays.array import ExchangeableArray
    from exchangeable.arrays.support import Support


@dataclass(frozen=True, eq=False)
class Table:
    """A table of interactions with the user's labels.

    >>> frame = pl.DataFrame({"user": ["ann", "bob"], "film": ["Heat", "Alien"], "rating": [4, 5]})
    >>> table = Table.of(frame)
    >>> table
    Table(2 user x 2 film, 2 cells, levels 4-5 by 1)
    >>> table.observed.support.index.tolist()
    [[0, 0], [1, 1]]
    """

    axes: tuple[str, ...]
    """What each axis is called."""
    vocabularies: tuple[Vocabulary, ...]
    index: Index  # (R, D), a row per row of the input
    values: NDArray[np.float64]  # (R,), NaN where the value is missing
    scale: Scale
    value_name: str | None = None
    times: NDArray[np.float64] | None = None
    native: str = "polars"
    """The kind of frame or file it came from."""
    found: tuple[str, ...] = field(default=(), repr=False)
    """What was read, in sentences."""

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        axes: Sequence[str | int] | None = None,
        value: str | int | None = None,
        time: str | int | None = None,
        separator: str | None = None,
        header: bool | None = None,
        duplicates: Duplicates = "error",
        scale: Kind | None = None,
        skip_bad_lines: bool = False,
    ) -> Table:
        """From a file: CSV, TSV, ``::``-separated or Parquet, plain, gzip or zip.

        Columns may be named, or numbered from 1. ``axes`` are the label columns.
        """
        return cls.of_source(
            str(path),
            text.open_source(Path(path)),
            axes=axes,
            value=value,
            time=time,
            separator=separator,
            header=header,
            duplicates=duplicates,
            scale=scale,
            skip_bad_lines=skip_bad_lines,
        )

    @classmethod
    def of_source(
        cls,
        name: str,
        source: text.Source,
        *,
        axes: Sequence[str | int] | None = None,
        value: str | int | None = None,
        time: str | int | None = None,
        separator: str | None = None,
        header: bool | None = None,
        duplicates: Duplicates = "error",
        scale: Kind | None = None,
        skip_bad_lines: bool = False,
    ) -> Table:
        """From a file that is plain, or from the bytes of one; ``name`` is told in errors."""
        if is_parquet(source):
            file = Columns.of_parquet(name, source)
            roles = guess_roles(name, list(file.types), axes, value, time, titled=True)
            numbered = file.as_numbers(roles.value, roles.time)
            return cls._of_columns(numbered, "polars", roles, duplicates, scale)
        lines = text.detect_layout(name, source, separator=separator, header=header)
        return cls.of_lines(
            lines,
            axes=axes,
            value=value,
            time=time,
            duplicates=duplicates,
            scale=scale,
            skip_bad_lines=skip_bad_lines,
        )

    @classmethod
    def of_lines(
        cls,
        lines: TextFile,
        *,
        axes: Sequence[str | int] | None = None,
        value: str | int | None = None,
        time: str | int | None = None,
        duplicates: Duplicates = "error",
        scale: Kind | None = None,
        skip_bad_lines: bool = False,
    ) -> Table:
        """From text whose layout is known."""
        layout = lines.layout
        if skip_bad_lines:
            lines = text.without_bad_lines(lines)
        roles = guess_roles(layout.name, layout.columns, axes, value, time, layout.header)
        kinds: dict[str, Any] = dict.fromkeys(roles.axes, pl.String)
        kinds |= {name: pl.Float64 for name in (roles.value, roles.time) if name is not None}
        frame, lines = _parsed(lines, kinds, skip_bad_lines)
        columns = Columns.of_frame(layout.name, frame, lines)
        return cls._of_columns(columns, "polars", roles, duplicates, scale)

    @classmethod
    def of(
        cls,
        data: Any,
        values: Any = None,
        *,
        axes: Sequence[str | int] | None = None,
        value: str | int | None = None,
        time: str | int | None = None,
        duplicates: Duplicates = "error",
        scale: Kind | None = None,
    ) -> Table:
        """From a pandas, polars or pyarrow frame, a numpy array (R, D) or a scipy sparse matrix.

        With ``values`` every column of ``data`` is an axis.
        """
        frame, native = frame_of(data)
        if values is not None:
            if axes is None:
                axes = list(frame.columns)
            given = np.asarray(values)
            if given.shape != (len(frame),):
                raise InputError(
                    f"values must be one per row, {len(frame)} in all, but have shape {given.shape}"
                )
            value = "value" if value is None else value
            frame = frame.with_columns(column_of(str(value), given))
        return cls._of_frame(frame, "data", native, axes, value, time, duplicates, scale, values)

    @classmethod
    def of_cells(
        cls,
        labels: Mapping[str, pl.Series],
        index: Index,
        values: NDArray[np.float64],
        *,
        scale: Scale | None = None,
        value_name: str = "rating",
    ) -> Table:
        """From coordinates (R, D) among all members of each axis, those without a cell included."""
        known = Scale.of(values) if scale is None else scale
        vocabularies = tuple(Vocabulary(members.rename(axis)) for axis, members in labels.items())
        table = cls(tuple(labels), vocabularies, index, values, known, value_name)
        object.__setattr__(table, "found", (table._summary(),))
        return table

    @classmethod
    def _of_frame(
        cls,
        frame: pl.DataFrame,
        name: str,
        native: str,
        axes: Sequence[str | int] | None,
        value: str | int | None,
        time: str | int | None,
        duplicates: Duplicates,
        scale: Kind | None,
        values: Any,
    ) -> Table:
        numbered = native in ("numpy", "scipy") and values is None
        roles = guess_roles(name, frame.columns, axes, value, time, titled=not numbered)
        columns = {c: frame[c] for c in roles.axes}
        for role in (roles.value, roles.time):
            if role is not None:
                columns[role] = numbers_of(name, frame[role])
        found = Columns.of_frame(name, pl.DataFrame(columns))
        return cls._of_columns(found, native, roles, duplicates, scale)

    @classmethod
    def _of_columns(
        cls,
        columns: Columns,
        native: str,
        roles: Roles,
        duplicates: Duplicates,
        scale: Kind | None,
    ) -> Table:
        if duplicates not in get_args(Duplicates):
            known = ", ".join(get_args(Duplicates))
            raise InputError(f"duplicates must be one of {known}, but is {duplicates!r}")
        bad = columns.lines.bad if columns.lines else 0
        notes = (f"{bad:,} bad lines skipped",) if bad else ()
        if columns.rows == 0:
            raise InputError(f"{columns.name}: rows are needed, but there are none")
        index = np.empty((len(roles.axes), columns.rows), dtype=np.int64).T
        with ThreadPoolExecutor(2) as pool:  # both cores: numbering the labels is the slow part
            asked = [
                pool.submit(columns.labels, axis, index[:, number])
                for number, axis in enumerate(roles.axes)
            ]
            values, times = (
                None if role is None else columns.numbers(role)
                for role in (roles.value, roles.time)
            )
            vocabularies = [one.result() for one in asked]
        if values is None:
            values = np.ones(columns.rows)
        kept, source, values, note = merged(columns, index, values, vocabularies, duplicates)
        index = index[kept]
        times = None if times is None else times[source]
        guessed = Scale.of(values, scale)
        table = cls(
            axes=roles.axes,
            vocabularies=tuple(vocabularies),
            index=index,
            values=values,
            scale=guessed,
            value_name=roles.value,
            times=times,
            native=native,
        )
        found = (*roles.found, *notes, *note, table._summary())
        object.__setattr__(table, "found", found)
        return table

    def __len__(self) -> int:
        return len(self.values) - int(np.count_nonzero(np.isnan(self.values)))

    def __repr__(self) -> str:
        return f"Table({self._sizes()}, {len(self):,} cells, {self.scale})"

    @property
    def order(self) -> int:
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many members each axis has."""
        return tuple(len(vocabulary) for vocabulary in self.vocabularies)

    @cached_property
    def observed(self) -> ExchangeableArray:
        """The cells that have a value, with that one channel, in float64."""
        import torch

        from exchangeable.arrays.array import ExchangeableArray
        from exchangeable.arrays.support import Support

        seen = ~np.isnan(self.values)
        support = Support(torch.from_numpy(self.index[seen]), self.shape)
        return ExchangeableArray.unchecked(support, torch.from_numpy(self.values[seen])[:, None])

    @cached_property
    def missing(self) -> Support:
        """The cells that came without a value: those to be filled, in the input's order."""
        import torch

        from exchangeable.arrays.support import Support

        return Support(torch.from_numpy(self.index[np.isnan(self.values)]), self.shape)

    def cells(self, data: Any) -> Index:
        """Coordinates (Q, D) of labelled cells; ``UNKNOWN`` for members the table does not have."""
        frame, _ = frame_of(data)
        codes = [
            vocabulary.encode(frame[column])
            for vocabulary, column in zip(self.vocabularies, self.label_columns(frame), strict=True)
        ]
        return np.stack(codes, axis=1)

    def label_columns(self, frame: pl.DataFrame) -> tuple[str, ...]:
        """The columns with the labels of each axis: by name, or by place if no name is there."""
        named = [axis for axis in self.axes if axis in frame.columns]
        if len(named) == self.order:
            return self.axes
        if named or len(frame.columns) < self.order:
            raise InputError(
                f"cells must have a column for each of {self.order} axes "
                f"({', '.join(self.axes)}), but have {len(frame.columns)}: "
                f"{', '.join(frame.columns)}"
            )
        return tuple(frame.columns[: self.order])

    def positions(self, data: Any) -> Index:
        """Where labelled cells stand among the observed ones; each must be there."""
        cells = self.cells(data)
        keys = cell_numbers(self.index[~np.isnan(self.values)], self.shape)
        order = np.argsort(keys)
        wanted = cell_numbers(cells, self.shape)
        places = np.searchsorted(keys[order], wanted).clip(max=max(len(keys) - 1, 0))
        found = order[places] if len(keys) else places
        absent = (cells == UNKNOWN).any(axis=1) | (len(keys) == 0)
        absent |= keys[found] != wanted if len(keys) else True
        if absent.any():
            row = int(absent.argmax())
            raise InputError(f"every cell must be in the table, but that of row {row + 1} is not")
        return found

    def frame(self, index: Index, **columns: Any) -> Any:
        """Labels of the given cells (Q, D) with more columns, in the kind of frame that came in."""
        coordinates = np.asarray(index)
        for name, column in columns.items():
            if name in self.axes or len(column) != len(coordinates):
                raise InputError(
                    f"a column must have {len(coordinates)} entries and a name other than "
                    f"{', '.join(self.axes)}, but {name!r} has {len(column)}"
                )
        data = {
            axis: vocabulary.decode(coordinates[:, number])
            for number, (axis, vocabulary) in enumerate(
                zip(self.axes, self.vocabularies, strict=True)
            )
        }
        data |= {name: pl.Series(name, np.asarray(column)) for name, column in columns.items()}
        return native_frame(data, self.native)

    def _summary(self) -> str:
        missing = len(self.values) - len(self)
        rest = f", {missing:,} without a value" if missing else ""
        return f"{len(self):,} cells of {self._sizes()}, {self.scale}{rest}"

    def _sizes(self) -> str:
        return " x ".join(f"{n:,} {axis}" for n, axis in zip(self.shape, self.axes, strict=True))


def _parsed(lines: TextFile, kinds: dict[str, Any], skip: bool) -> tuple[pl.DataFrame, TextFile]:
    """The frame without blank lines, and without values that are none if they may be skipped."""
    if not skip:
        frame, lines = text.parse(lines, kinds)
        return _kept(frame, lines, frame.select(~pl.all_horizontal(pl.all().is_null())).to_series())
    frame, lines = text.parse(lines, dict.fromkeys(kinds, pl.String))
    for column in [name for name, kind in kinds.items() if kind == pl.Float64]:
        written = frame[column]
        number = written.str.strip_chars().cast(pl.Float64, strict=False)
        wrong = written.is_not_null() & (number.is_null() | ~number.is_finite())
        lines = replace(lines, bad=lines.bad + int(wrong.sum()))
        frame, lines = _kept(frame.with_columns(number), lines, ~wrong)
    return frame, lines


def _kept(frame: pl.DataFrame, lines: TextFile, rows: pl.Series) -> tuple[pl.DataFrame, TextFile]:
    """Some of the rows, which still know their lines."""
    if rows.all():
        return frame, lines
    numbers = lines.numbers
    if numbers is None:
        numbers = text.line_numbers(lines)
    return frame.filter(rows), replace(lines, numbers=numbers[rows.to_numpy()])
