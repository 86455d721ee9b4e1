"""Features of synthetic members say something of them or nothing, and moods last for sessions."""

import numpy as np
import pytest

from exchangeable.pretraining import side_information
from exchangeable.pretraining.interactions import SyntheticAxis
from exchangeable.pretraining.side_information import MAX_CATEGORIES, draw_features, draw_times
from exchangeable.pretraining.synthetic import draw_table

DRAWS = 300


def axis_of(size=200, families=None, rank=3, seed=0):
    """Members with vectors; in families, if there are any."""
    rng = np.random.default_rng(seed)
    family = np.arange(size) if families is None else rng.integers(families, size=size)
    axis = SyntheticAxis(size, family, 0.0 if families is None else 0.6)
    axis.draw_vectors(rng, 1)
    axis.draw_vectors(rng, rank)
    return axis


def explained(axis, features):
    """Share of the variance of half of the members' vectors that the other half's fit tells."""
    vectors = np.concatenate(axis.vectors, axis=1)
    half = axis.size // 2
    features = np.c_[features, np.ones(axis.size)]
    ridge = np.eye(features.shape[1])
    gram = features[:half].T @ features[:half] + ridge
    weights = np.linalg.solve(gram, features[:half].T @ vectors[:half])
    error = vectors[half:] - features[half:] @ weights
    return 1 - (error**2).sum() / ((vectors[half:] - vectors[:half].mean(axis=0)) ** 2).sum()


def test_a_third_of_the_axes_have_features_with_a_row_for_each_member():
    axes = [axis_of(40), axis_of(30, families=5)]
    drawn = [draw_features(np.random.default_rng(seed), axes) for seed in range(DRAWS)]
    assert {len(features) for features in drawn} == {2}
    for number, axis in enumerate(axes):
        own = [features[number] for features in drawn if features[number] is not None]
        assert len(own) / DRAWS == pytest.approx(1 / 3, abs=0.1)
        for features in own:
            assert len(features) == axis.size
            assert 1 <= features.shape[1] <= 3 * 30
            np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-9)
            deviation = features.std(axis=0)
            assert (np.isclose(deviation, 1) | (deviation == 0)).all()
        assert len({features.shape[1] for features in own}) > 20


def test_a_seed_tells_the_features_and_the_times():
    axis, index = axis_of(), np.random.default_rng(0).integers(20, size=(300, 2))
    for seed in range(20):
        one, other = (draw_features(np.random.default_rng(seed), [axis] * 3) for _ in range(2))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
        one, other = (draw_times(np.random.default_rng(seed), index, (20, 20)) for _ in range(2))
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_some_features_tell_what_members_are_like_and_some_do_not():
    axis = axis_of(400)
    drawn = [draw_features(np.random.default_rng(seed), [axis])[0] for seed in range(DRAWS)]
    told = np.array([explained(axis, features) for features in drawn if features is not None])
    assert (told < 0.05).mean() > 0.1
    assert (told > 0.3).mean() > 0.3
    assert told.max() > 0.8


def test_each_kind_of_feature_is_what_it_says():
    axis = axis_of(2000, families=4)
    told = {"_noise": [], "_views": [], "_categories": [], "_families": []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        for kind, shares in told.items():
            features = getattr(side_information, kind)(rng, axis)
            shares.append(explained(axis, features))
            if kind == "_categories":
                assert 2 <= features.shape[1] <= MAX_CATEGORIES
                assert (features.sum(axis=1) == 1).all()
                assert set(np.unique(features)) == {0.0, 1.0}
    assert max(told["_noise"]) < 0.005
    assert min(told["_views"]) > 0.01
    assert max(told["_views"]) > 0.9
    assert min(told["_categories"]) > 0.01
    assert max(told["_categories"]) > 0.2
    # The closeness is .6, and here the common part is that of four families.
    assert told["_families"] == pytest.approx(30 * [told["_families"][0]])
    assert 0.4 < told["_families"][0] < 0.8


def test_the_largest_families_have_a_column_each_and_the_others_none():
    axis = axis_of(500, families=30)
    columns = side_information._families(np.random.default_rng(0), axis)
    assert columns.shape == (500, MAX_CATEGORIES)
    sizes = np.bincount(axis.family)
    assert columns.sum(axis=0).tolist() == sorted(sizes, reverse=True)[:MAX_CATEGORIES]
    for column in columns.T:
        assert len(set(axis.family[column == 1])) == 1
    fewer = side_information._families(np.random.default_rng(0), axis_of(500, families=4))
    assert fewer.shape == (500, 4)
    assert (fewer.sum(axis=1) == 1).all()


def test_a_quarter_of_the_tables_have_times_and_half_of_these_drift():
    shape = (10, 8)
    index = np.argwhere(np.ones(shape))
    drawn = [draw_times(np.random.default_rng(seed), index, shape) for seed in range(4 * DRAWS)]
    with_times = [(times, drift) for times, drift in drawn if times is not None]
    assert len(with_times) / len(drawn) == pytest.approx(0.25, abs=0.05)
    assert all(not drift.any() for times, drift in drawn if times is None)
    assert np.mean([drift.any() for _, drift in with_times]) == pytest.approx(0.5, abs=0.1)
    for times, drift in with_times:
        assert times.shape == drift.shape == (len(index),)
        assert times.min() >= 0
        assert times.max() <= 1.002
        assert np.isfinite(drift).all()
    spread = [drift.std() for _, drift in with_times if drift.any()]
    assert min(spread) < 0.2
    assert 0.4 < max(spread) < 1.5


def drifting(shape, index):
    """Times and drift of tables that have both."""
    for seed in range(DRAWS):
        times, drift = draw_times(np.random.default_rng(seed), index, shape)
        if times is not None and drift.any():
            yield times, drift


def test_a_mood_lasts_for_a_session():
    index = np.random.default_rng(0).integers(5, size=(1000, 1))
    several = 0
    for times, drift in drifting((5,), index):
        for member in range(5):
            own = index[:, 0] == member
            moods, session = np.unique(drift[own], return_inverse=True)
            assert len(moods) <= 30
            several += len(moods) > 1
            for number in range(len(moods)):
                assert np.ptp(times[own][session == number]) < 0.002
    assert several > DRAWS / 8  # of 5 members in an eighth of the draws


def test_members_of_other_axes_change_slowly():
    """In a session of one member only the other one's effect changes, by 1.2 slopes a unit."""
    index = np.zeros((1000, 2), dtype=np.int64)
    for times, drift in drifting((1, 1), index):
        order = np.argsort(times)
        steps, gaps = np.abs(np.diff(drift[order])), np.diff(times[order])
        # Sessions may overlap, so that moods alternate: they are at most 30, and rarely near.
        assert (steps <= 1.2 * 4 * gaps + 1e-12).mean() > 0.8


@pytest.mark.parametrize("order", [1, 2, 3])
def test_tables_have_side_information_of_their_own_members_and_cells(order):
    tables = [draw_table([order, number, 5], order, most=1000) for number in range(40)]
    for table in tables:
        assert len(table.features) == order
        for features, size in zip(table.features, table.shape, strict=True):
            assert features is None or len(features) == size
        assert table.times is None or table.times.shape == table.values.shape
    assert 2 < sum(table.times is not None for table in tables) < 20
    described = [features is not None for table in tables for features in table.features]
    assert np.mean(described) == pytest.approx(1 / 3, abs=0.2)
