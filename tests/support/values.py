"""What the tests of values share."""

import torch

from exchangeable.values.distributions import (
    OnLevels,
)


def some_levels(seed=0, cells=40, levels=(1.0, 2.0, 3.0, 4.0, 5.0)):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(cells, len(levels), generator=generator, dtype=torch.float64)
    return OnLevels(torch.tensor(levels, dtype=torch.float64), scores.log_softmax(dim=1))
