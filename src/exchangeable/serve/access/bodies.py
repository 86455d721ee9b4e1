"""Bodies of requests: read within limits of size and time, for routes that would read them anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from exchangeable.serve.access.origins import RETRY_AFTER, Refused
from exchangeable.serve.call import LEFT, Call
from exchangeable.serve.limits import Limits

if TYPE_CHECKING:
    from exchangeable.serve.tables.served import ServedTable

COMMAS_PER_CELL = 6
"""Commas in a body for each cell that a request may have: labels, a value, a time, and commas in
labels. Parsing 80,000 cells of two labels takes the event loop 0.2 s."""


def check_values(body: bytes, limits: Limits) -> None:
    """Refuse a body of very many values: the event loop, which all share, would parse them."""
    most, commas = COMMAS_PER_CELL * limits.cells, body.count(b",")
    if commas > most:
        raise Refused(413, f"a body may have at most {most:,} commas, but has {commas:,}")


@asynccontextmanager
async def read_body(
    table: ServedTable, headers: Headers, receive: Receive, max_bytes: int
) -> AsyncIterator[bytes]:
    """Read a body, which counts as waiting as long as it is used."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > max_bytes:
        raise Refused(413, f"a body may have at most {max_bytes:,} bytes, but has {length[:30]}")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(table.limits.seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the request broke off")
                part = message.get("body", b"")
                size += len(part)
                table.waiting_bytes += len(part)
                if size > max_bytes:
                    raise Refused(413, f"a body may have at most {max_bytes:,} bytes")
                if table.waiting_bytes > table.limits.waiting:
                    retry = {"retry-after": RETRY_AFTER}
                    raise Refused(503, "too many bytes are arriving: try again", **retry)
                parts.append(part)
                more = message.get("more_body", False)
    except TimeoutError:
        table.waiting_bytes -= size
        raise Refused(408, "the request took too long to arrive") from None
    except BaseException:
        table.waiting_bytes -= size
        raise
    try:
        yield b"".join(parts)
    finally:
        table.waiting_bytes -= size


@asynccontextmanager
async def watched(
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


def replay(body: bytes, gone: asyncio.Event) -> Receive:
    """Receive the body that was read, and then that the client is gone."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        if pending:
            return pending.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive_again
