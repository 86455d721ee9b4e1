"""Many new members at once: each is answered as if it had come alone."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from exchangeable import Completer
from exchangeable.errors import InputError
from exchangeable.predictors import best
from exchangeable.predictors.best import RoughPredictions, best_cells, best_of_members
from exchangeable.values.distributions import Normal


def make_table(sizes, share, seed=0, levels=True):
    rng = np.random.default_rng(seed)
    index = np.argwhere(rng.random(sizes) < share)
    vectors = [rng.normal(size=(size, 3)) for size in sizes]
    parts = [vector[index[:, axis]] for axis, vector in enumerate(vectors)]
    values = 3 + 0.5 * sum(p[:, 0] for p in parts) + parts[0][:, 1] * parts[1][:, 1]
    values = values + 0.3 * rng.normal(size=len(index))
    values = np.clip(np.round(values), 1, 5) if levels else values
    frame = pl.DataFrame({f"axis{axis}": column for axis, column in enumerate(index.T)})
    return frame, values.astype(float)


def draw_ratings(axis, sizes, counts, seed=1):
    """Draw ratings of new members with so many cells each, labels from 1,000 on."""
    rng, rows = np.random.default_rng(seed), []
    others = [number for number in range(len(sizes)) if number != axis]
    for member, count in enumerate(counts):
        cells = np.argwhere(np.ones([sizes[number] for number in others]))
        for cell in cells[rng.choice(len(cells), count, replace=False)]:
            row = np.insert(cell, axis, 1000 + member)
            rows.append((*row.tolist(), float(rng.integers(1, 6))))
    return pl.DataFrame(rows, schema=[*(f"axis{n}" for n in range(len(sizes))), "v"], orient="row")


@pytest.mark.parametrize(
    ("sizes", "axis", "model", "levels"),
    [
        ((60, 40), 0, "pretrained", True),
        ((60, 40), 1, "pretrained", True),
        ((60, 40), 0, "pretrained", False),
        ((60, 40), 0, "vmf", True),
        ((60, 40), 0, "knn", True),
        ((20, 12, 5), 0, "pretrained", True),
        ((20, 12, 5), 1, "pretrained", True),
    ],
)
def test_many_new_members_are_answered_as_each_alone(sizes, axis, model, levels):
    completer = Completer(model).fit(*make_table(sizes, 0.4, levels=levels))
    ratings = draw_ratings(axis, sizes, (8, 0, 1, 25, 3))
    members, own = [1003, 1000, 1002, 1001, 1004], f"axis{axis}"
    together = completer.recommend(members, 4, axis=own, ratings=ratings)
    assert together.columns[0] == own
    assert together[own].unique(maintain_order=True).to_list() == members
    for member in members:
        single = ratings.filter(pl.col(own) == member).drop(own)
        alone = completer.recommend(member, 4, axis=own, ratings=single)
        mine = together.filter(pl.col(own) == member).drop(own)
        labels = [name for name in alone.columns if name.startswith("axis")]
        assert mine.select(labels).equals(alone.select(labels))
        rest = [name for name in alone.columns if name not in labels]
        np.testing.assert_allclose(mine.select(rest), alone.select(rest), atol=1e-5)


def test_values_far_outside_of_the_table_are_those_of_one_new_member_only():
    completer = Completer("pretrained").fit(*make_table((60, 40), 0.4, levels=False))
    far = {1000: {0: 50.0, 1: 60.0, 2: 55.0}, 1001: {0: 3.0, 1: 2.0, 2: 3.5}}
    together = completer.recommend([1000, 1001], 3, ratings=far)
    alone = completer.recommend(1001, 3, ratings=far[1001])
    mine = together.filter(pl.col("axis0") == 1001).drop("axis0")
    np.testing.assert_allclose(mine.to_numpy(), alone.to_numpy(), atol=1e-5)


def test_means_stay_within_the_table_and_the_values_of_the_member_itself():
    completer = Completer("pretrained").fit(*make_table((60, 40), 0.4, levels=False))
    index = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    values = np.array([50.0, 60.0, 3.0, 4.0])
    prior = completer.predictor_.for_new_members(0, index, values, count=2).prior
    stats = prior.stats
    narrow = replace(prior, stats=replace(stats, knots=(3.2, 3.3)))  # so that all means are cut off
    cells = torch.tensor([(member, film) for member in range(2) for film in range(40)])
    means = stats.mean + stats.deviation * narrow.predict(cells)[0]
    assert means[40:].min() >= 3.0 - 1e-9
    assert means[40:].max() <= 4.0 + 1e-9
    assert means[:40].max() > 4.5


def test_a_mapping_and_a_frame_of_ratings_give_the_same_lists():
    completer = Completer("pretrained").fit(*make_table((30, 20), 0.4))
    mapping = {1001: {3: 4.0, 5: 1}, 1000: {}, 1002: {7: 2.0}}
    rows = [(m, f, float(v)) for m, own in mapping.items() for f, v in own.items()]
    frame = pl.DataFrame(rows, schema=["axis0", "axis1", "rating"], orient="row")
    members = [1000, 1001, 1002]
    one, other = (completer.recommend(members, 3, ratings=r) for r in (mapping, frame))
    assert one.equals(other)
    assert set(one.filter(pl.col("axis0") == 1001)["axis1"]).isdisjoint({3, 5})


def test_positives_of_many_new_users_are_ranked_as_each_alone():
    frame, _ = make_table((40, 30), 0.2)
    completer = Completer(scale="positives").fit(frame)
    together = completer.recommend([900, 901], 3, ratings={900: [1, 2, 3], 901: [7]})
    for member, items in ((900, [1, 2, 3]), (901, [7])):
        alone = completer.recommend(member, 3, ratings=items)
        mine = together.filter(pl.col("axis0") == member).drop("axis0")
        np.testing.assert_allclose(mine.to_numpy(), alone.to_numpy(), atol=1e-5)


def test_members_are_new_distinct_and_those_of_the_ratings():
    completer = Completer("bias").fit(*make_table((30, 20), 0.4))
    for members, ratings, words in (
        ([5, 1000], {1000: {1: 3.0}}, "5 is a axis0 of the table"),
        ([1000, 1000], {1000: {1: 3.0}}, "1000 comes again"),
        ([1000], {1000: {1: 3.0}, 1001: {1: 2.0}}, "1001 is not"),
        ([1000], {1000: {777: 3.0}}, "777 is not known"),
        ([1000, 1001], pl.DataFrame({"axis0": [1000], "axis1": [1]}), "and values, but have"),
        (["1", "2"], {"1": {1: 3.0}}, "did you mean 1"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            completer.recommend(members, 3, ratings=ratings)
        assert "\n" not in str(caught.value)
    twice = pl.DataFrame({"axis0": [1000, 1000], "axis1": [1, 1], "v": [1.0, 2.0]})
    with pytest.raises(InputError, match="comes again"):
        completer.recommend([1000], 3, ratings=twice)


def test_the_shortlist_finds_the_same_cells_as_reading_all_of_them(monkeypatch):
    completer = Completer("pretrained").fit(*make_table((30, 80), 0.3))
    monkeypatch.setattr(best, "SHORTLIST", 4)
    monkeypatch.setattr(best, "SHORTLIST_PER_CELL", 1)
    members = np.arange(6)
    grid = np.meshgrid(members, np.arange(80), indexing="ij")
    cells = np.stack([each.ravel() for each in grid], axis=1)
    allowed = np.random.default_rng(0).random((6, 80)) < 0.7
    allowed[2] = False
    allowed[3, 2:] = False
    bonus = np.random.default_rng(1).normal(size=len(cells))
    for extra in (None, bonus):
        found = best_of_members(completer.predictor_, cells, allowed, 5, bonus=extra)
        for member in members:
            own = 80 * member + np.flatnonzero(allowed[member])
            mine = found.positions[found.positions // 80 == member]
            if not len(own):
                assert not len(mine)
                continue
            added = None if extra is None else extra[own]
            positions, (means,) = best_cells(completer.predictor_, cells[own], 5, bonus=added)
            assert mine.tolist() == own[positions].tolist()
            got = found.columns[0][found.positions // 80 == member]
            np.testing.assert_allclose(got, means, atol=1e-5)


class Corrected:
    """A predictor whose means are 4.0, 3.9 ... in the rough, and higher by .5 for some cells."""

    def __init__(self, raised):
        self.raised = torch.isin(torch.arange(30), torch.tensor(raised))

    def rough_predictions(self, index):
        rough = 4 - 0.1 * torch.from_numpy(index[:, 1]).double()
        means = rough + 0.5 * self.raised[index[:, 1]]
        return RoughPredictions(rough, lambda at: Normal(means[at], torch.ones(len(at))))


@pytest.mark.parametrize(
    ("raised", "expected"),
    [([0, 5], [0, 5, 1]), ([], [0, 1, 2]), ([3, 4, 8], [3, 4, 0])],
)
def test_cells_are_read_as_long_as_corrections_like_those_seen_could_list_them(
    monkeypatch, raised, expected
):
    """Four cells are read first, and more where one of these is much better than expected."""
    monkeypatch.setattr(best, "SHORTLIST", 4)
    monkeypatch.setattr(best, "SHORTLIST_PER_CELL", 1)
    cells = np.stack([np.zeros(30, dtype=int), np.arange(30)], axis=1)
    found = best_of_members(Corrected(raised), cells, np.ones((1, 30), dtype=bool), 3)
    assert found.positions.tolist() == expected


def test_new_members_are_read_alike_with_their_candidates_and_before_them():
    completer = Completer("pretrained").fit(*make_table((60, 40), 0.4))
    index, values = np.array([[0, 0], [0, 5], [1, 1], [1, 9]]), np.array([5.0, 1.0, 3.0, 4.0])
    asked = np.array([(member, film) for member in range(2) for film in range(40)])
    together, before = (
        completer.predictor_.for_new_members(0, index, values, count=2) for _ in range(2)
    )
    plain = before.predict(asked).mean()
    rough = before.rough_predictions(asked)  # their cells were read
    joint = together.rough_predictions(asked)
    every = torch.arange(len(asked))
    torch.testing.assert_close(joint.means, rough.means, rtol=0, atol=1e-9)
    for predictions in (rough, joint):
        torch.testing.assert_close(predictions.read(every).mean(), plain, rtol=0, atol=1e-6)
    torch.testing.assert_close(together.predict(asked).mean(), plain, rtol=0, atol=1e-6)
