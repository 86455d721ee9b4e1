"""What a database stores about a table beside its cells, and the form of its labels."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exchangeable.arrays.cells import Floats
from exchangeable.data.frames import times_of
from exchangeable.data.table import Table
from exchangeable.data.vocabulary import column_of
from exchangeable.errors import InputError
from exchangeable.values.scale import Kind, Scale

Label = str | int
Cell = tuple[Label, ...]
"""Labels of a cell's members, one for each axis."""
Time = float | str
"""A time as the table has it, or a date."""

MAX_LABEL_LENGTH = 500
"""Maximum number of characters of a label."""
MAX_KEY_BYTES = 2000
"""Maximum size of all labels of a cell together, which are its key in PostgreSQL's index."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Facts:
    """What the database stores about a table beside its cells; it does not change with them."""

    source: str
    """The file, dataset or saved completer that the table was read from."""
    axes: tuple[str, ...]
    whole: tuple[bool, ...]
    """Whether the labels of each axis are whole numbers; otherwise they are texts."""
    value: str | None
    kind: Kind
    levels: tuple[float, ...]
    completer: bool = False
    """Whether ``source`` is the folder of a saved completer, which later starts load again."""
    time: str | None = None
    """Name of the times of the cells; None if they have none."""

    @classmethod
    def of(cls, source: str, table: Table, *, completer: bool = False) -> Facts:
        whole = tuple(v.labels.dtype.is_integer() for v in table.vocabularies)
        scale = table.scale
        time = table.time_name if table.times is not None else None
        return cls(
            source, table.axes, whole, table.value_name, scale.kind, scale.levels, completer, time
        )

    @classmethod
    def from_json(cls, text: str) -> Facts:
        stored: dict[str, Any] = json.loads(text)
        lists = {name: tuple(v) for name, v in stored.items() if isinstance(v, list)}
        return cls(**{**stored, **lists})

    @property
    def source_name(self) -> str:
        """The source without its folders, which are no business of clients."""
        return re.split(r"[/\\]", self.source.rstrip("/\\"))[-1]

    @property
    def scale(self) -> Scale:
        return Scale(self.kind, self.levels)

    def to_text(self, axis: int, label: Label) -> str:
        """A label as the database stores it; raises if the axis cannot have such a label."""
        name, text = self.axes[axis], str(label)
        if self.whole[axis]:
            if not _WHOLE.fullmatch(text) or str(int(text)) != text:
                raise InputError(
                    f"labels of {name!r} must be whole numbers, but one is {text[:60]!r}"
                )
            return text
        if not text or len(text) > MAX_LABEL_LENGTH:
            raise InputError(
                f"labels of {name!r} must have 1 to {MAX_LABEL_LENGTH} characters, but one has "
                f"{len(text)}"
            )
        if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise InputError(
                f"labels of {name!r} must be valid text without null characters, but one is "
                f"{text[:60]!r}"
            )
        return text

    def normalise(self, axis: int, label: Label) -> Label:
        """A label with the type of its axis: 7 and "7" are one label."""
        text = self.to_text(axis, label)
        return int(text) if self.whole[axis] else text

    def read_times(self, times: Sequence[Time], cells: int) -> Floats:
        """Convert times to numbers, one for each of ``cells`` cells."""
        if self.time is None:
            raise InputError("times need a table with times, but this one has none")
        if len(times) != cells:
            raise InputError(f"times must be one per cell, {cells} in all, but are {len(times)}")
        return times_of("times", column_of(self.time, list(times))).to_numpy(writable=True)

    def to_key(self, cell: Cell) -> tuple[str, ...]:
        """Labels of a cell as the database stores them."""
        key = tuple(self.to_text(axis, label) for axis, label in enumerate(cell))
        check_key(sum(len(text.encode()) for text in key))
        return key

    def check_values(self, values: Floats) -> None:
        """Raise unless values are numbers of the table's scale."""
        from exchangeable.completion.fit import MAX_VALUE

        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > MAX_VALUE:
            raise InputError(f"values must be numbers of at most {MAX_VALUE:g} in size")
        self.scale.check(values)

    def check_length(self, cell: Cell) -> None:
        """Raise unless a cell has one label per axis."""
        if len(cell) != len(self.axes):
            raise InputError(
                f"a cell must have {len(self.axes)} labels ({', '.join(self.axes)}), but one has "
                f"{len(cell)}"
            )


def check_key(size: int) -> None:
    """Raise if the labels of a cell have too many bytes."""
    if size > MAX_KEY_BYTES:
        raise InputError(
            f"labels of a cell must have at most {MAX_KEY_BYTES:,} bytes together, but these have "
            f"{size:,}"
        )
