"""The estimator: labels in, labels out, the same answers however a table comes."""

import copy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

import exchangeable
from exchangeable.completion import predictor
from exchangeable.completion.completer import Completer
from exchangeable.completion.model_predictor import ModelPredictor
from exchangeable.data.table import Table
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.models.configs import ResidualConfig, build
from exchangeable.runtime import checkpoint
from exchangeable.training.config import TrainingConfig
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.codecs import OneHot

SHORT = TrainingConfig(steps=4, evaluate_every=2)
MODELS = ["mean", "row-mean", "column-mean", "bias", "vmf", "bmf", "item-knn", "user-knn"]
TRAINED = ["residual", "factorized"]


def club(share=1.0):
    """Ratings with a bias of members and films, in a frame of labels."""
    table = load("film-club").table
    rows = np.random.default_rng(0).permutation(len(table))[: round(share * len(table))]
    return pl.DataFrame(table.frame(table.index[rows], rating=table.values[rows]))


FRAME = club(0.25)
LABELS, RATINGS = FRAME.select("member", "film"), FRAME["rating"].to_numpy()
ASKED = LABELS.head(40)


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def get(model):
        if model not in made:
            training = SHORT if model in TRAINED else None
            made[model] = Completer(model, training=training).fit(LABELS, RATINGS)
        return made[model]

    return get


@pytest.mark.parametrize("model", [*MODELS, *TRAINED])
def test_every_model_answers_with_a_mean_inside_its_interval(fitted, model):
    completer = fitted(model)
    means, intervals = completer.predict(ASKED), completer.predict_interval(ASKED, 0.8)
    assert means.shape == (40,)
    assert intervals.shape == (40, 2)
    assert np.isfinite(intervals).all()
    assert (intervals[:, 0] <= means + 0.3).all()
    assert (means - 0.3 <= intervals[:, 1]).all()
    assert ((means >= 1) & (means <= 5)).all()
    chances = completer.predict_proba(ASKED)
    assert chances.shape == (40, 5)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    wider = completer.predict_interval(ASKED, 0.95)
    assert (wider[:, 1] - wider[:, 0] >= intervals[:, 1] - intervals[:, 0] - 1e-9).all()


@pytest.mark.parametrize("model", [*MODELS, *TRAINED])
def test_members_never_seen_get_the_answer_of_their_other_axes(fitted, model):
    completer = fitted(model)
    film = LABELS["film"][0]
    known, both = completer.predict([("nobody", film), ("nobody", "nothing")])
    again = completer.predict([("someone else", film)])[0]
    assert known == again
    assert 1 <= both <= 5


@pytest.mark.parametrize("model", ["bias", "vmf", "bmf", *TRAINED])
def test_the_order_of_rows_changes_nothing(model):
    training = SHORT if model in TRAINED else None
    order = np.random.default_rng(1).permutation(len(FRAME))
    one = Completer(model, training=training).fit(LABELS, RATINGS)
    other = Completer(model, training=training).fit(LABELS[order], RATINGS[order])
    np.testing.assert_array_equal(one.predict(ASKED), other.predict(ASKED))
    np.testing.assert_array_equal(one.predict_interval(ASKED), other.predict_interval(ASKED))


@pytest.mark.parametrize("model", ["vmf", "residual"])
def test_an_answer_does_not_depend_on_what_else_is_asked(fitted, model):
    completer = fitted(model)
    together = completer.predict(ASKED)
    alone = np.concatenate([completer.predict(ASKED[row]) for row in range(len(ASKED))])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)


def test_relabelled_tables_give_relabelled_answers():
    renamed = {
        axis: dict(
            zip(
                LABELS[axis].unique(maintain_order=True),
                np.random.default_rng(5).permutation(LABELS[axis].n_unique()).tolist(),
                strict=True,
            )
        )
        for axis in LABELS.columns
    }
    other = pl.DataFrame(
        {a: [f"m{renamed[a][label]}" for label in LABELS[a]] for a in LABELS.columns}
    )
    one = Completer().fit(LABELS, RATINGS).predict(ASKED)
    two = Completer().fit(other, RATINGS).predict(other.head(40))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "numpy", "csv", "lists"])
def test_the_same_table_from_anywhere_gives_the_same_answers(tmp_path, kind, fitted):
    expected = fitted("vmf").predict(ASKED)
    if kind == "csv":
        FRAME.write_csv(tmp_path / "ratings.csv")
        completer = Completer("vmf").fit_table(Table.read(tmp_path / "ratings.csv"))
        found = completer.predict(ASKED)
    else:
        convert = {
            "pandas": lambda frame: frame.to_pandas(),
            "polars": lambda frame: frame,
            "pyarrow": lambda frame: frame.to_arrow(),
            "numpy": lambda frame: frame.to_numpy(),
            "lists": lambda frame: frame.rows(),
        }[kind]
        found = Completer("vmf").fit(convert(LABELS), RATINGS).predict(convert(ASKED))
    np.testing.assert_array_equal(found, expected)


def test_values_may_come_as_a_column_of_the_frame(fitted):
    one = Completer("vmf").fit(FRAME).predict(FRAME.head(40))
    np.testing.assert_array_equal(one, fitted("vmf").predict(ASKED))


