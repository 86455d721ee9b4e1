"""Weighted sums of estimates: those of all columns written out."""

import pytest
import torch

from exchangeable.prior.estimates import Estimates


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("order", [2, 3])
def test_a_weighted_sum_is_that_of_the_columns(order, timed):
    generator = torch.Generator().manual_seed(order)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    cells, nothing = 20, torch.zeros(1, dtype=torch.float64)
    estimates = Estimates(
        draw(cells),
        draw(cells) if timed else nothing.expand(cells),
        draw(cells, 2),
        draw(cells, 2),
        draw(cells, order, 4).float(),
        draw(cells, order, 2) if timed else nothing.expand(cells, order, 2),
        torch.ones(cells, order, dtype=torch.int64),
    )
    weights = draw(3 + 4 * order)
    expected = estimates.columns @ weights
    torch.testing.assert_close(estimates.weighted(weights), expected, rtol=0, atol=1e-12)
