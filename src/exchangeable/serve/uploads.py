"""A file that somebody sent: read in memory, completed, and looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from operator import methodcaller
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.arrays.cells import Floats
from exchangeable.completion.completer import Completer
from exchangeable.completion.fill import Answered, Asked
from exchangeable.completion.predictors import read_predictions
from exchangeable.data import parquet
from exchangeable.data.build import table_from_source
from exchangeable.data.options import TableOptions
from exchangeable.data.summary import busiest_members, describe, mean_table
from exchangeable.data.table import Table
from exchangeable.errors import InputError
from exchangeable.serve.parquet_size import NotParquet, unpacked
from exchangeable.serve.store import LONGEST

NAME = "the file"
"""What it is called in errors: names that come with files are not looked at."""
UNPACKED = 256 * 2**20
"""Bytes of a Parquet file's columns."""
SENT_AT_ONCE = 2**13
"""Rows."""
SHOWN = 60
"""Members of an axis in the picture."""
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


@dataclass(frozen=True)
class Upload:
    """A file, and how it is to be read."""

    content: bytes
    options: TableOptions = field(default_factory=TableOptions)

    def table(self, most: int) -> Table:
        if not self.content:
            raise InputError(f"{NAME} is empty")
        if self.content.startswith(_ARCHIVES):
            raise InputError(f"{NAME} is an archive: send it unpacked")
        rows = self._rows() if parquet.is_parquet(self.content) else self.content.count(b"\n")
        if rows > most:
            raise InputError(f"at most {most:,} rows are taken, but {NAME} has {rows:,}")
        table = table_from_source(NAME, self.content, self.options)
        for axis, vocabulary in zip(table.axes, table.vocabularies, strict=True):
            lengths = vocabulary.labels.cast(pl.String).str.len_chars()
            longest = int(lengths.to_numpy().max(initial=0))
            if longest > LONGEST:  # it would come again in every row of what is sent back
                raise InputError(
                    f"{NAME}: a label of {axis!r} has at most {LONGEST} characters, but one has "
                    f"{longest:,}"
                )
        return table

    def _rows(self) -> int:
        """Of a Parquet file that is not too large once it is unpacked."""
        try:
            size = unpacked(self.content)
        except NotParquet as error:
            raise InputError(f"{NAME}: not a whole Parquet file ({error})") from None
        if size.bytes > UNPACKED:
            raise InputError(
                f"at most {UNPACKED >> 20} MB are taken, but {NAME} has {size.bytes >> 20:,} MB "
                f"unpacked"
            )
        return max(size.values, parquet.read_end(NAME, self.content)[1])


def completed(sent: Upload, *, every: bool, most: int, seed: int = 0) -> Answered:
    """With what was missing filled in."""
    table = sent.table(most)
    asked = Asked.of(table, every=every, limit=most)
    return asked.answered(Completer(seed=seed, device="cpu").fit_table(table))


def as_csv(answered: Answered) -> Iterator[bytes]:
    """Block by block."""
    first = True
    for block in answered.blocks():
        for rows in block.iter_slices(SENT_AT_ONCE):
            buffer = BytesIO()
            rows.write_csv(buffer, include_header=first)
            first = False
            yield buffer.getvalue()


def looked_at(sent: Upload, most: int, seed: int = 0) -> dict[str, Any]:
    """What was read, how well hidden cells were predicted, and a picture's worth of cells."""
    table = sent.table(most)
    completer = Completer(seed=seed, device="cpu").fit_table(table)
    told = describe(table)
    return {
        "found": list(table.found),
        "notes": [note for note in completer.notes_ if note not in table.found],
        "model": completer.model_name_,
        "cells": told["cells"],
        "without_value": told["without_value"],
        "axes": [{"name": axis["name"], "members": axis["members"]} for axis in told["axes"]],
        "scale": str(table.scale),
        "picture": picture(completer) if table.order == 2 else None,
    }


def picture(completer: Completer) -> dict[str, Any]:
    """The busiest members of both axes, sorted so that structure shows: observed and completed."""
    table = completer.table_
    chosen = busiest_members(table, 0, SHOWN), busiest_members(table, 1, SHOWN)
    cells = np.stack(np.meshgrid(*chosen, indexing="ij"), axis=-1)
    ends = [methodcaller("quantile", share) for share in (0.1, 0.9)]
    found = read_predictions(
        completer.predictor_, cells.reshape(-1, 2), methodcaller("mean"), *ends
    )
    mean, low, high = (part.reshape(cells.shape[:2]) for part in found)
    rows, columns = _order(mean)
    observed = mean_table(table, chosen)

    def listed(part: Floats) -> list[list[float | None]]:
        sorted_ = np.round(part[np.ix_(rows, columns)], 4)
        return [[None if np.isnan(v) else float(v) for v in row] for row in sorted_]

    labels = [
        [str(table.vocabularies[axis].labels[int(n)]) for n in members[order]]
        for axis, (members, order) in enumerate(zip(chosen, (rows, columns), strict=True))
    ]
    return {
        "rows": labels[0],
        "columns": labels[1],
        "observed": listed(observed),
        "mean": listed(mean),
        "low": listed(low),
        "high": listed(high),
    }


def _order(mean: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By the direction along which the answers differ most, beside what all have in common."""
    left = mean - mean.mean(axis=1, keepdims=True) - mean.mean(axis=0) + mean.mean()
    rows, sizes, columns = np.linalg.svd(left, full_matrices=False)
    if not len(sizes) or sizes[0] < 1e-9:  # nothing but biases
        return np.argsort(mean.mean(axis=1)), np.argsort(mean.mean(axis=0))
    sign = 1.0 if rows[:, 0].sum() >= 0 else -1.0  # else chance would tell which end comes first
    return np.argsort(sign * rows[:, 0]), np.argsort(sign * columns[0])
