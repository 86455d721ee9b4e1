"""The models: self-supervised and factorized, as in the paper, and the residual one, ours.

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
from exchangeable.models.configs import FactorizedConfig, SelfSupervisedConfig
from exchangeable.models.memory import Encode, MemoryModel
from exchangeable.models.stream import Plan, Stream
from exchangeable.nn.blocks import ExchangeableBlock, FactorLayer
from exchangeable.nn.layers import ExchangeableLinear, Layer
from exchangeable.nn.pools import Modules
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.runtime.random import hashed_bits


class PaperModel(MemoryModel):
    """What the paper's two models share: plain layers, and the literal form of both.

    In the literal form queried cells are in the pools as well. They join the observed ones
    at layer ``first_read``: as zeros in the self-supervised model, and with the factors of
    their members in the decoder of the factorized one.
    """

    config: SelfSupervisedConfig | FactorizedConfig
    dropping: frozenset[int] = frozenset()
    """Layers after which single elements are dropped."""

    @property
    def literal(self) -> bool:
        return self.config.literal

    def predict_hidden(
        self,
        cells: ExchangeableArray,
        hidden: Tensor,
        features: FeatureTensors | None = None,
        generator: Generator | None = None,
        *,
        encode: Encode | None = None,
        known: Tensor | None = None,
        plan: Plan | None = None,
        processes: Processes = ALONE,
    ) -> Tensor:
        if not self.literal:
            return super().predict_hidden(
                cells,
                hidden,
                features,
                generator,
                encode=encode,
                known=known,
                plan=plan,
                processes=processes,
            )
        if processes.size > 1:
            raise ValueError("a model with literal=True answers queries only together")
        values = cells.values if encode is None else encode(cells.values)
        self.layers[0].check(values, cells.support)
        self.layers[0].check_features(features, cells.shape)
        kept = self.draw(values, generator)
        return self.together(values, cells.support, ~hidden, features, kept)[hidden]

    def _stream(self, *given: Any) -> Stream:
        if self.literal:
            raise ValueError(
                "a model with literal=True pools over the queries too, so it cannot be "
                "conditioned apart from them; call model(observed, queries), or rebuild it "
                "with literal=False"
            )
        return super()._stream(*given)

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
        self._check_asked(queries, observed.shape)
        kept = self.draw(observed.values, generator)
        if queries is observed.support:
            seen = torch.ones(len(queries), dtype=torch.bool, device=queries.index.device)
            return self.together(observed.values, queries, seen, features, kept)
        both, seen, asked = _with_zeros(observed, queries)
        return self.together(both.values, both.support, seen, features, kept)[asked]

    def together(
        self,
        values: Tensor,
        cells: Support,
        seen: Tensor,
        features: FeatureTensors | None,
        kept: Sequence[Tensor | None],
    ) -> Tensor:
        """Observed and queried cells through all layers, given which are observed: (E, O)."""
        encoder = cells.with_writers(seen)
        for number in range(self.first_read):
            values, pools = self.layers[number].pooled(values, encoder)
            values = self._read(number, values, encoder, pools, features, kept[number])
        encoded, values = values, values * seen[:, None]
        for number in range(self.first_read, len(self.layers)):
            layer = self.layers[number]
            if isinstance(layer, FactorLayer):  # means of what was observed, in this form too
                pools = layer.pooled(encoded, encoder)[1]
            else:
                values, pools = layer.pooled(values, cells)
            values = self._read(number, values, cells, pools, features, kept[number])
        return values

    def _read(
        self,
        number: int,
        values: Tensor,
        cells: Support,
        pools: Any,
        features: FeatureTensors | None,
        kept: Tensor | None,
    ) -> Tensor:
        single = number in self.dropping
        offered = self.layers[number].offered(
            pools._replace(kept=None if single else kept), features if number == 0 else None
        )
        values = self.layers[number].read(values, cells, offered)
        if not single or kept is None:
            return values
        return without_elements(values, self.config.dropout, kept)

    def draw(self, like: Tensor, generator: Generator | None) -> list[Tensor | None]:
        """Of layers after which single elements are dropped, a number that tells which."""
        drawn = super().draw(like, generator)
        if self.training:
            home = like.device if generator is None else generator.device
            for number in sorted(self.dropping):
                key = torch.rand(1, generator=generator, device=home)
                drawn[number] = key.to(like.device)
        return drawn

    def _dropout(self, number: int, wanted: bool) -> float:
        """The share of channels that the block of this number drops."""
        if not wanted or not self.config.elementwise:
            return self.config.dropout if wanted else 0.0
        self.dropping |= {number}
        return 0.0

    def _linear(
        self,
        channels: tuple[int, int],
        generator: Generator,
        features: tuple[int, ...] = (),
    ) -> ExchangeableLinear:
        return ExchangeableLinear(
            *channels,
            order=self.config.order,
            bias=self.config.bias,
            features=features,
            generator=generator,
        )


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
                self._linear(pair, generator, config.features if number == 0 else ()),
                activation=config.activation,
                dropout=self._dropout(number, number < config.depth - 2),
                residual=config.residual and number > 0,
            )
            for number, pair in enumerate(pairwise(sizes))
        ]
        last = self._linear((config.width, config.out_channels), generator)
        self.layers = Modules[Layer[Any, Any]]([*hidden, last])


class FactorizedAutoencoder(PaperModel):
    """Summarise every row, column, ... by a vector, and rebuild any cell from those vectors.

    The encoder's layers end in one mean per member of each axis; the decoder's layers start
    from the vectors of a cell's members. Nothing needs to be trained again for a new table:
    ``factors`` hands out the vectors of members it never saw.

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
                self._linear(pair, generator, config.features if number == 0 else ()),
                activation=config.activation if number < len(config.encoder) - 1 else "identity",
            )
            for number, pair in enumerate(pairwise([config.in_channels, *config.encoder]))
        ]
        factors = FactorLayer(config.encoder[-1], sizes, maps=config.maps, generator=generator)
        decoder = [
            ExchangeableBlock(
                self._linear(pair, generator),
                activation=config.activation,
                dropout=self._dropout(number, number > len(config.encoder + config.decoder) - 2),
            )
            for number, pair in enumerate(
                pairwise([sum(sizes), *config.decoder]), len(config.encoder) + 1
            )
        ]
        last = self._linear((config.decoder[-1], config.out_channels), generator)
        self.layers = Modules[Layer[Any, Any]]([*encoder, factors, *decoder, last])
        self.first_read = len(encoder)

    def factors(
        self, observed: ExchangeableArray, features: FeatureTensors | None = None
    ) -> tuple[Tensor, ...]:
        """One tensor per axis with a vector for every member: (N, size)."""
        *encoder, layer = list(self.layers)[: self.first_read + 1]
        for number, own in enumerate(encoder):
            observed = own(observed, features if number == 0 else None)
        assert isinstance(layer, FactorLayer)
        return layer.factors(layer.write(observed.values, observed.support))


