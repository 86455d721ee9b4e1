"""Vocabularies: the user's labels of one axis, and the codes that stand for them inside.

Labels keep their type: 7, "7" and "007" are three labels, "nan" is one. They are numbered in the
sequence in which they first appear.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import UNKNOWN, Index
from exchangeable.errors import InputError
from exchangeable.runtime.cache import cached_property

WHOLE = "(0|-?[1-9][0-9]{0,17})"
"""Pattern of integers as they are written: "7" but not "07"."""
_ROWS_PER_BLOCK = 2**19  # so that buffers are used again; measured on 10 M rows
_MAX_LOOKUPS = 64  # a join takes longer to start than a few look-ups


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The labels of an axis, distinct, in the sequence of first appearance.

    >>> vocabulary, codes = Vocabulary.of(pl.Series(["film", "book", "film"]))
    >>> codes.tolist(), vocabulary.decode(codes).to_list()
    ([0, 1, 0], ['film', 'book', 'film'])
    >>> vocabulary.encode(pl.Series(["book", "play"])).tolist()
    [1, -1]
    """

    labels: pl.Series  # (N,)

    @classmethod
    def of(cls, column: pl.Series, out: Index | None = None) -> tuple[Vocabulary, Index]:
        """Return the labels of a column, and the code of each row (in ``out``, if given)."""
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
            codes: dict[tuple[type, Hashable], int] = {}
            try:
                out[:] = [codes.setdefault(_with_type(label), len(codes)) for label in column]
            except TypeError:
                raise InputError(
                    f"labels must be numbers, texts or dates, but some in {column.name!r} are not"
                ) from None
            labels = pl.Series(column.name, [label for _, label in codes], dtype=pl.Object)
            return cls(labels), out
        if isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = column.cast(pl.String)
        if column.dtype == pl.String:
            distinct = _factorize(column, out)
            if distinct is not None:
                return cls(distinct), out
        labels = column.unique(maintain_order=True)
        out[:] = cls(labels).encode(column)
        return cls(labels), out

    def __len__(self) -> int:
        return len(self.labels)

    def encode(self, column: pl.Series) -> Index:
        """Return the code of each label, or ``UNKNOWN``."""
        if self.labels.dtype == pl.Object or column.dtype == pl.Object:
            return np.asarray([self._code_of(label) for label in column], np.int64)
        converted = _convert(column, self.labels.dtype)
        if converted is None:
            return np.full(len(column), UNKNOWN)
        if len(converted) <= _MAX_LOOKUPS:
            return np.asarray([self._codes.get(label, UNKNOWN) for label in converted], np.int64)
        coded = self.labels.to_frame("label").with_row_index("code")
        joined = converted.to_frame("label").join(
            coded, on="label", how="left", maintain_order="left"
        )
        return joined["code"].cast(pl.Int64).fill_null(UNKNOWN).to_numpy()

    def decode(self, codes: Index) -> pl.Series:
        """Return the labels of codes."""
        if len(codes) and not (np.min(codes) >= 0 and np.max(codes) < len(self)):
            raise InputError(
                f"members must be numbered from 0 to {len(self) - 1}, but {np.min(codes)} to "
                f"{np.max(codes)} came; {UNKNOWN} stands for a member that is not known"
            )
        if self.labels.dtype == pl.Object:
            listed = self.labels.to_list()
            return pl.Series(self.labels.name, [listed[c] for c in codes], dtype=pl.Object)
        return self.labels[codes]  # gather builds a query, which takes longer for a few

    def with_whole_numbers(self) -> Vocabulary:
        """Convert to integers if every label is written as one: "7" but not "07"."""
        texts = self.labels.dtype == pl.String and len(self.labels)
        if not texts or not self.labels.str.contains(f"^{WHOLE}$").all():
            return self
        return Vocabulary(self.labels.cast(pl.Int64))

    def in_label_order(self) -> tuple[Vocabulary, Index]:
        """Sort the labels, and return the new code of each old one.

        Codes then do not depend on the sequence of the rows.
        """
        if self.labels.dtype == pl.Object:
            listed = self.labels.to_list()
            permutation = np.asarray(
                sorted(
                    range(len(listed)), key=lambda n: (type(listed[n]).__name__, str(listed[n]))
                ),
                dtype=np.int64,
            )
        else:
            # Texts that are numbers are sorted as numbers, as if they came from a file.
            numbers = self.with_whole_numbers().labels
            permutation = numbers.arg_sort().to_numpy().astype(np.int64)
        new_codes = np.empty(len(permutation), dtype=np.int64)
        new_codes[permutation] = np.arange(len(permutation))
        return Vocabulary(self.decode(permutation)), new_codes

    def with_more(self, column: pl.Series) -> Vocabulary:
        """Append the labels of a column that are new."""
        codes = self.encode(column)
        if not (codes == UNKNOWN).any():
            return self
        fresh, _ = Vocabulary.of(column.filter(pl.Series(codes == UNKNOWN)))
        if self.labels.dtype == pl.Object:
            joined = [*self.labels.to_list(), *fresh.labels.to_list()]
            return Vocabulary(pl.Series(self.labels.name, joined, dtype=pl.Object))
        added = _convert(fresh.labels, self.labels.dtype)
        if added is None or added.null_count():
            raise InputError(
                f"labels of {self.labels.name!r} must be {self.labels.dtype} as known ones are, "
                f"but are {column.dtype}"
            )
        return Vocabulary(pl.concat([self.labels, added.rename(self.labels.name)]))

    def extended(self, labels: pl.Series) -> tuple[Vocabulary, Index]:
        """Append those of distinct labels of the same type that are new; return all their codes."""
        codes = self.encode(labels)
        fresh = codes == UNKNOWN
        if not fresh.any():
            return self, codes
        codes = np.where(fresh, len(self) + np.cumsum(fresh) - 1, codes)
        joined = pl.concat([self.labels, labels.filter(pl.Series(fresh))], rechunk=True)
        return Vocabulary(joined), codes

    def parse(self, column: pl.Series) -> pl.Series:
        """Convert labels that were written as text to this axis' type; new labels stay text."""
        labels = self.labels
        if labels.dtype == pl.String and column.dtype.is_integer():
            return column.cast(pl.String)
        if column.dtype != pl.String or labels.dtype in (pl.String, pl.Object):
            return column
        if labels.dtype.is_integer():
            whole = Vocabulary(column).with_whole_numbers().labels
            if whole.dtype.is_integer():
                return whole
        written = {str(label): label for label in labels}
        if labels.dtype.is_float():
            written |= {f"{label:g}": label for label in labels}
        if labels.dtype == pl.Boolean:
            written |= {str(label).lower(): label for label in labels}
        return column_of(column.name, [written.get(text, text) for text in column])

    def parse_label(self, text: str) -> Any:
        """Convert one written label to this axis' type: 7 where the labels are numbers."""
        return self.parse(pl.Series([text]))[0]

    def _code_of(self, label: Hashable) -> int:
        code = self._codes_by_type.get(_with_type(label))
        if code is None and self.labels.dtype.is_numeric() and _is_number(label):
            # Where all labels are numbers 1 and 1.0 are the same, as in whole columns.
            code = self._codes.get(label)
        return UNKNOWN if code is None else code

    @cached_property
    def _codes(self) -> dict[Hashable, int]:
        return {label: code for code, label in enumerate(self.labels)}

    @cached_property
    def _codes_by_type(self) -> dict[tuple[type, Hashable], int]:
        return {_with_type(label): code for code, label in enumerate(self.labels)}


