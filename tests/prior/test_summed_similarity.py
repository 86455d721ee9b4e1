"""Members compared by sums over cells are compared as they are by tables of all of them."""

import pytest
import torch

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.support import Support
from exchangeable.baselines.similarity import Similarity
from exchangeable.prior import factor_fit, summed_similarity
from exchangeable.prior.prior import Prior
from exchangeable.prior.summed_similarity import compare_by_sums, describe_references
from exchangeable.sums import cell_parts, member_sums
from exchangeable.sums.member_sums import MemberSums
from exchangeable.values.codecs import ValueStats
from exchangeable.values.scale import REAL

SHAPE = (60, 45)


def random_table(cells=1200):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randperm(SHAPE[0] * SHAPE[1], generator=generator)[:cells].sort().values
    index = torch.stack([keys // SHAPE[1], keys % SHAPE[1]], dim=1)
    one, other = (torch.randn(size, 2, generator=generator).double() for size in SHAPE)
    values = (one[index[:, 0]] * other[index[:, 1]]).sum(dim=1)
    return index, values + 0.3 * torch.randn(cells, generator=generator).double()


def prior_of(index, values):
    stats = ValueStats.of(values.numpy(), REAL)
    return Prior.of(ExchangeableArray(Support(index, SHAPE), values[:, None]), stats, 2)


@pytest.mark.parametrize("references", [60, 20])
def test_estimates_equal_those_of_tables_of_all_cells(references, monkeypatch):
    index, values = random_table()
    fine = prior_of(index, values).fitted.fine
    budget = references * SHAPE[0] * SHAPE[1]
    monkeypatch.setattr(member_sums, "MIN_PARTED_CELLS", 0)
    monkeypatch.setattr(cell_parts, "PART_CELLS", 200)
    sums = MemberSums.by_axis(index, SHAPE)
    residuals = (values - fine.predict_mean(index)).float()
    every = torch.cartesian_prod(*map(torch.arange, SHAPE))
    for axis, found in enumerate(compare_by_sums(sums, values, fine, budget)):
        expected = Similarity(index, residuals, SHAPE, axis, comparison_budget=budget)
        assert torch.equal(found.unfolded.references, expected.unfolded.references)
        assert len(found.unfolded.references) == min(references, SHAPE[axis])
        torch.testing.assert_close(found.estimate(every), expected.estimate(every))


def test_with_too_few_references_no_member_is_compared():
    index, values = random_table()
    fine = prior_of(index, values).fitted.fine
    sums = MemberSums.by_axis(index, SHAPE)
    found = compare_by_sums(sums, values, fine, 3 * SHAPE[0] * SHAPE[1])
    assert not any(each.estimate(index).any() for each in found)
    assert describe_references(found).startswith("similar members are not compared")
    some = compare_by_sums(sums, values, fine, 20 * SHAPE[0] * SHAPE[1])
    assert "20 of 60 and 20 of 45" in describe_references(some)


def test_a_large_table_keeps_what_was_fitted_without_held_out_cells(monkeypatch):
    index, values = random_table()
    plain = prior_of(index, values)
    monkeypatch.setattr(member_sums, "MIN_PARTED_CELLS", 0)
    monkeypatch.setattr(cell_parts, "PART_CELLS", 300)
    monkeypatch.setattr(summed_similarity, "MIN_SUMMED_CELLS", 0)
    large = factor_fit.Schedule(
        factor_fit.Sweeps(12, 6), factor_fit.Sweeps(0, 0), warm=True, keeps=True
    )
    monkeypatch.setattr(factor_fit.Schedule, "of", lambda cells: large)
    found = prior_of(index, values)
    assert found.fitted is found.holdouts[-1].fitted
    for one, other in zip(found.holdouts, plain.holdouts, strict=True):
        assert torch.equal(one.cells, other.cells)
        torch.testing.assert_close(
            one.fitted.estimates(index[one.cells]).columns,
            other.fitted.estimates(index[one.cells]).columns,
            atol=1e-6,
            rtol=1e-5,
        )
    torch.testing.assert_close(found.trust.weights, plain.trust.weights, atol=1e-6, rtol=1e-4)
