"""Metrics of the service, for Prometheus, and its log, without labels or values of the table."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from exchangeable.serve.engine import Engine
from exchangeable.serve.guard import Response

log = logging.getLogger("exchangeable.serve")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Telemetry:
    """Metrics of one service, in a registry of its own: a process may hold several services."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "exchangeable_call_seconds",
            "Duration of requests in seconds.",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        gauges = {
            "cells": ("Cells that predictions are based on.", lambda: _cells(engine)),
            "pools_age_seconds": (
                "Seconds since the whole table was last read.",
                lambda: engine.snapshot.age,
            ),
            "version": (
                "Version of the database that predictions include.",
                lambda: engine.snapshot.version,
            ),
            "behind": (
                "Durable changes that predictions do not yet include.",
                lambda: engine.refresher.behind,
            ),
            "refreshes": (
                "Number of times that the whole table was read again.",
                lambda: engine.snapshot.refreshes,
            ),
        }
        for name, (description, measure) in gauges.items():
            gauge = Gauge(f"exchangeable_{name}", description, registry=self.registry)
            gauge.set_function(measure)

    def observe(self, response: Response) -> None:
        labels = response.method, response.route, str(response.status)
        self.seconds.labels(*labels).observe(response.seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _cells(engine: Engine) -> float:
    completer = engine.snapshot.completer
    return 0.0 if completer is None else float(len(completer.table_))


def log_response(response: Response) -> None:
    fields = {
        "id": response.identity,
        "method": response.method,
        "route": response.route,
        "status": response.status,
        "ms": round(1000 * response.seconds, 2),
    }
    log.info("call", extra={"fields": fields})


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
