"""Every line of the page about errors is what somebody gets who makes that mistake."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import exchangeable as ex

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "errors.md"
HEAD = "user,film,rating\n"
GOOD = HEAD + "ann,Heat,4\nann,Big,2\nbob,Heat,5\n"
CELLS = [("ann", "Heat"), ("ann", "Big"), ("bob", "Heat")]


def club(**settings):
    return ex.Completer("bias", **settings).fit(CELLS, [4, 2, 5])


def real_numbers():
    values = np.random.default_rng(0).standard_normal(81)
    return ex.Completer("bias").fit(np.argwhere(np.ones((9, 9))), values)


def read(folder, text, encoding="utf-8", **options):
    (folder / "ratings.csv").write_bytes(text.encode(encoding))
    return ex.Table.read(folder / "ratings.csv", **options)


MISTAKES = [
    lambda f: (read(f, GOOD), ex.Table.read(f / "rating.csv")),
    lambda f: read(f, "ann\nbob\n"),
    lambda f: read(f, HEAD + "ann,Heat,good\nbob,Big,2\n"),
    lambda f: read(f, GOOD + "ann,Heat,3\n"),
    lambda f: read(f, HEAD + "ann,Heat,4\nbob,Big,2,9\n"),
    lambda f: read(f, GOOD, value="ratng"),
    lambda f: read(f, HEAD + "zoë,Heat,4\n", "latin-1"),
    lambda f: ex.Completer("pretraned").fit(CELLS, [4, 2, 5]),
    lambda f: club().update([("ann", "Alien")], [9]),
    lambda f: ex.Completer("bias").fit([(305, "Heat"), (6, "Big")], [4, 2]).recommend("305"),
    lambda f: club().recommend("zoe", ratings={"Haet": 5}),
    lambda f: ex.complete(pl.DataFrame({"user": ["a", "b"], "film": ["x", "y"], "rating": [1, 2]})),
    lambda f: club(units="log"),
    lambda f: ex.Completer("ease").fit(CELLS, [4, 2, 5]),
    lambda f: real_numbers().predict_proba([(0, 0)]),
    lambda f: ex.Completer("pretrained").fit(
        CELLS, [4, 2, 5], features={"film": pl.DataFrame({"film": ["Heat"], "year": [1995]})}
    ),
]


def rows():
    return re.findall(r"^\| `(.+?)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)


def test_every_line_of_the_page_has_a_mistake():
    assert len(rows()) == len(MISTAKES)


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_the_mistake_is_told_in_the_words_of_the_page(tmp_path, number):
    message, advice = rows()[number]
    pattern = ".+?".join(re.escape(part) for part in message.split("…"))
    with pytest.raises((ex.errors.InputError, AttributeError)) as raised:
        MISTAKES[number](tmp_path)
    assert re.fullmatch(pattern, str(raised.value)), raised.value
    assert advice.strip()
