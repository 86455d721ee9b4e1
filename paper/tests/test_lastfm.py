"""Tags of Last.fm are ranked against others, by counts and by trees on counts."""

from dataclasses import replace

import numpy as np
import pytest

from exchangeable.values.scale import Scale
from paper.lib import tags
from paper.lib.problems import Problem
from paper.tables import lastfm


def test_held_out_tags_are_ranked_among_tags_that_were_not_given():
    generator = np.random.default_rng(0)
    keys = np.sort(generator.choice(6 * 5 * 9, 80, replace=False))
    index = np.stack(np.unravel_index(keys, (6, 5, 9)), axis=1)
    positives = Scale("positives", (1.0,))
    problem = Problem("tags", index, np.ones(80), (6, 5, 9), positives, {"0": np.arange(0, 80, 8)})
    cells = tags.asked(replace(problem), problem.tests["0"], np.arange(80), 0)
    given = {tuple(cell) for cell in index.tolist()}
    assert all(tuple(c) in given for c in cells[:, 0].tolist())
    assert not any(tuple(c) in given for c in cells[:, 1:].reshape(-1, 3).tolist())
    data = tags.with_negatives(problem, np.arange(80), np.arange(80), 0)
    assert data.values.sum() == 80
    assert len(data.values) > 130
    zeros = {tuple(cell) for cell in data.index[data.values == 0].tolist()}
    assert not zeros & given
    # What is held out is not known not to be a zero.
    known = np.arange(0, 80, 4)
    some = [tags.with_negatives(problem, known, known, s) for s in range(9)]
    zeros = {tuple(cell) for one in some for cell in one.index[one.values == 0].tolist()}
    assert zeros & given
    assert not zeros & {tuple(cell) for cell in index[known].tolist()}
    assert lastfm.ours(3, width=8, steps=5).config.width == 8
    scores = np.array([[2.0, 1.0, 3.0, 2.0]])
    assert tags.share_behind(scores).tolist() == [pytest.approx(0.5)]
    first_and_third = np.array([1.0, 1 - 2 / tags.AGAINST])
    assert lastfm.ndcg(first_and_third) == pytest.approx((1 + 0.5) / 2)
    by_user, by_artist = (tags.pair_counts(problem, np.arange(80), index, a) for a in (0, 1))
    pairs = [sum(o[0] == c[0] and o[2] == c[2] for o in index) for c in index]
    assert np.floor(by_user).tolist() == pairs
    assert (by_artist >= 1).all()


def test_trees_read_counts_without_the_positive_itself_and_choose_settings_on_validation_cells(
    monkeypatch,
):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(tags, "LEAVES", (3, 7))
    monkeypatch.setattr(tags, "RATES", (0.1,))
    generator = np.random.default_rng(0)
    # Users give the tags of a group of their own.
    shape = (20, 15, 24)
    cells = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 3)
    likely = np.where(cells[:, 0] % 3 == cells[:, 2] % 3, 0.3, 0.01)
    index = cells[generator.random(len(cells)) < likely]
    problem = Problem("tags", index, np.ones(len(index)), shape, Scale("positives", (1.0,)), {})
    order = generator.permutation(len(index))
    test, validation, known = np.split(order, [100, 150])
    every = count_by_hand(index[known], index[known[:5]])
    own = tags.count_features(problem, known, index[known[:5]], index[known[:5]])
    np.testing.assert_allclose(own, np.log1p(every - 1))
    # Another tag of the same user and artist: what they have in common is one less, too.
    other = index[known[:5]] + [0, 0, 1]
    other[:, 2] %= shape[2]
    beside = tags.count_features(problem, known, other, index[known[:5]])
    fewer = count_by_hand(index[known], other) - [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(beside, np.log1p(fewer))
    queries = tags.asked(problem, test, np.arange(len(index)), 0)
    scores, told = tags.trees(problem, known, validation, queries.reshape(-1, 3), 0)
    area = tags.share_behind(scores.reshape(queries.shape[:2])).mean()
    assert 0.75 < area < 1
    assert told["validation_auc"][told["settings"]] == max(told["validation_auc"].values())
    assert len(told["validation_auc"]) == 2


def count_by_hand(known, cells):
    """Known cells that agree with each cell, by the axes that are counted."""
    return np.array(
        [
            [sum((k[list(a)] == c[list(a)]).all() for k in known) for a in tags.COUNTED]
            for c in cells
        ]
    )