def test_recommendations_are_the_best_unseen_ones_in_order(fitted):
    completer = fitted("vmf")
    member = LABELS["member"][0]
    found = completer.recommend(member, n=7)
    seen = set(LABELS.filter(pl.col("member") == member)["film"])
    unseen = [film for film in sorted(LABELS["film"].unique()) if film not in seen]
    means = completer.predict([(member, film) for film in unseen])
    expected = [unseen[k] for k in np.argsort(-np.round(means, 9), kind="stable")[:7]]
    assert found["film"].to_list() == expected
    assert found.columns == ["film", "value", "low", "high"]
    assert not set(found["film"]) & seen


def test_ties_are_in_the_order_of_labels():
    cells = [("u", "z"), ("v", "b"), ("w", "a"), ("w", "m")]
    completer = Completer("mean", scale="real").fit(cells, [1.0, 2.0, 3.0, 4.0])
    assert completer.recommend("u", n=3)["column 2"].to_list() == ["a", "b", "m"]


@pytest.mark.parametrize("convert", [list, tuple, np.array])
def test_cells_without_column_names_get_frames_with_labels_all_the_same(convert):
    cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Big")]
    completer = Completer("vmf").fit(convert(cells), [5, 4, 2, 1, 2])
    best = completer.recommend("cleo", n=2)
    assert isinstance(best, pl.DataFrame)
    assert best.columns == ["column 2", "value", "low", "high"]
    assert set(best["column 2"]) == {"Heat", "Alien"}
    vectors = Completer("bmf").fit(convert(cells), [5, 4, 2, 1, 2]).factors()
    assert isinstance(vectors, pl.DataFrame)
    assert vectors["column 1"].to_list() == ["ann", "bob", "cleo"]


def test_a_new_member_is_recommended_to_from_ratings_that_are_not_kept(fitted):
    completer = fitted("vmf")
    before = completer.predict([("newcomer", film) for film in LABELS["film"].unique().sort()])
    films = LABELS["film"].unique().sort()[:4].to_list()
    found = completer.recommend("newcomer", n=5, ratings=dict.fromkeys(films, 5.0))
    assert not set(found["film"]) & set(films)
    popular = completer.recommend("newcomer", n=5)
    assert found["value"][0] > popular["value"][0]  # who rates high is expected to rate high
    after = completer.predict([("newcomer", film) for film in LABELS["film"].unique().sort()])
    np.testing.assert_array_equal(before, after)
    frame = pl.DataFrame({"film": films, "stars": [5.0] * 4})
    assert completer.recommend("newcomer", n=5, ratings=frame).equals(found)


@pytest.mark.parametrize("model", TRAINED)
@pytest.mark.parametrize("axis", ["member", "film"])
def test_the_quick_way_to_a_newcomer_gives_about_what_an_update_would(fitted, model, axis):
    completer = fitted(model)
    other = "film" if axis == "member" else "member"
    ratings = dict(zip(LABELS[other].unique().sort()[:6], [5, 1, 4, 2, 5, 3], strict=True))
    quick = completer.recommend("newcomer", n=8, axis=axis, ratings=ratings)
    updated = Completer(model)
    updated.fitted_ = completer.fitted_
    cells = [("newcomer", o) if axis == "member" else (o, "newcomer") for o in ratings]
    updated.update(cells, list(ratings.values()))
    # An update adds the new cells to the pools of the other axis too, which changes little.
    asked = [("newcomer", o) if axis == "member" else (o, "newcomer") for o in quick[other]]
    slow = updated.predict(asked)
    assert np.sqrt(np.mean((quick["value"].to_numpy() - slow) ** 2)) < 0.05


def test_recommendations_are_the_same_however_many_cells_are_answered_together(fitted, monkeypatch):
    completer = fitted("pretrained")
    together = completer.recommend(LABELS["member"][0], n=7)
    monkeypatch.setattr(predictor, "CELLS_PER_CHUNK", 5)
    apart = completer.recommend(LABELS["member"][0], n=7)
    assert apart["film"].to_list() == together["film"].to_list()
    for column in together.columns[1:]:
        np.testing.assert_allclose(apart[column], together[column], rtol=1e-5)


def test_recommendations_go_the_other_way_too(fitted):
    found = fitted("vmf").recommend(LABELS["film"][0], n=3, axis="film")
    assert found.columns[0] == "member"
    assert len(found) == 3


@pytest.mark.parametrize("model", ["mean", "bias", "vmf", "bmf", "item-knn", *TRAINED])
def test_new_members_join_without_training(model):
    training = SHORT if model in TRAINED else None
    completer = Completer(model, training=training).fit(LABELS, RATINGS)
    films = LABELS["film"].unique().sort()[:6].to_list()
    cells = [("kind", film) for film in films] + [("stern", film) for film in films]
    weights = None
    if isinstance(completer.predictor_, ModelPredictor):
        weights = {k: v.clone() for k, v in completer.predictor_.trained.model.state_dict().items()}
    before = completer.predict([("kind", "unheard")])
    returned = completer.update(cells, [5] * 6 + [1] * 6)
    assert returned is completer
    others = LABELS["film"].unique().sort()[6:30].to_list()
    kind = completer.predict([("kind", film) for film in others])
    stern = completer.predict([("stern", film) for film in others])
    if model in ("bias", "vmf", "bmf"):
        assert kind.mean() > stern.mean() + 0.3
    assert set(completer.recommend("kind", n=5)["film"]).isdisjoint(films)
    if weights is not None:
        after = completer.predictor_.trained.model.state_dict()
        assert all(torch.equal(weights[k], after[k]) for k in weights)
    assert before.shape == (1,)


