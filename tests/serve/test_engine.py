"""Who answers and keeps up with the database: whatever comes, in whatever order."""

import threading

import numpy as np
import polars as pl
import pytest

pytest.importorskip("sqlalchemy", reason="needs exchangeable[serve]")
pytest.importorskip("fastapi", reason="needs exchangeable[serve]")

from tests.support.service_engine import FILM, MEMBER, NUMBERED, fit_bias, open_engine

from exchangeable import Completer
from exchangeable.errors import InputError
from exchangeable.serve.answers.lists import Question


@pytest.fixture
def held(engine, monkeypatch):
    """Refreshes wait until it is set."""
    event = threading.Event()
    monkeypatch.setattr(engine.refresher, "make", lambda table: event.wait(20) and fit_bias(table))
    yield event
    event.set()


def test_who_was_deleted_is_not_named_before_the_refresh_either(engine, held):
    best = engine.recommend(Question(0, MEMBER, n=3))[0]
    away = best[0].labels["film"]
    engine.refresher.delete_member(1, away)
    listed = [one.labels["film"] for one in engine.recommend(Question(0, MEMBER, n=3))[0]]
    assert listed[:2] == [one.labels["film"] for one in best[1:]]
    assert len(listed) == 3
    with pytest.raises(InputError, match="is not in the table"):
        engine.recommend(Question(0, None, [(away, 5.0)], n=3))
    with pytest.raises(InputError, match="is not in the table"):
        engine.recommend(Question(1, away, n=3))
    assert away not in [
        one.labels["film"] for one in engine.recommend(Question(0, None, [(FILM, 5.0)], n=99))[0]
    ]
    assert engine.refresher.behind == 1  # though somebody is at it
    assert engine.snapshot.deleted_members


def test_somebody_deleted_cannot_be_given(tmp_path):
    frame = pl.DataFrame(
        {
            "user": ["a", "a", "b"],
            "film": ["x", "y", "x"],
            "place": ["m", "t", "m"],
            "stars": [1.0, 2.0, 2.0],
        }
    )
    event = threading.Event()
    engine = open_engine(tmp_path, frame, axes=["user", "film", "place"])
    engine.refresher.make = lambda table: event.wait(20) and fit_bias(table)
    assert engine.recommend(Question(0, "a", given={"place": "t"}, n=3))[0]
    engine.refresher.delete_member(2, "t")
    with pytest.raises(InputError, match="place 't' is not in the table"):
        engine.recommend(Question(0, "a", given={"place": "t"}, n=3))
    with pytest.raises(InputError, match="given must name axes of user, film, place"):
        engine.recommend(Question(0, "a", given={"month": "t"}, n=3))
    event.set()
    engine.close()


@pytest.mark.parametrize("model", ["bias", "vmf", "item-knn", "mean", "pretrained"])
@pytest.mark.parametrize("positives", [False, True])
def test_ratings_of_somebody_new_where_labels_are_numbers(tmp_path, model, positives):
    frame = NUMBERED.drop("stars") if positives else NUMBERED
    engine = open_engine(tmp_path, frame, lambda table: Completer(model).fit_table(table))
    value = 1.0 if positives else 3.0
    found = engine.recommend(Question(0, None, [(3, value)], n=2, why=True))[0]
    assert len(found) == 2
    assert all(isinstance(one.labels["item"], int) for one in found)
    engine.close()


def test_who_has_rated_everything_is_recommended_nothing(tmp_path):
    small = pl.DataFrame({"user": ["a", "b"], "film": ["x", "x"], "stars": [1.0, 2.0]})
    engine = open_engine(tmp_path, small, lambda table: Completer("pretrained").fit_table(table))
    assert engine.recommend(Question(0, None, [("x", 2.0)], n=5, why=True))[0] == []
    engine.close()


@pytest.mark.parametrize("text", ["--5", "9" * 5000, "1_0", "\u0665", "-0", "+1", "1.0"])
def test_what_is_no_whole_number_is_told(tmp_path, text):
    engine = open_engine(tmp_path, NUMBERED)
    with pytest.raises(InputError, match="whole numbers"):
        engine.refresher.put([((text, 1), 1.0)])
    with pytest.raises(InputError, match="whole numbers"):
        engine.predict([(text, 1)], 0.8)
    engine.close()


def test_unknown_labels_are_not_members(engine):
    found, _ = engine.predict([("nobody", FILM), (MEMBER, "no film")], 0.8)
    assert np.isfinite(found.mean).all()
