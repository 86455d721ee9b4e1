"""Traffic in three cities, as tables of three axes: places, days and hours.

A 0 is no cell. Xinyu Chen and Lijun Sun, whose errors stand in papers on these tables, leave the
zeros out of what models read and of what is compared, since a sensor that fails writes 0. In New
York, where an hour without a trip is not rare, this leaves out true zeros too.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import polars as pl

from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source
from exchangeable.errors import InputError
from exchangeable.values.scale import Scale

_CITATION = (
    "Xinyu Chen and Lijun Sun. 2022. Bayesian Temporal Factorization for Multidimensional Time "
    "Series Prediction. IEEE Transactions on Pattern Analysis and Machine Intelligence 44(9)."
)


@dataclass(frozen=True)
class _City:
    source: Source
    axes: tuple[str, str, str]
    value: str


def _city(name: str, title: str, axes: tuple[str, str, str], value: str) -> _City:
    page = "https://github.com/xinychen/transdim"
    urls = {f"traffic/{'nyc' if name == 'new-york' else name}.npz": ""}
    return _City(Source(name, title, "for research", _CITATION, page, urls=urls), axes, value)


CITIES = {
    city.source.name: city
    for city in (
        _city(
            "birmingham",
            "Birmingham: car parks x days x half hours, cars",
            ("park", "day", "time"),
            "cars",
        ),
        _city(
            "hangzhou",
            "Hangzhou: metro stations x days x ten minutes, passengers",
            ("station", "day", "time"),
            "passengers",
        ),
        _city(
            "new-york",
            "New York: taxi trips between zones by hour",
            ("origin", "destination", "hour"),
            "trips",
        ),
    )
}


def load_traffic(name: str) -> Dataset:
    """Load the cells of a city that are not 0; places, days and hours are numbered."""
    city = CITIES[name]
    (path,) = city.source.urls
    with np.load(io.BytesIO(city.source.read(path)), allow_pickle=False) as arrays:
        values = arrays["values"].astype(np.float64)
    if values.ndim != 3:
        raise InputError(f"{path}: an array of 3 axes is needed, but this has {values.ndim}")
    index = np.argwhere(values)
    labels = {
        axis: pl.Series(np.arange(size)) for axis, size in zip(city.axes, values.shape, strict=True)
    }
    scale = Scale("real")
    found = values[tuple(index.T)]
    table = Table.of_cells(labels, index, found, scale=scale, value_name=city.value)
    return Dataset(city.source, table)
