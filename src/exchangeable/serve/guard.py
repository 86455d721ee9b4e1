"""Middleware that checks origin, token, size and load before a request reaches its route.

Bodies are read here, within limits of size and time. When too many requests are in progress,
further ones are refused at once with 503 instead of being queued. A request ends when its client
leaves or its time is over, and with it what is computed for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exchangeable.serve.access.bodies import check_values, read_body, replay, watched
from exchangeable.serve.access.origins import RETRY_AFTER, Origins, Refused, client_of
from exchangeable.serve.access.tokens import EVERYTHING, ROLES, Access, Tokens, needed_role
from exchangeable.serve.call import LEFT, Call, Ended, Phase, describe_failure
from exchangeable.serve.limits import Slots
from exchangeable.serve.tables.served import PREFIX, ServedTable, Tables, split_path

log = logging.getLogger("exchangeable.serve")

FILES = ("complete", "look", "columns")
"""Calls about a file alone, for which a role for any table is enough."""
UPLOADS = (*FILES, "import")
"""Calls that take a file as their body."""
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
STATUS_LEFT = 499
"""Status in log and metrics of a request whose client left before its response."""
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
    table: str = ""
    """The table that the request is about, if any."""
    role: str = ""
    """Role of the client for that table."""
    received: int = 0
    """Bytes of the request's body."""
    sent: int = 0
    """Bytes of the response's body."""
    phases: tuple[Phase, ...] = ()
    """What the request waited for."""
    began: int = 0
    """Nanoseconds since 1970 when the request had arrived."""
    parent: str = ""
    """The client's trace, as its header traceparent names it."""


OnResponse = Callable[[Response], None]
"""Called after every response."""


