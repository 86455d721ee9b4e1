"""The residual model: blocks with layer norm that read means, attention and counts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Generator, Tensor

from exchangeable.models.configs import ResidualConfig
from exchangeable.models.memory import MemoryModel
from exchangeable.models.prior_channels import count_prior_channels
from exchangeable.nn.blocks import ExchangeableBlock
from exchangeable.nn.joint import linear_layer
from exchangeable.nn.layers import ExchangeableLinear, Layer
from exchangeable.nn.pools import Modules, Pooling


class ResidualModel(MemoryModel):
    """Residual blocks with layer norm that read means, attention and counts of their groups.

    >>> from exchangeable.arrays.array import ExchangeableArray
    >>> from exchangeable.arrays.support import Support
    >>> model = ResidualModel(ResidualConfig.small(1, 1)).eval()
    >>> seen = ExchangeableArray.of([(0, 0), (1, 2)], [[4.0], [2.0]], (2, 3))
    >>> memory = model.condition(seen)
    >>> model.read(memory, Support.of([(1, 1)], (2, 3))).shape
    torch.Size([1, 1])
    """

    def __init__(self, config: ResidualConfig, seed: int = 0) -> None:
        super().__init__()
        self.config, self.prior_rank = config, config.prior
        self.comparison_budget = config.compared
        self.prior_reads_features = config.prior_reads_features
        channels = count_prior_channels(config.order, joint=config.joint)
        self.prior_channels = channels if config.prior else 0
        generator = torch.Generator().manual_seed(seed)
        blocks = [self._block(level, generator) for level in range(config.depth)]
        last = self._linear(config.width, config.out_channels, config.pooling, (), generator)
        if config.prior:  # training starts from the prior's predictions
            last.zero_weights()
        self.layers = Modules[Layer[Any, Any]]([*blocks, last])

    def input_channels(self, values: Tensor) -> Tensor:
        """Append a channel of ones, which tells an observed 0 from a cell that is only queried."""
        if values.shape[1] != self.config.in_channels:
            raise ValueError(
                f"the model takes {self.config.in_channels} channels, but the array has "
                f"{values.shape[1]}"
            )
        return torch.cat([values, values.new_ones(len(values), 1)], dim=1)

    def _block(self, level: int, generator: Generator) -> Layer[Any, Any]:
        config, first = self.config, level == 0
        linear = self._linear(
            config.in_channels + 1 + self.prior_channels if first else config.width,
            config.width * (2 if config.activation == "gated" else 1),
            # Heads need not divide the channels that come in, so the first block has none.
            ("mean",) if first else config.pooling,
            config.features if first else (),
            generator,
        )
        return ExchangeableBlock(
            linear,
            activation=config.activation,
            norm=True,
            dropout=config.dropout,
            residual=not first,
        )

    def _linear(
        self,
        inputs: int,
        outputs: int,
        pooling: tuple[Pooling, ...],
        features: tuple[int, ...],
        generator: Generator,
    ) -> ExchangeableLinear:
        config = self.config
        return linear_layer(
            inputs,
            outputs,
            order=config.order,
            joint=config.joint,
            pooling=pooling,
            counts=config.counts,
            features=features,
            heads=config.heads,
            rank=config.rank,
            generator=generator,
        )
