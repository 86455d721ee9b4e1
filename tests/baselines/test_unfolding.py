"""Members compared at few combinations, and averages for few members: as with the whole tables."""

import pytest
import torch

from exchangeable.baselines import unfolding
from exchangeable.baselines.reference_weights import DenseWeights
from exchangeable.baselines.unfolding import Combinations, Unfolding

SHAPE = (30, 40)


def draw_cells(share=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    index = (torch.rand(SHAPE, generator=generator) < share).nonzero()
    return index, torch.randn(len(index), generator=generator)


def unfold(references=SHAPE[0]):
    index, values = draw_cells()
    entries = SHAPE[0] * SHAPE[1]
    return Unfolding.of(index, values, SHAPE, 0, float(references * entries))


@pytest.mark.parametrize("references", [30, 17], ids=["all members", "some references"])
@pytest.mark.parametrize("searched", [0, 10**6], ids=["by columns", "by a search of all cells"])
def test_members_are_compared_at_their_own_combinations_as_at_all(
    monkeypatch, references, searched
):
    table = unfold(references)
    members = torch.tensor([3, 4, 11])
    assert table.is_dense
    monkeypatch.setattr(unfolding, "FEW_CELLS", 10**6)  # all combinations
    everywhere = DenseWeights.compare(table, table.cells_of(members), 30.0)
    monkeypatch.setattr(unfolding, "FEW_CELLS", 0)
    monkeypatch.setattr(unfolding, "CELLS_PER_ENTRY", searched)
    few = DenseWeights.compare(table, table.cells_of(members), 30.0)
    torch.testing.assert_close(few.table, everywhere.table)
    assert (everywhere.table > 0).any()


def test_averages_by_sparse_tables_are_those_by_dense_ones(monkeypatch):
    table = unfold()
    weights = DenseWeights.compare(table, table.cells_of(torch.tensor([2, 9])), 30.0)
    dense = weights.average_everywhere(table, 0.1)
    monkeypatch.setattr(Unfolding, "is_large", True)
    torch.testing.assert_close(weights.average_everywhere(table, 0.1), dense)


def test_combinations_of_unknown_and_of_later_members_are_not_found():
    index = torch.tensor([[0, 1], [1, 3], [2, 1]])
    combinations, numbers = Combinations.of(index, [1], (3, 5))
    assert numbers.tolist() == [0, 1, 0]
    asked = torch.tensor([[0, 1], [0, 3], [0, 2], [0, -1], [0, 5], [0, 77]])
    assert combinations.find(asked).tolist() == [0, 1, -1, -1, -1, -1]


def test_combinations_of_two_axes_are_not_those_of_unknown_or_later_members():
    """Numbered by both members, (1, -1) would be (0, 3), and (0, 6) would be (1, 2)."""
    index = torch.tensor([[0, 0, 3], [1, 1, 2]])
    combinations, numbers = Combinations.of(index, [1, 2], (2, 2, 4))
    assert numbers.tolist() == [0, 1]
    asked = torch.tensor([[0, 0, 3], [0, 1, 2], [0, 1, -1], [0, 0, 6], [0, -1, 3], [0, 2, 2]])
    assert combinations.find(asked).tolist() == [0, 1, -1, -1, -1, -1]
