"""Options for reading a table.

The command line fills them in before it loads polars, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from exchangeable.values.scale import Kind

Duplicates = Literal["error", "mean", "last", "first", "max", "sum", "count"]


@dataclass(frozen=True)
class TableOptions:
    """Choices for reading a table; None leaves a choice to what the input looks like.

    Columns are given by name, or by number from 1.
    """

    axes: tuple[str | int, ...] | None = None
    """The label columns."""
    value: str | int | None = None
    time: str | int | None = None
    """The column of times; by default one whose title says so, and none if empty."""
    separator: str | None = None
    """The character between two fields of a line, or ``::``."""
    header: bool | None = None
    """Whether the first line holds the names of the columns."""
    duplicates: Duplicates = "error"
    """The value of a cell that comes more than once; ``count`` is how often it comes."""
    scale: Kind | None = None
    units: str | None = None
    """Units that models read real numbers in: plain, log, or the name of an axis with its own."""
    at_least: float | None = None
    """The value from which on cells are positives; lower ones are left out."""
    skip_bad_lines: bool = False
    """Whether to skip lines that do not fit, and values that are not numbers."""
    missing: tuple[str, ...] = ()
    """Texts and numbers that stand for a missing value, beside NA, null, ? and the like."""
    decimal: str | None = None
    """The decimal mark of values, a point or a comma."""
    wide: bool | None = None
    """Whether columns, but the first, are members of the other axis; None: where that is plain."""
    joint: bool = False
    """Whether both axes are one set of members, as in a graph."""
    encoding: str | None = None
    """The encoding of a text file; by default UTF-8, or UTF-16 if a byte-order mark says so."""


def missing_texts(missing: str | float | Sequence[str | float]) -> tuple[str, ...]:
    """Write one or several words for missing values as texts."""
    words = [missing] if isinstance(missing, str | int | float) else missing
    return tuple(str(word) for word in words)
