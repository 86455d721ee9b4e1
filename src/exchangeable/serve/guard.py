"""Middleware that checks host, token, size and load before a request reaches its route.

Bodies are read here, within limits of size and time. When too many requests are in progress,
further ones are refused at once with 503 instead of being queued.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("exchangeable.serve")

UPLOADS = ("/v1/complete", "/v1/look")
"""Routes that take a file as their body."""
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
RETRY_AFTER = "1"
"""Seconds after which a client that was refused with 503 may try again."""
_METHODS_WITH_BODY = ("POST", "PUT")
_WRITING_METHODS = ("PUT", "DELETE")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


@dataclass(frozen=True)
class Limits:
    """Limits of a single request and of all requests in progress."""

    body: int = 2**20
    """Bytes of a body without a file."""
    upload: int = 32 * 2**20
    """Bytes of a file."""
    calls: int = 64
    """Reading requests in progress."""
    uploads: int = 2
    """Requests with a file in progress, beside the others."""
    writes: int = 8
    """Writing requests in progress, beside the others."""
    seconds: float = 20.0
    """Seconds for a body to arrive, or for the client to receive a part of the response."""
    cells: int = 10_000
    """Cells of a request."""
    rows: int = 1_000_000
    """Rows of a file, and cells that are predicted for it."""


class Refused(Exception):
    """A request that does not reach its route."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


OnResponse = Callable[[str, str, int, float], None]
"""Called after every response with method, route, status and seconds."""


class Guard:
    """ASGI middleware that admits or refuses requests."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        token: str | None,
        hosts: frozenset[str] | None,
        on_response: OnResponse,
    ) -> None:
        self.app, self.limits, self.on_response = app, limits, on_response
        self.token = None if token is None else token.encode()
        self.hosts = hosts
        """Host names that requests may use; None allows any."""
        self.in_progress = {"calls": 0, "uploads": 0, "writes": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), [500]

        async def send_checked(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                headers = message.get("headers", [])
                present = {name for name, _ in headers}
                defaults = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*headers, *(h for h in defaults if h[0] not in present)]
            async with asyncio.timeout(self.limits.seconds):  # a client that does not read is left
                await send(message)

        try:
            await self._admit(scope, receive, send_checked)
        except Refused as refused:
            await _respond(refused, send_checked)
        except (TimeoutError, ClientDisconnect):
            log.warning("response not received")
        finally:
            route = (
                getattr(scope.get("route"), "path", None) or "-"
            )  # the template, without labels of members
            # Clients may invent methods, which would each become a series of the metrics.
            method = scope["method"] if scope["method"] in _METHODS else "-"
            self.on_response(method, route, status[0], time.perf_counter() - started)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        self._check_host(headers)
        if not path.startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        self._check_token(headers)
        upload, writing = path in UPLOADS, scope["method"] in _WRITING_METHODS
        kind = "uploads" if upload else "writes" if writing else "calls"
        if self.in_progress[kind] >= getattr(self.limits, kind):
            raise Refused(
                503, f"too many {kind} are in progress: try again", **{"retry-after": RETRY_AFTER}
            )
        self.in_progress[kind] += 1
        try:
            body = b""
            if scope["method"] in _METHODS_WITH_BODY:
                max_bytes = self.limits.upload if upload else self.limits.body
                body = await self._read_body(headers, receive, max_bytes)
            await self.app(scope, _replay(body, receive), send)
        finally:
            self.in_progress[kind] -= 1

    def _check_host(self, headers: Headers) -> None:
        """Refuse foreign host names: another site may point its own name at this address."""
        if self.hosts is None:
            return
        name = headers.get("host", "")
        name = name.rsplit(":", 1)[0] if not name.endswith("]") else name
        if name.lower() not in self.hosts:
            raise Refused(421, f"{name[:100]!r} is not a host name of this service")

    def _check_token(self, headers: Headers) -> None:
        if self.token is None:
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self.token)
        if kind.lower() != "bearer" or not same:
            raise Refused(401, "a bearer token is required", **{"www-authenticate": "Bearer"})

    async def _read_body(self, headers: Headers, receive: Receive, max_bytes: int) -> bytes:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > max_bytes:
            raise Refused(
                413, f"a body may have at most {max_bytes:,} bytes, but has {length[:30]}"
            )
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the request broke off")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > max_bytes:
                        raise Refused(413, f"a body may have at most {max_bytes:,} bytes")
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, "the request took too long to arrive") from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Receive the body that was read, and then further messages."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


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
