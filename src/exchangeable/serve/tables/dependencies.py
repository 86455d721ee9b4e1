"""What routes depend on, the table, the limits and the call of a request, and how they may fail."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from exchangeable.serve import schemas
from exchangeable.serve.call import Call
from exchangeable.serve.engine import Engine
from exchangeable.serve.limits import Limits
from exchangeable.serve.monitoring.telemetry import Telemetry
from exchangeable.serve.tables.served import ServedTable, Tables

_PROBLEMS = {
    400: "The request broke off, or its body is not JSON.",
    401: "A bearer token is required.",
    403: "The token lacks the role that the call needs; or the request came from a page of another "
    "site, or through a proxy without a token.",
    404: "There is no such table.",
    408: "The request took too long to arrive.",
    409: "The table has no cells.",
    413: "The request is too large, or its file takes too much memory or time.",
    421: "The host name of the request is not one of the service's.",
    422: "The request is not valid; the error gives the reason in one line.",
    429: "Too many requests of this client are in progress: try again after some seconds.",
    500: "The service failed, or its database cannot be written to; the log says why.",
    503: "Too many requests are in progress, or this one took too long: try again later.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The description of responses with these statuses."""
    return {s: {"model": schemas.Problem, "description": _PROBLEMS[s]} for s in statuses}


ALWAYS = (401, 403, 404, 413, 421, 422, 429, 500, 503)
"""Statuses with which every call about a table may be refused."""
WITH_BODY = (*ALWAYS, 400, 408)
"""Statuses with which a call that has a body may be refused."""
FILE: dict[str, Any] = {  # a file as the body
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("text/csv", "application/vnd.apache.parquet", "application/octet-stream")
        },
    }
}


# Coroutines, because FastAPI would run plain functions in a thread.
async def _table(request: Request) -> ServedTable:
    table: ServedTable = request.state.visit.table
    return table


async def _engine(request: Request) -> Engine:
    engine: Engine = request.state.visit.table.engine
    return engine


async def _limits(request: Request) -> Limits:
    limits: Limits = request.state.visit.table.limits
    return limits


async def _upload_limits(request: Request) -> Limits:
    tables: Tables = request.app.state.tables
    return tables.uploads


async def _tables(request: Request) -> Tables:
    tables: Tables = request.app.state.tables
    return tables


async def _telemetry(request: Request) -> Telemetry:
    telemetry: Telemetry = request.app.state.telemetry
    return telemetry


async def _call(request: Request) -> Call:
    call: Call = request.state.call
    return call


EngineOfApp = Annotated[Engine, Depends(_engine)]
LimitsOfApp = Annotated[Limits, Depends(_limits)]
UploadLimits = Annotated[Limits, Depends(_upload_limits)]
TablesOfApp = Annotated[Tables, Depends(_tables)]
CallOfRequest = Annotated[Call, Depends(_call)]
TelemetryOfApp = Annotated[Telemetry, Depends(_telemetry)]
