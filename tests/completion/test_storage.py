"""A saved completer predicts the same when it is loaded; forged folders are refused."""

import numpy as np
import pytest
from tests.support.film_club import ASKED, LABELS, MODELS, SHORT, TRAINED

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.models.configs import ResidualConfig, build
from exchangeable.runtime import checkpoint
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.codecs import OneHot


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


def test_a_model_keeps_what_it_was_trained_on_when_it_serves_another_table(tmp_path, fitted):
    trained = fitted("residual").predictor_.trained
    fitted("residual").save(tmp_path / "kept")
    small = Completer(tmp_path / "kept").fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 5, 3])
    small.save(tmp_path / "small")
    facts = TrainedModel.load(tmp_path / "small").facts
    assert facts["data"] == trained.facts["data"]
    assert facts["validation RMSE"] == trained.facts["validation RMSE"]


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


def test_a_model_in_a_folder_is_not_a_completer_and_says_what_to_do(tmp_path):
    config = ResidualConfig(5, 5, width=8, depth=2, pooling=("mean",))
    TrainedModel(config, OneHot(5), build(config), SHORT, "x", {}).save(tmp_path / "model")
    with pytest.raises(InputError, match="Completer\\(model=PATH\\)"):
        Completer.load(tmp_path / "model")
