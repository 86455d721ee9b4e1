"""Several statistics of predictions are read in one pass over the cells."""

import copy

import numpy as np
import pytest
from tests.support.film_club import ASKED, FRAME

from exchangeable.completion.completer import Completer
from exchangeable.completion.fill import FillRequest, fill
from exchangeable.data.splits import by_share
from exchangeable.data.table import Table
from exchangeable.evaluation.comparison import judge
from exchangeable.predictors import base as predictor
from exchangeable.predictors.base import MEAN, interval_ends, read_predictions
from exchangeable.predictors.baseline import BaselinePredictor
from exchangeable.predictors.best import best_cells, rounded


@pytest.fixture
def passes(monkeypatch):
    """The numbers of cells of each call of a baseline's ``predict``."""
    calls, predict = [], BaselinePredictor.predict

    def counted(self, index, times=None):
        calls.append(len(index))
        return predict(self, index, times)

    monkeypatch.setattr(BaselinePredictor, "predict", counted)
    return calls


def test_mean_and_interval_of_a_cell_are_read_once(passes):
    table = Table.of(FRAME)
    completer = Completer("bias").fit_table(table)
    completer.predict_interval(ASKED)
    assert passes == [len(ASKED)]
    passes.clear()
    request = FillRequest.of(table, every=True)
    filled = fill(completer.fitted_, request)
    assert sum(passes) == request.missing
    rows = filled.frame().filter(np.isnan(request.values)).head(40)
    cells = rows.select("member", "film")
    np.testing.assert_array_equal(rows["rating"], completer.predict(cells))
    np.testing.assert_array_equal(
        rows.select("low", "high").to_numpy(), completer.predict_interval(cells, 0.8)
    )


def test_a_model_is_scored_in_one_pass_over_the_test_cells(passes):
    table = Table.of(FRAME)
    split = by_share(table, test=0.2, validation=0.0, seed=0)
    judge(Completer("bias"), table, split)
    assert passes == [len(split.test)]


def test_chunks_are_joined_in_order(passes, fitted, monkeypatch):
    fitted_ = fitted("bias").fitted_
    index = fitted_.cells.index[:12]
    together = read_predictions(fitted_.predictor, index, MEAN, interval_ends(0.8)[1])
    positions, (means,) = best_cells(fitted_.predictor, index, 3)
    monkeypatch.setattr(predictor, "CELLS_PER_CHUNK", 5)
    passes.clear()
    apart = read_predictions(fitted_.predictor, index, MEAN, interval_ends(0.8)[1])
    assert passes == [5, 5, 2]
    np.testing.assert_array_equal(together, apart)
    again, (same,) = best_cells(fitted_.predictor, index, 3)
    np.testing.assert_array_equal(positions, again)
    np.testing.assert_array_equal(means, same)


def test_numbers_that_differ_by_the_rounding_of_a_network_are_ties():
    """Seven digits of the range are told apart, whatever the unit and wherever zero is."""
    ties = np.array([[2.0, 2.00000003, 5.0], [1.0, 1.00001, 5.0]])
    for unit in (1e-12, 1.0, 1e12):
        for start in (0.0, -100.0):
            (one, other, _), (low, high, _) = rounded(unit * (start + ties))
            assert one == other
            assert low < high
    nearly = 0.1 * np.array([3.0, 3.0 + 1e-15, 3.0 - 1e-15])
    assert len(set(rounded(nearly))) == 1
    assert rounded(np.array([-np.inf, 1.0, 2.0])).argmin() == 0
    assert rounded(np.full(2, -np.inf)).tolist() == [-np.inf, -np.inf]
    assert rounded(np.empty((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("model", ["pretrained", "knn"])
@pytest.mark.parametrize("share", [0.02, 0.4])
def test_a_deep_copy_that_was_used_before_predicts_the_same_and_is_updated_alone(model, share):
    rng = np.random.default_rng(0)
    cells = np.argwhere(rng.random((60, 80)) < share)
    completer = Completer(model).fit(cells, rng.integers(1, 6, len(cells)).astype(float))
    film = int(cells[0, 1])
    completer.recommend(-1, 3, ratings={film: 4.0})
    before = completer.predict(cells)
    other = copy.deepcopy(completer)
    np.testing.assert_allclose(other.predict(cells), before, atol=1e-6)
    other.update([(-1, film)], [1.0])
    other.predict([(-1, film)])
    np.testing.assert_allclose(completer.predict(cells), before, atol=1e-6)
    assert -1 not in completer.table_.vocabularies[0].labels
