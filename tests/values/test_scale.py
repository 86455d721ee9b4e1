"""A scale knows its levels and what lies between them."""

import torch

from exchangeable.values.distributions import (
    nearest_level,
)


def test_the_nearest_level_of_a_value_between_two():
    levels = torch.tensor([1.0, 2.0, 10.0])
    assert nearest_level(torch.tensor([0.0, 1.4, 1.6, 5.9, 6.1, 99.0]), levels).tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert nearest_level(torch.tensor([3.0]), torch.tensor([7.0])).tolist() == [0]
