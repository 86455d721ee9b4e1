"""Tokens with roles: what each may do, with one table or with all."""

import itertools

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from fastapi.testclient import TestClient
from tests.support.service_engine import FILM, FRAME, MEMBER, NUMBERED, open_engine

from exchangeable.errors import InputError
from exchangeable.serve.access import tokens as tokens_module
from exchangeable.serve.access.tokens import ROLES, Grant, Tokens, needed_role
from exchangeable.serve.app import create_app
from exchangeable.serve.tables.served import ServedTable, Tables

READER, WRITER, ADMIN, GUEST = (
    f"{name}-{'x' * 16}" for name in ("read", "write", "admin", "guest")
)
CALLS = [
    ("read", "GET", "model", {}),
    ("read", "GET", "members", {}),
    ("read", "POST", "predict", {"json": {"cells": [[MEMBER, FILM]]}}),
    ("read", "POST", "recommend", {"json": {"member": MEMBER, "n": 1}}),
    ("read", "POST", "complete", {"content": b"a,b,c\n1,2,3\n1,3,\n2,2,1\n"}),
    ("write", "PUT", "interactions", {"json": {"cells": [[["eve", FILM], 4]]}}),
    ("write", "DELETE", "interactions", {"params": {"label": ["eve", FILM]}}),
    ("admin", "DELETE", "members", {"params": {"axis": "member", "member": "eve"}}),
    ("admin", "GET", "export", {}),
    ("admin", "POST", "import", {"content": b"member,film,rating\neve,Heat,4\n"}),
]


