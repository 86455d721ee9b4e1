"""The residual model has the blocks that its configuration names."""

import torch

from exchangeable import (
    ResidualConfig,
    ResidualModel,
)


def test_the_residual_model_has_the_blocks_its_configuration_asks_for():
    config = ResidualConfig(
        1, 2, width=8, depth=3, pooling=("mean", "least_squares"), heads=2, rank=3, dropout=0.25
    )
    *blocks, last = ResidualModel(config).layers
    assert [block.residual for block in blocks] == [False, True, True]
    assert all(isinstance(block.norm, torch.nn.LayerNorm) for block in blocks)
    assert all(block.dropout.share == 0.25 for block in blocks)
    for block in blocks[1:]:
        mean, solver, count = block.linear.terms[0].pools
        assert (type(mean).__name__, type(count).__name__) == ("MeanPool", "CountPool")
        assert (solver.heads, solver.rank) == (2, 3)
    assert last.out_channels == 2
    gated = ResidualModel(ResidualConfig(1, 1, width=8, depth=2, heads=2, activation="gated"))
    assert [block.linear.out_channels for block in list(gated.layers)[:2]] == [16, 16]
    assert [block.out_channels for block in list(gated.layers)[:2]] == [8, 8]
