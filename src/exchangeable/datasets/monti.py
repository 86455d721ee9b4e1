"""Flixster, Douban and YahooMusic: the 3000 x 3000 blocks of Monti et al. (2017)."""

from __future__ import annotations

import io

import numpy as np
import polars as pl

from exchangeable.data.splits import by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source
from exchangeable.errors import InputError

_CITATION = (
    "Federico Monti, Michael M. Bronstein and Xavier Bresson. 2017. Geometric Matrix Completion "
    "with Recurrent Multi-Graph Neural Networks. NeurIPS."
)
_PAGE = "https://github.com/fmonti/mgcnn"


def _source(name: str, title: str) -> Source:
    path = f"monti/{name.replace('-', '_')}.mat"
    url = f"{_PAGE}/raw/master/Data/{name.replace('-', '_')}/training_test_dataset.mat"
    return Source(name, title, "for research", _CITATION, _PAGE, urls={path: url})


SOURCES = {
    "flixster": _source("flixster", "Flixster, 3000 x 3000 block"),
    "douban": _source("douban", "Douban, 3000 x 3000 block"),
    "yahoo-music": _source("yahoo-music", "YahooMusic, 3000 x 3000 block"),
}


def load_block(name: str) -> Dataset:
    """Load ratings, the published training and test cells, and graphs of users and items."""
    try:
        import h5py
    except ImportError:
        raise InputError(
            f"{name} is an HDF5 file and needs h5py: pip install 'exchangeable[datasets]'"
        ) from None
    source = SOURCES[name]
    path = next(iter(source.urls))
    with h5py.File(io.BytesIO(source.read(path)), "r") as file:
        # MATLAB stores columns first, so that everything is transposed in HDF5.
        ratings, training, test = (np.asarray(file[k]).T for k in ("M", "Otraining", "Otest"))
        graphs = {}
        for key, axis in (("W_users", 0), ("W_movies", 1), ("W_tracks", 1)):
            if key in file:
                graphs[axis] = np.asarray(file[key], dtype=np.float64).T
    rows, columns = np.nonzero((training > 0) | (test > 0))
    values = ratings[rows, columns].astype(np.float64)
    labels = {
        axis: pl.Series(np.arange(size))
        for axis, size in zip(("user", "item"), ratings.shape, strict=True)
    }
    table = Table.of_cells(labels, np.stack([rows, columns], axis=1), values)
    split = by_position(table, np.flatnonzero(test[rows, columns] > 0))
    return Dataset(source, table, {"published": split}, graphs=graphs)
