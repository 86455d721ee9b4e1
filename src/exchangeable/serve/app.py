"""Assembles the service: routes, guard, telemetry, and errors in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from exchangeable._version import __version__
from exchangeable.errors import Failed, InputError
from exchangeable.serve import routes
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import RETRY_AFTER, Guard, Limits, OnResponse
from exchangeable.serve.snapshot import Busy, NoCells
from exchangeable.serve.telemetry import Telemetry


def create_app(
    engine: Engine,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
    on_response: OnResponse = lambda method, route, status, seconds: None,
) -> FastAPI:
    """The service around an engine, which is closed when the service ends."""
    limits, telemetry = limits or Limits(), Telemetry(engine)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        engine.close()

    def observe(method: str, route: str, status: int, seconds: float) -> None:
        telemetry.observe(method, route, status, seconds)
        on_response(method, route, status, seconds)

    app = FastAPI(
        title="exchangeable",
        version=__version__,
        description="Complete a table of interactions between sets.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
    )
    app.state.engine, app.state.limits, app.state.telemetry = engine, limits, telemetry
    app.add_middleware(Guard, limits=limits, token=token, hosts=hosts, on_response=observe)
    app.include_router(routes.calls)
    app.include_router(routes.status)
    _handle_errors(app)
    return app


def _handle_errors(app: FastAPI) -> None:
    """Answer every error with one line of text in the field ``error``."""

    def problem(status: int, reason: str) -> JSONResponse:
        return JSONResponse({"error": " ".join(reason.split())}, status)

    @app.exception_handler(InputError)
    async def invalid(request: Request, error: InputError) -> JSONResponse:
        return problem(409 if isinstance(error, NoCells) else 422, str(error))

    @app.exception_handler(Failed)
    async def failed(request: Request, error: Failed) -> JSONResponse:
        response = problem(503 if isinstance(error, Busy) else 500, str(error))
        if isinstance(error, Busy):
            response.headers["retry-after"] = RETRY_AFTER
        return response

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        no_json = first["type"] == "json_invalid"
        return problem(422, f"{'the body' if no_json else field}: {first['msg']}"[:300])

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail))
