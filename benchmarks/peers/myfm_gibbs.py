"""myFM: one factorization machine on one split of ML-100K, run by factorization_machines.py.

    EXCHANGEABLE_DATA=... python benchmarks/peers/myfm_gibbs.py u1 ids,sets probit 10 512 42

The arguments are split, parts of the input, model, rank, iterations and seed; the python is that
of the environment with myFM. A line of JSON is printed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from myfm import MyFMOrderedProbit, MyFMRegressor, RelationBlock
from myfm.utils.encoders import (
    BinningEncoder,
    CategoryValueToSparseEncoder,
    DataFrameEncoder,
    MultipleValuesToSparseEncoder,
)
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Floats = NDArray[np.float64]
RATINGS = np.arange(1, 6)
DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Settings:
    """A row of the table: what is fitted, on which cells."""

    split: str
    parts: tuple[str, ...]
    """Of ids, sets, dates and features; ids are always there."""
    model: str
    rank: int
    iterations: int
    seed: int


def cells(path: Path) -> pd.DataFrame:
    """Ratings, with days counted in UTC."""
    read = pd.read_csv(path, sep="\t", names=["user", "film", "rating", "day"])
    return read.assign(day=read.day // DAY)


def users(folder: Path, train: pd.DataFrame) -> pd.DataFrame:
    """Age, sex and occupation, and the films that each rated in training cells."""
    columns = ["user", "age", "sex", "occupation", "zip"]
    read = pd.read_csv(folder / "u.user", sep="|", names=columns, index_col="user")
    return read.assign(rated=listed(train, "user", "film", read.index))


def films(folder: Path, train: pd.DataFrame) -> pd.DataFrame:
    """Year and genres, and the users who rated each in training cells."""
    read = pd.read_csv(folder / "u.item", sep="|", header=None, index_col=0, encoding="latin-1")
    read.index.name = "film"
    has = read.loc[:, 5:].to_numpy() == 1
    genres = [",".join(map(str, np.flatnonzero(row))) for row in has]
    year = read[2].str[-4:].astype(float)  # one film has none
    rated = listed(train, "film", "user", read.index)
    return pd.DataFrame({"year": year, "genres": genres, "rated": rated}, index=read.index)


def listed(train: pd.DataFrame, own: str, other: str, members: pd.Index) -> pd.Series:
    """For each member the labels on the other axis, joined by commas."""
    joined = train[other].astype(str).groupby(train[own]).agg(",".join)
    return joined.reindex(members).fillna("")


def columns_of(frame: pd.DataFrame, train: pd.DataFrame, settings: Settings) -> DataFrameEncoder:
    """How members become rows; sets and genres are divided by the root of their size."""
    axis = str(frame.index.name)
    encoder = DataFrameEncoder().add_column(axis, CategoryValueToSparseEncoder(train[axis]))
    if "sets" in settings.parts:
        encoder.add_column("rated", MultipleValuesToSparseEncoder(frame.rated))
    if "features" in settings.parts:
        for name in ("age", "year"):
            if name in frame:
                encoder.add_column(name, BinningEncoder(frame[name], n_percentiles=10))
        for name in ("sex", "occupation"):
            if name in frame:
                encoder.add_column(name, CategoryValueToSparseEncoder(frame[name]))
        if "genres" in frame:
            encoder.add_column("genres", MultipleValuesToSparseEncoder(frame.genres))
    return encoder


def block(asked: pd.DataFrame, frame: pd.DataFrame, encoder: DataFrameEncoder) -> RelationBlock:
    """One axis of cells: a row for every member, and which row each cell has."""
    members, places = np.unique(asked[frame.index.name], return_inverse=True)
    return RelationBlock(places, encoder.encode_df(frame.reindex(members).reset_index()))


class Machine:
    """Regression, or an ordered probit whose mean rating is the answer."""

    def __init__(self, settings: Settings, train: pd.DataFrame, folder: Path) -> None:
        self.settings = settings
        self.frames = [users(folder, train), films(folder, train)]
        self.encoders = [columns_of(frame, train, settings) for frame in self.frames]
        self.days = CategoryValueToSparseEncoder(train.day)
        kind = {"regression": MyFMRegressor, "probit": MyFMOrderedProbit}[settings.model]
        self.model = kind(rank=settings.rank, random_seed=settings.seed)
        self.lowest = RATINGS[0] if settings.model == "probit" else 0

    def inputs(self, asked: pd.DataFrame) -> tuple[csr_matrix | None, list[RelationBlock]]:
        dates = self.days.to_sparse(asked.day) if "dates" in self.settings.parts else None
        axes = zip(self.frames, self.encoders, strict=True)
        return dates, [block(asked, frame, encoder) for frame, encoder in axes]

    def groups(self) -> list[int]:
        """The number of columns of each kind; each kind has a prior of its own."""
        days = [len(self.days)] if "dates" in self.settings.parts else []
        return days + [size for encoder in self.encoders for size in encoder.encoder_shapes]

    def fit(self, train: pd.DataFrame) -> None:
        dates, blocks = self.inputs(train)
        count = self.settings.iterations
        kept = {"n_iter": count, "n_kept_samples": count, "group_shapes": self.groups()}
        self.model.fit(dates, train.rating.to_numpy() - self.lowest, X_rel=blocks, **kept)

    def predict(self, asked: pd.DataFrame) -> Floats:
        dates, blocks = self.inputs(asked)
        if self.settings.model == "probit":
            return self.model.predict_proba(dates, blocks) @ RATINGS
        return self.model.predict(dates, blocks)


def rmse(answers: Floats, truth: Floats) -> float:
    """After all answers were clipped to the scale."""
    clipped = np.clip(answers, RATINGS[0], RATINGS[-1])
    return float(np.sqrt(np.mean((clipped - truth) ** 2)))


def measured(settings: Settings, folder: Path) -> dict[str, Any]:
    """Error and time; the test cells are read when the machine is fitted."""
    train = cells(folder / f"{settings.split}.base")
    started, busy = time.perf_counter(), time.process_time()
    machine = Machine(settings, train, folder)
    machine.fit(train)
    fitted = time.perf_counter()
    test = cells(folder / f"{settings.split}.test")
    answers = machine.predict(test)
    return {
        "version": version("myfm"),
        "train": len(train),
        "test": len(test),
        "columns": sum(machine.groups()),
        "rmse": rmse(answers, test.rating.to_numpy()),
        "fit_s": fitted - started,
        "predict_s": time.perf_counter() - fitted,
        "cpu_s": time.process_time() - busy,
    }


if __name__ == "__main__":
    split, parts, model, *numbers = sys.argv[1:]
    chosen = Settings(split, tuple(parts.split(",")), model, *map(int, numbers))
    print(json.dumps(measured(chosen, Path(os.environ["EXCHANGEABLE_DATA"]) / "ml-100k")))
