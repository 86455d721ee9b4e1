"""New cells and members join without training, and failed updates change nothing."""

import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from tests.support.film_club import ASKED, LABELS, RATINGS, SHORT, TRAINED
from tests.support.strangers import STRANGERS

from exchangeable.completion.completer import Completer
from exchangeable.datasets import load
from exchangeable.errors import InputError
from exchangeable.predictors.model import ModelPredictor
from exchangeable.training.config import TrainingConfig


@STRANGERS
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


@STRANGERS
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


@STRANGERS
@pytest.mark.parametrize("model", ["vmf", "pretrained"])
def test_new_rows_and_columns_that_come_together_are_solved_from_each_other(model):
    """New items are rated by old users, and new users rate new items only: they tell each other."""
    generator = np.random.default_rng(0)
    users, items, new_users, new_items = 40, 30, 4, 8
    index = np.argwhere(generator.random((users, items)) < 0.6)
    tastes = [np.where(np.arange(size) % 2, 1.5, -1.5) for size in (users + 4, items + 8)]

    def values_of(cells):
        noise = 0.2 * generator.normal(size=len(cells))
        return tastes[0][cells[:, 0]] * tastes[1][cells[:, 1]] + noise

    every = np.array([(u, i) for u in range(users + new_users) for i in range(items, items + 8)])
    added = every[(every[:, 0] >= users) | (generator.random(len(every)) < 0.6)]
    values, more = values_of(index), values_of(added)
    completer = Completer(model).fit(index, values).update(added, more)
    asked = np.array([(users + u, i) for u in range(new_users) for i in range(items)])
    truth = tastes[0][asked[:, 0]] * tastes[1][asked[:, 1]]
    together = Completer(model).fit(np.concatenate([index, added]), np.concatenate([values, more]))
    found, expected = (np.asarray(each.predict(asked)) for each in (completer, together))
    assert np.corrcoef(expected, truth)[0, 1] > 0.9
    assert np.corrcoef(found, truth)[0, 1] > 0.9
    assert completer.table_.shape == (users + new_users, items + new_items)


def test_a_cell_that_was_known_takes_its_new_value():
    completer = Completer("bias").fit(LABELS, RATINGS)
    completer.update(LABELS.head(1), [1.0 if RATINGS[0] > 2 else 5.0])
    assert len(completer.cells_) == len(RATINGS)
    changed = RATINGS.copy()
    changed[0] = 1.0 if RATINGS[0] > 2 else 5.0
    expected = Completer("bias").fit(LABELS, changed)
    np.testing.assert_allclose(completer.predict(ASKED), expected.predict(ASKED), atol=0.05)


@pytest.mark.parametrize("later", [[70.0, 80.0], None])
def test_a_cell_that_was_known_has_the_time_of_its_new_value(later):
    """Or none, since that of its value before no longer holds."""
    index = np.argwhere(np.ones((8, 6)))
    times = np.arange(len(index)).astype(float)
    completer = Completer("bias").fit(index, 1.0 + np.arange(len(index)) % 5, times=times)
    completer.update([(2, 3), (8, 1)], [5.0, 4.0], times=later)
    table = completer.table_
    found = dict(zip(map(tuple, table.index.tolist()), table.times, strict=True))
    new = [found.pop((2, 3)), found.pop((8, 1))]
    np.testing.assert_array_equal(new, [np.nan, np.nan] if later is None else later)
    expected = dict(zip(map(tuple, index.tolist()), times, strict=True))
    del expected[2, 3]
    assert found == expected


@STRANGERS
@pytest.mark.parametrize("model", ["pretrained", "residual"])
def test_values_that_change_one_by_one_are_folded_in(model, monkeypatch):
    """Nothing is read again, and predictions for their members come near those of a new fit."""
    training = SHORT if model in TRAINED else None
    own = np.flatnonzero((LABELS["member"] == LABELS["member"][0]).to_numpy())
    changed = RATINGS.copy()
    changed[own] = 6 - changed[own]
    completer = Completer(model, training=training).fit(LABELS, RATINGS)
    films = LABELS["film"].unique().sort()
    asked = pl.DataFrame({"member": [LABELS["member"][0]] * len(films), "film": films})
    before, index = completer.predict(asked), completer.table_.cells(asked)
    monkeypatch.setattr(ModelPredictor, "refreshed", lambda *_: pytest.fail("all were read"))
    for row in own:
        completer.update(LABELS[[int(row)]], changed[[row]])
    found = completer.predict(asked)
    assert completer.fitted_.cells_since_refresh == len(own)
    assert len(completer.cells_) == len(RATINGS)
    np.testing.assert_array_equal(np.sort(completer.cells_.values), np.sort(changed))
    monkeypatch.undo()
    anew = ModelPredictor.of(completer.predictor_.trained, completer.cells_)
    expected = anew.predict(index).mean().double().numpy()
    errors = [float(np.sqrt(np.mean((each - expected) ** 2))) for each in (found, before)]
    assert errors[0] < 0.3 * errors[1]