@pytest.mark.parametrize("model", ["vmf", "residual"])
def test_a_new_row_is_answered_nearly_as_if_it_had_been_there(model):
    training = replace(SHORT, steps=60) if model in TRAINED else None
    member = LABELS["member"].value_counts().sort("count", "member")["member"][-1]
    own = (LABELS["member"] == member).to_numpy()
    completer = Completer(model, training=training).fit(LABELS.filter(~own), RATINGS[~own])
    if model in TRAINED:
        cells = pl.concat([LABELS.filter(~own), LABELS.filter(own)])
        trained = completer.predictor_.trained
        whole = Completer("mean").fit(cells, np.concatenate([RATINGS[~own], RATINGS[own]]))
        together = ModelPredictor.of(trained, whole.cells_)
        asked = whole.table_.cells([(member, film) for film in LABELS["film"].unique().sort()])
        expected = together.predict(asked).mean().numpy()
    else:
        whole = Completer(model).fit(LABELS, RATINGS)
        expected = whole.predict([(member, film) for film in LABELS["film"].unique().sort()])
    completer.update(LABELS.filter(own), RATINGS[own])
    found = completer.predict([(member, film) for film in LABELS["film"].unique().sort()])
    assert np.abs(found - expected).mean() < 0.1
    unchanged = completer.predict([("nobody", film) for film in LABELS["film"].unique().sort()])
    assert np.abs(unchanged - expected).mean() > np.abs(found - expected).mean()


def test_a_cell_that_was_known_takes_its_new_value():
    completer = Completer("bias").fit(LABELS, RATINGS)
    completer.update(LABELS.head(1), [1.0 if RATINGS[0] > 2 else 5.0])
    assert len(completer.cells_) == len(RATINGS)
    changed = RATINGS.copy()
    changed[0] = 1.0 if RATINGS[0] > 2 else 5.0
    expected = Completer("bias").fit(LABELS, changed)
    np.testing.assert_allclose(completer.predict(ASKED), expected.predict(ASKED), atol=0.05)
    model = Completer("residual", training=SHORT).fit(LABELS, RATINGS)
    model.update(LABELS.head(1), [changed[0]])
    refreshed = ModelPredictor.of(model.predictor_.trained, model.cells_)
    index = model.table_.cells(ASKED)
    np.testing.assert_array_equal(
        model.predict(ASKED), refreshed.predict(index).mean().double().numpy()
    )


def test_an_update_that_fails_leaves_everything_as_it_was(fitted):
    completer = Completer("bias").fit(LABELS, RATINGS)
    before = completer.predict(ASKED)
    for cells, values in [
        ([("new", LABELS["film"][0])], [17.0]),
        ([("new",)], [3.0]),
        ([("new", LABELS["film"][0])], [np.nan]),
        ([(7, LABELS["film"][0])], [3.0]),
        ([("new", "a"), ("new", "a")], [3.0, 4.0]),
        (pl.DataFrame({"member": ["new"], "film": ["Heat"]}), None),
    ]:
        with pytest.raises(InputError) as raised:
            completer.update(cells, values)
        assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(completer.predict(ASKED), before)


@pytest.mark.parametrize("model", ["vmf", "bmf", *TRAINED])
def test_factors_are_a_vector_for_each_member_with_its_label(fitted, model):
    completer = fitted(model)
    for axis, name in enumerate(("member", "film")):
        frame = completer.factors(axis)
        assert frame.columns[0] == name
        assert frame[name].to_list() == sorted(LABELS[name].unique())
        assert len(frame.columns) > 1
        assert np.isfinite(frame.drop(name).to_numpy()).all()
    with pytest.raises(InputError, match="factors come from"):
        fitted("mean").factors()


@pytest.mark.parametrize("model", [*MODELS, *TRAINED])
def test_a_saved_completer_answers_the_same_when_it_is_loaded(tmp_path, fitted, model):
    completer = fitted(model)
    completer.save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(ASKED), again.predict(ASKED))
    np.testing.assert_array_equal(completer.predict_interval(ASKED), again.predict_interval(ASKED))
    assert again.model == model
    assert again.notes_ == completer.notes_
    assert again.recommend(LABELS["member"][0], n=3).equals(
        completer.recommend(LABELS["member"][0], n=3)
    )
    again.update([("late", LABELS["film"][0])], [5.0])
    assert again.predict([("late", LABELS["film"][1])]).shape == (1,)


def test_a_trained_model_serves_other_tables_by_its_folder(tmp_path, fitted):
    fitted("residual").save(tmp_path / "kept")
    other = Completer(str(tmp_path / "kept")).fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 5, 3])
    assert other.predict([("b", "y")]).shape == (1,)
    with pytest.raises(InputError, match="5 levels"):
        Completer(str(tmp_path / "kept")).fit([("a", "x"), ("b", "y")], [0.5, 0.25])
    with pytest.raises(InputError, match="2 axes"):
        Completer(str(tmp_path / "kept")).fit([("a", "x", "p"), ("b", "y", "q")], [1, 5])


