"""Sums over members' cells in parts are the sums over all cells, whatever the sequence of these."""

import pytest
import torch

from exchangeable.sums import cell_parts, member_sums
from exchangeable.sums.member_sums import MemberSums

SHAPE = (40, 30, 7)


def random_cells(order, cells=2000, *, ascending):
    generator = torch.Generator().manual_seed(order)
    columns = [torch.randint(size, (cells,), generator=generator) for size in SHAPE[:order]]
    index = torch.stack(columns, dim=1)
    if ascending:
        index = index[index[:, 0].argsort(stable=True)]
    values = torch.randn(cells, generator=generator, dtype=torch.float64)
    weights = [1 + torch.rand(size + 1, generator=generator).double() for size in SHAPE[:order]]
    return index, values, weights


def in_parts(index, monkeypatch):
    monkeypatch.setattr(member_sums, "MIN_PARTED_CELLS", 0)
    monkeypatch.setattr(cell_parts, "PART_CELLS", 150)
    return MemberSums.by_axis(index, SHAPE[: index.shape[1]])


@pytest.mark.parametrize("ascending", [True, False], ids=["ascending", "shuffled"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_in_parts_equal_sums_written_out(axis, ascending, monkeypatch):
    index, values, weights = random_cells(3, ascending=ascending)
    sums = in_parts(index, monkeypatch)[axis].weighted(weights)
    assert len(sums.parts) > 5
    other = (axis + 1) % 3
    table = torch.randn(SHAPE[other], 4, dtype=torch.float64)
    cell_weights = torch.stack([w[c] for w, c in zip(weights, index.T, strict=True)]).prod(dim=0)
    rows = (cell_weights * values)[:, None] * table[index[:, other]]
    expected = torch.zeros(SHAPE[axis], 4).double().index_add(0, index[:, axis], rows)
    torch.testing.assert_close(sums.over(other, table, lambda part: part.take(values)), expected)
    of_cells = sums.of_cells(lambda part: part.take(values))
    summed = torch.zeros(SHAPE[axis]).double().index_add(0, index[:, axis], cell_weights * values)
    torch.testing.assert_close(of_cells, summed)
    assert sums.over_cells(lambda part: part.take(values)) == pytest.approx(float(summed.sum()))
    assert torch.equal(sums.sizes, index[:, axis].bincount(minlength=SHAPE[axis]))


def test_parts_hold_every_cell_once_and_whole_members_of_the_first_axis(monkeypatch):
    index, _, _ = random_cells(2, ascending=False)
    for axis, sums in enumerate(in_parts(index, monkeypatch)):
        positions = torch.cat([torch.as_tensor(part.positions) for part in sums.parts])
        assert torch.equal(positions.sort().values, torch.arange(len(index)).int())
        for part in sums.parts:
            assert torch.equal(part.index.long(), index[part.positions.long()])
            assert bool((part.own.diff() >= 0).all())
        if axis == 0:
            members = [set(part.own.tolist()) for part in sums.parts]
            assert sum(map(len, members)) == len(set.union(*members))


@pytest.mark.parametrize("parted", [True, False], ids=["in parts", "at once"])
def test_sums_without_some_cells_equal_those_of_the_others(parted, monkeypatch):
    index, values, _ = random_cells(2, ascending=True)
    mask = values > 1
    every = in_parts(index, monkeypatch) if parted else MemberSums.by_axis(index, SHAPE[:2])
    for axis, sums in enumerate(each.without(mask) for each in every):
        expected = MemberSums.of(index[~mask], axis, SHAPE[axis])
        assert len(sums) == len(expected) == int((~mask).sum())
        assert torch.equal(sums.sizes, expected.sizes)
        table = torch.randn(SHAPE[1 - axis], 3, dtype=torch.float64)
        torch.testing.assert_close(
            sums.over(1 - axis, table, lambda part: part.take(values)),
            expected.over(1 - axis, table, lambda part: part.take(values[~mask])),
        )


def test_large_sums_have_seven_digits(monkeypatch):
    index, values, _ = random_cells(2, ascending=True)
    sums = MemberSums.of(index, 0, SHAPE[0])
    table = torch.randn(SHAPE[1], 3, dtype=torch.float64)
    exact = sums.over(1, table, lambda part: part.take(values))
    monkeypatch.setattr(member_sums, "MIN_NARROW_PRODUCTS", 0)
    narrow = sums.over(1, table, lambda part: part.take(values))
    assert narrow.dtype == torch.float64
    assert not torch.equal(narrow, exact)
    torch.testing.assert_close(narrow, exact, atol=1e-4, rtol=1e-4)


def test_a_table_without_rows_for_all_members_is_an_error():
    index, _, _ = random_cells(2, ascending=True)
    sums = MemberSums.of(index, 0, SHAPE[0])
    assert sums.rows_missing(1, torch.zeros(SHAPE[1] - 2, 1)) == 2
    with pytest.raises(IndexError, match="2 more rows are needed"):
        sums.over(1, torch.zeros(SHAPE[1] - 2, 1))
