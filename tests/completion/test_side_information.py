"""Features of members and times of cells reach the predictions of completers."""

import numpy as np
import polars as pl
import pytest
import torch
from tests.support.strangers import STRANGERS

from exchangeable.completion.completer import Completer
from exchangeable.errors import InputError
from exchangeable.models.memory import MemoryModel


def described_table(seed=0, users=30, films=24):
    """Half of all cells; users with a large trait like films with a large one."""
    generator = np.random.default_rng(seed)
    trait, kind = generator.normal(size=users), generator.normal(size=films)
    index = np.argwhere(generator.random((users, films)) < 0.5)
    user, film = index.T
    values = trait[user] + kind[film] + trait[user] * kind[film]
    values += 0.2 * generator.normal(size=len(index))
    cells = pl.DataFrame({"user": [f"u{u:02}" for u in user], "film": [f"f{f:02}" for f in film]})
    about = pl.DataFrame({"film": [f"f{f:02}" for f in range(films)], "kind": kind})
    traits = pl.DataFrame({"user": [f"u{u:02}" for u in range(users)], "trait": trait})
    return cells, values, about, traits


CELLS, VALUES, FILMS, USERS = described_table()


@pytest.fixture(scope="module")
def described():
    kept = ~CELLS["film"].is_in(["f00", "f01"]).to_numpy()
    features = {"film": FILMS, "user": USERS}
    return Completer("pretrained", scale="real").fit(
        CELLS.filter(kept), VALUES[kept], features=features
    )


@STRANGERS
def test_members_that_only_have_features_are_predicted_by_them(described):
    assert described.table_.shape == (30, 24)
    asked = CELLS.filter(CELLS["film"].is_in(["f00", "f01"]))
    truth = VALUES[CELLS["film"].is_in(["f00", "f01"]).to_numpy()]
    unknown = asked.with_columns(film=pl.lit("unheard of"))
    error, blind = (np.mean((described.predict(own) - truth) ** 2) for own in (asked, unknown))
    assert error < 0.7 * blind


def test_features_are_saved_with_the_completer(described, tmp_path):
    described.save(tmp_path / "kept")
    again = Completer.load(tmp_path / "kept")
    np.testing.assert_array_equal(again.predict(CELLS), described.predict(CELLS))
    pairs = zip(again.fitted_.features.axes, described.fitted_.features.axes, strict=True)
    for mine, theirs in pairs:
        assert mine.columns == theirs.columns
        np.testing.assert_array_equal(mine.centred, theirs.centred)


def test_a_new_member_is_recommended_by_its_features(described):
    def values(**features):
        listed = described.recommend("new", n=24, features=features or None)
        return listed.sort("film")["value"].to_numpy()

    kind = FILMS.sort("film")["kind"].to_numpy()
    high, low = values(trait=1.5), values(trait=-1.5)
    assert high.mean() > low.mean() + 1
    assert np.corrcoef(high - low, kind)[0, 1] > 0.7
    with pytest.raises(InputError, match="need the columns trait, but have age"):
        values(age=3.0)
    with pytest.raises(InputError, match="those of a new member, but 'u00' is known"):
        described.recommend("u00", features={"trait": 1.0})
    plain = Completer("pretrained", scale="real").fit(CELLS, VALUES)
    with pytest.raises(InputError, match="need a table that was fitted with some of user"):
        plain.recommend("new", features={"trait": 1.0})


@STRANGERS
def test_intervals_of_members_without_cells_hold_what_they_promise():
    # Films differ much and cells of a film little, so hidden cells say nothing of hidden films.
    generator = np.random.default_rng(1)
    index = np.argwhere(generator.random((40, 300)) < 0.3)
    film = generator.standard_gamma(0.5, size=300) * np.where(generator.random(300) < 0.3, 4, 1)
    values = film[index[:, 1]] + 0.1 * generator.normal(size=len(index))
    unseen = index[:, 1] >= 200
    completer = Completer("pretrained", scale="real").fit(index[~unseen], values[~unseen])
    for asked in (index[unseen], np.c_[index[unseen][:, 0] + 40, index[unseen][:, 1]]):
        low, high = completer.predict_interval(asked).T
        held = (low <= values[unseen]) & (values[unseen] <= high)
        assert 0.72 < held.mean() < 0.88
        within = completer.predict_interval(asked, 0.5)
        assert ((low <= within[:, 0]) & (within[:, 1] <= high)).all()
    seen = completer.predict_interval(index[~unseen])
    assert np.median(seen[:, 1] - seen[:, 0]) < 0.5 * np.median(high - low)