def test_finetuning_never_ends_worse_on_the_validation_cells(tmp_path):
    completer = Completer("residual", training=SHORT).fit(LABELS, RATINGS)
    start = completer.predictor_.trained.facts["validation RMSE"]
    completer.finetune(training=TrainingConfig(steps=30, evaluate_every=5))
    assert completer.predictor_.trained.facts["validation RMSE"] <= start
    with pytest.raises(InputError, match="trained model"):
        Completer("bias").fit(LABELS, RATINGS).finetune()


def test_tables_of_three_axes(tmp_path):
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    cells, values = frame.drop("rating"), frame["rating"].to_numpy()
    for model in ("bias", "vmf", "bmf", "item-knn", "residual"):
        training = SHORT if model in TRAINED else None
        completer = Completer(model, training=training).fit(cells, values)
        means = completer.predict(cells.head(20))
        assert np.isfinite(means).all()
        member = cells["member"][0]
        found = completer.recommend(member, n=4, given={"occasion": "alone"})
        assert found["occasion"].to_list() == ["alone"] * 4
        best = completer.recommend(member, n=4)
        assert best.columns[:2] == ["film", "occasion"]
        completer.update([("new", "Heat", "alone")], [5.0])
        completer.save(tmp_path / model)
        assert Completer.load(tmp_path / model).predict(cells.head(2)).shape == (2,)
        with pytest.raises(InputError, match="3 features"):
            completer.predict([("a", "b")])


def test_a_model_with_features_asks_for_them_elsewhere(tmp_path):
    films = pl.DataFrame({"film": LABELS["film"].unique().sort()}).with_row_index("year")
    films = films.select("film", pl.col("year").cast(pl.Float64))
    completer = Completer("residual", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": films}).save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(ASKED), again.predict(ASKED))
    with pytest.raises(InputError, match="year"):
        Completer(str(tmp_path / "kept")).fit(LABELS, RATINGS)


def test_who_has_seen_everything_is_recommended_nothing():
    completer = Completer("bias").fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 2, 3])
    assert len(completer.recommend("a")) == 0


def test_the_order_of_feature_rows_changes_nothing():
    films = LABELS["film"].unique().sort()
    kinds = pl.DataFrame({"film": films, "kind": [film[0] for film in films]})
    one, two = (
        Completer("residual", training=SHORT)
        .fit(LABELS, RATINGS, features={"film": frame})
        .predict(ASKED)
        for frame in (kinds, kinds.reverse())
    )
    np.testing.assert_array_equal(one, two)


def test_features_of_other_names_are_refused(tmp_path):
    films = pl.DataFrame({"film": LABELS["film"].unique().sort()}).with_row_index("year")
    films = films.select("film", pl.col("year").cast(pl.Float64))
    completer = Completer("residual", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": films}).save(tmp_path / "kept")
    other = Completer(tmp_path / "kept")
    other.fit(LABELS, RATINGS, features={"film": films.reverse()})
    with pytest.raises(InputError, match="year"):
        other.fit(LABELS, RATINGS, features={"film": films.rename({"year": "length"})})
    completer.update([("newcomer", "a new film")], [5])
    completer.finetune(steps=2)
    assert np.isfinite(completer.predict([("newcomer", "a new film")])).all()


def test_a_model_keeps_what_it_was_trained_on_when_it_serves_another_table(tmp_path, fitted):
    trained = fitted("residual").predictor_.trained
    fitted("residual").save(tmp_path / "kept")
    small = Completer(tmp_path / "kept").fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 5, 3])
    small.save(tmp_path / "small")
    facts = TrainedModel.load(tmp_path / "small").facts
    assert facts["data"] == trained.facts["data"]
    assert facts["validation RMSE"] == trained.facts["validation RMSE"]


def test_finetuning_is_judged_by_the_cells_that_training_kept_back():
    completer = Completer("residual", training=SHORT, seed=1).fit(LABELS, RATINGS)
    before = completer.predictor_.trained.facts
    completer.set_params(seed=2).finetune(steps=2)
    after = completer.predictor_.trained.facts
    assert after["validation"] == before["validation"] == [0.05, 1]
    assert after["task"] == before["task"]


def test_masked_cells_are_missing_ones():
    cells = np.array([["a", "x"], ["a", "y"], ["b", "x"]])
    values = np.ma.array([1.0, 99.0, 3.0], mask=[False, True, False])
    completer = Completer("mean").fit(cells, values)
    assert completer.predict([("a", "x")]) == pytest.approx([2.0])
    hidden = np.ma.array(cells, mask=[[True, False], [False, False], [False, False]])
    with pytest.raises(InputError, match="label"):
        Completer("mean").fit(hidden, [1.0, 2.0, 3.0])


