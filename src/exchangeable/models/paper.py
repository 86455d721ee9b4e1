"""The paper's two models: the self-supervised one and the factorized autoencoder.

Each is a stack of exchangeable layers with a frozen configuration (``configs``), for any order.
No parameter belongs to a row or a column, so a model trained on one table completes others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.groups import group_keys
from exchangeable.arrays.support import Support
from exchangeable.models.checks import check_queries
from exchangeable.models.configs import FactorizedConfig, SelfSupervisedConfig
from exchangeable.models.memory import Encode, MemoryModel
from exchangeable.models.stream import Stream, features_at
from exchangeable.nn.blocks import ExchangeableBlock, FactorLayer
from exchangeable.nn.joint import linear_layer
from exchangeable.nn.layers import ExchangeableLinear, Layer
from exchangeable.nn.pools import Modules
from exchangeable.runtime.processes import Processes
from exchangeable.runtime.random import hashed_bits


class PaperModel(MemoryModel):
    """The base of the paper's two models: plain layers, and the literal form of both.

    In the literal form queried cells are in the pools as well. They join the observed ones
    at layer ``first_read``: as zeros in the self-supervised model, and with the factors of
    their members in the decoder of the factorized one.
    """

    config: SelfSupervisedConfig | FactorizedConfig
    element_dropout: frozenset[int] = frozenset()
    """Numbers of the layers after which single elements are dropped."""

    @property
    def literal(self) -> bool:
        return self.config.literal

    def _predict_hidden_literal(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: FeatureTensors | None,
        generator: Generator | None,
        encode: Encode | None,
        processes: Processes,
    ) -> Tensor:
        if processes.size > 1:
            raise ValueError("a model with literal=True answers queries only together")
        values = cells.values if encode is None else encode(cells.values)
        support = self.grouped(cells.support)
        self.layers[0].check(values, support)
        self.layers[0].check_features(features, cells.shape)
        dropout = self.draw_dropout(values, generator)
        return self.forward_literal(values, support, ~hidden, features, dropout)[hidden]

    def _stream(self, *args: Any) -> Stream:
        if self.literal:
            raise ValueError(
                "a model with literal=True pools over the queries too, so it cannot be "
                "conditioned apart from them; call model(observed, queries), or rebuild it "
                "with literal=False"
            )
        return super()._stream(*args)

    def forward(
        self,
        observed: ExchangeableArray,
        queries: Support,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
    ) -> Tensor:
        if not self.literal:
            return super().forward(observed, queries, features, generator)
        self.layers[0].check(observed.values, observed.support)
        self.layers[0].check_features(features, observed.shape)
        check_queries(queries, observed.shape, self.device)
        dropout = self.draw_dropout(observed.values, generator)
        if queries is observed.support:
            is_observed = torch.ones(len(queries), dtype=torch.bool, device=queries.index.device)
            cells = self.grouped(queries)
            return self.forward_literal(observed.values, cells, is_observed, features, dropout)
        both, is_observed, positions = _with_zeros(observed, queries)
        cells = self.grouped(both.support)
        outputs = self.forward_literal(both.values, cells, is_observed, features, dropout)
        return outputs[positions]

    def forward_literal(
        self,
        values: Tensor,
        cells: Support,
        is_observed: Tensor,
        features: FeatureTensors | None,
        dropout: Sequence[Tensor | None],
    ) -> Tensor:
        """Run observed and queried cells through all layers, which pool over both: (E, O)."""
        observed_cells = cells.with_writers(is_observed)
        for level in range(self.first_read):
            values, pools = self.layers[level].pool_cells(
                values, observed_cells, features_at(level, features)
            )
            values = self._read_layer(
                level, values, observed_cells, pools, features, dropout[level]
            )
        encoded, values = values, values * is_observed[:, None]
        for level in range(self.first_read, len(self.layers)):
            layer = self.layers[level]
            if isinstance(layer, FactorLayer):  # means of the observed cells, in this form too
                pools = layer.pool_cells(encoded, observed_cells)[1]
            else:
                values, pools = layer.pool_cells(values, cells, features_at(level, features))
            values = self._read_layer(level, values, cells, pools, features, dropout[level])
        return values

    def _read_layer(
        self,
        level: int,
        values: Tensor,
        cells: Support,
        pools: Any,
        features: FeatureTensors | None,
        dropout: Tensor | None,
    ) -> Tensor:
        by_element = level in self.element_dropout
        readout = self.layers[level].readout(
            pools._replace(dropout_mask=None if by_element else dropout),
            features_at(level, features),
        )
        values = self.layers[level].read(values, cells, readout)
        if not by_element or dropout is None:
            return values
        return drop_elements(values, self.config.dropout, dropout)

    def draw_dropout(self, like: Tensor, generator: Generator | None) -> list[Tensor | None]:
        """Draw the dropout of each layer: a mask of channels, or a key for single elements."""
        dropout = super().draw_dropout(like, generator)
        if self.training:
            device = like.device if generator is None else generator.device
            for level in sorted(self.element_dropout):
                key = torch.rand(1, generator=generator, device=device)
                dropout[level] = key.to(like.device)
        return dropout

    def _channel_dropout(self, level: int, has_dropout: bool) -> float:
        """Return the share of channels that a block drops, and note where elements are dropped."""
        if not has_dropout or not self.config.elementwise:
            return self.config.dropout if has_dropout else 0.0
        self.element_dropout |= {level}
        return 0.0

    def _linear(
        self,
        channels: tuple[int, int],
        generator: Generator,
        features: tuple[int, ...] = (),
        *,
        pools: bool = True,
    ) -> ExchangeableLinear:
        return linear_layer(
            *channels,
            order=self.config.order,
            joint=self.config.joint,
            bias=self.config.bias,
            features=features,
            pools_features=self.config.pools_features,
            pools=pools,
            generator=generator,
        )

    def _redraw(self, generator: Generator) -> None:
        """Draw the weights from a normal distribution, where the configuration says so."""
        if self.config.deviation is None:
            return
        for weights in self.parameters():
            if weights.ndim > 1:
                drawn = torch.empty(weights.shape).normal_(generator=generator)
                weights.data.copy_(drawn * self.config.deviation)


class SelfSupervisedModel(PaperModel):
    """A plain stack of exchangeable layers, trained to predict cells that were hidden from it.

    >>> model = SelfSupervisedModel(SelfSupervisedConfig(5, 5, width=16, depth=3))
    >>> seen = ExchangeableArray.of([(0, 0), (1, 2)], torch.eye(5)[[4, 2]], (2, 3))
    >>> model(seen, Support.of([(0, 2), (1, 1)], (2, 3))).shape
    torch.Size([2, 5])
    """

    def __init__(self, config: SelfSupervisedConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        sizes = [config.in_channels, *[config.width] * (config.depth - 1)]
        hidden = [
            ExchangeableBlock(
                self._linear(pair, generator, config.features if level == 0 else ()),
                activation=config.activation,
                dropout=self._channel_dropout(level, level < config.depth - 2),
                residual=config.residual and level > 0,
            )
            for level, pair in enumerate(pairwise(sizes))
        ]
        last = self._linear((config.width, config.out_channels), generator)
        self.layers = Modules[Layer[Any, Any]]([*hidden, last])
        self._redraw(generator)


class FactorizedAutoencoder(PaperModel):
    """Summarise every row, column, ... by a vector, and predict any cell from those vectors.

    The encoder's layers end in one mean per member of each axis; the decoder's layers start
    from the vectors of a cell's members. Nothing needs to be trained again for a new table:
    ``factors`` returns the vectors of members it never saw.

    >>> sizes = {"encoder": (8, 4), "decoder": (8,), "factor_sizes": (3, 2)}
    >>> config = FactorizedConfig(1, 1, maps=True, **sizes)
    >>> table = ExchangeableArray.of([(0, 0), (1, 2)], [[1.0], [2.0]], (2, 3))
    >>> [tuple(vectors.shape) for vectors in FactorizedAutoencoder(config).factors(table)]
    [(2, 3), (3, 2)]
    """

    def __init__(self, config: FactorizedConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        sizes = config.factor_sizes or (config.encoder[-1],) * config.order
        encoder = [
            ExchangeableBlock(
                self._linear(pair, generator, config.features if level == 0 else ()),
                activation=config.activation if level < len(config.encoder) - 1 else "identity",
            )
            for level, pair in enumerate(pairwise([config.in_channels, *config.encoder]))
        ]
        factors = FactorLayer(
            config.encoder[-1],
            sizes,
            maps=config.maps,
            hidden=config.map_hidden,
            joint=config.joint,
            generator=generator,
        )
        decoder = [
            ExchangeableBlock(
                self._linear(
                    pair,
                    generator,
                    pools=config.pools_factors or level > len(config.encoder) + 1,
                ),
                activation=config.activation,
                dropout=self._channel_dropout(
                    level, level > len(config.encoder + config.decoder) - 2
                ),
            )
            for level, pair in enumerate(
                pairwise([sum(sizes), *config.decoder]), len(config.encoder) + 1
            )
        ]
        last = self._linear((config.decoder[-1], config.out_channels), generator)
        self.layers = Modules[Layer[Any, Any]]([*encoder, factors, *decoder, last])
        self.first_read = len(encoder)
        self._redraw(generator)

    def factors(
        self, observed: ExchangeableArray, features: FeatureTensors | None = None
    ) -> tuple[Tensor, ...]:
        """Return one tensor per axis with a vector for every member: (N, size)."""
        *encoder, bottleneck = list(self.layers)[: self.first_read + 1]
        for level, layer in enumerate(encoder):
            observed = layer(observed, features_at(level, features))
        assert isinstance(bottleneck, FactorLayer)
        return bottleneck.factors(bottleneck.write(observed.values, observed.support))


def drop_elements(values: Tensor, share: float, key: Tensor) -> Tensor:
    """Drop single elements, chosen by a key in [0, 1), and scale up those that stay.

    They are the same on every device. An element's number is the product, modulo 2^32, of odd
    ones drawn for its row and its channel: to draw one for each would take longer than the layer.
    """
    first = (key * 2**24).long()
    rows, channels = (_draw_odd(size, first + axis) for axis, size in enumerate(values.shape))
    numbers = rows[:, None] * channels
    return torch.where(numbers < round((share - 0.5) * 2**32), 0, values / (1 - share))


def _draw_odd(count: int, key: Tensor) -> Tensor:
    """Draw pseudo-random odd numbers of 32 bits."""
    drawn = hashed_bits(count, key, key.device) >> 16
    return (drawn | 1).int()


def _with_zeros(
    observed: ExchangeableArray, queries: Support
) -> tuple[ExchangeableArray, Tensor, Tensor]:
    """Put observed and queried cells in one array, with zeros where only queried.

    Also return which of its cells are observed, and the position of each query.
    """
    both = torch.cat([observed.support.index, queries.index])
    keys, positions = group_keys(both, tuple(range(observed.order)), observed.shape).unique(
        return_inverse=True
    )
    cells = both.new_zeros(len(keys), observed.order).index_copy(0, positions, both)
    values = observed.values.new_zeros(len(keys), observed.channels)
    values = values.index_copy(0, positions[: len(observed)], observed.values)
    is_observed = torch.zeros(len(keys), dtype=torch.bool, device=positions.device)
    is_observed[positions[: len(observed)]] = True
    support = Support(cells, observed.shape)
    return ExchangeableArray.unchecked(support, values), is_observed, positions[len(observed) :]
