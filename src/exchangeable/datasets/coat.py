"""Coat: ratings of coats, once of those that users chose and once of coats drawn at random."""

from __future__ import annotations

import numpy as np
import polars as pl

from exchangeable.data.features import MemberFeatures
from exchangeable.data.splits import by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source

COAT = Source(
    "coat",
    "Coat: users x coats, ratings 1-5, the test of coats drawn at random",
    "for research",
    "Tobias Schnabel, Adith Swaminathan, Ashudeep Singh, Navin Chandak and Thorsten Joachims. "
    "2016. Recommendations as Treatments: Debiasing Learning and Evaluation. ICML.",
    "https://www.cs.cornell.edu/~schnabts/mnar/",
    urls={"coat/train.csv": "", "coat/test.csv": "", "coat/coats.csv": ""},
)
_COLUMNS = ("user", "coat", "rating")


def load_coat() -> Dataset:
    """Load 6,960 ratings of chosen coats and 4,640 of random ones, the published test.

    A user may have rated a coat twice; the cell is then among the random ones only, so that no
    cell of the test is known.
    """
    parts = [pl.read_csv(COAT.read(f"coat/{part}.csv")) for part in ("train", "test")]
    chosen, random = (part.select(_COLUMNS) for part in parts)
    chosen = chosen.join(random, on=_COLUMNS[:2], how="anti", maintain_order="left")
    frame = pl.concat([chosen, random])
    table = Table.of(frame, value="rating")
    coats = pl.read_csv(COAT.read("coat/coats.csv"))
    features = {1: MemberFeatures.of(coats, table.vocabularies[1])}
    split = by_position(table, np.arange(len(chosen), len(frame)))
    return Dataset(COAT, table, {"random": split}, features)
