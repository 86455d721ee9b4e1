"""Cells near in time, against means written out."""

import math

import pytest
import torch

from exchangeable.prior import nearby as nearby_module
from exchangeable.prior.nearby import (
    SAME_DOUBT,
    WINDOW,
    WINDOW_DOUBT,
    Nearby,
    UpdatedNearby,
    update_nearby,
)
from exchangeable.sums.member_sums import MemberSums
from exchangeable.sums.solved_members import SolvedMembers

SHAPE = (7, 60)


def table(seed=0, times=12):
    generator = torch.Generator().manual_seed(seed)
    index = torch.rand(SHAPE, generator=generator).gt(0.5).nonzero()
    index = index[index[:, 0] != 3]  # a member without cells
    residuals = torch.randn(len(index), generator=generator, dtype=torch.float64)
    moments = torch.randint(times, (len(index),), generator=generator).double()
    return index, residuals, moments


def written_out(index, residuals, times, axis, cell, time):
    """Estimate one cell: by the same time, and by a window of whole groups of equal times."""
    rows = [
        (float(times[e]), float(residuals[e]))
        for e in range(len(index))
        if index[e, axis] == cell[axis] and math.isfinite(times[e])
    ]
    own = {float(residuals[e]) for e in range(len(index)) if index[e].tolist() == cell}
    before = sorted(t for t, _ in rows if t < time)[-WINDOW:]
    after = sorted(t for t, _ in rows if t > time)[:WINDOW]
    first, last = min([*before, time]), max([*after, time])
    estimates = []
    for low, high, doubt in ((time, time, SAME_DOUBT), (first, last, WINDOW_DOUBT)):
        kept = [r for t, r in rows if low <= t <= high and r not in own]
        estimates.append(sum(kept) / (len(kept) + doubt))
    return estimates


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kinds", [1, 12, 10_000], ids=["one time", "few times", "all different"])
def test_estimates_are_means_of_other_cells_near_in_time(axis, kinds):
    index, residuals, times = table(kinds, kinds)
    nearby = Nearby.of(index, residuals, times, SHAPE, axis)
    unseen = torch.tensor([[3, 5], [2, 0], [6, 59], [0, 1]])
    queries = torch.cat([index[:40], unseen])
    asked = torch.cat([times[:40], torch.tensor([4.0, 0.0, 99999.0, 3.5], dtype=torch.float64)])
    expected = [
        written_out(index, residuals, times, axis, cell, float(time))
        for cell, time in zip(queries.tolist(), asked, strict=True)
    ]
    torch.testing.assert_close(nearby.estimate(queries, asked), torch.tensor(expected).double())


def test_the_sequence_of_cells_and_the_units_of_time_have_no_effect():
    index, residuals, times = table()
    expected = Nearby.of(index, residuals, times, SHAPE, 0).estimate(index, times)
    turn = torch.randperm(len(index), generator=torch.Generator().manual_seed(1))
    turned = Nearby.of(index[turn], residuals[turn], times[turn], SHAPE, 0)
    torch.testing.assert_close(turned.estimate(index, times), expected)
    scaled = Nearby.of(index, residuals, 86400 * times - 5, SHAPE, 0)
    torch.testing.assert_close(scaled.estimate(index, 86400 * times - 5), expected)


def test_cells_without_a_time_are_left_out_and_queries_without_one_get_the_latest():
    index, residuals, times = table(times=1000)
    nearby = Nearby.of(index, residuals, times, SHAPE, 0)
    queries = torch.tensor([[0, 2], [-1, 4], [5, -1]])
    latest = times.max().expand(3)
    assert torch.equal(nearby.estimate(queries), nearby.estimate(queries, latest))
    assert not nearby.estimate(queries)[1].any()  # an unknown member has no sequence
    assert not nearby.estimate(queries, torch.full_like(latest, torch.nan)).any()
    gone = times.clone()
    gone[::3] = torch.nan
    kept = times[gone.isfinite()]
    some = Nearby.of(index, residuals, gone, SHAPE, 0)
    only = Nearby.of(index[gone.isfinite()], residuals[gone.isfinite()], kept, SHAPE, 0)
    torch.testing.assert_close(some.estimate(index, times), only.estimate(index, times))
    nothing = Nearby.of(index, residuals, torch.full_like(times, torch.nan), SHAPE, 0)
    assert not nothing.estimate(index, times).any()


def solved(index, members, axis=0):
    found = torch.tensor(members)
    return SolvedMembers(found, *MemberSums.of_members(index, axis, found))


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["all again", "beside the others"])
def test_cells_that_come_later_are_sorted_with_those_of_their_members(share, monkeypatch):
    monkeypatch.setattr(nearby_module, "MAX_UPDATED_SHARE", share)
    index, residuals, times = table(times=40)
    times[(index[:, 0] == 5).nonzero()[0]] = 99.0  # the latest is not among those sorted again
    updated, known = Nearby.of(index[:-8], residuals[:-8], times[:-8], SHAPE, 0), len(index) - 8
    index[-8:] = torch.tensor([[0, 61], [3, 5], [7, 1], [7, 2], [2, 61], [2, 62], [7, 3], [7, 9]])
    shape = (8, 63)
    for end in (known + 4, known + 8):  # in two goes
        new = index[known:end, 0].unique()
        known = end
        changed = solved(index[:end], new.tolist())
        of = lambda cells, end=end: residuals[:end][cells]  # noqa: E731
        updated = update_nearby(updated, index[:end], of, times[:end], shape, changed)
    assert isinstance(updated, UpdatedNearby if share else Nearby)
    expected = Nearby.of(index, residuals, times, shape, 0)
    for at in (times, None):
        torch.testing.assert_close(updated.estimate(index, at), expected.estimate(index, at))
    unseen = torch.tensor([[0, 1], [7, 50], [2, 59], [-1, 3]])
    torch.testing.assert_close(updated.estimate(unseen), expected.estimate(unseen))
    of_new, expected_of_new = updated.of_new_members(), expected.of_new_members()
    torch.testing.assert_close(of_new.estimate(unseen), expected_of_new.estimate(unseen))


def test_residuals_that_changed_count_for_their_members():
    index, residuals, times = table(times=40)
    before, changed = Nearby.of(index, residuals, times, SHAPE, 0), residuals.clone()
    own = index[:, 0] == 2
    changed[own] += 1
    updated = update_nearby(
        before, index, lambda cells: changed[cells], times, SHAPE, solved(index, [2])
    )
    expected = Nearby.of(index, changed, times, SHAPE, 0)
    torch.testing.assert_close(updated.estimate(index, times), expected.estimate(index, times))