def test_ratings_are_read_by_the_names_of_their_columns():
    evenings = load("film-club-evenings").table
    frame = pl.DataFrame(evenings.frame(evenings.index, rating=evenings.values))
    completer = Completer("vmf").fit(frame.drop("rating"), frame["rating"].to_numpy())
    ratings = pl.DataFrame({"film": ["Heat"], "occasion": ["alone"], "stars": [1.0]})
    one = completer.recommend("nobody", ratings=ratings)
    two = completer.recommend("nobody", ratings=ratings.select("stars", "occasion", "film"))
    assert one.equals(two)
    with pytest.raises(InputError, match="Haet"):
        completer.recommend("nobody", ratings=ratings.with_columns(film=pl.lit("Haet")))
    with pytest.raises(InputError, match="numbers are needed"):
        completer.recommend("nobody", ratings=ratings.with_columns(stars=pl.lit("good")))


def test_columns_that_are_called_low_and_high_survive():
    frame = pl.DataFrame({"low": ["a", "a", "b"], "high": ["x", "y", "x"], "rating": [1, 2, None]})
    completed = exchangeable.complete(frame)
    assert completed.columns == ["low", "high", "rating", "low end", "high end"]
    assert completed["low"].to_list() == ["a", "a", "b"]


def test_a_question_that_was_answered_by_an_update_is_no_question_any_more():
    frame = pl.DataFrame({"u": ["a", "a", "b"], "f": ["x", "y", "x"], "rating": [4.0, 2.0, None]})
    completer = Completer("mean").fit(frame)
    completer.update([("b", "x")], [2.0])
    assert len(completer.table_.values) == 3
    assert not np.isnan(completer.table_.values).any()


def test_columns_are_found_by_all_their_names_or_by_none():
    frame = pl.DataFrame({"user": ["a", "a", "b"], "film": ["x", "y", "x"]})
    completer = Completer("bias").fit(frame, [1.0, 5.0, 3.0])
    by_place = completer.predict(pl.DataFrame({"p": ["a"], "q": ["y"]}))
    assert by_place == completer.predict(pl.DataFrame({"film": ["y"], "user": ["a"]}))
    with pytest.raises(InputError, match="usr"):
        completer.predict(pl.DataFrame({"film": ["y"], "usr": ["a"]}))
    with pytest.raises(InputError, match="usr"):
        completer.update(pl.DataFrame({"film": ["y"], "usr": ["z"]}), [5.0])


def test_what_a_label_is_does_not_depend_on_what_else_is_asked():
    completer = Completer("row-mean").fit([(1, "x"), (1, "y"), (2, "x"), (3, "y")], [5, 4, 1, 1])
    alone = completer.predict([(1.0, "x")])
    assert completer.predict([(1.0, "x"), ("new", "x")])[0] == alone == 4.5


def test_days_are_the_same_in_any_precision():
    days = pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"]).astype("datetime64[ns]")
    frame = pd.DataFrame({"day": days, "film": list("xyx")})
    completer = Completer("row-mean").fit(frame, [1, 2, 5])
    expected = completer.predict(frame[2:3])
    assert completer.predict([(frame.day[2].to_pydatetime(), "x")]) == expected == 5
    coarse = frame.astype({"day": "datetime64[s]"})
    assert completer.predict(coarse[2:3]) == expected


def test_tiny_values_are_values():
    cells = [(f"u{u}", f"i{i}") for u in range(8) for i in range(8)]
    values = np.array([float(u) for u in range(8) for _ in range(8)])
    training = replace(SHORT, steps=30)
    one = Completer("residual", scale="real", training=training).fit(cells, values)
    two = Completer("residual", scale="real", training=training).fit(cells, 1e-12 * values)
    found = two.predict(cells)
    np.testing.assert_allclose(1e-12 * one.predict(cells), found, rtol=1e-3, atol=1e-18)


def test_whole_numbers_as_text_are_numbered_as_whole_numbers():
    cells = [(str(u), str(i)) for u in range(12) for i in range(12) if (u + i) % 2]
    values = [float(1 + (u * i) % 5) for u in range(12) for i in range(12) if (u + i) % 2]
    text = Completer("bmf").fit(cells, values).predict(cells)
    numbers = [(int(u), int(i)) for u, i in cells]
    np.testing.assert_array_equal(Completer("bmf").fit(numbers, values).predict(numbers), text)


def test_texts_for_numbers_are_pointed_out():
    completer = Completer("bias").fit([(1, 10), (1, 11), (2, 10)], [1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="whole numbers"):
        completer.predict([("1", "10")])


def test_a_new_member_of_positives_is_given_negatives_too():
    cells = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u * i) % 3 == 0]
    completer = Completer("bias").fit(pl.DataFrame(cells, schema=["u", "i"], orient="row"))
    before = len(completer.cells_)
    completer.update(pl.DataFrame({"u": ["new"] * 5, "i": [f"i{i}" for i in range(5)]}))
    own = completer.cells_.index[:, 0] == completer.cells_.index[:, 0].max()
    assert len(completer.cells_) > before + 5
    assert set(completer.cells_.values[own]) == {0.0, 1.0}


@pytest.mark.parametrize(
    "forge",
    [
        lambda c: c["answerer"].pop("settings"),
        lambda c: c["params"].update(surprise=1),
        lambda c: c.update(answerer=None),
        lambda c: c["table"].update(axes=["a"]),
        lambda c: c["table"].update(axes=["a", "b", "c"]),
        lambda c: c.pop("notes"),
    ],
)
def test_a_forged_completer_is_refused_in_one_line(tmp_path, fitted, forge):
    fitted("bias").save(tmp_path / "kept")
    stored = checkpoint.load(tmp_path / "kept")
    forge(stored.config)
    checkpoint.save(tmp_path / "forged", stored.config, stored.tensors, card="", files=stored.files)
    with pytest.raises(InputError) as raised:
        Completer.load(tmp_path / "forged")
    assert "\n" not in str(raised.value)


