"""Metrics of the service, for Prometheus, and its log, without labels or values of the table."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from exchangeable.serve.call import Phase
from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import Response
from exchangeable.serve.tables.served import Tables

log = logging.getLogger("exchangeable.serve")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Telemetry:
    """Metrics of one service, in a registry of its own: a process may hold several services."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, tables: Tables) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "exchangeable_call_seconds",
            "Duration of requests in seconds.",
            ("method", "route", "status", "table"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.queued = Histogram(
            "exchangeable_queue_seconds",
            "Seconds that requests waited for a thread to compute their response.",
            ("table",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        for name, (description, measure) in _GAUGES.items():
            gauge = Gauge(f"exchangeable_{name}", description, ("table",), registry=self.registry)
            for table in tables:
                gauge.labels(table.name).set_function(partial(measure, table.engine))

    def observe(self, response: Response) -> None:
        labels = response.method, response.route, str(response.status), response.table
        self.seconds.labels(*labels).observe(response.seconds)
        queued = [phase.seconds for phase in response.phases if phase.name == "queue"]
        if queued:
            self.queued.labels(response.table).observe(sum(queued))

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _cells(engine: Engine) -> float:
    completer = engine.snapshot.completer
    return 0.0 if completer is None else float(len(completer.table_))


_GAUGES: dict[str, tuple[str, Callable[[Engine], float]]] = {
    "cells": ("Cells that predictions are based on.", _cells),
    "pools_age_seconds": (
        "Seconds since the whole table was last read.",
        lambda engine: engine.snapshot.age,
    ),
    "version": (
        "Version of the database that predictions include.",
        lambda engine: engine.snapshot.version,
    ),
    "behind": (
        "Durable changes that predictions do not yet include.",
        lambda engine: engine.refresher.behind,
    ),
    "refreshes": (
        "Number of times that the whole table was read again.",
        lambda engine: engine.snapshot.refreshes,
    ),
    "contact_seconds": (
        "Seconds since the changes of other processes were last read.",
        lambda engine: engine.refresher.follower.silence,
    ),
}


def log_response(response: Response) -> None:
    fields = {
        "id": response.identity,
        "method": response.method,
        "route": response.route,
        "status": response.status,
        "ms": round(1000 * response.seconds, 2),
        "table": response.table,
        "role": response.role,
        "bytes_in": response.received,
        "bytes_out": response.sent,
        **_milliseconds(response.phases),
    }
    log.info("call", extra={"fields": fields})


def _milliseconds(phases: Sequence[Phase]) -> dict[str, float]:
    """Milliseconds of each kind of phase, as in queue_ms."""
    names = dict.fromkeys(phase.name for phase in phases)
    sums = {name: sum(one.seconds for one in phases if one.name == name) for name in names}
    return {f"{name}_ms": round(1000 * seconds, 2) for name, seconds in sums.items()}


class JsonFormatter(logging.Formatter):
    """One JSON object per line, without labels or values of the table."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        return json.dumps(fields)


def log_as_json() -> None:
    """Write what the service and uvicorn log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name in ("exchangeable.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO if name == "exchangeable.serve" else logging.WARNING)
