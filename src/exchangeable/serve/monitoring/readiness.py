"""Whether the service can do its work: its database responds, takes writes, and is followed."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, get_args

from exchangeable.errors import Failed
from exchangeable.serve.engine import Engine

Reason = Literal["database", "disk", "refresh", "contact"]
REASONS: tuple[Reason, ...] = get_args(Reason)

CHECK_SECONDS = 2.0
"""Seconds that the database has to respond."""
FRESH_SECONDS = 1.0
"""Seconds for which a result is used again: probes may come often, from several sides."""
MIN_FREE_BYTES = 64 * 2**20
"""Free bytes where the database is; writes fail once there are none."""

log = logging.getLogger("exchangeable.serve")


class Readiness:
    """Checks an engine's database in a thread of its own, one check at a time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="checking")
        self._check: Future[list[Reason]] | None = None
        self._begun = 0.0

    def close(self) -> None:
        self._checks.shutdown(wait=False, cancel_futures=True)

    async def reasons(self) -> list[Reason]:
        """Reasons why the service is not ready; none if it is."""
        refresher = self.engine.refresher
        overdue: list[Reason] = ["refresh"] if refresher.is_overdue else []
        silent: list[Reason] = ["contact"] if refresher.follower.is_out_of_touch else []
        return [*await self._database(), *overdue, *silent]

    async def _database(self) -> list[Reason]:
        now = time.monotonic()
        if self._check is None or (self._check.done() and now - self._begun > FRESH_SECONDS):
            self._begun, self._check = now, self._checks.submit(self._look)
        left = max(self._begun + CHECK_SECONDS - now, 0)
        check = asyncio.shield(asyncio.wrap_future(self._check))
        try:
            return await asyncio.wait_for(check, left)
        except TimeoutError:
            log.error("check failed", extra={"fields": {"reason": "the database does not respond"}})
            return ["database"]

    def _look(self) -> list[Reason]:
        store = self.engine.store
        free = store.free_bytes()
        reasons: list[Reason] = ["disk"] if free is not None and free < MIN_FREE_BYTES else []
        try:
            store.check()
        except Failed as error:
            log.error("check failed", extra={"fields": {"reason": str(error)}})
            reasons.append("database")
        return reasons
