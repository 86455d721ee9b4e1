"""What can be measured of the service, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from exchangeable.serve.engine import Engine

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Telemetry:
    """Of one service; several may live in a process."""

    kind = CONTENT_TYPE_LATEST

    def __init__(self, desk: Engine) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "exchangeable_call_seconds",
            "Time that calls took.",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        gauges = {
            "cells": ("Cells that answers are from.", lambda: _cells(desk)),
            "pools_age_seconds": (
                "Since all cells were read together.",
                lambda: desk.standing.age,
            ),
            "version": ("Changes that answers have taken in.", lambda: desk.standing.version),
            "behind": ("Changes that are durable and not yet in the answers.", lambda: desk.behind),
            "refreshes": ("Times that all cells were read anew.", lambda: desk.standing.refreshes),
        }
        for name, (about, told) in gauges.items():
            Gauge(f"exchangeable_{name}", about, registry=self.registry).set_function(told)

    def heard(self, method: str, route: str, status: int, seconds: float) -> None:
        self.seconds.labels(method, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _cells(desk: Engine) -> float:
    completer = desk.standing.completer
    return 0.0 if completer is None else float(len(completer.table_))
