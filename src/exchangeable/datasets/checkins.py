"""Gowalla and Yelp2018: places that users visited, in the published splits of LightGCN."""

from __future__ import annotations

import io

import numpy as np
import polars as pl

from exchangeable.arrays.cells import Index
from exchangeable.data.splits import by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, roots
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale

_PARTS = ("train", "test")
_CITATION = (
    "Xiangnan He, Kuan Deng, Xiang Wang, Yan Li, Yongdong Zhang and Meng Wang. 2020. LightGCN: "
    "Simplifying and Powering Graph Convolution Network for Recommendation. SIGIR."
)
_PAGE = "https://github.com/kuandeng/LightGCN"


def _source(name: str, title: str) -> Source:
    urls = {f"{name}/{part}.txt": f"{_PAGE}/raw/master/Data/{name}/{part}.txt" for part in _PARTS}
    return Source(name, title, "for research", _CITATION, _PAGE, urls=urls)


SOURCES = {
    "gowalla": _source("gowalla", "Gowalla: places that users checked in at"),
    "yelp2018": _source("yelp2018", "Yelp2018: places that users reviewed"),
}


def load_checkins(name: str) -> Dataset:
    """Load pairs of user and place, and the published split."""
    source = SOURCES[name]
    parts = [_read_part(source, f"{name}/{part}") for part in _PARTS]
    index = np.concatenate(parts)
    shape = index.max(axis=0) + 1
    labels = {
        axis: pl.Series(np.arange(size))
        for axis, size in zip(("user", "place"), shape, strict=True)
    }
    scale = Scale("positives", (1.0,))
    table = Table.of_cells(labels, index, np.ones(len(index)), scale=scale, value_name="visited")
    split = by_position(table, np.arange(len(parts[0]), len(index)))
    return Dataset(source, table, {"published": split})


def _read_part(source: Source, path: str) -> Index:
    """Read pairs (E, 2): arrays of rows and columns, or a line of places for each user."""
    if any((root / f"{path}.npz").is_file() for root in roots()):
        with np.load(io.BytesIO(source.read(f"{path}.npz")), allow_pickle=False) as arrays:
            return np.stack([arrays["row"], arrays["column"]], axis=1).astype(np.int64)
    pairs = []
    for number, line in enumerate(source.read(f"{path}.txt").decode().splitlines(), start=1):
        try:
            user, *places = map(int, line.split())
        except ValueError:
            raise InputError(
                f"{path}.txt: line {number}: a user and places are needed, as whole numbers, but "
                f"this is {line[:60]!r}"
            ) from None
        pairs += [(user, place) for place in places]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
