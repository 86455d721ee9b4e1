"""A completer reads values in units that suit them, from the first fit to saving and loading."""

import numpy as np
import pytest
from tests.support.strangers import STRANGERS

from exchangeable.baselines import BASELINES
from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError, InputWarning
from exchangeable.predictors.units import UnitsPredictor


def specimens(rows=80, seed=0):
    """Cells of specimens by quantity, of which a fifth is left out; and all values."""
    generator = np.random.default_rng(seed)
    centre, unit = np.array([3, 900, 0.2, 14, 5e4]), np.array([1, 200, 0.05, 2, 9e3])
    level = generator.standard_normal((rows, 1))
    whole = centre + unit * (0.9 * level + 0.4 * generator.standard_normal((rows, 5)))
    kept = generator.random(whole.shape) > 0.2
    names = ["pH", "mass", "share", "length", "count"]
    cells = [(int(row), names[column]) for row, column in np.argwhere(kept)]
    hidden = [(int(row), names[column]) for row, column in np.argwhere(~kept)]
    return cells, whole[kept], hidden, whole[~kept], unit[np.argwhere(~kept)[:, 1]]


def plays(seed=0):
    generator = np.random.default_rng(seed)
    effects = generator.standard_normal(40)[:, None] + generator.standard_normal(30)
    whole = np.ceil(np.exp(4 + effects + generator.standard_normal((40, 30))))
    kept = generator.random(whole.shape) < 0.4
    cells = [(f"u{row}", f"a{column}") for row, column in np.argwhere(kept)]
    return cells, whole[kept]


@pytest.mark.parametrize("model", ["pretrained", "auto", "vmf"])
def test_columns_of_different_quantities_are_completed_each_in_its_unit(model):
    cells, values, hidden, truth, unit = specimens()
    completer = Completer(model).fit(cells, values)
    assert any("in the units of each column 2" in note for note in completer.notes_)
    error = np.sqrt((((completer.predict(hidden) - truth) / unit) ** 2).mean())
    plain = Completer("vmf", units="plain").fit(cells, values)
    plain_error = np.sqrt((((plain.predict(hidden) - truth) / unit) ** 2).mean())
    assert error < 0.7 < plain_error
    low, high = completer.predict_interval(hidden).T
    assert 0.65 < ((low <= truth) & (truth <= high)).mean() < 0.95


@STRANGERS
def test_counts_with_heavy_tails_are_never_predicted_below_zero():
    cells, values = plays()
    completer = Completer("pretrained").fit(cells, values)
    assert any("as logarithms" in note for note in completer.notes_)
    queries = [(f"u{u}", f"a{a}") for u in range(-1, 40) for a in range(-1, 30)]
    assert completer.predict(queries).min() >= 0
    assert completer.predict_interval(queries, 0.98).min() >= 0
    plain = Completer("bias", units="plain").fit(cells, values)
    assert plain.predict_interval(queries, 0.98).min() == 0  # all values are above


@STRANGERS
@pytest.mark.parametrize("model", sorted(BASELINES))
def test_counts_are_nowhere_below_zero_whatever_the_model(model):
    cells, values = plays()
    completer = Completer(model).fit(cells, values)
    queries = [(f"u{u}", f"a{a}") for u in range(-1, 40, 3) for a in range(-1, 30)]
    assert completer.predict(queries).min() >= 0
    assert completer.predict_interval(queries, 0.98).min() >= 0
    assert completer.sample(queries, 5).min() >= 0
    completer.update([("u0", "new")], [3.0]).refresh()
    assert completer.predict_interval(queries, 0.98).min() >= 0


def test_means_are_those_of_values_as_they_came():
    cells, values = plays()
    own = np.array([user == "u1" for user, _ in cells])
    with pytest.warns(InputWarning):
        predicted = Completer("mean").fit(cells, values).predict([("u1", "new")])
    assert predicted == pytest.approx(values.mean())
    with pytest.warns(InputWarning):
        predicted = Completer("row-mean").fit(cells, values).predict([("u1", "new")])
    assert predicted == pytest.approx(values[own].mean())