def test_one_axis_is_a_table_too():
    completer = Completer().fit([("a",), ("b",), ("c",)], [1.0, 2.0, 3.0])
    assert completer.predict([("a",), ("z",)]).shape == (2,)


def test_positives_alone_get_negatives_drawn_and_that_is_said():
    generator = np.random.default_rng(0)
    likes = [(f"u{u}", f"i{i}") for u in range(30) for i in range(20) if (u + i) % 2 == 0]
    likes = [cell for cell in likes if generator.random() < 0.8]
    completer = Completer("vmf").fit(pl.DataFrame(likes, schema=["u", "i"], orient="row"))
    assert any("negatives" in note for note in completer.notes_)
    same = completer.predict(pl.DataFrame({"u": ["u0", "u1"], "i": ["i0", "i0"]}))
    assert ((same >= 0) & (same <= 1)).all()
    assert completer.levels_ == (0.0, 1.0)
    full = Completer("vmf").fit([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")], [1, 1, 1, 1])
    assert full.predict([("a", "x")]) == pytest.approx(1.0)


def test_equal_values_are_answered_by_themselves():
    cells = [("a", "x"), ("b", "y"), ("c", "x")]
    for model in ("bias", "vmf", "bmf", "item-knn"):
        completer = Completer(model).fit(cells, [4.0, 4.0, 4.0])
        assert completer.predict([("a", "y"), ("z", "q")]) == pytest.approx([4.0, 4.0])
        assert completer.predict_interval([("a", "y")]) == pytest.approx(np.array([[4.0, 4.0]]))


def test_features_reach_models_that_are_trained_and_only_those():
    films = pl.DataFrame({"film": LABELS["film"].unique().sort()})
    films = films.with_columns(length=pl.Series(np.linspace(80, 200, len(films))))
    completer = Completer("residual", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": films})
    plain = Completer("residual", training=SHORT).fit(LABELS, RATINGS)
    assert not np.array_equal(completer.predict(ASKED), plain.predict(ASKED))
    assert np.isfinite(completer.predict([("nobody", "unheard of")])).all()
    completer.update([("newcomer", LABELS["film"][0]), ("newcomer", "a new film")], [5, 3])
    assert np.isfinite(completer.predict([("newcomer", "a new film")])).all()
    with pytest.raises(InputError, match="features need a model that is trained"):
        Completer("vmf").fit(LABELS, RATINGS, features={"film": films})
    with pytest.raises(InputError, match="features must be of axes"):
        Completer("residual").fit(LABELS, RATINGS, features={"studio": films})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.predict([("a",)]), "1 features, but Completer is expecting 2"),
        (lambda c: c.predict([("a", "b", "c")]), "3 features, but Completer is expecting 2"),
        (lambda c: c.predict(pd.DataFrame({"x": [None], "y": ["b"]})), "label"),
        (lambda c: c.predict("film"), "frame"),
        (lambda c: c.predict_interval([("a", "b")], coverage=1.0), "coverage"),
        (lambda c: c.predict_interval([("a", "b")], coverage=0), "coverage"),
        (lambda c: c.predict_interval([("a", "b")], coverage="0.8"), "coverage"),
        (lambda c: c.recommend(None), "label"),
        (lambda c: c.recommend(float("nan")), "label"),
        (lambda c: c.recommend("a", ratings={"Heat": "good"}), "numbers are needed"),
        (lambda c: Completer(model=["vmf"]).fit(LABELS, RATINGS), "model must be"),
        (lambda c: Completer(training={"steps": 3}).fit(LABELS, RATINGS), "training must be"),
        (lambda c: Completer("factorized").fit(LABELS, RATINGS, features=LABELS), "mapping"),
        (lambda c: c.recommend("a", n=0), "n must be"),
        (lambda c: c.recommend("a", n=2.5), "n must be"),
        (lambda c: c.recommend("a", axis="studio"), "axis must be one of"),
        (lambda c: c.recommend("a", axis=2), "axis must be one of"),
        (lambda c: c.recommend("a", given={"member": "b"}), "given must name"),
        (lambda c: c.recommend("a", given={"film": "unheard of"}), "must be known"),
        (lambda c: c.recommend("a", ratings={"Heat": 99}), "scale"),
        (lambda c: c.recommend("a", ratings=pl.DataFrame({"film": ["Heat"]})), "ratings"),
        (lambda c: c.factors(axis=5), "axis must be one of"),
        (lambda c: c.update([], []), "needed|shape"),
        (lambda c: Completer("deep").fit(LABELS, RATINGS), "model must be one of"),
        (lambda c: Completer("no/such/folder").fit(LABELS, RATINGS), "checkpoint"),
        (lambda c: Completer(seed=-1).fit(LABELS, RATINGS), "seed"),
        (lambda c: Completer(seed="x").fit(LABELS, RATINGS), "seed"),
        (lambda c: Completer(device="abacus").fit(LABELS, RATINGS), "device"),
        (lambda c: Completer(scale="wide").fit(LABELS, RATINGS), "scale"),
        (lambda c: Completer(duplicates="sum").fit(LABELS, RATINGS), "duplicates"),
        (lambda c: Completer().fit(LABELS, RATINGS[:3]), "one per row"),
        (lambda c: Completer().fit(LABELS, np.full(len(RATINGS), np.nan)), "none"),
        (
            lambda c: Completer("residual", validation=1.0).fit(LABELS, RATINGS),
            "validation",
        ),
        (lambda c: Completer.load("no/such/folder"), "checkpoint"),
    ],
)
def test_wrong_use_is_told_in_one_line(fitted, call, message):
    completer = fitted("bias")
    with pytest.raises(InputError, match=message) as raised:
        call(completer)
    assert "\n" not in str(raised.value)


