"""Nations, kinships and UMLS: which relation holds between which two members.

A triple that is not listed does not hold, as in Kemp et al. (2006): all cells are known, 0 or 1.
They come in the Python package pykeen, whose wheel is read as it is; its parts for training,
validation and test are of true triples alone, and are taken together.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, text_frame
from exchangeable.values.scale import Scale

ARCHIVE = "pykeen/pykeen-1.11.1-py3-none-any.whl"
_PARTS = ("train", "valid", "test")
_AXES = ("head", "relation", "tail")


def _source(name: str, title: str, citation: str) -> Source:
    return Source(
        name,
        title,
        "for research",
        f"{citation} Charles Kemp et al. 2006. Learning Systems of Concepts with an Infinite "
        "Relational Model. AAAI.",
        "the Python package index (pip download --no-deps pykeen==1.11.1)",
        archive=ARCHIVE,
        urls={ARCHIVE: ""},
    )


SOURCES = {
    "nations": _source(
        "nations",
        "Nations: countries x relations x countries, 0 or 1",
        "Rudolph J. Rummel. 1999. Dimensionality of Nations Project.",
    ),
    "kinships": _source(
        "kinships",
        "Alyawarra kinship: persons x terms x persons, 0 or 1",
        "Woodrow W. Denham. 1973. The detection of patterns in Alyawarra nonverbal behavior.",
    ),
    "umls": _source(
        "umls",
        "UMLS semantic network: concepts x relations x concepts, 0 or 1",
        "Alexa T. McCray. 2003. An upper-level ontology for the biomedical domain.",
    ),
}


def load_relations(name: str) -> Dataset:
    """Load every cell: a 1 for each triple that is listed, and else 0."""
    source = SOURCES[name]
    contents = [source.read(f"pykeen/datasets/{name}/{part}.txt") for part in _PARTS]
    triples = pl.concat([text_frame(content, "\t", list(_AXES)) for content in contents])
    members = pl.concat([triples["head"], triples["tail"]]).unique().sort()
    labels = {
        "head": members,
        "relation": triples["relation"].unique().sort(),
        "tail": members.rename("tail"),
    }
    shape = tuple(len(column) for column in labels.values())
    codes = [labels[axis].search_sorted(triples[axis]).to_numpy() for axis in _AXES]
    holds = np.zeros(shape)
    holds[tuple(codes)] = 1.0
    index = np.argwhere(np.ones(shape, dtype=bool))
    scale = Scale("binary", (0.0, 1.0))
    table = Table.of_cells(labels, index, holds.ravel(), scale=scale, value_name="holds")
    return Dataset(source, table)
