"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from exchangeable.serve.engine import Engine

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

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self.seconds.labels(method, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _cells(engine: Engine) -> float:
    completer = engine.snapshot.completer
    return 0.0 if completer is None else float(len(completer.table_))
