"""Rows in the order of their cells, of which there is never a second copy on the way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from exchangeable.arrays.cells import Floats, Index

_AT_ONCE = 2**20


def sort_by_cell(
    index: Index,
    values: Floats,
    others: Sequence[Floats],
    renumbered: Sequence[Index],
    shape: tuple[int, ...],
    *,
    overwrite: bool = False,
) -> tuple[Index, list[Floats]] | None:
    """Coordinates ascending, and ``values`` and ``others`` with them; None if they are so already.

    Member n of axis a gets the number ``renumbered[a][n]``. Rows that have no value come last.
    Equal cells keep their order. With ``overwrite`` the new coordinates lie where the old ones
    were, and the values where the packed numbers were.

    Cell and row are packed into one number, and these are sorted in place, in the memory where
    the coordinates are then unpacked: beside what comes out only a block of rows is held.
    """
    rows, cells = len(values), math.prod(shape)
    bits = max(rows - 1, 0).bit_length()
    if 2 * cells << bits > 2**63:
        return _by_places(index, values, others, renumbered)

    def packed_at(some: slice) -> Index:
        coordinates = [new[index[some, axis]] for axis, new in enumerate(renumbered)]
        numbers = np.ravel_multi_index(coordinates, shape)
        numbers[np.isnan(values[some])] += cells
        return (numbers << bits) + np.arange(some.start, some.stop)

    same = all((new[1:] > new[:-1]).all() for new in renumbered)
    if same and _ascend(packed_at(some) for some in _blocks(rows)):
        return None
    room = np.empty((rows, len(shape)), dtype=np.int64) if not overwrite else index
    packed = room.reshape(-1)[:rows] if not overwrite else np.empty(rows, dtype=np.int64)
    for some in _blocks(rows):
        packed[some] = packed_at(some)
    packed.sort()
    room = room.ravel(order="K").reshape(rows, -1)
    first = packed.view(np.float64) if overwrite else np.empty(rows)
    new_columns = [first, *map(np.empty_like, others)]
    # From the end: what is unpacked there covers only what has been unpacked.
    for some in reversed(list(_blocks(rows))):
        numbers = packed[some].copy()
        places = numbers & ((1 << bits) - 1)
        for new, old in zip(new_columns, (values, *others), strict=True):
            new[some] = old[places]
        numbers >>= bits
        numbers %= cells
        room[some] = np.stack(np.unravel_index(numbers, shape), axis=1)
    return room, new_columns


def _by_places(
    index: Index, values: Floats, others: Sequence[Floats], renumbered: Sequence[Index]
) -> tuple[Index, list[Floats]]:
    """The same where cell and row do not fit into 63 bits."""
    new = np.stack([numbers[index[:, a]] for a, numbers in enumerate(renumbered)], axis=1)
    order = np.lexsort((*new.T[::-1], np.isnan(values)))
    return new[order], [column[order] for column in (values, *others)]


def _ascend(blocks: Iterable[Index]) -> bool:
    last = -1
    for numbers in blocks:
        if numbers[0] < last or (numbers[1:] < numbers[:-1]).any():
            return False
        last = numbers[-1]
    return True


def _blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + _AT_ONCE, rows)) for start in range(0, rows, _AT_ONCE)]