@STRANGERS
@pytest.mark.parametrize("known_too", [False, True])
def test_every_cell_is_in_the_pools_once_after_new_and_changed_ones_came_together(known_too):
    completer = Completer("pretrained").fit(LABELS, RATINGS)
    films = LABELS["film"].unique().sort().head(4)
    cells = pl.DataFrame({"member": ["newcomer"] * 4, "film": films})
    values = np.array([5.0, 4.0, 3.0, 2.0])
    if known_too:
        cells, values = pl.concat([LABELS.head(3), cells]), np.r_[6 - RATINGS[:3], values]
    completer.update(cells, values)
    table, memory = completer.table_, completer.predictor_.memory
    assert len(table) == len(RATINGS) + 4
    assert completer.fitted_.cells_since_refresh == len(cells)  # none was read again
    for pools in memory.pools:
        for axes, states in pools.states.items():
            counts = states[-1][-1].flatten()  # the last state of a mean is its number of cells
            expected = (
                np.array([len(table)])
                if not axes
                else np.append(table.cells_per_member(axes[0]), 0)  # the spare member
            )
            np.testing.assert_array_equal(counts.numpy(), expected)


def test_where_most_members_have_other_values_all_are_read_together():
    completer = Completer("pretrained").fit(LABELS, RATINGS)
    completer.update(LABELS, 6 - RATINGS)
    assert completer.fitted_.cells_since_refresh == 0
    expected = ModelPredictor.of(completer.predictor_.trained, completer.cells_)
    index = completer.table_.cells(ASKED)
    np.testing.assert_allclose(
        completer.predict(ASKED), expected.predict(index).mean().double().numpy(), atol=1e-5
    )


def test_the_cells_of_members_are_found_after_an_update_too():
    completer = Completer("bias").fit(LABELS, RATINGS)
    for axis in (0, 1):
        completer.fitted_.cells_of_members(axis, np.array([0]))
    sorted_rows = completer.fitted_.sorted_rows
    member, film = LABELS["member"][0], LABELS["film"][0]
    cells = [("zoe", film), (member, "new one"), ("zoe", "new one"), (member, film), ("amy", film)]
    completer.update(cells, [1, 2, 3, 4, 5])
    fitted = completer.fitted_
    assert set(fitted.sorted_rows) == set(sorted_rows) == {0, 1}
    fresh = replace(fitted)
    assert not fresh.sorted_rows
    for axis, size in enumerate(fitted.table.shape):
        every = np.array([*range(size), -1])
        expected = fresh.cells_of_members(axis, every)
        np.testing.assert_array_equal(fitted.cells_of_members(axis, every), expected)


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


def test_a_question_that_was_answered_by_an_update_is_no_question_any_more():
    frame = pl.DataFrame({"u": ["a", "a", "b"], "f": ["x", "y", "x"], "rating": [4.0, 2.0, None]})
    completer = Completer("mean").fit(frame)
    completer.update([("b", "x")], [2.0])
    assert len(completer.table_.values) == 3
    assert not np.isnan(completer.table_.values).any()


def test_a_new_member_of_positives_is_given_negatives_too():
    cells = [(f"u{u}", f"i{i}") for u in range(20) for i in range(20) if (u * i) % 3 == 0]
    completer = Completer("bias").fit(pl.DataFrame(cells, schema=["u", "i"], orient="row"))
    before = len(completer.cells_)
    completer.update(pl.DataFrame({"u": ["new"] * 5, "i": [f"i{i}" for i in range(5)]}))
    own = completer.cells_.index[:, 0] == completer.cells_.index[:, 0].max()
    assert len(completer.cells_) > before + 5
    assert set(completer.cells_.values[own]) == {0.0, 1.0}


def test_update_says_when_it_is_time_to_read_all_together():
    """What folding leaves out is bounded: until a refresh is due, .08 of the spread."""
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
    # .075 is measured: the pattern of cells and the trust, and the cells that it was found on,
    # stay as they were until a refresh.
    assert 0 < worst < 0.08 * spread
    refreshed = completer.refresh()
    assert not refreshed.refresh_due_
    np.testing.assert_allclose(refreshed.predict(asked), anew, atol=1e-4)


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


def test_new_values_may_not_be_too_large_either():
    completer = Completer("vmf", scale="real").fit([("a", "x"), ("a", "y"), ("b", "x")], [1, 2, 3])
    for call in (
        lambda: completer.update([("b", "y")], [1e200]),
        lambda: completer.recommend("c", ratings={"x": -1e200}),
        lambda: completer.recommend("a", ratings={"x": 1e200}),
    ):
        with pytest.raises(InputError, match=r"at most 1e\+100 in size"):
            call()
    assert len(completer.recommend("c", ratings={})) == 2


@pytest.mark.parametrize("model", ["pretrained", "bias"])
def test_new_members_may_have_values_beyond_those_that_were_fitted(model):
    generator = np.random.default_rng(0)
    whole = 10 + generator.standard_normal((20, 1)) + generator.standard_normal((1, 8))
    cells = [(u, f"v{i}") for u in range(20) for i in range(8) if (u + i) % 4]
    values = [whole[u, int(item[1])] for u, item in cells]
    completer = Completer(model).fit(cells, values)
    mine = {f"v{i}": 40 + whole[0, i] - whole[0].mean() for i in range(6)}
    listed = completer.recommend(77, ratings=mine)
    assert listed["value"].min() > 30
    completer.update([(99, item) for item in mine], list(mine.values()))
    assert completer.predict([(99, "v6")])[0] > 30
