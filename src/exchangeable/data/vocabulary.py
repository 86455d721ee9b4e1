"""Vocabularies: the user's labels of one axis, and the numbers they have inside.

Labels are kept as they came, with their type: 7, "7" and "007" are three labels, "nan" is one.
They are numbered in the order in which they first appear.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.errors import InputError

_AT_ONCE = 2**19  # rows at a time, so that buffers are used again; measured on 10 M rows


WHOLE = "(0|-?[1-9][0-9]{0,17})"
"""How integers are written: "7" but not "07"."""
_FEW = 64


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The labels of an axis, distinct, in order of first appearance.

    >>> vocabulary, codes = Vocabulary.of(pl.Series(["film", "book", "film"]))
    >>> codes.tolist(), vocabulary.decode(codes).to_list()
    ([0, 1, 0], ['film', 'book', 'film'])
    >>> vocabulary.encode(pl.Series(["book", "play"])).tolist()
    [1, -1]
    """

    labels: pl.Series  # (N,)

    @classmethod
    def of(cls, column: pl.Series, out: Index | None = None) -> tuple[Vocabulary, Index]:
        """The labels of a column, and the number of each of its rows (in ``out``, if given)."""
        if out is None:
            out = np.empty(len(column), dtype=np.int64)
        missing = missing_labels(column)
        if missing.any():
            raise InputError(
                f"every row must have a label in column {column.name!r}, but row "
                f"{int(missing.argmax()) + 1} has none"
            )
        if column.dtype.is_nested():
            raise InputError(
                f"labels must be numbers, texts or dates, but {column.name!r} holds {column.dtype}"
            )
        if column.dtype == pl.Object:
            numbers: dict[tuple[type, Hashable], int] = {}
            try:
                out[:] = [numbers.setdefault(_typed(label), len(numbers)) for label in column]
            except TypeError:
                raise InputError(
                    f"labels must be numbers, texts or dates, but some in {column.name!r} are not"
                ) from None
            labels = pl.Series(column.name, [label for _, label in numbers], dtype=pl.Object)
            return cls(labels), out
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = column.cast(pl.String)
        if column.dtype == pl.String:
            distinct = _factorized(column, out)
            if distinct is not None:
                return cls(distinct), out
        labels = column.unique(maintain_order=True)
        out[:] = cls(labels).encode(column)
        return cls(labels), out

    def __len__(self) -> int:
        return len(self.labels)

    def encode(self, column: pl.Series) -> Index:
        """The number of each label, or ``UNKNOWN``."""
        if self.labels.dtype == pl.Object or column.dtype == pl.Object:
            return np.asarray([self._number_of(label) for label in column], np.int64)
        wanted = _as(column, self.labels.dtype)
        if wanted is None:
            return np.full(len(column), UNKNOWN)
        if len(wanted) <= _FEW:  # a join takes longer to start than a few look-ups
            return np.asarray([self._codes.get(label, UNKNOWN) for label in wanted], np.int64)
        known = self.labels.to_frame("label").with_row_index("code")
        found = wanted.to_frame("label").join(known, on="label", how="left", maintain_order="left")[
            "code"
        ]
        return found.cast(pl.Int64).fill_null(UNKNOWN).to_numpy()

    def decode(self, codes: Index) -> pl.Series:
        """The labels of the given numbers."""
        if len(codes) and not (np.min(codes) >= 0 and np.max(codes) < len(self)):
            raise InputError(
                f"members must be numbered from 0 to {len(self) - 1}, but {np.min(codes)} to "
                f"{np.max(codes)} came; {UNKNOWN} stands for a member that is not known"
            )
        if self.labels.dtype == pl.Object:
            listed = self.labels.to_list()
            return pl.Series(self.labels.name, [listed[c] for c in codes], dtype=pl.Object)
        return self.labels.gather(codes)

    def with_whole_numbers(self) -> Vocabulary:
        """Integers where every label is one, written as integers are: "7" but not "07"."""
        plain = self.labels.dtype == pl.String and len(self.labels)
        if not plain or not self.labels.str.contains(f"^{WHOLE}$").all():
            return self
        return Vocabulary(self.labels.cast(pl.Int64))

    def in_order(self) -> tuple[Vocabulary, Index]:
        """The labels ascending, and the new number of each old one.

        Whatever order rows come in, the members then have the same numbers.
        """
        if self.labels.dtype == pl.Object:
            listed = self.labels.to_list()
            order = np.asarray(
                sorted(
                    range(len(listed)), key=lambda n: (type(listed[n]).__name__, str(listed[n]))
                ),
                dtype=np.int64,
            )
        else:
            # Texts that are numbers, as numbers: a file would have them so.
            plain = self.with_whole_numbers().labels
            order = plain.arg_sort().to_numpy().astype(np.int64)
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[order] = np.arange(len(order))
        return Vocabulary(self.decode(order)), numbers

    def with_more(self, column: pl.Series) -> Vocabulary:
        """With the labels of a column that are new, after the known ones."""
        codes = self.encode(column)
        if not (codes == UNKNOWN).any():
            return self
        fresh, _ = Vocabulary.of(column.filter(pl.Series(codes == UNKNOWN)))
        if self.labels.dtype == pl.Object:
            joined = [*self.labels.to_list(), *fresh.labels.to_list()]
            return Vocabulary(pl.Series(self.labels.name, joined, dtype=pl.Object))
        added = _as(fresh.labels, self.labels.dtype)
        if added is None or added.null_count():
            raise InputError(
                f"labels of {self.labels.name!r} must be {self.labels.dtype} as known ones are, "
                f"but are {column.dtype}"
            )
        return Vocabulary(pl.concat([self.labels, added.rename(self.labels.name)]))

    def extended(self, labels: pl.Series) -> tuple[Vocabulary, Index]:
        """With distinct labels of the same type after the known ones, and the number of each."""
        codes = self.encode(labels)
        fresh = codes == UNKNOWN
        if not fresh.any():
            return self, codes
        numbers = np.where(fresh, len(self) + np.cumsum(fresh) - 1, codes)
        joined = pl.concat([self.labels, labels.filter(pl.Series(fresh))], rechunk=True)
        return Vocabulary(joined), numbers

    def _number_of(self, label: Hashable) -> int:
        found = self._numbers.get(_typed(label))
        if found is None and self.labels.dtype.is_numeric() and _is_number(label):
            # Where all known labels are numbers 1 and 1.0 are the same, as in whole columns.
            found = self._equals.get(label)
        return UNKNOWN if found is None else found

    @cached_property
    def _codes(self) -> dict[Hashable, int]:
        return {label: code for code, label in enumerate(self.labels)}

    @cached_property
    def _equals(self) -> dict[Hashable, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @cached_property
    def _numbers(self) -> dict[tuple[type, Hashable], int]:
        return {_typed(label): number for number, label in enumerate(self.labels)}


def missing_labels(column: pl.Series) -> NDArray[np.bool_]:
    """Which rows have no label: null, or not a number in a column of numbers."""
    if column.dtype == pl.Object:
        return np.asarray([_is_missing(label) for label in column], dtype=bool)
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(True)
    return missing.to_numpy()


def _as(column: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """The labels as another type, null where they are not the same label there; None if never.

    Integers and floats may be equal, and so may texts and categories, and dates of other
    precision; nothing else is.
    """
    if column.dtype == kind:
        return column
    text = (pl.String, pl.Categorical, pl.Enum)
    if column.dtype in text and kind in text:
        return column.cast(pl.String).cast(kind, strict=False)
    days = (pl.Date, pl.Datetime)
    if not (column.dtype.is_numeric() and kind.is_numeric()) and not (
        column.dtype in days and kind in days
    ):
        return None
    there = column.cast(kind, strict=False)
    back = there.cast(column.dtype, strict=False)
    return pl.select(pl.when(back == column).then(there)).to_series().rename(column.name)


def _factorized(column: pl.Series, codes: Index) -> pl.Series | None:
    """Distinct strings, the number of each row into ``codes``, by hash: faster than a join.

    None when two strings share a hash, which is checked and not assumed.
    """
    hashes = column.hash()
    first = hashes.arg_unique().sort()
    rows, labels = hashes.to_numpy(), column.gather(first)
    distinct = rows[first.to_numpy()]
    # A table by leading bits finds most; rows whose bits are shared are searched for.
    bits = min(max(len(distinct).bit_length() + 6, 10), 26)
    shift = np.uint64(64 - bits)
    table = np.zeros(1 << bits, dtype=np.int32)
    table[distinct >> shift] = np.arange(len(distinct))
    order = np.argsort(distinct)
    ascending = distinct[order]
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        guess = table[some >> shift]
        shared = np.flatnonzero(distinct[guess] != some)
        guess[shared] = order[np.searchsorted(ascending, some[shared])]
        codes[start : start + _AT_ONCE] = guess
        if not (labels.gather(guess) == column.slice(start, _AT_ONCE)).all():
            return None
    return labels


def column_of(name: str, values: Iterable[object]) -> pl.Series:
    """A column of any labels; mixed types stay what they are."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        return pl.Series(name, values)  # nanoseconds have no equal in Python
    if isinstance(values, np.ndarray) and values.dtype.kind in "if":  # without a list of them
        return pl.Series(name, values.astype(np.int64 if values.dtype.kind == "i" else np.float64))
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = set(map(type, listed))
    if not kinds <= {int, str, bool}:  # some may be missing
        kinds = {type(value) for value in listed if not _is_missing(value)}
        if not kinds or kinds <= {int, str, bool}:
            listed = [None if _is_missing(value) else value for value in listed]
    if len(kinds) > 1:
        return pl.Series(name, listed, dtype=pl.Object)
    try:
        return pl.Series(name, listed, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, listed, dtype=pl.Object)


def _typed(label: Hashable) -> tuple[type, Hashable]:
    """Python holds 1, 1.0 and True to be equal; as labels they are not."""
    return type(label), label


def _is_number(label: object) -> bool:
    return isinstance(label, int | float) and not isinstance(label, bool)


def _is_missing(label: object) -> bool:
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float) and label != label
