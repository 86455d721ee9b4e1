"""What similar members estimate of a cell does not depend on what else was asked."""

import torch

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
