"""The calls of the service, one function each.

Names of functions are part of the interface: operation ids in /openapi.json are made of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from exchangeable._version import __version__
from exchangeable.errors import InputError
from exchangeable.serve import exploration, sandbox, schemas
from exchangeable.serve.answers.lists import Answer, Question
from exchangeable.serve.answers.responses import CurrentResponse
from exchangeable.serve.call import Call
from exchangeable.serve.engine import Engine
from exchangeable.serve.limits import Limits
from exchangeable.serve.monitoring.readiness import REASONS
from exchangeable.serve.snapshot import STATUSES, Status
from exchangeable.serve.tables.dependencies import (
    ALWAYS,
    FILE,
    WITH_BODY,
    CallOfRequest,
    EngineOfApp,
    LimitsOfApp,
    TablesOfApp,
    TelemetryOfApp,
    UploadLimits,
    problems,
)
from exchangeable.serve.tables.served import Tables

_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
Options = Annotated[schemas.Reading, Query()]

calls = APIRouter()
"""Calls about one table, at the address of each, and of the first one at /v1."""
status = APIRouter()
"""Calls that respond at once, however many others are in progress: they need no thread."""


@calls.post("/predict", response_model=schemas.Predicted, responses=problems(*WITH_BODY, 409))
def predict(
    query: schemas.Asked, engine: EngineOfApp, limits: LimitsOfApp, call: CallOfRequest
) -> Response:
    """Predict cells: mean, interval and probabilities of the levels."""
    _check_cells(query.cells, limits)
    cells = [tuple(cell) for cell in query.cells]

    def compute() -> schemas.Predicted:
        predictions, snapshot = engine.predict(cells, query.coverage, query.times)
        probabilities = predictions.probabilities
        answers = [
            schemas.Answer(
                mean=float(predictions.mean[n]),
                low=float(predictions.low[n]),
                high=float(predictions.high[n]),
                probabilities=None if probabilities is None else probabilities[n].tolist(),
            )
            for n in range(len(cells))
        ]
        levels = list(snapshot.ready.levels_)
        return schemas.Predicted(answers=answers, levels=levels, pools=schemas.Pools.of(snapshot))

    return _respond(engine, compute, call)


@calls.post(
    "/recommend", response_model=schemas.Recommendations, responses=problems(*WITH_BODY, 409)
)
def recommend(
    query: schemas.Wanted, engine: EngineOfApp, limits: LimitsOfApp, call: CallOfRequest
) -> Response:
    """Recommend the best cells of a member, or of a new member whose ratings are in the request."""
    new = bool(query.ratings) or query.features is not None
    if (query.member is None) != new:
        raise InputError("either a member, or a new one's ratings or features, must be given")
    effects = query.n * len(query.ratings)
    if query.why and effects > limits.effects:
        raise InputError(
            f"a request may ask for at most {limits.effects:,} effects of ratings, but {query.n:,} "
            f"recommendations with {len(query.ratings):,} ratings have {effects:,}"
        )
    started = time.perf_counter()
    question = Question(
        _axis(engine, query.axis),
        query.member,
        query.ratings,
        query.given,
        query.n,
        query.features,
        query.why,
        call.progress,
    )

    def write(answer: Answer) -> str:
        cells, snapshot = answer
        recommended = [
            schemas.Recommendation(
                labels=cell.labels,
                mean=cell.mean,
                low=cell.low,
                high=cell.high,
                why=[schemas.Reason(label=one.label, moved=one.amount) for one in cell.why],
            )
            for cell in cells
        ]
        milliseconds = round(1000 * (time.perf_counter() - started), 2)
        return schemas.Recommendations(
            recommended=recommended, milliseconds=milliseconds, pools=schemas.Pools.of(snapshot)
        ).model_dump_json()

    follower = engine.refresher.follower
    return CurrentResponse(follower, lambda: engine.respond(question, write, call))


@calls.post("/explore", response_model=schemas.Explored, responses=problems(*WITH_BODY, 409))
def explore(part: schemas.Part, engine: EngineOfApp, call: CallOfRequest) -> Response:
    """Read a part of the table: observed values, predictions, and their intervals."""

    def compute() -> schemas.Explored:
        chosen = (part.rows, part.columns)
        picture, snapshot = exploration.explore(
            engine, part.axes, chosen, part.given, call.progress
        )
        return schemas.Explored(
            picture=schemas.Picture(**picture), pools=schemas.Pools.of(snapshot)
        )

    return _respond(engine, compute, call)


@calls.put("/interactions", responses=problems(*WITH_BODY))
def put(
    body: schemas.Cells, engine: EngineOfApp, limits: LimitsOfApp, call: CallOfRequest
) -> schemas.Written:
    """Write cells, also of new members. The response is sent once they are durable."""
    _check_cells(body.cells, limits)
    cells = [(tuple(labels), value) for labels, value in body.cells]
    with call.phase("database"):
        version = engine.refresher.put(cells, body.times)
    return schemas.Written(version=version, cells=len(cells))


@calls.delete("/interactions", responses=problems(*ALWAYS))
def remove(
    label: Annotated[
        list[str], Query(description="Labels of the cell, one per axis, in the axes' sequence.")
    ],
    engine: EngineOfApp,
    call: CallOfRequest,
) -> schemas.Deleted:
    """Delete a cell."""
    with call.phase("database"):
        version, deleted = engine.refresher.delete_cell(tuple(label))
    return schemas.Deleted(gone_with_version=version, cells=deleted)


@calls.delete("/members", responses=problems(*ALWAYS))
def forget(axis: str, member: str, engine: EngineOfApp, call: CallOfRequest) -> schemas.Deleted:
    """Delete all cells of a member."""
    number = _axis(engine, axis)
    with call.phase("database"):
        version, deleted = engine.refresher.delete_member(number, member)
    return schemas.Deleted(gone_with_version=version, cells=deleted)


@calls.get("/members", response_model=schemas.Members, responses=problems(*ALWAYS))
def members(
    engine: EngineOfApp,
    axis: str | None = None,
    holding: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> Response:
    """List members of an axis whose labels contain a text, those with the most cells first."""
    number = _axis(engine, axis)

    def respond() -> str:
        found = engine.members(number, holding, limit)
        matches = [schemas.Member(label=label, cells=cells) for label, cells in found]
        listed = schemas.Members(axis=engine.store.facts.axes[number], members=matches)
        return listed.model_dump_json()

    return CurrentResponse(engine.refresher.follower, respond)


@calls.get("/model", responses=problems(*ALWAYS))
def model(engine: EngineOfApp, limits: LimitsOfApp) -> schemas.About:
    """Describe the table and the model that predicts its cells."""
    facts, snapshot = engine.store.facts, engine.snapshot
    completer = snapshot.completer
    return schemas.About(
        exchangeable=__version__,
        source=facts.source_name,
        model=None if completer is None else completer.model_name_,
        notes=[] if completer is None else list(completer.notes_),
        axes=axes_of(engine),
        value=facts.value,
        scale=str(facts.scale),
        levels=list(facts.levels),
        cells=0 if completer is None else len(completer.table_),
        limits=asdict(limits),
        pools=schemas.Pools.of(snapshot),
    )


@calls.post(
    "/complete",
    response_class=StreamingResponse,
    responses={**_CSV, **problems(*WITH_BODY)},
    openapi_extra=FILE,
)
async def complete(
    request: Request, options: Options, limits: UploadLimits, call: CallOfRequest
) -> Response:
    """Complete a CSV or Parquet file and return it as CSV. The service does not store the file."""
    parts = sandbox.respond(options.task("complete"), await request.body(), limits, call)
    first = await run_in_threadpool(next, parts, b"")
    return StreamingResponse(chain([first], parts), media_type="text/csv")


@calls.post("/look", responses=problems(*WITH_BODY), openapi_extra=FILE)
async def look(
    request: Request, options: Options, limits: UploadLimits, call: CallOfRequest
) -> schemas.Look:
    """Summarise a file: its content, the error on hidden cells, and a picture of it completed."""
    parts = sandbox.respond(options.task("look"), await request.body(), limits, call)
    return schemas.Look(**json.loads(await run_in_threadpool(b"".join, parts)))


@calls.post("/columns", responses=problems(*WITH_BODY), openapi_extra=FILE)
async def columns(
    request: Request, options: Options, limits: UploadLimits, call: CallOfRequest
) -> schemas.Columns:
    """Read the columns of a file and what they hold, without completing it."""
    parts = sandbox.respond(options.task("columns"), await request.body(), limits, call)
    return schemas.Columns(**json.loads(await run_in_threadpool(b"".join, parts)))


@status.get("/health", responses=problems(421))
async def health(tables: TablesOfApp) -> schemas.Health:
    """Report that the service is alive."""
    return schemas.Health(status=_status(tables), behind=_behind(tables))


@status.get("/ready", responses={**problems(421), 503: {"model": schemas.Ready}})
async def ready(tables: TablesOfApp, response: Response) -> schemas.Ready:
    """Report whether the service can predict, write, and follow its database: 503 if not."""
    found = {reason for table in tables for reason in await table.readiness.reasons()}
    reasons = [reason for reason in REASONS if reason in found]
    if reasons:
        response.status_code = 503
    return schemas.Ready(status=_status(tables), behind=_behind(tables), reasons=reasons)


@status.get("/metrics", response_class=Response, responses={**_TEXT, **problems(421)})
async def metrics(telemetry: TelemetryOfApp) -> Response:
    """Return metrics for Prometheus."""
    return Response(telemetry.text(), media_type=telemetry.media_type)


def _respond(engine: Engine, compute: Callable[[], BaseModel], call: Call) -> Response:
    """Compute a response, and write it as JSON, in one of the engine's threads.

    More threads than these would keep the event loop, and so /health, from running.
    """
    return CurrentResponse(
        engine.refresher.follower, lambda: engine.run(lambda: compute().model_dump_json(), call)
    )


def axes_of(engine: Engine) -> list[schemas.Axis]:
    """The axes of a table, with their numbers of members."""
    facts, completer = engine.store.facts, engine.snapshot.completer
    shape = (0,) * len(facts.axes) if completer is None else completer.table_.shape
    return [
        schemas.Axis(name=name, members=size, labels="whole numbers" if whole else "texts")
        for name, size, whole in zip(facts.axes, shape, facts.whole, strict=True)
    ]


def _status(tables: Tables) -> Status:
    """Whether all tables follow the database; failing if one fails to."""
    found = {table.engine.refresher.status for table in tables}
    return next(one for one in STATUSES if one in found)


def _behind(tables: Tables) -> int:
    return sum(table.engine.refresher.behind for table in tables)


def _axis(engine: Engine, name: str | None) -> int:
    """Number of an axis; the first without a name."""
    axes = engine.store.facts.axes
    if name is None:
        return 0
    if name not in axes:
        raise InputError(f"axis must be one of {', '.join(axes)}, but is {name[:60]!r}")
    return axes.index(name)


def _check_cells(cells: list[Any], limits: Limits) -> None:
    if len(cells) > limits.cells:
        raise InputError(
            f"a request may have at most {limits.cells:,} cells, but has {len(cells):,}"
        )