def test_a_later_feature_far_from_all_others_is_refused(described):
    far = pl.DataFrame({"user": ["new"], "trait": [1e300]})
    message = "numbers like those of other members are needed in 'trait', but one is 1e"
    with pytest.raises(InputError, match=message):
        described.recommend("new", features={"trait": 1e300})
    with pytest.raises(InputError, match=message):
        described.update([("new", "f03")], [1.0], features={"user": far})
    with pytest.raises(InputError, match="must be a mapping from columns to its own, but are a li"):
        described.recommend("new", features=[1.0])


@STRANGERS
def test_features_that_are_all_missing_or_alike_change_nothing():
    nothing = FILMS.select("film", empty=pl.lit(None), same=pl.lit(3.0))
    plain = Completer("pretrained", scale="real").fit(CELLS, VALUES)
    described = Completer("pretrained", scale="real").fit(CELLS, VALUES, features={"film": nothing})
    asked = [("u00", "f01"), ("u00", "unheard of"), ("nobody", "nothing")]
    np.testing.assert_allclose(described.predict(asked), plain.predict(asked), atol=1e-6)
    ends = described.predict_interval(asked), plain.predict_interval(asked)
    np.testing.assert_allclose(*ends, atol=1e-6)


@STRANGERS
def test_intervals_of_unseen_members_stay_when_a_cell_comes():
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times)
    asked = [(500, item) for item in range(20)]
    widths = [np.ptp(completer.predict_interval(asked), axis=1).mean()]
    completer.update([(501, 3)], [0.1], times=[times.max()])
    widths.append(np.ptp(completer.predict_interval(asked), axis=1).mean())
    assert widths[1] == pytest.approx(widths[0], rel=0.02)


@STRANGERS
def test_a_new_member_without_cells_is_predicted_like_any_that_is_not_known():
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times)
    listed = [completer.recommend(500, n=20, ratings=own) for own in (None, {})]
    for column in range(1, 4):
        one, other = (np.array([row[column] for row in sorted(rows.rows())]) for rows in listed)
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_baselines_refuse_features():
    with pytest.raises(InputError, match="features need a model that is trained, but this is vmf"):
        Completer("vmf").fit(CELLS, VALUES, features={"film": FILMS})


def timed_table(seed=0):
    """Films whose values rise or fall with time."""
    generator = np.random.default_rng(seed)
    index = np.argwhere(generator.random((60, 20)) < 0.8)
    times = generator.random(len(index))
    slope = np.where(np.arange(20) % 2, 2.0, -2.0)
    values = slope[index[:, 1]] * (times - 0.5) + 0.3 * generator.normal(size=len(index))
    return index, values, times


def test_cells_are_predicted_at_their_times_and_without_them_at_the_latest():
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times)
    asked = [(user, film) for user in range(10) for film in range(20)]
    early, late, latest = (
        completer.predict(asked, times=None if at is None else [at] * len(asked)).reshape(10, 20)
        for at in (0.02, times.max(), None)
    )
    np.testing.assert_array_equal(late, latest)
    change = (late - early).mean(axis=0)
    assert (change[1::2] > 0.5).all()
    assert (change[::2] < -0.5).all()
    with pytest.raises(InputError, match="one per cell, 200 in all, but are 1"):
        completer.predict(asked, times=[0.5])


def test_times_of_later_cells_are_kept():
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times)
    completer.update([(100, 1), (100, 2)], [1.0, -1.0], times=[0.9, 0.95])
    assert completer.cells_.times[-2:].tolist() == [0.9, 0.95]
    assert len(completer.cells_.times) == len(completer.cells_) == len(index) + 2


def test_the_model_reads_later_cells_at_their_own_times(monkeypatch):
    index, values, times = timed_table()
    completer = Completer("pretrained", scale="real").fit(index, values, times=times)
    extend, asked = MemoryModel.extend, []

    def extend_and_ask(self, memory, observed, features=None, *, prior=None):
        asked.append(prior(observed.support.index))
        return extend(self, memory, observed, features, prior=prior)

    monkeypatch.setattr(MemoryModel, "extend", extend_and_ask)
    cells, at = [(100, 1), (100, 2)], [0.02, times.max()]
    completer.update(cells, [1.0, -1.0], times=at)
    prior = completer.predictor_.prior
    coded = torch.from_numpy(completer.cells_.index[-2:])
    torch.testing.assert_close(asked[0], prior(coded, torch.tensor(at, dtype=torch.float64)))
    assert not torch.allclose(asked[0], prior(coded), atol=0.01)