class Guard:
    """ASGI middleware that admits or refuses requests."""

    def __init__(
        self,
        app: ASGIApp,
        tables: Tables,
        tokens: Tokens | None,
        origins: Origins,
        on_response: OnResponse,
    ) -> None:
        self.app, self.tables, self.on_response = app, tables, on_response
        self.tokens, self.origins = tokens, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, began, status, call = time.perf_counter(), time.time_ns(), [0], Call()
        visit = Visit(call, self.tables.first)
        scope.setdefault("state", {}).update(call=call, visit=visit)

        async def send_checked(message: Message) -> None:
            if message["type"] == "http.response.start":
                left = call.ended and call.reason == LEFT
                status[0] = STATUS_LEFT if left else message["status"]
                headers = message.get("headers", [])
                present = {name for name, _ in headers}
                defaults = {**HEADERS, "x-request-id": call.identity}
                added = [(k.encode(), v.encode()) for k, v in defaults.items()]
                message["headers"] = [*headers, *(h for h in added if h[0] not in present)]
            visit.sent += len(message.get("body", b""))
            async with asyncio.timeout(
                visit.table.limits.seconds
            ):  # a client that does not read is left
                await send(message)

        try:
            await self._admit(scope, receive, send_checked, visit)
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
            route = visit.full_route(getattr(scope.get("route"), "path", None) or "-")
            # Clients may invent methods, which would each become a series of the metrics.
            method = scope["method"] if scope["method"] in _METHODS else "-"
            seconds = time.perf_counter() - started
            self.on_response(
                Response(
                    method,
                    route,
                    status[0],
                    seconds,
                    call.identity,
                    visit.table.name if visit.admitted else "",
                    visit.role if visit.admitted else "",
                    visit.received,
                    visit.sent,
                    call.phases,
                    began,
                    Headers(scope=scope).get("traceparent", ""),
                )
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send, visit: Visit) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        if not path.isprintable():  # routes overlook a newline at the end, and roles would not
            raise Refused(404, "there is no such path")
        works = path.startswith("/v1/")
        self.origins.check(headers, works=works)
        if not works:
            await self.app(scope, receive, send)
            return
        visit.access, call = self._read_token(headers), visit.call
        name, action = split_path(path)
        if path.rstrip("/") == "/v1/tables":  # lists those that the token has a role for
            await self._pass_on(scope, receive, send, visit, headers)
            return
        visit.table = self._find_table(name, action, scope["method"], visit.access)
        visit.prefix = "/v1" if name is None else f"{PREFIX}{{table}}"
        visit.role, visit.admitted = visit.access.role_for(visit.table.name) or "", True
        upload, table = action in UPLOADS, visit.table
        whole = upload or action == "export"  # which holds a connection to the database for long
        writing = needed_role(scope["method"], action) != "read"
        kind = "files" if whole else "writes" if writing else "calls"
        slots = self.tables.upload_slots if whole else table.slots[kind]
        client = client_of(scope.get("client"))
        _check_free(slots, kind, client)  # before a body is read in vain
        max_bytes = self.tables.uploads.upload if upload else table.limits.body
        async with read_body(table, headers, receive, max_bytes) as body:
            visit.received = len(body)
            _check_free(slots, kind, client)  # a body that arrives slowly takes no place
            if not upload:
                check_values(body, table.limits)
            slots.take(client)
            try:
                seconds = table.limits.call_seconds if kind == "calls" else None
                if action == "export":
                    seconds = table.limits.export_seconds
                async with watched(receive, call, seconds) as gone:
                    await self.app(scope, replay(body, gone), send)
            finally:
                call.end(LEFT)
                slots.free(client)

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, visit: Visit, headers: Headers
    ) -> None:
        """Pass on a call that takes no place, since it responds at once."""
        async with read_body(visit.table, headers, receive, visit.table.limits.body) as body:
            visit.received = len(body)
            await self.app(scope, replay(body, asyncio.Event()), send)

    def _find_table(
        self, name: str | None, action: str, method: str, access: Access
    ) -> ServedTable:
        """The table that a call is about, if the token has the role that the call needs."""
        needed = needed_role(method, action)
        table = self._default_table(action, access) if name is None else self.tables.get(name)
        shown = "the first table" if name is None else f"table {name[:60]!r}"
        held = access.role_for(table.name if table is not None else name or "")
        if held is None or ROLES.index(held) < ROLES.index(needed):
            has = f"has the role {held}" if held else "has none for it"
            raise Refused(
                403, f"this call needs the role {needed} for {shown}, but the token {has}"
            )
        if table is None:
            raise Refused(404, f"there is no {shown}")
        if table.read_only and needed != "read" and action != "export":
            raise Refused(403, f"{shown} is read-only")
        return table

    def _default_table(self, action: str, access: Access) -> ServedTable:
        """The table of a call that names none: the first one, for a file that may be used."""
        allowed = (table for table in self.tables if access.role_for(table.name))
        first = self.tables.first
        return next(allowed, first) if action in FILES else first

    def _read_token(self, headers: Headers) -> Access:
        """The access of the request's token; refuses requests without one."""
        if self.tokens is None:
            return EVERYTHING
        kind, _, token = headers.get("authorization", "").partition(" ")
        access = self.tokens.access(token.strip().encode())
        if kind.lower() != "bearer" or access is None:
            raise Refused(401, "a bearer token is required", **{"www-authenticate": "Bearer"})
        return access


class Visit:
    """What the guard knows about a request, for its route and for the log."""

    def __init__(self, call: Call, table: ServedTable) -> None:
        self.call, self.table = call, table
        self.access, self.role, self.admitted = EVERYTHING, "", False
        self.received = self.sent = 0
        self.prefix = ""
        """What the paths of the table's calls begin with."""

    def full_route(self, route: str) -> str:
        """The template of a path, which versions of FastAPI give with or without its prefix."""
        return route if route.startswith(("-", "/v1")) else f"{self.prefix}{route}"


def _check_free(slots: Slots, kind: str, client: str) -> None:
    retry = {"retry-after": RETRY_AFTER}
    if slots.full:
        raise Refused(503, f"too many {kind} are in progress: try again", **retry)
    if slots.holds_all_of(client):
        raise Refused(429, f"too many {kind} of yours are in progress: try again", **retry)


class _Broken(Exception):
    """A failure after the response had begun; it has been logged."""


def _log_failure(error: Exception, call: Call) -> None:
    """Log that a request failed, or was given up."""
    for each in (error, error.__cause__):  # starlette's own error, once a response has begun
        if isinstance(each, Ended):
            log.info("given up", extra={"fields": {"id": call.identity, "reason": str(each)}})
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