def bearing(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def client(tmp_path):
    """A service of two tables, and a token for each role; the guest's is for the second table."""
    grants = [Grant.of(READER, "read"), Grant.of(WRITER, "write"), Grant.of(ADMIN, "admin")]
    grants += [Grant.of(GUEST, "read", "numbers"), Grant.of(READER, "admin", "numbers")]
    (tmp_path / "other").mkdir()
    numbers = open_engine(tmp_path / "other", NUMBERED, name="numbers")
    engines = [open_engine(tmp_path, FRAME), numbers]
    tables = Tables([ServedTable(engine) for engine in engines])
    with TestClient(create_app(tables, token=Tokens(grants))) as opened:
        yield opened


@pytest.mark.parametrize("prefix", ["/v1", "/v1/tables/film-club"])
def test_a_call_needs_its_role_or_a_higher_one(client, prefix):
    tokens = {"read": READER, "write": WRITER, "admin": ADMIN}
    for (needed, method, call, body), role in itertools.product(CALLS, ROLES):
        path = f"{prefix}/{call}"
        answer = client.request(method, path, headers=bearing(tokens[role]), **body)
        if ROLES.index(role) >= ROLES.index(needed):
            assert answer.status_code == 200, (role, call, answer.text)
        else:
            assert answer.status_code == 403
            assert f"needs the role {needed}" in answer.json()["error"]
            assert f"has the role {role}" in answer.json()["error"]


def test_a_role_for_any_table_is_enough_for_a_file(client):
    content = b"a,b,c\n1,2,3\n1,3,\n2,2,1\n"
    for call in ("complete", "look", "columns"):
        answer = client.post(f"/v1/{call}", content=content, headers=bearing(GUEST))
        assert answer.status_code == 200, answer.text
    answer = client.post("/v1/import", content=content, headers=bearing(GUEST))
    assert answer.status_code == 403


def test_a_token_is_not_sent_on_by_a_redirect(client):
    for path in ("/v1/model/", "/v1/tables/", "/v1/tables/numbers/model/", "/page/main.js/"):
        answer = client.get(path, headers=bearing(ADMIN), follow_redirects=False)
        assert answer.status_code == 404, path


@pytest.mark.parametrize(
    "ending", ["%0A", "%0D", "%0D%0A", "%00", "/", "%20", "%2F", ";", "/.", "%3F"]
)
@pytest.mark.parametrize("prefix", ["/v1", "/v1/tables/film-club"])
def test_no_other_spelling_of_a_path_needs_a_lower_role(client, prefix, ending):
    for needed, method, call, body in CALLS:
        token = READER if needed == "write" else WRITER
        if needed == "read":
            continue
        path, headers = f"{prefix}/{call}{ending}", bearing(token)
        answer = client.request(method, path, headers=headers, follow_redirects=True, **body)
        assert answer.status_code in (403, 404, 405), (call, answer.text)
    everything = client.get(f"{prefix}/export", headers=bearing(ADMIN)).text
    assert MEMBER in everything
    assert "\neve," not in everything


def test_without_a_token_or_with_a_wrong_one_nothing_is_done(client):
    for _, method, call, body in CALLS:
        for headers in ({}, bearing("nobody's token of some length"), bearing(READER[:-1])):
            answer = client.request(method, f"/v1/{call}", headers=headers, **body)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/v1/tables").status_code == 401
    assert client.get("/v1/tables/film-club/model").status_code == 401
    assert client.get("/v1/tables/nothing/model").status_code == 401


def test_tables_without_a_role_are_neither_listed_nor_told_from_those_that_are_not(client):
    def names(token):
        told = client.get("/v1/tables", headers=bearing(token)).json()["tables"]
        return {one["name"]: one["writable"] for one in told}

    assert names(GUEST) == {"numbers": False}
    assert names(READER) == {"film-club": False, "numbers": True}
    assert names(WRITER) == {"film-club": True, "numbers": True}
    own = client.get("/v1/tables/numbers/model", headers=bearing(GUEST))
    assert own.status_code == 200
    assert client.get("/v1/model", headers=bearing(GUEST)).status_code == 403
    texts = []
    for name in ("film-club", "fictional"):
        answer = client.get(f"/v1/tables/{name}/model", headers=bearing(GUEST))
        assert answer.status_code == 403
        texts.append(answer.json()["error"].replace(name, "-"))
    assert texts[0] == texts[1]
    gone = client.get("/v1/tables/fictional/model", headers=bearing(READER))
    assert (gone.status_code, gone.json()) == (404, {"error": "there is no table 'fictional'"})


def test_a_token_has_its_highest_role_for_each_table(client):
    path, body = "/v1/tables/numbers/interactions", {"cells": [[[3, 99], 2]]}
    assert client.put(path, json=body, headers=bearing(READER)).status_code == 200
    refused = client.put("/v1/interactions", json=body, headers=bearing(READER))
    assert refused.status_code == 403


@pytest.mark.parametrize("higher_first", [True, False])
@pytest.mark.parametrize("higher_for", [None, "films"])
def test_no_line_of_a_token_takes_away_what_another_gives(higher_first, higher_for):
    """For one table or all, in any sequence of the lines, also twice for the same table."""
    for lower_for in (None, "films"):
        lines = [Grant.of(WRITER, "write", higher_for), Grant.of(WRITER, "read", lower_for)]
        tokens = Tokens(lines if higher_first else lines[::-1])
        access = tokens.access(WRITER.encode())
        assert access.role_for("films") == "write"
        assert access.allows("write", "films")
        assert not access.allows("admin", "films")


def test_other_spellings_of_a_path_do_not_get_around_roles(client):
    for path in (
        "/v1/tables/film-club/../numbers/export", "/v1/tables//export", "/v1//export",
        "/v1/tables/film-club//export", "/v1/%65xport", "/v1/tables/film%2dclub/export",
        "/V1/export", "/v1/export/", "/v1/tables/numbers/export?/../../../v1/export",
    ):  # fmt: skip
        answer = client.get(path, headers=bearing(GUEST), follow_redirects=True)
        assert answer.status_code in (401, 403, 404), path
    for headers in ({"x-http-method-override": "GET"}, {}):
        answer = client.post("/v1/tables/numbers/export", headers=bearing(GUEST) | headers)
        assert answer.status_code in (403, 405)


def test_every_token_is_compared_in_constant_time(monkeypatch):
    compared = []
    plain = tokens_module.hmac.compare_digest
    monkeypatch.setattr(
        tokens_module.hmac, "compare_digest", lambda *two: compared.append(two) or plain(*two)
    )
    tokens = Tokens([Grant.of(f"token-number-{n}-of-several", "read") for n in range(9)])
    for token in (
        b"token-number-0-of-several",
        b"token-number-8-of-several",
        b"nothing",
        b"",
        "\u00e9".encode(),
    ):
        compared.clear()
        tokens.access(token)
        assert len(compared) == 9
        assert {len(part) for two in compared for part in two} == {32}


@pytest.mark.parametrize(
    ("method", "call", "role"),
    [("GET", "export", "admin"), ("HEAD", "export", "admin"), ("POST", "import", "admin"),
     ("DELETE", "members", "admin"),
     ("PATCH", "members", "write"), ("PUT", "anything new", "write"), ("POST", "similar", "read"),
     ("HEAD", "model", "read"), ("GET", "members", "read")],
)  # fmt: skip
def test_calls_that_change_something_need_more_than_reading(method, call, role):
    assert needed_role(method, call) == role


def test_a_file_has_one_token_or_lines_with_roles(tmp_path):
    place = tmp_path / "tokens"
    place.write_text(f"{ADMIN}\n")
    assert Tokens.read(place).access(ADMIN.encode()).roles == {None: "admin"}
    place.write_text(f"# who may what\nread {READER}\n\nwrite films {WRITER}\nread {WRITER}\n")
    tokens = Tokens.read(place)
    assert tokens.access(READER.encode()).roles == {None: "read"}
    assert tokens.access(WRITER.encode()).roles == {None: "read", "films": "write"}
    assert tokens.access(ADMIN.encode()) is None
    with pytest.raises(InputError, match=r"tables that are served \(books\), but one is for films"):
        tokens.check_tables(["books"])
    tokens.check_tables(["books", "films"])


@pytest.mark.parametrize(
    "bad", ["short", "with a space in the midst", "", "read short", f"own {READER}",
            f"read ../x {READER}", f"read films {READER} more", f"{READER}\n{WRITER}"],
)  # fmt: skip
def test_what_is_wrong_with_a_file_of_tokens_is_told_without_the_token(tmp_path, bad):
    place = tmp_path / "tokens"
    place.write_text(bad)
    with pytest.raises(InputError) as raised:
        Tokens.read(place)
    text = str(raised.value)
    assert text.startswith(str(place))
    assert READER not in text
    assert "\n" not in text
    if not bad.startswith(("own", "read ../")):
        assert "16 characters" in text


def test_a_file_of_tokens_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Tokens.read(tmp_path / "nowhere")