@pytest.mark.parametrize("made", [specimens, plays])
@pytest.mark.parametrize("model", ["pretrained", "vmf"])
def test_units_are_saved_and_loaded(tmp_path, made, model):
    cells, values, *_ = made()
    completer = Completer(model).fit(cells, values)
    assert isinstance(completer.predictor_, UnitsPredictor)
    completer.save(tmp_path / "saved")
    loaded = Completer.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.predict(cells[:50]), completer.predict(cells[:50]), rtol=1e-6)


@pytest.mark.parametrize("made", [specimens, plays])
def test_new_cells_are_read_in_the_same_units_and_a_refresh_equals_a_fit(made):
    cells, values, *_ = made()
    completer = Completer("vmf").fit(cells[:-30], values[:-30])
    completer.update(cells[-30:], values[-30:])
    assert completer.predict(cells).shape == (len(cells),)
    completer.refresh()
    again = Completer("vmf").fit(cells, values)
    np.testing.assert_allclose(completer.predict(cells), again.predict(cells), rtol=1e-9)


def test_a_new_specimen_is_completed_in_the_units_of_the_columns():
    cells, values, *_ = specimens()
    completer = Completer("pretrained").fit(cells, values)
    mine = {"pH": 4.0, "mass": 1100.0}
    found = completer.recommend(-1, 5, ratings=mine)
    by_name = dict(zip(found["column 2"], found["value"], strict=True))
    assert by_name["count"] > 5e4
    assert 14 < by_name["length"] < 20
    quantity = completer.recommend("volume", 3, axis=1, ratings={0: 10.0, 1: 11.0, 2: 12.0})
    assert np.isfinite(quantity["value"].to_numpy()).all()


def test_units_can_be_asked_for():
    cells, values, *_ = specimens()
    asked = Completer("vmf", units="column 2").fit(cells, values)
    np.testing.assert_allclose(
        asked.predict(cells), Completer("vmf").fit(cells, values).predict(cells)
    )
    with pytest.raises(InputError, match="units must be one of plain, log, column 1, column 2"):
        Completer("vmf", units="metres").fit(cells, values)
    with pytest.raises(InputError, match="logarithms need values of 0 or more"):
        Completer("vmf", units="log").fit(cells, -values)
    with pytest.raises(InputError, match="units are chosen for real numbers, but these are levels"):
        Completer("vmf", units="log").fit(cells[:40], np.arange(40) % 5 + 1)


def test_finetuning_stays_in_the_units():
    cells, values = plays()
    completer = Completer("pretrained").fit(cells, values)
    before = completer.predict(cells)
    completer.finetune(steps=2)
    assert isinstance(completer.predictor_, UnitsPredictor)
    assert np.corrcoef(np.log(before), np.log(completer.predict(cells)))[0, 1] > 0.9


def test_suggestions_and_explanations_are_of_values_in_the_units_of_the_table():
    cells, values, *_ = specimens()
    completer = Completer("pretrained").fit(cells, values)
    found = completer.suggest(5)
    assert len(found) == 5
    expected = completer.predict(found.select("column 1", "column 2"))
    np.testing.assert_allclose(found["value"].to_numpy(), expected, rtol=1e-6)
    row, quantity = next(cell for cell in cells if cell[1] == "count")
    effects = completer.explain((row, quantity))["effect"].to_numpy()
    assert 10 < np.abs(effects).max() < 5e4  # in units of counts


def test_negative_values_that_come_later_are_read_in_other_units():
    cells, values = plays()
    completer = Completer("vmf").fit(cells, values)
    completer.update([("late", cells[0][1]), ("late", cells[1][1])], [-50.0, -60.0])
    assert completer.predict([("late", cells[0][1])])[0] < 100
    asked = Completer("vmf", units="log").fit(cells, values)
    with pytest.raises(InputError, match="must be 0 or more, but there is -50"):
        asked.update([("late", cells[0][1])], [-50.0])