def test_a_model_in_a_folder_is_not_a_completer_and_says_what_to_do(tmp_path):
    config = ResidualConfig(5, 5, width=8, depth=2, pooling=("mean",))
    TrainedModel(config, OneHot(5), build(config), SHORT, "x", {}).save(tmp_path / "model")
    with pytest.raises(InputError, match="Completer\\(model=PATH\\)"):
        Completer.load(tmp_path / "model")


def test_before_fit_every_method_says_so(tmp_path):
    for call in (
        lambda c: c.predict([("a", "b")]),
        lambda c: c.predict_interval([("a", "b")]),
        lambda c: c.predict_proba([("a", "b")]),
        lambda c: c.recommend("a"),
        lambda c: c.update([("a", "b")], [1]),
        lambda c: c.factors(),
        lambda c: c.finetune(),
        lambda c: c.save(tmp_path / "x"),
    ):
        with pytest.raises(NotFittedError):
            call(Completer())
    assert not list(tmp_path.iterdir())


def test_it_is_cloned_scored_and_searched_as_scikit_learn_does():
    pandas = LABELS.to_pandas()
    completer = Completer("bias", seed=3)
    assert clone(completer).get_params() == completer.get_params()
    assert completer.set_params(model="mean").model == "mean"
    scores = cross_val_score(
        Completer("bias"), pandas, RATINGS, cv=3, scoring="neg_root_mean_squared_error"
    )
    assert scores.shape == (3,)
    assert (scores < 0).all()
    search = GridSearchCV(Completer(), {"model": ["mean", "bias"]}, cv=3).fit(pandas, RATINGS)
    assert search.best_params_ == {"model": "bias"}


@pytest.mark.parametrize(
    "params",
    [{}, {"model": "bias"}, {"model": "vmf", "seed": 3, "memory": "4GB"}, {"training": SHORT}],
)
def test_parameters_and_representations_are_those_of_scikit_learn_s_own_base(params):
    twin = type("Completer", (Completer, BaseEstimator), {"__init__": Completer.__init__})
    completer, expected = Completer(**params), twin(**params)
    assert list(completer.get_params()) == list(BaseEstimator.get_params(expected))
    if "training" not in params:  # scikit-learn shortens what is longer than a line
        assert repr(completer) == BaseEstimator.__repr__(expected)
    with pytest.raises(ValueError, match="Invalid parameter 'studio' for estimator Completer"):
        completer.set_params(studio=1)
    assert "<style>" in completer._repr_html_()
    assert completer._repr_mimebundle_()["text/plain"] == repr(completer)
    assert is_regressor(completer)
    assert get_tags(completer).input_tags.string


def test_scikit_learn_routes_features_to_fit():
    with config_context(enable_metadata_routing=True):
        completer = Completer("bias").set_fit_request(features=True)
        assert completer.get_metadata_routing().fit.requests["features"] is True
        assert clone(completer).get_metadata_routing().fit.requests["features"] is True


def test_real_numbers_have_no_probabilities():
    completer = Completer("bias").fit([("a", "x"), ("a", "y"), ("b", "x")], [0.12, 0.345, 6.7])
    assert not hasattr(completer, "predict_proba")
    assert "predict_proba" not in dir(completer)
    assert hasattr(Completer(), "predict_proba")
    with pytest.raises(AttributeError, match="'Completer' has no attribute 'predict_proba'"):
        completer.predict_proba([("a", "x")])


