"""The paper's models by name, literal or not, from the estimator and from a saved folder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support.film_club import LABELS, RATINGS

from exchangeable import Completer
from exchangeable.arrays.support import Support
from exchangeable.errors import InputError
from exchangeable.training.config import TrainingConfig
from exchangeable.training.recipes import RECIPES
from exchangeable.training.task import encode_array

PLAIN = ("self-supervised", "factorized")
LITERAL = tuple(name for name in RECIPES if name.endswith(("-text", "-released")))
FEW = np.arange(0, len(LABELS), 4)
SEEN, VALUES = LABELS[FEW], RATINGS[FEW]
ASKED = (
    SEEN.select("member")
    .unique(maintain_order=True)
    .head(4)
    .join(SEEN.select("film").unique(maintain_order=True).head(5), how="cross")
    .join(SEEN, on=["member", "film"], how="anti")
)
"""Cells of known members and films that have no rating."""


def fitted(name):
    training = replace(RECIPES[name].training, steps=2, evaluate_every=1)
    if name == "factorized-released":  # whose weights are close to zero at the start
        training = replace(training, steps=20, evaluate_every=20, learning_rate=0.01)
    return Completer(name, training=training).fit(SEEN, VALUES)


@pytest.fixture(scope="module", params=LITERAL)
def literal(request):
    return fitted(request.param)


@pytest.mark.parametrize("name", PLAIN)
def test_by_its_plain_name_a_model_predicts_each_cell_alike_whatever_else_is_asked(name):
    completer = fitted(name)
    assert completer.model_name_ == name
    alone = completer.predict(ASKED.head(1))
    np.testing.assert_allclose(completer.predict(ASKED)[0], alone[0], atol=1e-5)


def test_a_literal_model_pools_over_what_is_asked_together(literal):
    alone, together = literal.predict(ASKED.head(1)), literal.predict(ASKED)
    assert abs(together[0] - alone[0]) > 1e-7
    np.testing.assert_array_equal(literal.predict(ASKED), together)


def test_a_literal_model_predicts_what_its_network_gives_for_observed_and_queried_cells(literal):
    predictor = literal.predictor_
    cells, trained = literal.cells_, predictor.trained
    observed = encode_array(cells.to_array(), trained.codec, predictor.stats)
    asked = literal.table_.cells(ASKED)
    with torch.no_grad():
        outputs = trained.model(observed, Support(torch.from_numpy(asked), cells.shape))
    expected = trained.codec.read(outputs.double(), predictor.stats).mean()
    np.testing.assert_allclose(literal.predict(ASKED), expected.numpy(), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*not in the table:exchangeable.errors.InputWarning")
def test_a_literal_model_has_intervals_lists_and_answers_for_members_it_does_not_know(literal):
    low, high = literal.predict_interval(ASKED, 0.8).T
    assert (low <= high).all()
    np.testing.assert_allclose(literal.predict_proba(ASKED).sum(axis=1), 1, atol=1e-6)
    member = ASKED["member"][0]
    known = set(SEEN.filter(SEEN["member"] == member)["film"])
    listed = literal.recommend(member, n=5)
    assert len(listed) == 5
    assert known.isdisjoint(listed["film"])
    assert np.isfinite(literal.predict([("nobody", "nothing"), ("nobody", ASKED["film"][0])])).all()


def test_a_saved_literal_model_predicts_the_same(literal, tmp_path):
    literal.save(tmp_path / "saved")
    again = Completer.load(tmp_path / "saved")
    assert again.model_name_ == literal.model_name_
    np.testing.assert_array_equal(again.predict(ASKED), literal.predict(ASKED))
    np.testing.assert_array_equal(again.predict_interval(ASKED), literal.predict_interval(ASKED))


def test_a_literal_model_reads_new_members_without_training():
    completer = fitted("factorized-released")
    weights = {k: v.clone() for k, v in completer.predictor_.trained.model.state_dict().items()}
    films = SEEN["film"].unique().sort()[:5].to_list()
    completer.update([("newcomer", film) for film in films], [5.0] * 5)
    after = completer.predictor_.trained.model.state_dict()
    assert all(torch.equal(weights[name], after[name]) for name in weights)
    assert len(completer.cells_) == len(SEEN) + 5
    assert len(completer.recommend("newcomer", n=3)) == 3


def test_only_the_factorized_model_has_factors():
    factors = fitted("factorized-text").factors("film")
    assert factors.shape == (SEEN["film"].n_unique(), 1 + 100)
    with pytest.raises(InputError, match="factors come from vmf, bmf or the factorized model"):
        fitted("self-supervised-text").factors("film")


def test_a_literal_model_is_not_finetuned(literal):
    with pytest.raises(InputError, match="finetuning needs a trained model"):
        literal.finetune(training=TrainingConfig(steps=1))


@pytest.mark.parametrize("name", ["factorized", "self-supervised-text"])
def test_a_completer_reads_its_table_in_samples_and_still_does_when_it_was_saved(name, tmp_path):
    training = replace(RECIPES[name].training, steps=2, evaluate_every=1)
    completer = Completer(name, training=training, sample_cells=20).fit(SEEN, VALUES)
    whole = Completer(name, training=training).fit(SEEN, VALUES)
    predicted = completer.predict(ASKED)
    assert np.abs(predicted - whole.predict(ASKED)).max() > 1e-7
    completer.save(tmp_path / "saved")
    again = Completer.load(tmp_path / "saved")
    assert again.get_params()["sample_cells"] == 20
    np.testing.assert_allclose(again.predict(ASKED), predicted, atol=1e-6)


def test_samples_are_of_models_that_are_trained_and_of_whole_numbers():
    with pytest.raises(InputError, match="samples are read by models that were trained, but"):
        Completer("bias", sample_cells=20).fit(SEEN, VALUES)
    with pytest.raises(
        InputError, match="sample_cells must be a whole number of 1 or more, but is 0"
    ):
        Completer("factorized", sample_cells=0).fit(SEEN, VALUES)
