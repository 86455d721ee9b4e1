"""Assembles the service: routes, guard, telemetry, and errors in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from exchangeable._version import __version__
from exchangeable.errors import Failed, InputError
from exchangeable.serve import routes, sandbox
from exchangeable.serve.access.origins import RETRY_AFTER, Origins
from exchangeable.serve.access.tokens import Tokens
from exchangeable.serve.call import LEFT, Ended
from exchangeable.serve.engine import Engine
from exchangeable.serve.follower import OutOfTouch
from exchangeable.serve.guard import Guard, OnResponse, Response
from exchangeable.serve.limits import Limits
from exchangeable.serve.monitoring.telemetry import Telemetry
from exchangeable.serve.page.files import page
from exchangeable.serve.snapshot import Busy, NoCells
from exchangeable.serve.tables.routes import list_of_tables, name_in_path, whole_tables
from exchangeable.serve.tables.served import PREFIX, ServedTable, Tables
from exchangeable.serve.uploads import TooLarge
from exchangeable.storage.database import Occupied

log = logging.getLogger("exchangeable.serve")

_ANYWHERE = Origins()
_THREADS_BESIDE = 8
"""Threads beside those of requests in progress: for checks, and for parts of responses."""


def create_app(
    tables: Engine | Tables,
    *,
    limits: Limits | None = None,
    token: str | Tokens | None = None,
    origins: Origins = _ANYWHERE,
    on_response: OnResponse = lambda response: None,
) -> FastAPI:
    """The service around one engine or several tables, which are closed when the service ends.

    ``limits`` are those of a single engine; tables have their own.
    """
    served = tables if isinstance(tables, Tables) else Tables([ServedTable(tables, limits)])
    tokens = Tokens.of(token) if isinstance(token, str) else token
    if tokens is not None:
        tokens.check_tables(served.names)
    telemetry = Telemetry(served)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        sandbox.start()
        # A thread for every request in progress: none waits for those that compute.
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = served.threads + _THREADS_BESIDE
        yield
        served.close()

    def observe(response: Response) -> None:
        telemetry.observe(response)
        on_response(response)

    app = FastAPI(
        title="exchangeable",
        version=__version__,
        description="Complete a table of interactions between sets.",
        lifespan=lifespan,
        redirect_slashes=False,  # a redirect to http:// would send the token without TLS
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
    )
    app.state.tables, app.state.telemetry = served, telemetry
    app.add_middleware(Guard, tables=served, tokens=tokens, origins=origins, on_response=observe)
    app.include_router(list_of_tables)
    for prefix, dependencies in (("/v1", []), (f"{PREFIX}{{table}}", [Depends(name_in_path)])):
        app.include_router(routes.calls, prefix=prefix, dependencies=dependencies)
        app.include_router(whole_tables, prefix=prefix, dependencies=dependencies)
    app.include_router(routes.status)
    app.include_router(page)
    _handle_errors(app)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer every error with one line of text in the field ``error``."""

    def problem(status: int, reason: str) -> JSONResponse:
        return JSONResponse({"error": " ".join(reason.split())}, status)

    @app.exception_handler(InputError)
    async def invalid(request: Request, error: InputError) -> JSONResponse:
        large, empty = isinstance(error, TooLarge), isinstance(error, NoCells)
        return problem(413 if large else 409 if empty else 422, str(error))

    @app.exception_handler(Failed)
    async def failed(request: Request, error: Failed) -> JSONResponse:
        call = request.state.call
        fields = {"id": call.identity, "reason": str(error)}
        if not isinstance(error, Busy | Ended | Occupied | OutOfTouch):
            log.error("failed", extra={"fields": fields})
            outline = str(error).partition(":")[0]  # what follows may name hosts and users
            return problem(500, f"{outline}; the log says more at {call.identity}")
        if str(error) != LEFT:
            log.warning("given up", extra={"fields": fields})
        response = problem(503, str(error))
        response.headers["retry-after"] = RETRY_AFTER
        return response

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if first["loc"] == ("body",) and not re.fullmatch(r"application/(.+\+)?json", kind):
            came = f"is {kind[:60]!r}" if kind else "is missing"  # curl sends that of forms
            return problem(422, f"content-type must be application/json, but {came}")
        field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        no_json = first["type"] == "json_invalid"
        return problem(422, f"{'the body' if no_json else field}: {first['msg']}"[:300])

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail))
