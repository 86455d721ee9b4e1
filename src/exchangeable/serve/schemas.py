"""What goes into the calls of the service and comes out of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from exchangeable.data.options import TableOptions
from exchangeable.serve.snapshot import Snapshot, Status
from exchangeable.serve.uploads import Upload

Label = Annotated[StrictStr | StrictInt, Field(description="Of a member: a text or whole number.")]
Value = Annotated[float, Field(allow_inf_nan=False, strict=False)]
MOST_RATINGS = 200
MOST_RECOMMENDED = 1000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Pools(_Strict):
    """What answers are from."""

    version: int = Field(description="Changes up to this one are taken in.")
    refreshed_version: int = Field(
        description="All cells were read together then: nothing is left of what was deleted before."
    )
    age_seconds: float = Field(description="Since all cells were read together.")

    @classmethod
    def of(cls, standing: Snapshot) -> Pools:
        age = round(standing.age, 3)
        return cls(
            version=standing.version, refreshed_version=standing.read_version, age_seconds=age
        )


class Problem(_Strict):
    """What was wrong."""

    error: str


class Asked(_Strict):
    """Cells to be answered."""

    cells: list[list[Label]] = Field(
        min_length=1, description="Of each cell the labels of its members, by axis."
    )
    coverage: float = Field(default=0.8, gt=0, lt=1, description="Of the interval.")


class Answer(_Strict):
    mean: float
    low: float
    high: float
    probabilities: list[float] | None = Field(description="Of each level, where there are some.")


class Predicted(_Strict):
    answers: list[Answer]
    levels: list[float]
    pools: Pools


class Wanted(_Strict):
    """Recommendations for a member that is known, or for ratings, which are not stored."""

    axis: str | None = Field(default=None, description="Of the member; the first if none.")
    member: Label | None = None
    ratings: list[tuple[Label, Value]] = Field(default=[], max_length=MOST_RATINGS)
    given: dict[str, Label] = Field(
        default={}, description="Members of other axes, where there are more than two."
    )
    n: int = Field(default=10, ge=1, le=MOST_RECOMMENDED)
    why: bool = Field(default=False, description="Whether to tell what each rating did.")


class Reason(_Strict):
    label: Label
    moved: float = Field(description="The answer, less what it would be without this rating.")


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
    """Cells with their values, in place of what they were or new."""

    cells: list[tuple[list[Label], Value]] = Field(min_length=1)


class Written(_Strict):
    """Durable: a restart loses nothing of it."""

    version: int = Field(description="From this version on it is in the answers.")
    cells: int


class Deleted(_Strict):
    """Durable; and nothing of it is left in answers whose pools are of this version or later."""

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
        description="Failing: answers go on as they were, and do not follow the database."
    )
    behind: int = Field(description="Changes that are durable and not yet in the answers.")


class Picture(_Strict):
    rows: list[str]
    columns: list[str]
    observed: list[list[float | None]]
    mean: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class Size(_Strict):
    name: str
    members: int


class Look(_Strict):
    """What a file holds, and what becomes of it."""

    found: list[str]
    notes: list[str]
    model: str
    cells: int
    without_value: int
    axes: list[Size]
    scale: str
    picture: Picture | None


class Reading(_Strict):
    """How a file is to be read."""

    axes: str | None = Field(default=None, max_length=500, description="Label columns: a,b")
    value: str | None = Field(default=None, max_length=200, description="The value column.")
    duplicates: Literal["error", "mean", "last", "first", "max"] = "error"
    all: bool = Field(default=False, description="Every cell, and not only those without a value.")

    def sent(self, content: bytes) -> Upload:
        axes = tuple(self.axes.split(",")) if self.axes else None
        return Upload(content, TableOptions(axes, self.value, duplicates=self.duplicates))
