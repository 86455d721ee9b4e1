"""Configurations of the models: everything needed to rebuild one, stored beside its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from exchangeable.models.memory import MemoryModel
from exchangeable.nn.combine import Activation
from exchangeable.nn.pools import Pooling


@dataclass(frozen=True)
class SelfSupervisedConfig:
    """Everything needed to rebuild the model; the defaults are the text of the paper."""

    in_channels: int
    """Channels of an observed cell: with one-hot ratings, the number of levels."""
    out_channels: int
    """Channels of an output: a score per level."""
    order: int = 2
    """Number of axes."""
    joint: bool = False
    """Whether both axes are one set: a cell (i, j) reads the row and the column of i and of j,
    their cells on the diagonal, and the cell (j, i)."""
    width: int = 256
    """Channels of every hidden layer."""
    depth: int = 9
    """Exchangeable layers, the last one included."""
    activation: Activation = "leaky_relu"
    """Activation after every layer but the last."""
    residual: bool = False
    """Add a hidden layer's input to its output; without it nine layers hardly train."""
    bias: bool = True
    """Whether layers have a bias."""
    dropout: float = 0.5
    """Share of channels dropped after every hidden layer but the last one."""
    features: tuple[int, ...] = ()
    """Number of member features, by axis."""
    pools_features: bool = False
    """As printed: the pools of the layer that features enter read them, too."""
    literal: bool = False
    """As printed: hidden and queried cells stay in the pools as zeros, so that a prediction
    depends on the other queries."""
    elementwise: bool = False
    """Drop single elements instead of whole channels, as the released code does; in the
    literal form only."""
    deviation: float | None = None
    """Standard deviation of the normal distribution that weights are drawn from, .01 in the
    released code; None: uniform between plus and minus 1 / sqrt(inputs)."""

    def __post_init__(self) -> None:
        _check_config(self)
        _check_paper(self)
        if self.depth < 2:
            raise ValueError(f"depth must be 2 or more, but is {self.depth}")

    @property
    def prior_reads_features(self) -> bool:
        return False

    @classmethod
    def paper(cls, levels: int, order: int = 2) -> SelfSupervisedConfig:
        """The model of the text: nine layers of 256, leaky ReLU, dropout after layers 1-7."""
        return cls(levels, levels, order, literal=True)

    @classmethod
    def released(cls, levels: int, order: int = 2) -> SelfSupervisedConfig:
        """The model of the released code: ReLU, skips, no bias, single elements dropped."""
        return cls(
            levels,
            levels,
            order,
            activation="relu",
            residual=True,
            bias=False,
            literal=True,
            elementwise=True,
        )


@dataclass(frozen=True)
class FactorizedConfig:
    """Everything needed to rebuild the model; the defaults are the text of the paper."""

    in_channels: int
    """Channels of an observed cell: with one-hot ratings, the number of levels."""
    out_channels: int
    """Channels of an output: a score per level."""
    order: int = 2
    """Number of axes."""
    joint: bool = False
    """Whether both axes are one set: a cell (i, j) reads the row and the column of i and of j,
    their cells on the diagonal, and the cell (j, i)."""
    encoder: tuple[int, ...] = (220, 220, 100)
    """Channels of the encoder's layers; the last is pooled along each axis."""
    factor_sizes: tuple[int, ...] | None = None
    """Length of a member's vector, by axis; the encoder's last when None."""
    maps: bool = False
    """Whether a learned map per axis follows pooling; needed where factor sizes differ."""
    map_hidden: tuple[int, ...] = ()
    """Channels of the hidden layers of these maps; without any they are linear."""
    decoder: tuple[int, ...] = (220, 220, 220, 220)
    """Channels of the decoder's hidden layers; one more layer gives the output."""
    pools_factors: bool = True
    """Whether the decoder's first layer pools the factors over the cells; in the released code a
    cell reads those of its own members only."""
    activation: Activation = "leaky_relu"
    """Activation after every layer but the last of encoder and decoder."""
    bias: bool = True
    """Whether layers have a bias."""
    dropout: float = 0.5
    """Share of channels dropped after the last two hidden layers of the decoder."""
    features: tuple[int, ...] = ()
    """Number of member features, by axis."""
    pools_features: bool = False
    """As printed: the pools of the layer that features enter read them, too."""
    literal: bool = False
    """As printed: the decoder pools over observed and queried cells together, so that a
    prediction depends on the other queries."""
    elementwise: bool = False
    """Drop single elements instead of whole channels, as the released code does; in the
    literal form only."""
    deviation: float | None = None
    """Standard deviation of the normal distribution that weights are drawn from, .01 in the
    released code; None: uniform between plus and minus 1 / sqrt(inputs)."""

    def __post_init__(self) -> None:
        _check_config(self)
        _check_paper(self)
        if self.map_hidden and not self.maps:
            raise ValueError(
                f"map_hidden are layers of maps, but maps is False and they are {self.map_hidden}"
            )
        if not self.encoder or not self.decoder:
            raise ValueError(
                f"encoder and decoder must have a layer or more, but are {self.encoder} and "
                f"{self.decoder}"
            )
        if self.factor_sizes is not None and len(self.factor_sizes) != self.order:
            raise ValueError(
                f"factor_sizes must give one length for each of {self.order} axes, but are "
                f"{self.factor_sizes}"
            )

    @property
    def prior_reads_features(self) -> bool:
        return False

    @classmethod
    def paper(cls, levels: int, order: int = 2) -> FactorizedConfig:
        """The model of the text: encoder 220-220-100, no map after pooling, five decoder layers."""
        return cls(levels, levels, order, literal=True)

    @classmethod
    def released(cls, levels: int, order: int = 2) -> FactorizedConfig:
        """The model of the released code: a learned map per side, a first layer of the decoder that
        pools nothing, no bias, single elements dropped, small weights at the start.
        """
        return cls(
            levels,
            levels,
            order,
            maps=True,
            pools_factors=False,
            bias=False,
            literal=True,
            elementwise=True,
            deviation=0.01,
        )


