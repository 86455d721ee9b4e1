"""Large tables, whose members are compared by sums, can be updated, saved and read as others."""

import numpy as np
import pytest
from tests.support.shared_prior import as_if_large, table

import exchangeable as ex


@pytest.fixture(scope="module")
def completers():
    """A completer of a table as it is, and as if it were large."""
    cells = table(2)
    plain = ex.Completer("pretrained").fit(cells.index, cells.values)
    with as_if_large():
        return plain, ex.Completer("pretrained").fit(cells.index, cells.values)


def every_cell(completer):
    return np.argwhere(np.ones(completer.table_.shape))


def test_predictions_are_close_to_those_of_a_small_table(completers):
    plain, large = completers
    found, expected = (each.predict(every_cell(plain)) for each in completers)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.2
    assert large.predictor_.prior.fitted.is_summed is False  # the settings are as usual again
    notes = " ".join(large.notes_)
    assert "members are compared with those that have the most cells" in notes


def test_new_cells_change_predictions_of_their_members(completers):
    cells = table(2)
    with as_if_large():
        completer = ex.Completer("pretrained").fit(cells.index, cells.values)
        before = completer.predict(every_cell(completer))
        new = [(100, column) for column in range(12)]
        completer.update(new, [5.0] * 6 + [1.0] * 6)
        assert len(completer.recommend(100, 5)) == 5
        after = completer.predict(every_cell(completers[0]))
    assert np.isfinite(after).all()
    assert 0 < np.abs(after - before).max() < 2


def test_a_loaded_completer_predicts_nearly_the_same(completers, tmp_path):
    with as_if_large():
        completers[1].save(tmp_path / "saved")
        loaded = ex.Completer.load(tmp_path / "saved")
        one, other = (each.predict(every_cell(loaded)) for each in (completers[1], loaded))
    # Held-out cells count among those that members are compared by, once it was loaded.
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.05
