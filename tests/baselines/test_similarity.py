"""Estimates by similar members do not depend on what else is asked; weights take little memory."""

import torch

from exchangeable.baselines.reference_weights import SparseWeights
from exchangeable.baselines.similarity import MAX_CACHED_FLOAT32, Similarity
from exchangeable.sums import products


def test_a_cell_of_a_table_of_middling_size_is_estimated_alike_by_itself_and_with_all(monkeypatch):
    """As well on processors that multiply half precision faster, which has three digits."""
    monkeypatch.setattr(products, "_multiplies_halves", lambda device: True)
    size, generator = 850, torch.Generator().manual_seed(0)
    index = (torch.rand(size, size, generator=generator) < 0.05).nonzero()
    residuals = torch.randn(len(index), generator=generator)
    similarity = Similarity(index, residuals, (size, size), 0)
    assert similarity.unfolded.products > products.MIN_HALF_PRODUCTS
    assert size**2 < MAX_CACHED_FLOAT32
    asked = torch.tensor([[0, 5], [849, 3], [17, 17]])
    alone = similarity.estimate(asked)
    every = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    together = similarity.estimate(every)
    assert "_all_estimates" in vars(similarity)
    at = asked[:, 0] * size + asked[:, 1]
    assert alone.abs().min() > 0
    torch.testing.assert_close(together[at], alone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(similarity.estimate(asked), alone, rtol=1e-4, atol=1e-6)


def test_sparse_weights_between_some_references_and_members_are_those_of_the_whole_table():
    generator = torch.Generator().manual_seed(0)
    whole = torch.rand(30, 20, 2, generator=generator)
    whole *= torch.rand(30, 20, 1, generator=generator) < 0.3
    member, reference = whole.any(dim=2).nonzero().T
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), member.bincount(minlength=30).cumsum(0)])
    weights = SparseWeights(starts, reference.int(), whole[member, reference], 20)
    references, members = torch.tensor([17, 3, 11]), torch.tensor([2, 5, 6, 29])
    expected = whole[members][:, references].permute(2, 1, 0)
    assert torch.equal(weights.between(references, members), expected)


def test_sparse_weights_of_many_members_take_the_memory_of_the_references_that_are_asked_for():
    many = 1_000_000  # a dense table of these and as many members would have 8 TB
    starts = torch.arange(many + 1).clamp(max=5)
    own = torch.tensor([0, 7, 7, 9, many - 1], dtype=torch.int32)
    weights = SparseWeights(starts, own, torch.ones(5, 2), many)
    found = weights.between(torch.tensor([7, many - 1]), torch.arange(many))
    assert found.shape == (2, 2, many)
    assert found[0].nonzero().tolist() == [[0, 1], [0, 2], [1, 4]]
