"""Middleware that checks origin, token, size and load before a request reaches its route.

Bodies are read here, within limits of size and time. When too many requests are in progress,
further ones are refused at once with 503 instead of being queued. A request ends when its client
leaves or its time is over, and with it what is computed for it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exchangeable.serve.call import LEFT, Call, Ended, describe_failure
from exchangeable.serve.limits import Limits, Slots
from exchangeable.serve.origins import Origins, Refused, client_of

log = logging.getLogger("exchangeable.serve")

UPLOADS = ("/v1/complete", "/v1/look", "/v1/columns")
"""Routes that take a file as their body."""
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
STATUS_LEFT = 499
"""Status in log and metrics of a request whose client left before its response."""
RETRY_AFTER = "1"
"""Seconds after which a client that was refused with 429 or 503 may try again."""
COMMAS_PER_CELL = 6
"""Commas in a body for each cell that a request may have: labels, a value, a time, and commas in
labels. Parsing 80,000 cells of two labels takes the event loop 0.2 s."""
_WRITING_METHODS = ("PUT", "DELETE")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


@dataclass(frozen=True)
class Response:
    """A response that was sent, as it is logged and counted."""

    method: str
    route: str
    """The template of the path, without labels of members."""
    status: int
    seconds: float
    identity: str
    """Names the request, also in the response."""


OnResponse = Callable[[Response], None]
"""Called after every response."""


class Guard:
    """ASGI middleware that admits or refuses requests."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        token: str | None,
        origins: Origins,
        on_response: OnResponse,
    ) -> None:
        self.app, self.limits, self.on_response = app, limits, on_response
        self.token = None if token is None else token.encode()
        self.origins = origins
        self.slots = {
            kind: Slots(getattr(limits, kind), limits.share)
            for kind in ("calls", "uploads", "writes")
        }
        self.waiting_bytes = 0
        """Bytes of bodies that have arrived and wait for the rest, or for an answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, call = time.perf_counter(), [0], Call()
        scope.setdefault("state", {})["call"] = call

        async def send_checked(message: Message) -> None:
            if message["type"] == "http.response.start":
                left = call.ended and call.reason == LEFT
                status[0] = STATUS_LEFT if left else message["status"]
                headers = message.get("headers", [])
                present = {name for name, _ in headers}
                defaults = {**HEADERS, "x-request-id": call.identity}
                added = [(k.encode(), v.encode()) for k, v in defaults.items()]
                message["headers"] = [*headers, *(h for h in added if h[0] not in present)]
            async with asyncio.timeout(self.limits.seconds):  # a client that does not read is left
                await send(message)

        try:
            await self._admit(scope, receive, send_checked, call)
        except Refused as refused:
            await _respond(refused, send_checked)
        except (TimeoutError, ClientDisconnect):
            log.warning("response not received", extra={"fields": {"id": call.identity}})
        except Exception as error:
            _log_failure(error, call)
            if status[0]:  # too late for another status: the connection is closed instead
                raise _Broken from None
            reason = f"the service failed; its log says why at {call.identity}"
            await _respond(Refused(500, reason), send_checked)
        finally:
            call.end(LEFT)
            route = getattr(scope.get("route"), "path", None) or "-"
            # Clients may invent methods, which would each become a series of the metrics.
            method = scope["method"] if scope["method"] in _METHODS else "-"
            seconds = time.perf_counter() - started
            self.on_response(Response(method, route, status[0], seconds, call.identity))

    async def _admit(self, scope: Scope, receive: Receive, send: Send, call: Call) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        works = path.startswith("/v1/")
        self.origins.check(headers, works=works)
        if not works:
            await self.app(scope, receive, send)
            return
        self._check_token(headers)
        upload, writing = path in UPLOADS, scope["method"] in _WRITING_METHODS
        kind = "uploads" if upload else "writes" if writing else "calls"
        client = client_of(scope.get("client"))
        self._check_free(kind, client)  # before a body is read in vain
        max_bytes = self.limits.upload if upload else self.limits.body
        async with self._read_body(headers, receive, max_bytes) as body:
            self._check_free(kind, client)  # a body that arrives slowly takes no place
            if not upload:
                self._check_values(body)
            self.slots[kind].take(client)
            try:
                seconds = {"calls": self.limits.call_seconds}.get(kind)
                async with _watched(receive, call, seconds) as gone:
                    await self.app(scope, _replay(body, gone), send)
            finally:
                call.end(LEFT)
                self.slots[kind].free(client)

    def _check_free(self, kind: str, client: str) -> None:
        slots, retry = self.slots[kind], {"retry-after": RETRY_AFTER}
        if slots.full:
            raise Refused(503, f"too many {kind} are in progress: try again", **retry)
        if slots.holds_all_of(client):
            raise Refused(429, f"too many {kind} of yours are in progress: try again", **retry)

    def _check_values(self, body: bytes) -> None:
        """Refuse a body of very many values: the event loop, which all share, would parse them."""
        most, commas = COMMAS_PER_CELL * self.limits.cells, body.count(b",")
        if commas > most:
            raise Refused(413, f"a body may have at most {most:,} commas, but has {commas:,}")

    def _check_token(self, headers: Headers) -> None:
        if self.token is None:
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self.token)
        if kind.lower() != "bearer" or not same:
            raise Refused(401, "a bearer token is required", **{"www-authenticate": "Bearer"})

    @asynccontextmanager
    async def _read_body(
        self, headers: Headers, receive: Receive, max_bytes: int
    ) -> AsyncIterator[bytes]:
        """Read a body, which counts as waiting as long as it is used."""
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > max_bytes:
            raise Refused(
                413, f"a body may have at most {max_bytes:,} bytes, but has {length[:30]}"
            )
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the request broke off")
                    part = message.get("body", b"")
                    size += len(part)
                    self.waiting_bytes += len(part)
                    if size > max_bytes:
                        raise Refused(413, f"a body may have at most {max_bytes:,} bytes")
                    if self.waiting_bytes > self.limits.waiting:
                        retry = {"retry-after": RETRY_AFTER}
                        raise Refused(503, "too many bytes are arriving: try again", **retry)
                    parts.append(part)
                    more = message.get("more_body", False)
        except TimeoutError:
            self.waiting_bytes -= size
            raise Refused(408, "the request took too long to arrive") from None
        except BaseException:
            self.waiting_bytes -= size
            raise
        try:
            yield b"".join(parts)
        finally:
            self.waiting_bytes -= size


class _Broken(Exception):
    """A failure after the response had begun; it has been logged."""


@asynccontextmanager
async def _watched(
    receive: Receive, call: Call, seconds: float | None
) -> AsyncIterator[asyncio.Event]:
    """End a call when its client leaves, which sets the event, or after some seconds."""
    gone, loop = asyncio.Event(), asyncio.get_running_loop()

    async def watch() -> None:
        if (await receive())["type"] == "http.disconnect":
            call.end(LEFT)
            gone.set()

    watcher = asyncio.create_task(watch())
    timer = None
    if seconds is not None:
        reason = f"the request took longer than {seconds:g} seconds: ask for less, or try again"
        timer = loop.call_later(seconds, call.end, reason)
    try:
        yield gone
    finally:
        if timer is not None:
            timer.cancel()
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


def _replay(body: bytes, gone: asyncio.Event) -> Receive:
    """Receive the body that was read, and then that the client is gone."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        if pending:
            return pending.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive_again


def _log_failure(error: Exception, call: Call) -> None:
    """Log that a request failed, or was given up."""
    if isinstance(error, Ended):
        log.info("given up", extra={"fields": {"id": call.identity, "reason": str(error)}})
        return
    log.error("failed", extra={"fields": {"id": call.identity, **describe_failure(error)}})


async def _respond(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = {"content-type": "application/json", **refused.headers}
    if refused.status in (408, 413):  # bytes not read would be taken for the next request
        headers["connection"] = "close"
    await send(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [
                (b"content-length", str(len(body)).encode()),
                *((name.encode(), value.encode()) for name, value in headers.items()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
