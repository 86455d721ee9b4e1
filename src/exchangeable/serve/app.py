"""The calls of the service, and what goes in and comes out of each."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from exchangeable._version import __version__
from exchangeable.errors import Failed, InputError
from exchangeable.serve import uploads
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import RETRY_AFTER, Guard, Limits, Watched
from exchangeable.serve.schemas import (
    About,
    Answer,
    Asked,
    Axis,
    Cells,
    Deleted,
    Health,
    Look,
    Member,
    Members,
    Pools,
    Predicted,
    Problem,
    Reading,
    Reason,
    Recommendation,
    Recommendations,
    Wanted,
    Written,
)
from exchangeable.serve.snapshot import Busy, NoCells
from exchangeable.serve.telemetry import Telemetry


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    told = {
        400: "The call broke off, or is no JSON.",
        401: "A bearer token is needed.",
        408: "The call took too long to arrive.",
        409: "The table has no cells.",
        413: "The call is too large.",
        421: "The service goes by another name.",
        422: "The call does not fit; the reason is told in one line.",
        500: "The database cannot be written to.",
        503: "Too many calls are under way: try again after some seconds.",
    }
    return {s: {"model": Problem, "description": told[s]} for s in statuses}


_USUAL = (401, 421, 422, 503)
_BODY = (*_USUAL, 400, 408, 413)
_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("text/csv", "application/vnd.apache.parquet", "application/octet-stream")
        },
    }
}

PAGE = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page/style.css": ("style.css", "text/css; charset=utf-8"),
    **{
        f"page/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("main", "calls", "rate", "table", "pools", "heat")
    },
    "page/icon.svg": ("icon.svg", "image/svg+xml"),
}


def create_app(
    desk: Engine,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
    watched: Watched = lambda method, route, status, seconds: None,
) -> FastAPI:
    """The service around a desk, which is closed when the service ends."""
    limits, numbers = limits or Limits(), Telemetry(desk)

    @asynccontextmanager
    async def living(app: FastAPI) -> Any:
        yield
        desk.close()

    def heard(method: str, route: str, status: int, seconds: float) -> None:
        numbers.heard(method, route, status, seconds)
        watched(method, route, status, seconds)

    app = FastAPI(
        title="exchangeable",
        version=__version__,
        description="Complete a table of interactions between sets.",
        lifespan=living,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(Guard, limits=limits, token=token, hosts=hosts, watched=heard)
    app.include_router(_calls(desk, limits))
    app.include_router(_about(desk, numbers))
    _errors(app)
    return app


def _calls(desk: Engine, limits: Limits) -> APIRouter:
    calls = APIRouter(prefix="/v1")
    facts = desk.store.facts

    def axis_of(name: str | None) -> int:
        if name is None:
            return 0
        if name not in facts.axes:
            raise InputError(f"axis must be one of {', '.join(facts.axes)}, but is {name[:60]!r}")
        return facts.axes.index(name)

    def check_number(cells: list[Any]) -> None:
        if len(cells) > limits.cells:
            raise InputError(
                f"at most {limits.cells:,} cells are taken in a call, but {len(cells):,} came"
            )

    @calls.post("/predict", responses=_problems(*_BODY, 409))
    def predict(asked: Asked) -> Predicted:
        """Mean, interval and probabilities of cells."""
        check_number(asked.cells)
        cells = [tuple(cell) for cell in asked.cells]
        found, standing = desk.predict(cells, asked.coverage)
        chances = found.probabilities
        answers = [
            Answer(
                mean=float(found.mean[n]),
                low=float(found.low[n]),
                high=float(found.high[n]),
                probabilities=None if chances is None else chances[n].tolist(),
            )
            for n in range(len(cells))
        ]
        levels = list(standing.ready.levels_)
        return Predicted(answers=answers, levels=levels, pools=Pools.of(standing))

    @calls.post("/recommend", responses=_problems(*_BODY, 409))
    def recommend(wanted: Wanted) -> Recommendations:
        """The best cells of a member, or of somebody whose ratings come with the call."""
        if (wanted.member is None) == (not wanted.ratings):
            raise InputError("either a member or ratings are needed, and not both")
        started = time.perf_counter()
        found, standing = desk.recommend(
            axis_of(wanted.axis),
            wanted.member,
            wanted.ratings,
            wanted.given,
            wanted.n,
            why=wanted.why,
        )
        listed = [
            Recommendation(
                labels=one.labels,
                mean=one.mean,
                low=one.low,
                high=one.high,
                why=[Reason(label=r.label, moved=r.by) for r in one.why],
            )
            for one in found
        ]
        taken = round(1000 * (time.perf_counter() - started), 2)
        return Recommendations(recommended=listed, milliseconds=taken, pools=Pools.of(standing))

    @calls.put("/interactions", responses=_problems(*_BODY, 500))
    def put(given: Cells) -> Written:
        """Write cells; members may be new. The answer comes once they are durable."""
        check_number(given.cells)
        version = desk.put([(tuple(labels), value) for labels, value in given.cells])
        return Written(version=version, cells=len(given.cells))

    @calls.delete("/interactions", responses=_problems(*_USUAL, 500))
    def remove(
        label: Annotated[list[str], Query(description="One for each axis, in their order.")],
    ) -> Deleted:
        """Delete a cell."""
        version, gone = desk.remove(tuple(label))
        return Deleted(gone_with_version=version, cells=gone)

    @calls.delete("/members", responses=_problems(*_USUAL, 500))
    def forget(axis: str, member: str) -> Deleted:
        """Delete everything about a member."""
        version, gone = desk.forget(axis_of(axis), member)
        return Deleted(gone_with_version=version, cells=gone)

    @calls.get("/members", responses=_problems(*_USUAL))
    def members(
        axis: str | None = None,
        holding: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Members:
        """Members of an axis whose labels hold a text, those with the most cells first."""
        place = axis_of(axis)
        found = [Member(label=label, cells=n) for label, n in desk.members(place, holding, limit)]
        return Members(axis=facts.axes[place], members=found)

    @calls.get("/model", responses=_problems(*_USUAL))
    def model() -> About:
        """What is served, and by what."""
        standing = desk.standing
        completer = standing.completer
        shape = (0,) * len(facts.axes) if completer is None else completer.table_.shape
        axes = [
            Axis(name=name, members=size, labels="whole numbers" if whole else "texts")
            for name, size, whole in zip(facts.axes, shape, facts.whole, strict=True)
        ]
        return About(
            exchangeable=__version__,
            source=facts.source,
            model=None if completer is None else completer.model_name_,
            notes=[] if completer is None else list(completer.notes_),
            axes=axes,
            value=facts.value,
            scale=str(facts.scale),
            levels=list(facts.levels),
            cells=0 if completer is None else len(completer.table_),
            limits=asdict(limits),
            pools=Pools.of(standing),
        )

    csv: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
    }

    @calls.post(
        "/complete",
        response_class=StreamingResponse,
        responses={**csv, **_problems(*_BODY)},
        openapi_extra=_FILE,
    )
    async def complete(request: Request, options: Annotated[Reading, Query()]) -> Response:
        """Complete a CSV or Parquet file: it comes back as CSV, nothing of it is kept."""
        sent = options.sent(await request.body())
        answered = await run_in_threadpool(
            uploads.completed, sent, every=options.all, most=limits.rows
        )
        return StreamingResponse(uploads.as_csv(answered), media_type="text/csv")

    @calls.post("/look", responses=_problems(*_BODY), openapi_extra=_FILE)
    async def look(request: Request, options: Annotated[Reading, Query()]) -> Look:
        """What a file holds, how well hidden cells are predicted, and a picture of it completed."""
        sent = options.sent(await request.body())
        return Look(**await run_in_threadpool(uploads.looked_at, sent, limits.rows))

    return calls


def _about(desk: Engine, numbers: Telemetry) -> APIRouter:
    """What is answered at once, however many calls are under way: it waits for no thread."""
    about = APIRouter()

    @about.get("/health", responses=_problems(421))
    async def health() -> Health:
        """Alive."""
        return Health(status=desk.status, behind=desk.behind)

    @about.get("/ready", responses=_problems(421))
    async def ready() -> Health:
        """Able to answer."""
        return await health()

    text = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_problems(421)}

    @about.get("/metrics", response_class=Response, responses=text)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(numbers.text(), media_type=numbers.kind)

    def page(name: str) -> Any:
        file, kind = PAGE[name]
        content = files("exchangeable.serve").joinpath("page", file).read_bytes()

        async def answer() -> Response:
            return Response(content, media_type=kind)

        return answer

    for name in PAGE:
        about.add_api_route(f"/{name}", page(name), include_in_schema=False)
    return about


def _errors(app: FastAPI) -> None:
    """Every error is one line under one name."""

    def told(status: int, why: str) -> JSONResponse:
        return JSONResponse({"error": " ".join(why.split())}, status)

    @app.exception_handler(InputError)
    async def wrong(request: Request, error: InputError) -> JSONResponse:
        return told(409 if isinstance(error, NoCells) else 422, str(error))

    @app.exception_handler(Failed)
    async def failed(request: Request, error: Failed) -> JSONResponse:
        answer = told(503 if isinstance(error, Busy) else 500, str(error))
        if isinstance(error, Busy):
            answer.headers["retry-after"] = RETRY_AFTER
        return answer

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
        broken = first["type"] == "json_invalid"
        return told(422, f"{'the body' if broken else place}: {first['msg']}"[:300])

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> JSONResponse:
        return told(error.status_code, str(error.detail))