@dataclass(frozen=True)
class ResidualConfig:
    """Everything needed to rebuild the model."""

    in_channels: int
    """Channels of an observed cell."""
    out_channels: int
    """Channels of an output."""
    order: int = 2
    """Number of axes."""
    joint: bool = False
    """Whether both axes are one set: a cell (i, j) reads the row and the column of i and of j,
    their cells on the diagonal, and the cell (j, i)."""
    width: int = 64
    """Channels of every block."""
    depth: int = 8
    """Blocks, the first of which lifts the input to ``width``; a last layer follows them."""
    pooling: tuple[Pooling, ...] = ("mean", "attention")
    """Poolings of the groups that a cell belongs to, from the second block on."""
    heads: int = 8
    """Heads of attention and of least squares."""
    rank: int = 4
    """Features of each least-squares regression."""
    counts: bool = True
    """Whether a cell also reads the sizes of its groups."""
    activation: Activation = "leaky_relu"
    """Leaky or gated units; gated ones have twice the weights."""
    dropout: float = 0.15
    """Share of channels dropped after every block."""
    prior: int = 0
    """Rank of the factorization that cells start from and outputs are relative to; 0: none."""
    compared: int = 150_000_000_000
    """Budget of the neighbour comparison, table entries times compared members. Above it only the
    members with the most cells are compared. Two cores take ten seconds for the default."""
    features: tuple[int, ...] = ()
    """Number of member features, by axis."""

    def __post_init__(self) -> None:
        _check_config(self)

    @property
    def prior_reads_features(self) -> bool:
        """Whether features of members are read by the prior alone, and not by the layers."""
        return bool(self.prior) and not any(self.features)

    @classmethod
    def small(cls, in_channels: int, out_channels: int, order: int = 2) -> ResidualConfig:
        """Four blocks of 32 with mean pooling: trains in seconds on a CPU."""
        return cls(in_channels, out_channels, order, width=32, depth=4, pooling=("mean",))

    @classmethod
    def base(cls, in_channels: int, out_channels: int, order: int = 2) -> ResidualConfig:
        """Eight blocks of 64 with mean and attention pooling."""
        return cls(in_channels, out_channels, order)


ModelConfig = SelfSupervisedConfig | FactorizedConfig | ResidualConfig


def build(config: ModelConfig, seed: int = 0) -> MemoryModel:
    """Make the model that a configuration describes, with weights drawn from ``seed``."""
    from exchangeable.models.paper import FactorizedAutoencoder, SelfSupervisedModel
    from exchangeable.models.residual import ResidualModel

    match config:
        case SelfSupervisedConfig():
            return SelfSupervisedModel(config, seed)
        case FactorizedConfig():
            return FactorizedAutoencoder(config, seed)
        case ResidualConfig():
            return ResidualModel(config, seed)


_SIZES = ("encoder", "decoder", "factor_sizes", "map_hidden", "features")
"""Fields with a number of channels for each layer or axis."""


def _check_config(config: ModelConfig) -> None:
    """Raise unless every number, those in tuples too, is within its range."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name == "joint":
            if value and config.order != 2:
                raise ValueError(
                    f"tables whose axes are one set have two axes, but order is {config.order}"
                )
        elif field.name == "dropout":
            if not 0 <= value < 1:
                raise ValueError(f"dropout must be in [0, 1), but is {value}")
        elif field.name == "deviation":
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"deviation must be above 0, but is {value}")
        elif isinstance(value, float):
            raise ValueError(f"{field.name} must be a whole number, but is {value}")
        elif isinstance(value, int) and not isinstance(value, bool):
            _check_whole(field.name, value, 0 if field.name == "prior" else 1)
        elif field.name in _SIZES and value:
            for size in value:
                _check_whole(field.name, size, 0 if field.name == "features" else 1)
    if config.features and len(config.features) != config.order:
        raise ValueError(
            f"features must give a number for each of {config.order} axes, but are "
            f"{config.features}"
        )


def _check_paper(config: SelfSupervisedConfig | FactorizedConfig) -> None:
    if config.activation == "gated":
        raise ValueError("the paper's models have plain activations, but activation is 'gated'")
    if config.elementwise and not config.literal:
        raise ValueError("single elements are dropped with literal=True only")


def _check_whole(name: str, value: int, minimum: int) -> None:
    if not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name} must be a whole number of {minimum} or more, but is {value}")
