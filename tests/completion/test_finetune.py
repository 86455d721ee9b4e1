"""Finetuning is judged by the cells that training held out, and features reach the models."""

import numpy as np
import polars as pl
import pytest
from tests.support.film_club import ASKED, LABELS, RATINGS, SHORT, TRAINED
from tests.support.strangers import STRANGERS

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.training.config import TrainingConfig

FILMS, MEMBERS = (LABELS[axis].unique().sort() for axis in ("film", "member"))
YEARS = pl.DataFrame({"film": FILMS, "year": np.arange(float(len(FILMS)))})


def test_finetuning_never_ends_worse_on_the_validation_cells(tmp_path):
    completer = Completer("residual", training=SHORT).fit(LABELS, RATINGS)
    start = completer.predictor_.trained.facts["validation RMSE"]
    completer.finetune(training=TrainingConfig(steps=30, evaluate_every=5))
    assert completer.predictor_.trained.facts["validation RMSE"] <= start + 1e-8
    with pytest.raises(
        InputError, match=r"trained model of values \(pretrained, .*but this is bias"
    ):
        Completer("bias").fit(LABELS, RATINGS).finetune()


def test_a_model_whose_layers_read_features_asks_for_them_elsewhere(tmp_path):
    completer = Completer("factorized", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": YEARS}).save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(ASKED), again.predict(ASKED))
    with pytest.raises(InputError, match="year"):
        Completer(str(tmp_path / "kept")).fit(LABELS, RATINGS)


def test_a_model_whose_prior_reads_features_takes_any_or_none_elsewhere(tmp_path):
    completer = Completer("residual", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": YEARS}).save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(ASKED), again.predict(ASKED))
    kinds = pl.DataFrame({"film": FILMS, "kind": [film[0] for film in FILMS]})
    members = pl.DataFrame({"member": MEMBERS}).with_row_index("age").select("member", "age")
    answers = [
        Completer(tmp_path / "kept").fit(LABELS, RATINGS, features=features).predict(ASKED)
        for features in ({"film": YEARS}, None, {"film": kinds}, {"member": members})
    ]
    np.testing.assert_array_equal(answers[0], completer.predict(ASKED))
    for number, one in enumerate(answers):
        assert np.isfinite(one).all()
        assert all(not np.array_equal(one, other) for other in answers[:number])


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


def test_features_of_other_names_are_refused_by_layers_that_read_them(tmp_path):
    completer = Completer("factorized", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": YEARS}).save(tmp_path / "kept")
    other = Completer(tmp_path / "kept")
    other.fit(LABELS, RATINGS, features={"film": YEARS.reverse()})
    with pytest.raises(InputError, match="year"):
        other.fit(LABELS, RATINGS, features={"film": YEARS.rename({"year": "length"})})


@pytest.mark.parametrize("model", TRAINED)
def test_a_model_with_features_is_tuned_with_those_of_new_members(model):
    completer = Completer(model, training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": YEARS})
    later = pl.DataFrame({"film": ["a new film"], "year": [7.0]})
    completer.update([("newcomer", "a new film")], [5], features={"film": later})
    described = completer.fitted_.features.axes[1]
    code = completer.table_.vocabularies[1].encode(pl.Series(["a new film"]))[0]
    known = completer.table_.vocabularies[1].encode(YEARS["film"][7:8])[0]
    assert described.values[code] == described.values[known]
    completer.finetune(steps=2)
    assert np.isfinite(completer.predict([("newcomer", "a new film")])).all()


def test_finetuning_is_judged_by_the_cells_that_training_kept_back():
    completer = Completer("residual", training=SHORT, seed=1).fit(LABELS, RATINGS)
    before = completer.predictor_.trained.facts
    completer.set_params(seed=2).finetune(steps=2)
    after = completer.predictor_.trained.facts
    assert after["validation"] == before["validation"] == [0.05, 1]
    assert after["task"] == before["task"]


@STRANGERS
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
