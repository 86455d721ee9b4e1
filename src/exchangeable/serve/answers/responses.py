"""Responses that name members, checked as late as possible against what others have deleted."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from exchangeable.serve.follower import Follower


class CurrentResponse(Response):
    """JSON that is computed again if members were hidden before it is sent.

    The first time it is computed in the thread of the route. Until the event loop sends it, long
    may pass on a busy machine; then nothing comes between the check and the connection.
    """

    def __init__(self, follower: Follower, respond: Callable[[], str]) -> None:
        self._follower, self._respond = follower, respond
        content, self._hidden = follower.current(respond)
        super().__init__(content, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not self._follower.is_current(self._hidden):
            content, self._hidden = await run_in_threadpool(self._follower.current, self._respond)
            self.body = self.render(content)
            self.init_headers()
        await super().__call__(scope, receive, send)
