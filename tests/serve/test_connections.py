"""Connections: those that send nothing, or take nothing, are closed and shut out nobody."""

import http.client
import itertools
import json
import resource
import threading
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import polars as pl
import pytest

pytest.importorskip("uvicorn", reason="needs exchangeable[serve]")

from tests.support.attacks import is_closed, open_socket
from tests.support.service_engine import FILM, FRAME, MEMBER, until

from exchangeable.serve import connections as connections_module
from exchangeable.serve.access.origins import client_of
from exchangeable.serve.connections import Connections, count_files
from exchangeable.serve.limits import LOCAL, Limits
from exchangeable.serve.server import Address, make_server
from exchangeable.serve.tables import routes

HALF_HEADERS = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow"
HALF_BODY = (
    b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 1000\r\n\r\n{"
)


@contextmanager
def running(engine, **limits):
    """A server in a thread of this process; yields it, with its port."""
    address = Address(port=0)
    bound = address.bind()
    server = make_server(engine, address, Limits(**limits))
    server.port = bound.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    until(lambda: server.started)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()


def ask(server, cells=1):
    """Statuses of a check and of a prediction, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    statuses = []
    headers = {"content-type": "application/json"}
    body = json.dumps({"cells": [[MEMBER, FILM]] * cells})
    for sent in (("GET", "/health"), ("POST", "/v1/predict", body, headers)):
        connection.request(*sent)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    connection.close()
    return statuses


@pytest.mark.parametrize("sent", [b"", HALF_HEADERS, HALF_BODY])
def test_many_that_send_half_a_request_shut_out_nobody(engine, sent):
    with running(engine, connections=30) as server, ExitStack() as stack:
        for _ in range(45):
            stack.enter_context(open_socket(server.port, sent))
            assert len(server.connections.open) <= 30
        assert ask(server) == [200, 200]
        assert server.connections.dropped >= 15


def test_bodies_that_arrive_slowly_take_no_places(engine):
    with running(engine, calls=2) as server, ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(open_socket(server.port, HALF_BODY))
        until(lambda: len(server.connections.open) == 6)
        assert ask(server) == [200, 200]


def test_bodies_that_wait_are_bounded_together(engine):
    with running(engine, waiting=1500) as server, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(open_socket(server.port, HALF_BODY + b" " * 500))
        until(lambda: len(server.connections.open) >= 2)
        refused = open_socket(server.port, HALF_BODY + b" " * 600)
        assert refused.recv(100).startswith(b"HTTP/1.1 503")
        refused.close()
        stack.close()
        until(lambda: ask(server) == [200, 200])


def test_connections_have_deadlines(engine):
    ended = b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
    with running(engine, header_seconds=0.2, seconds=0.2) as server:
        for sent in (b"", HALF_HEADERS, HALF_BODY, ended):
            with open_socket(server.port, sent) as connection:
                assert is_closed(connection, 20), sent
        assert not server.connections.open
        assert ask(server) == [200, 200]


def test_a_client_that_does_not_take_a_response_is_left(engine):
    content = json.dumps({"cells": [[MEMBER, FILM]] * 10_000}).encode()
    head = HALF_BODY.replace(b"1000", b"%d" % len(content))[:-1]
    with running(engine, header_seconds=0.2, seconds=0.2) as server:
        with open_socket(server.port, head + content):
            until(lambda: not server.connections.open)
        assert ask(server) == [200, 200]


def test_a_body_in_chunks_of_one_byte_is_broken_off(engine):
    chunked = HALF_BODY.replace(b"content-length: 1000", b"transfer-encoding: chunked")[:-1]
    with running(engine) as server:
        with open_socket(server.port, chunked) as connection:
            for _ in range(20):
                try:
                    connection.sendall(b"1\r\n \r\n" * 10_000)
                except OSError:
                    break
            assert is_closed(connection, 20)
        assert ask(server) == [200, 200]


def test_requests_may_be_sent_before_the_responses_but_not_without_end(engine):
    request = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    begun, go_on = threading.Event(), threading.Event()
    plain = engine.predict
    engine.predict = lambda *cells: begun.set() or (go_on.wait(20) and plain(*cells))
    content = json.dumps({"cells": [[MEMBER, FILM]]}).encode()
    head = HALF_BODY.replace(b"1000", b"%d" % len(content))[:-1]
    with running(engine) as server:
        with open_socket(server.port, head + content + 3 * request) as connection:
            assert begun.wait(20)
            with open_socket(server.port, head + content + 5_000 * request) as endless:
                assert is_closed(endless, 20)
            go_on.set()
            received = b""
            while received.count(b"HTTP/1.1 200") < 4:
                received += connection.recv(2**16)
        assert ask(server) == [200, 200]


class Idle:
    """Stands for a connection."""

    transport = SimpleNamespace(abort=lambda: None)

    def __init__(self, peer, busy=False):
        self.peer, self.is_idle = peer, not busy


def test_the_client_with_the_most_connections_makes_room(monkeypatch):
    monkeypatch.setattr(Connections, "_sweep_later", lambda self: None)
    all_ = Connections(Limits(connections=10, share=0.6))
    modest = [Idle("a"), Idle("a")]
    for one in modest:
        all_.add(one)
    for number in range(20):
        all_.add(Idle("b", busy=number == 0))
    assert all_.slots.taken == {"a": 2, "b": 6}  # its share, though there are more places
    assert next(one for one in all_.open if one.peer == "b").is_idle is False
    for _ in range(20):
        all_.add(Idle(LOCAL))
    assert all_.slots.taken[LOCAL] > 2
    assert all_.slots.taken["a"] == 2
    assert len(all_.open) == 10
    refused = Connections(Limits(connections=8))
    for _ in range(8):
        refused.add(Idle(LOCAL, busy=True))
    late = Idle(LOCAL)
    refused.add(late)
    assert late not in refused.open


def test_clients_are_told_apart_by_address():
    assert client_of(("127.0.0.1", 5)) == client_of(("::1", 5)) == client_of(None) == LOCAL
    assert client_of(("203.0.113.1", 5)) == client_of(("::ffff:203.0.113.1", 6)) == "203.0.113.1"
    assert client_of(("2001:db8::1", 5)) == client_of(("2001:db8::2:1", 5))
    assert client_of(("2001:db8::1", 5)) != client_of(("2001:db8:0:1::1", 5))


def test_connections_are_fewer_where_few_files_may_be_open(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(500, before[0]), before[1]))
        assert count_files(600) == 600  # as many as are wanted, where that is allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    monkeypatch.setattr(connections_module, "count_files", lambda wanted: 400)
    assert Connections(Limits()).slots.places == 80
    assert Connections(Limits(), tables=2).slots.places == 16  # a table's database needs some


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_export_that_is_cut_does_not_pass_for_whole(engine, monkeypatch, kind):
    monkeypatch.setattr(routes, "_BYTES_PER_PART", 100)
    plain = routes._export

    def cut(store, kind, headers, call):
        parts = plain(store, kind, headers, call)
        yield next(parts)
        call.end("it took too long")  # as the timer of the call does
        yield from parts

    monkeypatch.setattr(routes, "_export", cut)
    with running(engine) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", f"/v1/export?format={kind}")
        answer = connection.getresponse()
        assert answer.status == 200
        assert int(answer.headers["content-length"]) > 100
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        connection.close()
        assert ask(server) == [200, 200]


def test_clients_that_read_an_export_slowly_hold_no_transaction(engine, monkeypatch):
    monkeypatch.setattr(routes, "_BYTES_PER_PART", 100)
    sent, go_on = threading.Event(), threading.Event()
    plain, held = routes._export, []

    def slow(store, kind, headers, call):
        for part in plain(store, kind, headers, call):
            yield part
            held.append(store.engine.pool.checkedout())
            sent.set()
            go_on.wait(20)

    monkeypatch.setattr(routes, "_export", slow)
    with running(engine) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/v1/export")
        assert sent.wait(20)
        go_on.set()
        content = connection.getresponse().read()
        connection.close()
    assert len(pl.read_csv(content)) == len(FRAME)
    assert len(held) > 1
    assert not any(held)


def test_an_export_that_takes_too_long_to_read_is_given_up(engine, monkeypatch):
    plain = engine.store.export

    def endless():
        for frame in itertools.repeat(next(plain())):
            yield frame
            threading.Event().wait(0.01)

    monkeypatch.setattr(engine.store, "export", endless)
    with running(engine, export_seconds=0.2) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/v1/export")
        answer = connection.getresponse()
        assert answer.status == 503
        assert "longer than 0.2 seconds" in answer.read().decode()
        connection.close()
