"""The rank of a factorization is chosen on cells that are hidden from it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.baselines import planted

from exchangeable import Completer
from exchangeable.arrays.cells import Cells
from exchangeable.baselines import BASELINES, BayesianFactorization, VariationalFactorization
from exchangeable.baselines import rank_choice as module
from exchangeable.baselines.rank_choice import RANKS, USUAL_RANK, climb, with_rank
from exchangeable.predictors.baseline import fit_baseline

SHAPE = (90, 70)


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch):
    """Small tables do here, whose noise is small."""
    monkeypatch.setattr(module, "MIN_CELLS", 1000)


def table(rank, noise=0.3, shape=SHAPE):
    index, values = planted(shape, density=0.7, rank=rank, noise=noise)
    return Cells(index, values, shape)


@pytest.mark.parametrize("best", RANKS)
def test_a_climb_finds_the_least_of_errors_that_fall_and_then_rise(best):
    assert climb(lambda rank: abs(RANKS.index(rank) - RANKS.index(best)), RANKS, USUAL_RANK) == best


def test_a_climb_steps_over_one_rank_that_does_not_help_and_stops_after_two():
    errors = {8: 5.0, 12: 4.0, 16: 4.5, 24: 3.0, 32: 3.0, 48: 3.5, 64: 0.0, 4: 9.0, 2: 0.0}
    tried = []
    assert climb(lambda rank: tried.append(rank) or errors[rank], RANKS, 12) == 24
    assert tried == [12, 8, 4, 16, 24, 32, 48]


@pytest.mark.parametrize(
    "model", [VariationalFactorization(), BayesianFactorization(sweeps=60, burn_in=20)]
)
def test_a_table_of_many_factors_gets_a_high_rank_and_one_of_few_does_not(model, monkeypatch):
    """With the usual rank the first would be predicted far worse."""
    monkeypatch.setattr(module, "RANKS", RANKS[: RANKS.index(24) + 1])
    many, choice = with_rank(model, table(16, shape=(120, 100)))
    assert choice.errors[choice.rank] == min(choice.errors.values())
    assert many.rank == choice.rank >= 16
    assert choice.errors[choice.rank] < 0.8 * choice.errors[USUAL_RANK]
    assert many == replace(model, rank=choice.rank)
    few, _ = with_rank(model, table(2, noise=1.0))
    assert few.rank < 16


def test_a_rank_that_was_given_is_kept():
    model = VariationalFactorization(3)
    assert with_rank(model, table(8)) == (model, None)


@pytest.mark.parametrize(("least", "most"), [(10**6, 10**7), (1, 10)])
def test_tables_with_too_few_or_too_many_cells_have_the_usual_rank(least, most, monkeypatch):
    monkeypatch.setattr(module, "MIN_CELLS", least)
    monkeypatch.setattr(module, "MAX_CELLS", most)
    model, choice = with_rank(VariationalFactorization(), table(2))
    assert (model.rank, choice) == (USUAL_RANK, None)


def test_the_choice_depends_on_neither_labels_nor_the_sequence_of_cells():
    cells = table(5)
    generator = np.random.default_rng(0)
    renamed = [generator.permutation(size) for size in SHAPE]
    index = np.stack([names[cells.index[:, d]] for d, names in enumerate(renamed)], axis=1)
    moved = generator.permutation(len(index))
    other = replace(cells, index=index[moved], values=cells.values[moved])
    one, two = (with_rank(VariationalFactorization(), each)[1] for each in (cells, other))
    assert (one.rank, one.hidden) == (two.rank, two.hidden)
    assert one.errors == pytest.approx(two.errors, rel=1e-6)


def test_hidden_cells_have_no_say_in_the_fits_that_they_judge():
    """Errors on them are those of fits to the other cells."""
    cells = table(4)
    _, choice = with_rank(VariationalFactorization(), cells)
    mask = module._draw_hidden(cells)
    assert choice.hidden == mask.sum()
    assert 0.05 < mask.mean() < 0.15
    fitted = VariationalFactorization(8).fit(cells.take(~mask))
    errors = fitted.predict(cells.index[mask])[0] - cells.values[mask]
    assert choice.errors[8] == pytest.approx(np.sqrt(np.mean(errors**2)))


def test_a_model_by_name_has_the_chosen_rank_and_says_so():
    cells = table(16, shape=(120, 100))
    predictor = fit_baseline("vmf", cells, seed=0)
    assert predictor.baseline.rank == predictor.choice.rank >= 16
    found = BASELINES["vmf"]().fit(cells).predict(cells.index)[0]
    np.testing.assert_array_equal(found, predictor.fitted.predict(cells.index)[0])
    completer = Completer("vmf").fit(cells.index, cells.values)
    note = f"model vmf has rank {predictor.choice.rank}, with the smallest error on"
    assert any(one.startswith(note) for one in completer.notes_)


def test_a_rank_at_the_end_of_the_grid_is_called_so():
    choice = module.RankChoice(RANKS[-1], 100, {RANKS[-1]: 0.5})
    assert "the last that is tried" in str(choice)
    assert "the last" not in str(replace(choice, rank=12))
