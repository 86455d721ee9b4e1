"""Finetuning is judged by the cells that training held out, and features reach the models."""

import numpy as np
import polars as pl
import pytest
from tests.support.film_club import ASKED, LABELS, RATINGS, SHORT

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.training.config import TrainingConfig


def test_finetuning_never_ends_worse_on_the_validation_cells(tmp_path):
    completer = Completer("residual", training=SHORT).fit(LABELS, RATINGS)
    start = completer.predictor_.trained.facts["validation RMSE"]
    completer.finetune(training=TrainingConfig(steps=30, evaluate_every=5))
    assert completer.predictor_.trained.facts["validation RMSE"] <= start
    with pytest.raises(InputError, match=r"trained model \(pretrained, .*but this is bias"):
        Completer("bias").fit(LABELS, RATINGS).finetune()


def test_a_model_with_features_asks_for_them_elsewhere(tmp_path):
    films = pl.DataFrame({"film": LABELS["film"].unique().sort()}).with_row_index("year")
    films = films.select("film", pl.col("year").cast(pl.Float64))
    completer = Completer("residual", training=SHORT)
    completer.fit(LABELS, RATINGS, features={"film": films}).save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(completer.predict(ASKED), again.predict(ASKED))
    with pytest.raises(InputError, match="year"):
        Completer(str(tmp_path / "kept")).fit(LABELS, RATINGS)


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


def test_finetuning_is_judged_by_the_cells_that_training_kept_back():
    completer = Completer("residual", training=SHORT, seed=1).fit(LABELS, RATINGS)
    before = completer.predictor_.trained.facts
    completer.set_params(seed=2).finetune(steps=2)
    after = completer.predictor_.trained.facts
    assert after["validation"] == before["validation"] == [0.05, 1]
    assert after["task"] == before["task"]


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
