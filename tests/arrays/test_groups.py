"""Groups are the cells that agree on some axes; later cells find theirs."""

from itertools import combinations

import pytest
import torch

from exchangeable.arrays.groups import GroupIndex, Groups, proper_subsets

SHAPE = (4, 3, 5)
CELLS = torch.tensor([[0, 0, 0], [0, 0, 4], [0, 2, 4], [3, 0, 0], [3, 2, 1]])
PAIRS = [(0, 1), (0, 2), (1, 2)]


def combos(index, axes):
    return [tuple(cell[axis] for axis in axes) for cell in index.tolist()]


def test_every_subset_but_the_full_set_keeps_a_pool():
    assert proper_subsets(3) == ((), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2))


@pytest.mark.parametrize("axes", proper_subsets(3))
def test_two_cells_share_a_group_where_they_agree_on_its_axes(axes):
    ids = GroupIndex.of(CELLS, SHAPE).groups(CELLS, axes).ids.tolist()
    for (one, other), (n, m) in zip(
        combinations(ids, 2), combinations(combos(CELLS, axes), 2), strict=True
    ):
        assert (one == other) == (n == m)


def test_one_axis_has_a_group_per_member_and_several_one_per_observed_combination():
    groups = GroupIndex.of(CELLS, SHAPE)
    assert groups.number(()) == 1
    assert [groups.number((axis,)) for axis in range(3)] == list(SHAPE)
    # And one more, which stays empty.
    assert [groups.number(axes) for axes in PAIRS] == [
        len(set(combos(CELLS, axes))) + 1 for axes in PAIRS
    ]


@pytest.mark.parametrize("axes", PAIRS)
def test_combinations_that_were_not_observed_read_the_empty_group(axes):
    groups = GroupIndex.of(CELLS, SHAPE)
    unseen = torch.tensor([[1, 1, 2], [2, 1, 3]])
    found = groups.groups(unseen, axes)
    assert found.ids.tolist() == [groups.number(axes) - 1] * 2
    assert groups.groups(CELLS, axes).sizes[-1] == 0


@pytest.mark.parametrize("axes", proper_subsets(3))
def test_groups_keep_their_cells_when_members_and_cells_are_added(axes):
    before, shape = GroupIndex.of(CELLS, SHAPE), (6, 4, 5)
    added = torch.tensor([[5, 3, 0], [0, 1, 4], [3, 2, 1]])
    after = before.extended(added, shape)
    everything = torch.cat([CELLS, added])
    direct = GroupIndex.of(everything, shape)
    assert after.groups(everything, axes).ids.equal(direct.groups(everything, axes).ids)
    positions = before.positions_in(after, axes)
    old, new = before.groups(CELLS, axes).ids, after.groups(CELLS, axes).ids
    assert positions[old].equal(new)


@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1), (1, 2)])
def test_local_groups_are_those_between_the_first_and_the_last_with_a_cell(axes):
    groups, part = GroupIndex.of(CELLS, SHAPE), CELLS[2:4]
    whole = groups.groups(part, axes)
    local = groups.groups(part, axes, local_groups=True)
    assert (local.ids + local.start).equal(whole.ids)
    assert (int(local.ids.min()), int(local.ids.max())) == (0, local.number - 1)


def test_a_single_member_has_no_combinations_of_its_own():
    single = GroupIndex.of(CELLS, SHAPE).with_new_members(0)
    assert single.shape == (1, 3, 5)
    assert [single.number(axes) for axes in PAIRS] == [1, 1, 5]


def test_only_writers_count():
    groups = Groups(torch.tensor([0, 0, 2, 2]), 3)
    masked = groups.with_writers(torch.tensor([True, False, True, True]))
    assert groups.sizes.tolist() == [2, 0, 2]
    assert masked.sizes.tolist() == [1, 0, 2]
    assert masked.counts(torch.float64).tolist() == [[1.0], [0.0], [2.0]]


def test_more_combinations_than_an_integer_holds_are_refused():
    with pytest.raises(ValueError, match=r"must make fewer than 2\^63 combinations"):
        GroupIndex.of(torch.zeros(1, 3, dtype=torch.int64), (2**40, 2**40, 2))
