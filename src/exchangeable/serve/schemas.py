"""Bodies of the service's requests and responses.

The names of these classes and of their fields are part of the interface: /openapi.json shows them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
)

from exchangeable.data.options import Duplicates, TableOptions
from exchangeable.serve.answers.wording import Words
from exchangeable.serve.monitoring import readiness
from exchangeable.serve.snapshot import Snapshot, Status
from exchangeable.serve.upload_process import Task

Label = Annotated[
    StrictStr | StrictInt, Field(description="Label of a member: a text or a whole number.")
]
Value = Annotated[float, Field(allow_inf_nan=False, strict=False)]


def _check_text(text: str) -> str:
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("valid text is needed")
    return text


Text = Annotated[StrictStr, AfterValidator(_check_text)]
Time = Annotated[
    Value | Text, Field(description="Time of a cell: a number as in the table, or a date.")
]
FeatureValue = Text | StrictBool | Value | None
MAX_CELLS = 10_000
"""Maximum number of cells of a request, also where its limits are higher."""
MAX_RATINGS = 200
MAX_RECOMMENDED = 1000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Pools(_Strict):
    """State of the table that a response was computed from."""

    version: int = Field(description="All changes up to this version are included.")
    refreshed_version: int = Field(
        description="Version at which the whole table was last read. Cells deleted up to this "
        "version have left no trace."
    )
    age_seconds: float = Field(description="Seconds since the whole table was last read.")

    @classmethod
    def of(cls, snapshot: Snapshot) -> Pools:
        age = round(snapshot.age, 3)
        return cls(
            version=snapshot.version, refreshed_version=snapshot.read_version, age_seconds=age
        )


class Problem(_Strict):
    """The reason why a request failed, in one line."""

    error: str


class Asked(_Strict):
    """Cells to predict."""

    cells: list[list[Label]] = Field(
        min_length=1,
        max_length=MAX_CELLS,
        description="One list of labels per cell, in the axes' sequence.",
    )
    times: list[Time] | None = Field(
        default=None, max_length=MAX_CELLS, description="Time of each cell; the latest if omitted."
    )
    coverage: float = Field(
        default=0.8, gt=0, lt=1, description="Probability that the interval covers."
    )


class Answer(_Strict):
    mean: float
    low: float
    high: float
    probabilities: list[float] | None = Field(
        description="Probability of each level, if the scale has levels."
    )


class Predicted(_Strict):
    answers: list[Answer]
    levels: list[float]
    pools: Pools


class Wanted(_Strict):
    """A request for recommendations, for a known member or for ratings, which are not stored."""

    axis: str | None = Field(
        default=None, description="Axis of the member; the first axis if omitted."
    )
    member: Label | None = None
    ratings: list[tuple[Label, Value]] = Field(default=[], max_length=MAX_RATINGS)
    features: dict[Text, FeatureValue] | None = Field(
        default=None, description="Features of a new member by name, if the table has any."
    )
    given: dict[str, Label] = Field(
        default={}, description="Fixed members of other axes, if there are more than two axes."
    )
    n: int = Field(default=10, ge=1, le=MAX_RECOMMENDED)
    why: bool = Field(
        default=False, description="Whether to return the effect of each rating on each prediction."
    )


class Reason(_Strict):
    label: Label
    moved: float = Field(description="The prediction minus the prediction without this rating.")


class Recommendation(_Strict):
    labels: dict[str, Label]
    mean: float
    low: float
    high: float
    why: list[Reason]


class Recommendations(_Strict):
    recommended: list[Recommendation]
    milliseconds: float
    pools: Pools


class Cells(_Strict):
    """Cells with their values. They are added, or replace the value that a cell has."""

    cells: list[tuple[list[Label], Value]] = Field(min_length=1, max_length=MAX_CELLS)
    times: list[Time] | None = Field(
        default=None, max_length=MAX_CELLS, description="Time of each cell, if the table has times."
    )


class Written(_Strict):
    """A durable change: a restart loses nothing of it."""

    version: int = Field(description="Predictions from this version on include the cells.")
    cells: int


class Deleted(_Strict):
    """A durable deletion.

    Responses whose refreshed_version is gone_with_version or later hold no trace of the cells.
    """

    gone_with_version: int
    cells: int


class Member(_Strict):
    label: Label
    cells: int


class Members(_Strict):
    axis: str
    members: list[Member]


class Axis(_Strict):
    name: str
    members: int
    labels: Literal["texts", "whole numbers"]


class About(_Strict):
    exchangeable: str
    source: str
    model: str | None
    notes: list[str]
    axes: list[Axis]
    value: str | None
    scale: str
    levels: list[float]
    cells: int
    limits: dict[str, float]
    pools: Pools


class Health(_Strict):
    status: Status = Field(
        description="failing: predictions continue from the last state, without later changes."
    )
    behind: int = Field(description="Number of durable changes that predictions do not include.")


class Ready(Health):
    reasons: list[readiness.Reason] = Field(
        description="Why the service is not ready: its database does not respond or cannot be "
        "written to, its disk is full, or a refresh is overdue."
    )


class Picture(_Strict):
    """Cells of some members of two axes; null where nothing was observed."""

    rows: list[Label]
    columns: list[Label]
    observed: list[list[float | None]]
    mean: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class Part(_Strict):
    """The part of the table to look at: members of two axes, all others being given."""

    axes: tuple[str, str] | None = Field(
        default=None, description="Axes of rows and columns; the first two not given if omitted."
    )
    rows: list[Label] | None = Field(
        default=None, min_length=1, max_length=1000, description="Members; those with most cells."
    )
    columns: list[Label] | None = Field(default=None, min_length=1, max_length=1000)
    given: dict[str, Label] = Field(default={}, description="Fixed members of the other axes.")


class Explored(_Strict):
    picture: Picture
    pools: Pools


class Size(_Strict):
    name: str
    members: int


class Described(_Strict):
    """What was read from a file."""

    found: list[str]
    cells: int
    without_value: int
    axes: list[Size]
    value: str | None
    scale: str
    levels: list[float]
    positives: bool = Field(description="Whether every cell only says that something happened.")
    wide: bool


class Look(Described):
    """A summary of a file, with a picture of the table before and after completion."""

    notes: list[str]
    model: str
    picture: Picture | None


class Columns(_Strict):
    """The columns of a file, its first rows, and the table that they make, or why they do not."""

    columns: list[str]
    further_columns: int
    rows: list[list[str | None]]
    problem: str | None
    table: Described | None


class TextFile(_Strict):
    """Options for reading a text file."""

    encoding: str | None = Field(
        default=None, max_length=40, description="As in cp1252; UTF-8, or UTF-16 if it is marked."
    )
    separator: str | None = Field(
        default=None, max_length=2, description="Text between two fields of a line, or detected."
    )
    decimal: Literal[".", ","] | None = Field(default=None, description="The decimal mark.")
    missing: list[Annotated[str, Field(max_length=40)]] = Field(
        default=[], max_length=20, description="Texts for missing values, beside NA, null and ?."
    )
    duplicates: Duplicates = Field(
        default="error", description="Value of a cell that the file has more than once."
    )

    def options(self) -> TableOptions:
        return TableOptions(
            encoding=self.encoding,
            separator=self.separator,
            decimal=self.decimal,
            missing=tuple(self.missing),
            duplicates=self.duplicates,
        )


class Reading(TextFile):
    """Options for reading a file."""

    header: bool | None = Field(
        default=None, description="Whether the first line has the titles of the columns."
    )
    time: str | None = Field(
        default=None, max_length=200, description="The column of times; none if empty."
    )
    axes: str | None = Field(
        default=None, max_length=500, description="Label columns, separated by commas: a,b"
    )
    value: str | None = Field(default=None, max_length=200, description="The value column.")
    wide: bool | None = Field(
        default=None, description="Whether the file has a column for each member of the other axis."
    )
    likes: bool = Field(
        default=False, description="Whether values only say that something happened, how strongly."
    )
    all: bool = Field(
        default=False, description="Predict every cell, not only those without a value."
    )
    wording: Words = Field(
        default="parameters",
        description="Whether errors and notes name parameters of the call or fields of the page.",
    )

    def task(self, kind: Literal["complete", "look", "columns"]) -> Task:
        axes = tuple(self.axes.split(",")) if self.axes else None
        scale: Literal["positives"] | None = "positives" if self.likes else None
        options = replace(
            self.options(),
            axes=axes,
            value=self.value,
            time=self.time,
            header=self.header,
            scale=scale,
            wide=self.wide,
        )
        return Task(kind, options, self.wording, tuple(type(self).model_fields), every=self.all)
