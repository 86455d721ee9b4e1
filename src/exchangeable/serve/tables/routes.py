"""Calls that concern whole tables: the list of them, import and export.

Names of functions are part of the interface: operation ids in /openapi.json are made of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from exchangeable.serve import sandbox, schemas
from exchangeable.serve.call import Call
from exchangeable.serve.limits import Limits
from exchangeable.serve.routes import axes_of
from exchangeable.serve.tables.dependencies import (
    ALWAYS,
    FILE,
    WITH_BODY,
    CallOfRequest,
    EngineOfApp,
    TablesOfApp,
    UploadLimits,
    problems,
)
from exchangeable.serve.tables.served import ServedTable
from exchangeable.serve.upload_process import Task
from exchangeable.storage import interchange
from exchangeable.storage.bulk import Row
from exchangeable.storage.facts import Facts
from exchangeable.storage.store import Store

FORMATS: dict[str, str] = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
"""Formats of an export, and their media types."""
_BYTES_PER_PART = 2**18
_EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {"schema": {"type": "string"}} for kind in FORMATS.values()}}
}

list_of_tables = APIRouter()
whole_tables = APIRouter()
"""Calls about one table, at the address of each, and of the first one at /v1."""


class TableInfo(BaseModel):
    """A table, and what the token of the request may do with it."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="The calls of this table are at /v1/tables/{name}/.")
    source: str
    axes: list[schemas.Axis]
    value: str | None
    scale: str
    levels: list[float]
    cells: int
    writable: bool = Field(description="Whether the request's token may write cells.")

    @classmethod
    def of(cls, table: ServedTable, *, writable: bool) -> TableInfo:
        facts, completer = table.engine.store.facts, table.engine.snapshot.completer
        return cls(
            name=table.name,
            source=facts.source_name,
            axes=axes_of(table.engine),
            value=facts.value,
            scale=str(facts.scale),
            levels=list(facts.levels),
            cells=0 if completer is None else len(completer.table_),
            writable=writable,
        )


class ListOfTables(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tables: list[TableInfo]


@list_of_tables.get("/v1/tables", responses=problems(401, 403, 413, 421))
async def tables(request: Request, served: TablesOfApp) -> ListOfTables:
    """List the tables that the request's token has a role for, the first one first."""
    access = request.state.visit.access
    return ListOfTables(
        tables=[
            TableInfo.of(table, writable=not table.read_only and access.allows("write", table.name))
            for table in served
            if access.allows("read", table.name)
        ]
    )


@whole_tables.get(
    "/export", response_class=StreamingResponse, responses={**_EXPORTED, **problems(*ALWAYS)}
)
async def export(
    engine: EngineOfApp,
    call: CallOfRequest,
    kind: Annotated[
        Literal["csv", "parquet"], Query(alias="format", description="Format of the file.")
    ] = "csv",
) -> Response:
    """Return all cells of one version of the table, as the database holds them.

    The response has its length, so that clients notice if it is cut.
    """
    name = f"{engine.store.name}.{kind}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    parts = _export(engine.store, kind, headers, call)
    first = await run_in_threadpool(next, parts, b"")
    return StreamingResponse(chain([first], parts), headers=headers, media_type=FORMATS[kind])


@whole_tables.post("/import", responses=problems(*WITH_BODY), openapi_extra=FILE)
async def load(
    request: Request,
    engine: EngineOfApp,
    limits: UploadLimits,
    call: CallOfRequest,
    options: Annotated[schemas.TextFile, Query()],
) -> schemas.Written:
    """Write the cells of a CSV or Parquet file, all of them or none.

    Its columns must have the names of the table's axes, value and time. Cells are added, or replace
    the value that a cell has. The response is sent once they are durable.
    """
    facts = engine.store.facts
    read = interchange.import_options(facts, options.options())
    task = Task("import", read, parameters=tuple(type(options).model_fields), facts=facts)
    rows = _rows(facts, task, await request.body(), limits, call)
    with call.phase("database"):
        version, number = await run_in_threadpool(engine.refresher.load, rows)
    return schemas.Written(version=version, cells=number)


def name_in_path(
    table: Annotated[str, Path(description="Name of the table, as /v1/tables lists it.")],
) -> None:
    """Describe the part of the path that the guard has read."""


def _export(store: Store, kind: str, headers: dict[str, str], call: Call) -> Iterator[bytes]:
    """Yield the parts of a file of all cells, once its length is in the headers.

    It is written to a temporary file first: however slowly the client reads, the database has been
    read before.
    """
    with tempfile.TemporaryFile(prefix="exchangeable-") as file:
        with call.phase("database"), closing(store.export()) as frames:
            interchange.WRITERS[kind](_checked(frames, call), file)
        headers["content-length"] = str(file.tell())
        file.seek(0)
        while part := file.read(_BYTES_PER_PART):
            yield part
            call.check()


def _checked(frames: Iterable[pl.DataFrame], call: Call) -> Iterator[pl.DataFrame]:
    """Yield frames until the call ends."""
    for frame in frames:
        call.check()
        yield frame


def _rows(facts: Facts, task: Task, content: bytes, limits: Limits, call: Call) -> Iterator[Row]:
    """Yield the rows of a file from a process of its own; they are checked again here."""
    for part in sandbox.respond(task, content, limits, call):
        call.check()
        yield from interchange.decode_rows(facts, part)