def without_elements(values: Tensor, share: float, key: Tensor) -> Tensor:
    """Drop single elements, and scale up those that stay; which, the key in [0, 1) decides.

    They are the same on every device. An element's number is the product, modulo 2^32, of odd
    ones drawn for its row and its channel: to draw one for each would take longer than the layer.
    """
    first = (key * 2**24).long()
    rows, channels = (_odd(size, first + own) for own, size in enumerate(values.shape))
    numbers = rows[:, None] * channels
    return torch.where(numbers < round((share - 0.5) * 2**32), 0, values / (1 - share))


def _odd(number: int, key: Tensor) -> Tensor:
    """Odd numbers of 32 bits that look random."""
    drawn = hashed_bits(number, key, key.device) >> 16
    return (drawn | 1).int()


def _with_zeros(
    observed: ExchangeableArray, queries: Support
) -> tuple[ExchangeableArray, Tensor, Tensor]:
    """Observed and queried cells in one array, zeros where only queried; which, and where."""
    both = torch.cat([observed.support.index, queries.index])
    keys, places = group_keys(both, tuple(range(observed.order)), observed.shape).unique(
        return_inverse=True
    )
    cells = both.new_zeros(len(keys), observed.order).index_copy(0, places, both)
    values = observed.values.new_zeros(len(keys), observed.channels)
    values = values.index_copy(0, places[: len(observed)], observed.values)
    seen = torch.zeros(len(keys), dtype=torch.bool, device=places.device)
    seen[places[: len(observed)]] = True
    support = Support(cells, observed.shape)
    return ExchangeableArray.unchecked(support, values), seen, places[len(observed) :]
