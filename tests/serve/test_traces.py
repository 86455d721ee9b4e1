"""Traces: a span for each request with its parts, where OpenTelemetry is there and asked for."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, MEMBER

from exchangeable.errors import InputError
from exchangeable.serve.app import create_app
from exchangeable.serve.monitoring import traces

CELL = {"cells": [[[MEMBER, FILM], 4]]}


@pytest.fixture
def recorded(engine):
    """A client, and the spans of its requests."""
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs exchangeable[otel]")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    record = traces.OpenTelemetryTraces(provider).record
    with TestClient(create_app(engine, on_response=record)) as client:
        yield client, lambda: {span.name: span for span in spans.get_finished_spans()}
    provider.shutdown()


def test_a_request_is_a_span_with_its_parts_inside(recorded):
    client, spans = recorded
    answer = client.post("/v1/predict", json={"cells": [[MEMBER, FILM]]})
    found = spans()
    assert set(found) == {"POST /v1/predict", "queue", "compute"}
    request = found["POST /v1/predict"]
    for part in ("queue", "compute"):
        assert found[part].parent.span_id == request.context.span_id
        assert request.start_time <= found[part].start_time <= found[part].end_time
        assert found[part].end_time <= request.end_time
    assert found["queue"].end_time <= found["compute"].start_time
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/predict",
        "http.response.status_code": 200,
        "http.request.body.size": len(answer.request.content),
        "http.response.body.size": len(answer.content),
        "exchangeable_request": answer.headers["x-request-id"],
        "exchangeable_table": "film-club",
        "exchangeable_role": "admin",
    }


def test_a_change_is_a_span_with_the_database_inside(recorded):
    client, spans = recorded
    client.put("/v1/interactions", json=CELL)
    assert set(spans()) == {"PUT /v1/interactions", "database"}


def test_a_span_belongs_to_the_trace_of_its_client(recorded):
    client, spans = recorded
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    client.get("/v1/model", headers={"traceparent": f"00-{trace}-{span}-01"})
    found = spans()["GET /v1/model"]
    assert f"{found.context.trace_id:032x}" == trace
    assert f"{found.parent.span_id:016x}" == span
    client.get("/health", headers={"traceparent": "no trace"})
    assert spans()["GET /health"].parent is None


def test_spans_contain_no_labels(recorded):
    client, spans = recorded
    client.delete("/v1/members", params={"axis": "member", "member": MEMBER})
    client.get("/v1/tables/secret-name/model")
    text = " ".join(span.to_json() for span in spans().values())
    assert MEMBER not in text
    assert "secret-name" not in text


def test_traces_are_exported_only_where_a_variable_says_where_to(monkeypatch):
    for name in traces.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(traces.start_traces(), traces.NoTraces)
    monkeypatch.setenv(traces.ENDPOINTS[0], "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert isinstance(traces.start_traces(), traces.NoTraces)
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setattr(traces, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"needs OpenTelemetry: pip install 'exchangeable\[otel\]'"
    ):
        traces.start_traces()


def test_without_the_variables_nothing_of_the_extra_is_imported():
    code = (
        "import sys; from exchangeable.serve.server import start_traces; start_traces(); "
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    environment = {**os.environ, **dict.fromkeys(traces.ENDPOINTS, "")}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"