def test_plain_use_imports_neither_scikit_learn_nor_other_extras():
    script = """
import sys
import exchangeable as ex
cells = [("ann", "Heat"), ("ann", "Alien"), ("bob", "Heat"), ("bob", "Big"), ("cleo", "Alien")]
completer = ex.Completer().fit(cells, [5, 4, 2, 1, 5])
completer.predict([("bob", "Alien")])
completer.predict_interval([("bob", "Alien")])
completer.predict_proba([("bob", "Alien")])
completer.recommend("cleo", n=2)
completer.recommend("dora", n=2, ratings={"Big": 5})
completer.update([("dora", "Big")], [5])
repr(completer)
heavy = {"sklearn", "matplotlib", "h5py", "pooch", "rich", "typer", "pandas", "pyarrow"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


DECLARED = {
    "check_regressors_no_decision_function": "values on a scale with levels have probabilities",
    "check_array_api_input": "labels are not numbers, so other array libraries have no say",
}


@pytest.mark.filterwarnings("ignore:Estimator Completer does not inherit")  # nor need it
def test_every_check_of_scikit_learn_that_applies_passes():
    # Its tables repeat cells, which a Completer is to be told what to do with.
    ran = 0
    for estimator, check in estimator_checks_generator(Completer("bias", duplicates="mean")):
        if check.func.__name__ in DECLARED:
            continue
        check(estimator)
        ran += 1
    assert ran > 45


def test_update_says_when_it_is_time_to_read_all_together():
    """What folding leaves out is bounded: until a refresh is due, a twentieth of the spread."""
    table = load("film-club").table
    draws = np.random.default_rng(0)
    order = draws.permutation(len(table))
    frame = pl.DataFrame(table.frame(table.index, rating=table.values))
    axes, rating = list(table.axes), table.values
    first, later = order[: int(0.9 * len(order))], order[int(0.9 * len(order)) :]
    training = TrainingConfig(steps=60, evaluate_every=20, learning_rate=1e-2)
    completer = Completer("residual", training=training)
    completer.fit(frame[first].select(axes), rating[first])
    assert not completer.refresh_due_
    asked = frame[draws.permutation(len(frame))[:500]].select(axes)
    worst, spread = 0.0, float(np.std(rating))
    for start in range(0, len(later), len(later) // 8):
        some = later[start : start + len(later) // 8]
        completer.update(frame[some].select(axes), rating[some])
        folded = completer.predict(asked)
        anew = copy.copy(completer).refresh().predict(asked)
        error = float(np.sqrt(np.mean((folded - anew) ** 2)))
        if not completer.refresh_due_:
            worst = max(worst, error)
    assert completer.refresh_due_
    assert 0 < worst < 0.05 * spread
    refreshed = completer.refresh()
    assert not refreshed.refresh_due_
    np.testing.assert_allclose(refreshed.predict(asked), anew, atol=1e-4)


@pytest.mark.parametrize("model", ["bias", "vmf"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_new_member_of_a_factorization_is_solved_from_its_own_cells(model, axis):
    table = load("film-club").table
    completer = Completer(model).fit_table(table)
    before = {name: part.copy() for name, part in completer.predictor_.fitted.state().items()}
    others = completer.table_.vocabularies[1 - axis].labels.to_list()[:20]
    ratings = {label: float(1 + n % 5) for n, label in enumerate(others)}
    quick = completer.recommend("newcomer", n=30, axis=axis, ratings=ratings)
    for name, part in completer.predictor_.fitted.state().items():
        assert np.array_equal(part, before[name])
    column = completer.table_.axes[1 - axis]
    assert not set(quick[column]) & set(others)
    names = {completer.table_.axes[axis]: ["newcomer"] * len(others), column: others}
    whole = Completer(model).fit_table(table)
    whole.update(pl.DataFrame(names).select(table.axes), list(ratings.values()))
    asked = {completer.table_.axes[axis]: ["newcomer"] * len(quick), column: quick[column]}
    anew = whole.predict(pl.DataFrame(asked).select(table.axes))
    # Solving the others again for one member's cells changes little.
    assert np.sqrt(np.mean((quick["rating"].to_numpy() - anew) ** 2)) < 0.1
    assert np.corrcoef(quick["rating"].to_numpy(), anew)[0, 1] > 0.95


def test_the_same_cell_cannot_be_rated_twice_by_a_new_member():
    completer = Completer("vmf").fit_table(load("film-club").table)
    film = completer.table_.vocabularies[1].labels[0]
    twice = pl.DataFrame({"film": [film, film], "rating": [1.0, 5.0]})
    with pytest.raises(InputError, match="every cell may be rated once"):
        completer.recommend("newcomer", ratings=twice)


def test_a_limit_of_memory_is_kept_wherever_cells_are_read(tmp_path):
    table = load("film-club").table
    training = TrainingConfig(steps=4, evaluate_every=2)
    completer = Completer("residual", training=training, memory="2MB").fit_table(table)
    assert not completer.predictor_.memory.pools
    assert any("reading all again" in note for note in completer.notes_)
    film = completer.table_.vocabularies[1].labels[0]
    expected = completer.recommend("newcomer", n=3, ratings={film: 5.0})
    assert len(expected) == 3
    completer.update([("newcomer", film)], [5])
    assert not completer.predictor_.memory.pools
    assert completer.fitted_.cells_since_refresh == 0
    completer.save(tmp_path / "saved")
    loaded = Completer.load(tmp_path / "saved")
    assert loaded.memory == "2MB"
    assert not loaded.predictor_.memory.pools
    completer.finetune(steps=2)
    assert not completer.predictor_.memory.pools
    with pytest.raises(InputError, match="memory was too short"):
        completer.factors()
    with pytest.raises(InputError, match="memory must be a size such as 4GB"):
        Completer(memory="much").fit_table(table)


def test_cells_that_were_folded_in_are_remembered_by_what_is_saved(tmp_path):
    table = load("film-club").table
    completer = Completer("vmf").fit_table(table)
    film = completer.table_.vocabularies[1].labels.to_list()
    completer.update([(f"member {n}", f) for n in range(10) for f in film[:60]], [4] * 600)
    assert completer.refresh_due_
    completer.save(tmp_path / "saved")
    assert Completer.load(tmp_path / "saved").refresh_due_