def missing_labels(column: pl.Series) -> NDArray[np.bool_]:
    """Mark the rows without a label: null, or NaN in a column of numbers."""
    if column.dtype == pl.Object:
        return np.asarray([_is_missing(label) for label in column], dtype=bool)
    if not column.null_count() and not column.dtype.is_float():  # without a query
        return np.zeros(len(column), dtype=bool)
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(True)
    return missing.to_numpy()


def _convert(column: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """Convert labels to another type, null where that changes the label; None if it always does.

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
    converted = column.cast(kind, strict=False)
    back = converted.cast(column.dtype, strict=False)
    return pl.select(pl.when(back == column).then(converted)).to_series().rename(column.name)


def _factorize(column: pl.Series, codes: Index) -> pl.Series | None:
    """Return distinct strings, and write the code of each row, by hash: faster than a join.

    Return None if two strings share a hash, which is checked and not assumed.
    """
    hashes = column.hash()
    first = hashes.arg_unique().sort()
    rows, labels = hashes.to_numpy(), column.gather(first)
    distinct = rows[first.to_numpy()]
    # A table by leading bits finds most codes; rows whose bits are shared are searched for.
    bits = min(max(len(distinct).bit_length() + 6, 10), 26)
    shift = np.uint64(64 - bits)
    table = np.zeros(1 << bits, dtype=np.int32)
    table[distinct >> shift] = np.arange(len(distinct))
    permutation = np.argsort(distinct)
    ascending = distinct[permutation]
    for start in range(0, len(rows), _ROWS_PER_BLOCK):
        block = rows[start : start + _ROWS_PER_BLOCK]
        guess = table[block >> shift]
        shared = np.flatnonzero(distinct[guess] != block)
        guess[shared] = permutation[np.searchsorted(ascending, block[shared])]
        codes[start : start + _ROWS_PER_BLOCK] = guess
        if not (labels.gather(guess) == column.slice(start, _ROWS_PER_BLOCK)).all():
            return None
    return labels


def recode_cells(
    columns: Iterable[NDArray[np.integer]],
    before: Sequence[Vocabulary],
    after: Sequence[Vocabulary],
) -> Index:
    """Return the codes (Q, D) of cells in other vocabularies, from columns of their codes (Q,).

    A table that was fitted may number the same members otherwise: features add members to it.
    """
    trios = zip(columns, before, after, strict=True)
    return np.stack([new.encode(old.labels)[codes] for codes, old, new in trios], axis=1)


def column_of(name: str, values: Iterable[object]) -> pl.Series:
    """Make a column of any labels; mixed types stay what they are."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        # Nanoseconds have no equal in Python, and some coarse units none in polars.
        units = np.datetime_data(values.dtype)[0]
        fits = units in ("ms", "us", "ns") or values.dtype.kind + units == "MD"
        return pl.Series(name, values if fits else values.astype(f"{values.dtype.kind}8[us]"))
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


def column_of_label(name: str, label: object) -> pl.Series:
    """Make a column of one label; raise if it is none, or several in a list."""
    if isinstance(label, bytes | bytearray | Iterator):
        raise InputError(
            f"the {name} must be one label, a number, text or date, but is of type "
            f"{type(label).__name__}"
        )
    column = column_of(name, [label])
    if _is_missing(label) or column.null_count():  # NaT of numpy is null in a column only
        raise InputError(f"the {name} must have a label, but is {label!r}")
    is_list = column.dtype.is_nested() or isinstance(label, tuple | list | set | np.ndarray)
    if is_list or (column.dtype == pl.Object and not isinstance(label, Hashable)):
        raise InputError(
            f"the {name} must be one label, a number, text or date, but is a {type(label).__name__}"
        )
    return column


def _with_type(label: Hashable) -> tuple[type, Hashable]:
    """Return a key that differs for 1, 1.0 and True, which are equal in Python."""
    return type(label), label


def _is_number(label: object) -> bool:
    return isinstance(label, int | float) and not isinstance(label, bool)


def _is_missing(label: object) -> bool:
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float) and label != label


def compare_types(vocabulary: Vocabulary, unknown: pl.Series) -> str:
    """Say that labels are of another type than those of the table, or nothing."""
    (_, theirs), (_, ours) = name_type(unknown.dtype), name_type(vocabulary.labels.dtype)
    return "" if theirs == ours else f": they are {theirs}, but those of the table are {ours}"


def name_type(kind: pl.DataType) -> tuple[str, str]:
    """Name the type of one label and of several in plain words."""
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return "text", "texts"
    if kind.is_integer():
        return "a whole number", "whole numbers"
    if kind.is_numeric():
        return "a number", "numbers"
    if kind.is_temporal():
        return "a date", "dates"
    if kind == pl.Boolean:
        return "a boolean", "booleans"
    return "of another type", "of several types"
