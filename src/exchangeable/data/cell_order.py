"""Sort rows by cell without ever holding a second copy of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from exchangeable.arrays.cells import Floats, Index

_ROWS_PER_BLOCK = 2**20


def sort_by_cell(
    index: Index,
    values: Floats,
    others: Sequence[Floats],
    new_codes: Sequence[Index],
    shape: tuple[int, ...],
    *,
    overwrite: bool = False,
) -> tuple[Index, list[Floats]] | None:
    """Sort coordinates, and ``values`` and ``others`` with them; None if they are sorted already.

    Member n of axis a gets the code ``new_codes[a][n]``. Rows without a value come last. Equal
    cells keep their sequence. With ``overwrite`` the new coordinates take the memory of the old
    ones, and the values that of the packed keys.

    Cell and row are packed into one key, and the keys are sorted in place, in the memory where the
    coordinates are then unpacked: beside the result only a block of rows is held.
    """
    rows, cells = len(values), math.prod(shape)
    bits = max(rows - 1, 0).bit_length()
    if 2 * cells << bits > 2**63:
        return _sort_by_columns(index, values, others, new_codes)

    def pack(block: slice) -> Index:
        coordinates = [codes[index[block, axis]] for axis, codes in enumerate(new_codes)]
        keys = np.ravel_multi_index(coordinates, shape)
        keys[np.isnan(values[block])] += cells
        return (keys << bits) + np.arange(block.start, block.stop)

    same = all((codes[1:] > codes[:-1]).all() for codes in new_codes)
    if same and _is_ascending(pack(block) for block in _blocks(rows)):
        return None
    target = np.empty((rows, len(shape)), dtype=np.int64) if not overwrite else index
    packed = target.reshape(-1)[:rows] if not overwrite else np.empty(rows, dtype=np.int64)
    for block in _blocks(rows):
        packed[block] = pack(block)
    packed.sort()
    target = target.ravel(order="K").reshape(rows, -1)
    new_values = packed.view(np.float64) if overwrite else np.empty(rows)
    new_columns = [new_values, *map(np.empty_like, others)]
    # From the end: what is unpacked there covers only what has been unpacked.
    for block in reversed(list(_blocks(rows))):
        keys = packed[block].copy()
        old_rows = keys & ((1 << bits) - 1)
        for new, old in zip(new_columns, (values, *others), strict=True):
            new[block] = old[old_rows]
        keys >>= bits
        keys %= cells
        target[block] = np.stack(np.unravel_index(keys, shape), axis=1)
    return target, new_columns


def _sort_by_columns(
    index: Index, values: Floats, others: Sequence[Floats], new_codes: Sequence[Index]
) -> tuple[Index, list[Floats]]:
    """Do the same where cell and row do not fit into 63 bits."""
    new = np.stack([codes[index[:, a]] for a, codes in enumerate(new_codes)], axis=1)
    permutation = np.lexsort((*new.T[::-1], np.isnan(values)))
    return new[permutation], [column[permutation] for column in (values, *others)]


def _is_ascending(blocks: Iterable[Index]) -> bool:
    last = -1
    for keys in blocks:
        if keys[0] < last or (keys[1:] < keys[:-1]).any():
            return False
        last = keys[-1]
    return True


def _blocks(rows: int) -> list[slice]:
    step = _ROWS_PER_BLOCK
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
