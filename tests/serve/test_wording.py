"""Files that must be read in another way: options of the calls, and errors that name them."""

import re
from importlib.resources import files

import pytest

pytest.importorskip("fastapi", reason="needs exchangeable[serve]")
pytest.importorskip("httpx2", reason="needs httpx2")

from tests.support.service_engine import FILM, FRAME, MEMBER

from exchangeable.serve.answers.wording import CHOICES, FIELDS

ROWS = [(f"u{n % 7}", f"café {n // 7}", n % 5 + 1) for n in range(40)]
TEXT = "user;film;rating\n" + "".join(f"{u};{f};{r}\n" for u, f, r in ROWS)
TWICE = b"user,film,rating,place\nann,Heat,3,home\nann,Heat,4,work\nbob,Big,2,home\n"
PAIRS = "u,i\n" + "".join(f"ann{n // 4},film{n % 7}\n" for n in range(24))


def columns_of(client, content, **options):
    answer = client.post("/v1/columns", params=options, content=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16-le"])
def test_files_in_other_encodings_are_read_if_the_call_names_them(client, encoding):
    found = columns_of(client, TEXT.encode(encoding), encoding=encoding)
    assert found["problem"] is None
    assert found["rows"][0] == ["u0", "café 0", "1"]
    sent = {"content": TEXT.encode(encoding), "params": {"encoding": encoding, "all": True}}
    assert "café 5" in client.post("/v1/complete", **sent).text


def test_utf_16_is_read_by_its_mark(client):
    assert columns_of(client, TEXT.encode("utf-16"))["table"]["cells"] == 40


def test_an_import_takes_the_encoding_and_the_decimal_mark(client):
    text = f"member;film;rating\nJosé;{FILM};3,0\n{MEMBER};{FILM};4,0\n"
    sent = text.encode("cp1252")
    refused = client.post("/v1/import", content=sent)
    assert refused.status_code == 422
    assert "choose encoding=latin-1, which reads" in refused.json()["error"]
    options = {"encoding": "cp1252", "decimal": ","}
    assert client.post("/v1/import", content=sent, params=options).json()["cells"] == 2


@pytest.mark.parametrize(
    ("content", "parameters", "fields"),
    [
        (TEXT.encode("latin-1"), "choose encoding=latin-1", "choose “Text encoding: Latin-1”"),
        (
            TEXT.replace("u", "\u201c").encode("cp1252"),
            "choose encoding=cp1252",
            "choose “Text encoding: Windows, Western”",
        ),
        (
            b"ann,Heat,good\nbob,Heat,bad\nbob,Big,fine\n",
            "header=true takes the first line for titles, axes=1,2,3 it",
            "“First line: titles” takes the first line for titles, “names” for column 1, column 2, "
            "column 3 it",
        ),
        (
            TWICE,
            "choose axes=user,film,place, otherwise duplicates merges",
            "choose “names” for user, film, place, otherwise “Cells that occur more than once” m",
        ),
        (
            b"user,film,rating\nann,Heat,3\nbob,Big,missing one\nbob,Heat,4\n",
            "; missing=missing%20one reads",
            "this is 'missing one'",
        ),
    ],
)
def test_errors_name_what_the_client_can_choose(client, content, parameters, fields):
    assert parameters in (columns_error(client, content) or "")
    assert fields in (columns_error(client, content, wording="fields") or "")


def columns_error(client, content, **options):
    answer = client.post("/v1/columns", params=options, content=content).json()
    return answer.get("error") or answer["problem"]


def test_what_is_advised_is_accepted(client):
    advice = re.search(r"choose (axes)=(\S+),", columns_error(client, TWICE))
    assert columns_error(client, TWICE, **{advice[1]: advice[2]}) is None
    content = b"user,film,rating\nann,Heat,3\nbob,Big,missing one\nbob,Heat,4\n"
    found = columns_of(client, content, missing=["missing one", "other"])
    assert found["table"]["without_value"] == 1


def test_a_file_without_empty_cells_names_the_parameter_for_all(client):
    sent = {"content": FRAME.write_csv().encode()}
    error = client.post("/v1/complete", **sent).json()["error"]
    assert error == "nothing to fill: every row has a value; choose all=true for every cell"
    error = client.post("/v1/complete?wording=fields", **sent).json()["error"]
    assert error.endswith("choose “a row for every cell” for every cell")


def test_a_first_line_of_texts_is_read_by_its_company_and_can_be_chosen(client):
    found = columns_of(client, PAIRS.encode())
    assert found["columns"] == ["u", "i"]
    assert any(
        "'u, i', is taken for titles; header=false" in note for note in found["table"]["found"]
    )
    chosen = columns_of(client, PAIRS.encode(), header=False)
    assert chosen["columns"] == ["column 1", "column 2"]
    assert chosen["table"]["cells"] == found["table"]["cells"] + 1
    lone = b"u,i\nann,Heat\nbob,Big\n"  # nothing tells titles from labels
    row = columns_of(client, lone, wording="fields")
    assert row["table"]["cells"] == 3
    assert any(
        "read as a row; “First line: titles” takes" in note for note in row["table"]["found"]
    )
    assert columns_of(client, lone, header=True)["table"]["cells"] == 2


def test_the_separator_and_times_can_be_chosen(client):
    content = b"user|film|rating|when\nann,x|Heat|3|2024-01-02\nbob|Heat|4|2024-01-03\n"
    found = columns_of(client, content, separator="|", time="when")
    assert found["columns"] == ["user", "film", "rating", "when"]
    for option in ({"separator": "ab"}, {"encoding": "klingon"}):
        answer = client.post("/v1/columns", params=option, content=content)
        assert answer.status_code == 422


def test_the_page_has_the_fields_that_errors_name():
    page = files("exchangeable.serve.page")
    shown = page.joinpath("columns.js").read_text() + page.joinpath("index.html").read_text()
    for label in FIELDS.values():
        assert label in shown
    for choice in CHOICES.values():
        assert f'"{choice}' in shown
    for words in ("Values are", "likes: ", '"names"', '"value"'):
        assert words in shown
