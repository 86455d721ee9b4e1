"""What a service is to serve: words of the command line, and the file of ``--tables``."""

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from tests.support.service import served
from tests.support.service_engine import FRAME, NUMBERED
from typer.testing import CliRunner

from exchangeable.cli import app
from exchangeable.cli.configuration import TableSetting, parse_words, read_configuration
from exchangeable.errors import InputError

TOKEN = "a-token-that-nobody-guesses"
WHOLE = f"""
[tables.films]
source = "films.csv"
model = "bias"
limits = {{ calls = 3, call-seconds = 1.5 }}

[tables.numbers]
source = "numbers.csv"
read-only = true
features = {{ item = "items.csv" }}

[[tokens]]
role = "write"
token = "{TOKEN}"

[[tokens]]
role = "read"
table = "films"
token = "{TOKEN[::-1]}"
"""


@pytest.fixture
def folder(tmp_path):
    FRAME.write_csv(tmp_path / "films.csv")
    NUMBERED.write_csv(tmp_path / "numbers.csv")
    pl.DataFrame({"item": range(15), "size": range(15)}).write_csv(tmp_path / "items.csv")
    return tmp_path


def test_words_are_sources_with_or_without_names(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "a=b.csv").write_text("x")
    tables = parse_words(["films.csv", "own=numbers.csv", "ml-100k", "a=b.csv"]).tables
    assert tables == (
        TableSetting("films", "films.csv"),
        TableSetting("own", "numbers.csv"),
        TableSetting("ml-100k", "ml-100k"),
        TableSetting("a-b", "a=b.csv"),
    )
    with pytest.raises(InputError, match="names of tables must be"):
        parse_words(["a b=films.csv"])


def test_a_file_has_tables_and_tokens(folder):
    place = folder / "service.toml"
    place.write_text(WHOLE)
    read = read_configuration(place)
    films, numbers = read.tables
    assert films == TableSetting(
        "films", str(folder / "films.csv"), "bias", limits={"calls": 3, "call_seconds": 1.5}
    )
    assert numbers.read_only
    assert numbers.features == (f"item={folder / 'items.csv'}",)
    assert [(one.role, one.table) for one in read.tokens] == [("write", None), ("read", "films")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a section [tables.NAME] is needed"),
        ("tables = 3", "tables must be a section, but is '3'"),
        ("[tables.x]\nsorce = 'y'", "has 'sorce'; did you mean 'source'?"),
        ("[tables.x]\nsource = 3", "tables.x.source must be a text, but is '3'"),
        ("[tables.x]\nread-only = 'yes'", "must be true or false, but is 'yes'"),
        ("[tables.'a b']", "names of tables must be"),
        ("[tables.x.limits]\ncalls = 0", "tables.x.limits.calls must be a whole number above 0"),
        ("[tables.x.limits]\ncalls = 2.5", "must be a whole number above 0, but is 2.5"),
        ("[tables.x.limits]\nshare = true", "must be a number above 0, but is True"),
        ("[tables.x.limits]\nuploads = 3", "has 'uploads'"),
        ("[tables.x", "TOML is needed"),
        ("[tables.x]\n[[tokens]]\nrole = 'read'", "one has no token"),
        ("[tables.x]\n[[tokens]]\nrole = 'read'\ntoken = 12345", "tokens.token must be a text"),
        ("[tables.x]\n[tokens]\nrole = 'read'", "tokens must be a list"),
        ("tokens = []\nport = 80\n[tables.x]", "has 'port'"),
    ],
)
def test_what_is_wrong_with_the_file_is_told_in_one_line(tmp_path, text, reason):
    place = tmp_path / "service.toml"
    place.write_text(text)
    with pytest.raises(InputError) as raised:
        read_configuration(place)
    assert reason in str(raised.value)
    assert str(raised.value).startswith(str(place))
    assert "\n" not in str(raised.value)
    assert "12345" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["films.csv", "folder/films.csv"], "two are named films: name one, as in other=films.csv"),
        (["films.csv", "nowhere.csv"], "no such file"),
        (["films.csv", "--tables", "service.toml"], "give no others"),
        (["--tables", "nowhere.toml"], "nowhere.toml: No such file"),
        (["--tables", "service.toml", "--token-file", "token"], "tokens are either in"),
        (["--tables", "roles.toml"], "a role must be one of read, write, admin, but is 'own'"),
        (["--tables", "others.toml"], "must be for tables that are served (films), but one is for"),
        (["films.csv", "numbers.csv", "--features", "item=items.csv"], "for a single table"),
        (["--tables", "absent.toml"], "must hold the table films, but does not"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(folder, monkeypatch, words, reason):
    monkeypatch.chdir(folder)
    (folder / "folder").mkdir()
    NUMBERED.write_csv(folder / "folder" / "films.csv")
    (folder / "service.toml").write_text(WHOLE)
    (folder / "token").write_text(TOKEN)
    films = "[tables.films]\nsource = 'films.csv'\n[[tokens]]\n"
    (folder / "roles.toml").write_text(f"{films}role = 'own'\ntoken = '{TOKEN}'")
    (folder / "others.toml").write_text(f"{films}role = 'read'\ntable = 'x'\ntoken = '{TOKEN}'")
    (folder / "absent.toml").write_text("[tables.films]\n")
    before = sorted(folder.iterdir())
    database = ["--db", "sqlite:///absent.db"] if "absent.toml" in words else []
    told = CliRunner().invoke(app, ["serve", *words, *database, "--port", "0"])
    assert told.exit_code == 2, told.output
    assert reason in told.stderr
    assert told.stderr.count("\n") == 1
    assert TOKEN not in told.stderr
    assert sorted(folder.iterdir()) == before


def test_a_service_serves_what_its_file_says(folder):
    (folder / "service.toml").write_text(WHOLE)
    with served(folder, "--tables", "service.toml", "--model", "pretrained") as service:
        import http.client
        import json

        def ask(token, method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = json.loads(answer.read())
            connection.close()
            return answer.status, content

        told = ask(TOKEN, "GET", "/v1/tables")[1]["tables"]
        assert [(one["name"], one["writable"]) for one in told] == [
            ("films", True), ("numbers", False),
        ]  # fmt: skip
        told = ask(TOKEN[::-1], "GET", "/v1/tables")[1]["tables"]
        assert [one["name"] for one in told] == ["films"]
        about = ask(TOKEN, "GET", "/v1/model")[1]
        assert (about["model"], about["limits"]["calls"]) == ("bias", 3)
        about = ask(TOKEN, "GET", "/v1/tables/numbers/model")[1]
        assert (about["model"], about["cells"]) == ("pretrained", len(NUMBERED))
        body = {"cells": [[[1, 99], 2]]}
        status, told = ask(TOKEN, "PUT", "/v1/tables/numbers/interactions", body)
        assert (status, told) == (403, {"error": "table 'numbers' is read-only"})
