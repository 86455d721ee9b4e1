"""Labelled tables: the user's rows in, coordinates inside, the user's labels out again.

A table has one label column per axis and one value column, or none for interactions that
either happened or are not known. ``Table.found`` says in sentences what was read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index, Mask, cell_keys
from exchangeable.data.cell_order import sort_by_cell
from exchangeable.data.column_roles import find_label_columns
from exchangeable.data.frames import frame_of, native_frame
from exchangeable.data.options import Duplicates as Duplicates
from exchangeable.data.options import TableOptions, missing_texts
from exchangeable.data.other_columns import OtherColumns
from exchangeable.data.vocabulary import Vocabulary
from exchangeable.errors import InputError, Note
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.phrases import format_count
from exchangeable.values.scale import Kind, Scale

if TYPE_CHECKING:
    from exchangeable.arrays.array import ExchangeableArray
    from exchangeable.data.wide import WideForm


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
    """The names of the axes."""
    vocabularies: tuple[Vocabulary, ...]
    index: Index  # (R, D), a row per row of the input
    values: Floats  # (R,), NaN where the value is missing
    scale: Scale
    value_name: str | None = None
    times: Floats | None = None
    """Times of the rows (R,), NaN where a row has none."""
    time_name: str | None = None
    native: str = "polars"
    """The kind of frame that it was made from."""
    found: tuple[str, ...] = field(default=(), repr=False)
    """Sentences about what was read."""
    others: OtherColumns | None = field(default=None, repr=False)
    """The other columns of the input, if values are missing and rows are as they came."""
    units: str | None = None
    """Units that models read real numbers in, where they were named: plain, log or an axis."""
    joint: bool = False
    """Whether both axes are one set of members, with one vocabulary."""
    wide: WideForm | None = field(default=None, repr=False)
    """The form of the input, if it had a column for each member of the second axis."""
    categories: Mapping[str, pl.DataType] = field(default_factory=dict, repr=False)
    """Types of label columns that came as categories; labels are texts here."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", tuple(map(Note, self.found)))

    @staticmethod
    def read(
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
        missing: str | float | Sequence[str | float] = (),
        decimal: str | None = None,
        encoding: str | None = None,
        wide: bool | None = None,
        units: str | None = None,
        joint: bool = False,
    ) -> Table:
        """Read a file: delimited text, Parquet, Excel or JSON, plain, gzip or zip.

        Columns may be given by name, or by number from 1. ``axes`` are the label columns, and
        ``missing`` further texts or numbers that stand for a missing value. A ``wide`` table has a
        row for each member of one axis and a column for each of the other. Both axes of a
        ``joint`` table are one set, as in a graph.
        """
        from exchangeable.data import build

        options = TableOptions(
            axes=None if axes is None else tuple(axes),
            value=value,
            time=time,
            separator=separator,
            header=header,
            duplicates=duplicates,
            scale=scale,
            skip_bad_lines=skip_bad_lines,
            missing=missing_texts(missing),
            decimal=decimal,
            encoding=encoding,
            wide=wide,
            units=units,
            joint=joint,
        )
        return build.table_from_file(path, options)

    @staticmethod
    def of(
        data: Any,
        values: Any = None,
        *,
        axes: Sequence[str | int] | None = None,
        value: str | int | None = None,
        time: str | int | None = None,
        duplicates: Duplicates = "error",
        scale: Kind | None = None,
        times: Any = None,
        missing: str | float | Sequence[str | float] = (),
        decimal: str | None = None,
        wide: bool | None = None,
        units: str | None = None,
        joint: bool = False,
    ) -> Table:
        """Convert a pandas, polars or pyarrow frame, a numpy array (R, D) or a scipy sparse matrix.

        With ``values`` every column of ``data`` is an axis. ``times`` may be one per row, or a
        column that ``time`` names. Both axes of a ``joint`` table are one set, as in a graph.
        """
        from exchangeable.data import build

        options = TableOptions(
            axes=None if axes is None else tuple(axes),
            value=value,
            time=time,
            duplicates=duplicates,
            scale=scale,
            missing=missing_texts(missing),
            decimal=decimal,
            wide=wide,
            units=units,
            joint=joint,
        )
        return build.table_from_frame(data, values, options, times)

    @staticmethod
    def of_cells(
        labels: Mapping[str, pl.Series],
        index: Index,
        values: Floats,
        *,
        scale: Scale | None = None,
        value_name: str = "rating",
    ) -> Table:
        """Label coordinates (R, D); ``labels`` are all members of each axis, with a cell or not."""
        from exchangeable.data import build

        return build.table_from_cells(labels, index, values, scale=scale, value_name=value_name)

    def __len__(self) -> int:
        return len(self.values) - int(np.count_nonzero(np.isnan(self.values)))

    def __repr__(self) -> str:
        return f"Table({self._sizes()}, {format_count(len(self), 'cell')}, {self.scale})"

    @property
    def order(self) -> int:
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of members of each axis."""
        return tuple(len(vocabulary) for vocabulary in self.vocabularies)

    @property
    def is_observed(self) -> Mask:
        """Which rows have a value, (R,); the others are queries."""
        return ~np.isnan(self.values)

    @cached_property
    def observed(self) -> ExchangeableArray:
        """The cells that have a value, with that one channel, in float64."""
        rows = self.is_observed
        return Cells(self.index[rows], self.values[rows], self.shape, self.scale).to_array()

    @cached_property
    def leaves_out_diagonal(self) -> bool:
        """Whether both axes are one set, and no cell of a member with itself has a value."""
        return self.joint and not (self.index[:, 0] == self.index[:, 1])[self.is_observed].any()

    def prediction_columns(self, others: Iterable[str] = ()) -> tuple[str, str, str]:
        """Name the columns of a prediction: its value, and the ends of its interval.

        Names differ from those of the axes and of ``others``, which are written beside them.
        """
        taken = {*self.axes, *others, self.value_name}
        value = self.value_name or free_name(taken, "value", "answer")
        low, high = (free_name({*taken, value}, end, f"{end} end") for end in ("low", "high"))
        return value, low, high

    def cells_per_member(self, axis: int) -> Index:
        """Count the observed cells of each member of an axis, (N,)."""
        return np.bincount(self.index[self.is_observed, axis], minlength=self.shape[axis])

    def at_least(self, least: float) -> Table:
        """Keep the cells whose value is so high, as positives, and the members that have some."""
        if self.scale.kind == "positives":
            raise InputError(f"at least {least:g} needs values, but all of these are positives")
        values = self.values[self.is_observed]
        chosen = np.flatnonzero(values >= least)
        if not len(chosen):
            highest = f": the highest is {values.max():g}" if len(values) else ""
            raise InputError(f"cells of {least:g} or more are needed, but there is none{highest}")
        kept = self.take(chosen)
        vocabularies, columns = [], []
        for vocabulary, codes in zip(self.vocabularies, kept.index.T, strict=True):
            members = np.unique(kept.index if self.joint else codes)
            vocabularies.append(Vocabulary(vocabulary.decode(members)))
            columns.append(np.searchsorted(members, codes))
        note = f"{format_count(len(chosen), 'cell')} of {least:g} or more, taken as positives"
        return replace(
            kept,
            vocabularies=tuple(vocabularies),
            index=np.stack(columns, axis=1).astype(np.int64),
            values=np.ones(len(chosen)),
            scale=Scale("positives", (1.0,)),
            found=(*self.found, note),
        )

    def take(self, positions: NDArray[np.int64]) -> Table:
        """Select observed cells by position, in the sequence of the table, and keep all members."""
        rows = np.flatnonzero(self.is_observed)[np.sort(positions)]
        times = None if self.times is None else self.times[rows]
        values = self.values[rows]
        found = (f"{len(values):,} of {format_count(len(self), 'cell')} shown",)
        changes: dict[str, Any] = {"times": times, "found": found, "others": None, "wide": None}
        return replace(self, index=self.index[rows], values=values, **changes)

    def in_label_order(self, *, in_place: bool = False) -> Table:
        """Sort members by label and rows by cell, so that the sequence of rows does not matter.

        Rows without a value come last, and other columns are dropped. ``in_place`` rearranges this
        table itself, where a second one would be too large; nothing else may use its arrays.
        """
        ordered = [vocabulary.in_label_order() for vocabulary in self.vocabularies]
        rearranged = sort_by_cell(
            self.index,
            self.values,
            [] if self.times is None else [self.times],
            [new_codes for _, new_codes in ordered],
            self.shape,
            overwrite=in_place,
        )
        if rearranged is None and self.others is None and self.wide is None:
            return self
        changes: dict[str, Any] = {"others": None, "wide": None}
        if rearranged is not None:
            index, (values, *times) = rearranged
            changes |= {
                "vocabularies": tuple(vocabulary for vocabulary, _ in ordered),
                "index": index,
                "values": values,
                "times": times[0] if times else None,
            }
        if not in_place:
            return replace(self, **changes)
        self.__dict__.pop("observed", None)
        for name, content in changes.items():
            object.__setattr__(self, name, content)
        return self

    def cells(self, data: Any) -> Index:
        """Encode labelled cells, (Q, D); ``UNKNOWN`` for members that the table does not have."""
        frame, _ = frame_of(data)
        return self.encode([frame[column] for column in self.label_columns(frame)])

    def encode(self, labels: Sequence[pl.Series]) -> Index:
        """Encode a column of labels for each axis, (Q, D)."""
        pairs = zip(self.vocabularies, labels, strict=True)
        return np.stack([vocabulary.encode(column) for vocabulary, column in pairs], axis=1)

    def parse_labels(self, labels: pl.DataFrame) -> pl.DataFrame:
        """Convert labels from a text, a column per axis, to the types of the table's own."""
        pairs = zip(labels.iter_columns(), self.vocabularies, strict=True)
        return pl.DataFrame([vocabulary.parse(column) for column, vocabulary in pairs])

    def label_columns(self, frame: pl.DataFrame) -> tuple[str, ...]:
        """Find the label column of each axis: by its title, or by position if no title is one."""
        return find_label_columns(self.axes, frame.columns)

    def positions(self, data: Any) -> Index:
        """Find labelled cells among the observed ones; each must be there."""
        cells = self.cells(data)
        keys = cell_keys(self.index[self.is_observed], self.shape)
        permutation = np.argsort(keys)
        queries = cell_keys(cells, self.shape)
        ranks = np.searchsorted(keys[permutation], queries).clip(max=max(len(keys) - 1, 0))
        positions = permutation[ranks] if len(keys) else ranks
        absent = (cells == UNKNOWN).any(axis=1) | (len(keys) == 0)
        absent |= keys[positions] != queries if len(keys) else True
        if absent.any():
            row = int(absent.argmax())
            raise InputError(f"every cell must be in the table, but that of row {row + 1} is not")
        return positions

    def frame(self, index: Index, **columns: Any) -> Any:
        """Label cells (Q, D) and add columns, in the kind of frame that the table was made from."""
        coordinates = np.asarray(index)
        for name, column in columns.items():
            if name in self.axes or len(column) != len(coordinates):
                raise InputError(
                    f"a column must have {len(coordinates)} entries and a name other than "
                    f"{', '.join(self.axes)}, but {name!r} has {len(column)}"
                )
        data = {
            axis: self.vocabularies[a].decode(coordinates[:, a]) for a, axis in enumerate(self.axes)
        }
        data |= {name: pl.Series(name, np.asarray(column)) for name, column in columns.items()}
        return native_frame(data, self.native)

    def summary(self) -> str:
        """Say how many cells and members there are, and on which scale."""
        missing = len(self.values) - len(self)
        rest = f", {missing:,} without a value" if missing else ""
        return f"{format_count(len(self), 'cell')} of {self._sizes()}, {self.scale}{rest}"

    def _sizes(self) -> str:
        return " x ".join(f"{n:,} {axis}" for n, axis in zip(self.shape, self.axes, strict=True))


def free_name(taken: Container[str | None], *names: str) -> str:
    """Return the first of the names that is not taken, or else the last one with a number."""
    numbered = (f"{names[-1]} {number}" for number in count(2))
    return next(name for name in chain(names, numbered) if name not in taken)
