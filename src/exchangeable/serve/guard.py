"""What stands before every call: who may ask, how much may come, and how many at a time.

A body is read here, within a limit and a time, before anything looks at it. Where more calls are
under way than can be answered soon, further ones hear so at once instead of waiting in a line.
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
"""Calls that take a file."""
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
RETRY_AFTER = "1"
"""Seconds after which who was refused may try again."""
_WITH_BODY = ("POST", "PUT")
_WRITING = ("PUT", "DELETE")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


@dataclass(frozen=True)
class Limits:
    """What one call, and all together, may take."""

    body: int = 2**20
    """Bytes of a call."""
    upload: int = 32 * 2**20
    """Bytes of a file."""
    calls: int = 64
    """Under way at a time."""
    uploads: int = 2
    """Beside these, with a file."""
    writes: int = 8
    """Beside these, that change something."""
    seconds: float = 20.0
    """For a body to arrive, or for a part of an answer to be taken."""
    cells: int = 10_000
    """Of a call."""
    rows: int = 1_000_000
    """Of a file, and cells that are answered for it."""


class Refused(Exception):
    """A call that is not let in."""

    def __init__(self, status: int, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers


Watched = Callable[[str, str, int, float], None]
"""Hears of every call: method, route, status, seconds."""


class Guard:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        token: str | None,
        hosts: frozenset[str] | None,
        watched: Watched,
    ) -> None:
        self.app, self.limits, self.watched = app, limits, watched
        self.token = None if token is None else token.encode()
        self.hosts = hosts
        """Names that the service goes by; none: any."""
        self.under_way = {"calls": 0, "uploads": 0, "writes": 0}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), [500]

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                known = {name for name, _ in message.get("headers", [])}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [
                    *message.get("headers", []), *(h for h in more if h[0] not in known)
                ]  # fmt: skip
            async with asyncio.timeout(self.limits.seconds):  # who takes no answer is left
                await send(message)

        try:
            await self._let_in(scope, receive, telling)
        except Refused as refused:
            await _answer(refused, telling)
        except (TimeoutError, ClientDisconnect):
            log.warning("an answer was not taken")
        finally:
            route = getattr(scope.get("route"), "path", None) or "-"  # without anybody's label
            method = scope["method"] if scope["method"] in _METHODS else "-"  # anybody makes one up
            self.watched(method, route, status[0], time.perf_counter() - started)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        self._check_host(headers)
        if not path.startswith("/v1/"):
            await self.app(scope, receive, send)
            return
        self._check_token(headers)
        upload, writing = path in UPLOADS, scope["method"] in _WRITING
        kind = "uploads" if upload else "writes" if writing else "calls"
        if self.under_way[kind] >= getattr(self.limits, kind):
            raise Refused(
                503, f"too many {kind} are under way: try again", **{"retry-after": RETRY_AFTER}
            )
        self.under_way[kind] += 1
        try:
            body = b""
            if scope["method"] in _WITH_BODY:
                most = self.limits.upload if upload else self.limits.body
                body = await self._body(headers, receive, most)
            await self.app(scope, _replayed(body, receive), send)
        finally:
            self.under_way[kind] -= 1

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere may have its own name lead here: it is not let in by that name."""
        if self.hosts is None:
            return
        name = headers.get("host", "")
        name = name.rsplit(":", 1)[0] if not name.endswith("]") else name
        if name.lower() not in self.hosts:
            raise Refused(421, f"this service does not go by the name {name[:100]!r}")

    def _check_token(self, headers: Headers) -> None:
        if self.token is None:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self.token)
        if kind.lower() != "bearer" or not same:
            raise Refused(401, "a bearer token is needed", **{"www-authenticate": "Bearer"})

    async def _body(self, headers: Headers, receive: Receive, most: int) -> bytes:
        told = headers.get("content-length", "0")
        if not told.isdecimal() or int(told) > most:
            raise Refused(413, f"at most {most:,} bytes are taken, but {told[:30]} come")
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the call broke off")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise Refused(413, f"at most {most:,} bytes are taken, but more come")
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, "the call took too long to arrive") from None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def _answer(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = {"content-type": "application/json", **refused.headers}
    if refused.status in (408, 413):  # what was not read would be taken for the next call
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
