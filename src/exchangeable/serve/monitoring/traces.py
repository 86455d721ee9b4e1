"""Traces for OpenTelemetry: a span for each request, with one for each part of it that waited.

They are exported where the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT and others) say, and
only if one of them is set. Otherwise nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, Protocol

from exchangeable._version import __version__
from exchangeable.errors import InputError
from exchangeable.serve.guard import Response

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables that say where traces are sent."""
_OFF = ("true", "1")
_REQUIRED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Traces(Protocol):
    """Where the spans of requests go."""

    def record(self, response: Response) -> None:
        """Record a request whose response was sent."""


class NoTraces:
    """Traces that nobody asked for."""

    def record(self, response: Response) -> None:
        pass


class OpenTelemetryTraces:
    """Spans of a provider of OpenTelemetry."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.trace = trace
        self.propagator = TraceContextTextMapPropagator()
        self.tracer = provider.get_tracer("exchangeable.serve", __version__)

    def record(self, response: Response) -> None:
        """Record a request, as part of the trace that its client names, if it names one."""
        parent = self.propagator.extract({"traceparent": response.parent})
        span = self.tracer.start_span(
            f"{response.method} {response.route}",
            context=parent,
            kind=self.trace.SpanKind.SERVER,
            start_time=response.began,
            attributes={
                "http.request.method": response.method,
                "http.route": response.route,
                "http.response.status_code": response.status,
                "http.request.body.size": response.received,
                "http.response.body.size": response.sent,
                "exchangeable_request": response.identity,
                "exchangeable_table": response.table,
                "exchangeable_role": response.role,
            },
        )
        if response.status >= 500:
            span.set_status(self.trace.StatusCode.ERROR)
        inside = self.trace.set_span_in_context(span)
        for phase in response.phases:
            child = self.tracer.start_span(phase.name, context=inside, start_time=phase.began)
            child.end(phase.ended)
        ended = response.began + round(1e9 * response.seconds)
        span.end(max([ended, *(phase.ended for phase in response.phases)]))


def start_traces() -> Traces:
    """Return where spans go: over OTLP if a standard variable says where to, else nowhere."""
    wanted = any(os.environ.get(name) for name in ENDPOINTS)
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() in _OFF:
        return NoTraces()
    if not all(_is_installed(name) for name in _REQUIRED):
        raise InputError(
            f"{' or '.join(ENDPOINTS)} needs OpenTelemetry: pip install 'exchangeable[otel]'"
        )
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = os.environ.get("OTEL_SERVICE_NAME", "exchangeable")
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: named}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTraces(provider)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
