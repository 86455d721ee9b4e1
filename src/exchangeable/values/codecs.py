"""Codecs: how models encode values as channels, and decode their outputs to distributions.

A codec belongs to a model; ``ValueStats`` describes the observed values of one table, so that a
codec without levels of its own fits tables of any scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from exchangeable.errors import InputError
from exchangeable.runtime.cache import cached_property
from exchangeable.values.distributions import (
    Distribution,
    LogisticMixture,
    Normal,
    OnLevels,
    nearest_level,
)
from exchangeable.values.scale import Scale

Encoding = Literal["one-hot", "scale-free"]

MAX_ONE_HOT_LEVELS = 20
"""With more levels, neighbouring ones have too few cells to be learned apart."""
_MAX_KNOTS = 257
MIN_COUNTED = 1 << 20
"""Values on levels from which on quantiles come from counts: 100 million take 10 s to sort."""


@dataclass(frozen=True)
class ValueStats:
    """Statistics of the observed values of a table: all that a codec needs of them."""

    scale: Scale
    mean: float
    deviation: float
    """Standard deviation of the observed values; 1 where all are equal."""
    knots: tuple[float, ...]
    """Values at evenly spaced ranks, ascending, ends included."""

    @classmethod
    def of(cls, values: NDArray[np.float64], scale: Scale) -> ValueStats:
        """Compute the statistics; without any values, those of a standard normal."""
        if not len(values):
            return cls(scale, 0.0, 1.0, (0.0,))
        shares = np.linspace(0, 1, min(_MAX_KNOTS, len(values)))
        knots = _quantiles(values, shares, scale.levels)
        deviation = float(values.std())
        # Rounding errors of equal values must not be scaled up to deviations of 1.
        rounding = 1e-12 * float(np.abs(values).max())
        spread = deviation if deviation > rounding else 1.0
        return cls(scale, float(values.mean()), spread, tuple(knots.tolist()))

    def levels(self, like: Tensor) -> Tensor:
        """Return the levels of the scale with the type and device of ``like``: (L,)."""
        return _constant(self.scale.levels, like.dtype, like.device)

    @cached_property
    def _knots(self) -> Tensor:
        return torch.tensor(self.knots, dtype=torch.float64)

    def standardise(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation

    def ranks(self, values: Tensor) -> Tensor:
        """Rank each value among the observed ones, from -1 to 1; ties share their middle."""
        knots = self._knots.to(values)
        if len(knots) == 1 or bool(knots[0] == knots[-1]):
            return torch.zeros_like(values)
        last, first = _rank(knots, values, right=True), _rank(knots, values, right=False)
        return (last + first) / (len(knots) - 1) - 1


def _quantiles(
    values: NDArray[np.float64], shares: NDArray[np.float64], levels: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the quantiles of values: of many that are on levels from the counts of these."""
    if not levels or len(values) < MIN_COUNTED:
        return np.quantile(values, shares)
    counts = np.zeros(len(levels), dtype=np.int64)
    for first in range(0, len(values), MIN_COUNTED):
        at = np.searchsorted(levels, values[first : first + MIN_COUNTED])
        counts += np.bincount(at, minlength=len(levels))[: len(levels)]
    ends, place = counts.cumsum(), shares * (len(values) - 1)
    below = np.floor(place).astype(np.int64)
    low, high = (
        np.asarray(levels)[np.searchsorted(ends, np.minimum(n, len(values) - 1), side="right")]
        for n in (below, below + 1)
    )
    return low + (place - below) * (high - low)


@lru_cache(maxsize=64)
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy numbers to a device once: copying waits for it, which a captured step must not."""
    with torch.inference_mode(False):  # training must be able to use them too
        return torch.tensor(values, dtype=dtype, device=device)


def _rank(knots: Tensor, values: Tensor, *, right: bool) -> Tensor:
    """Return the position of each value among the knots, interpolated between two of them."""
    at = torch.searchsorted(knots, values.contiguous(), right=right).clamp(1, len(knots) - 1)
    low, high = knots[at - 1], knots[at]
    between = ((values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)).clamp(0, 1)
    tied = (high == low) & (values >= high)  # the last knots, with no value between them
    return at - 1 + torch.where(tied & right, 1.0, between)


@dataclass(frozen=True)
class OneHot:
    """One input channel and one output score per level, as in the paper."""

    levels: int
    values: tuple[float, ...] = ()
    """Levels of the table that the codec was made for."""

    @property
    def in_channels(self) -> int:
        return self.levels

    @property
    def out_channels(self) -> int:
        return self.levels

    @property
    def without_correction(self) -> OneHot:
        """The same codec: its outputs are scores of levels, with no shift of a mean among them."""
        return self

    def scale_for(self, scale: Scale) -> Scale:
        """Return the scale of predictions for a table of ``scale``; raise if the levels differ.

        Levels of the codec that the table lacks can be predicted nevertheless.
        """
        if scale.levels and set(scale.levels) <= set(self.values):
            return Scale("levels", self.values)
        if len(scale.levels) != self.levels:
            raise InputError(
                f"the model was made for {self.levels} levels, but the table has {scale}; a "
                f"scale-free model takes any"
            )
        return scale

    def encode(self, values: Tensor, stats: ValueStats) -> Tensor:
        at = nearest_level(values, stats.levels(values))
        return functional.one_hot(at, self.levels).to(values.dtype)

    def read(self, outputs: Tensor, stats: ValueStats) -> Distribution:
        """Decode outputs (Q, O), or (Q, O + 2): then relative to a prior's mean and deviation."""
        scores, prior = outputs[:, : self.levels], outputs[:, self.levels :]
        levels = stats.levels(outputs)
        if prior.shape[1]:
            before = Normal(prior[:, 0], prior[:, 1], stats.standardise(levels))
            scores = scores + before.on_levels().log_probabilities
        return OnLevels(levels, scores.log_softmax(dim=1))


MIN_COMPONENT_SCALE = 0.05
"""Smallest scale of a component, in deviations of the prior. Where one value repeats, as on a
floor, the density could grow without bound and dominate the loss."""


@dataclass(frozen=True)
class ScaleFree:
    """Standardised value and rank as input; a mixture of logistics on that scale as output.

    On a scale with levels the mixture gives each level the probability of the values that
    are nearest to it. No channel stands for a level, so tables of other scales fit as well.
    """

    components: int = 4
    correction: float = 1.0
    """Share of the outputs' correction of a prior's mean that is taken. Corrections learned from
    synthetic tables are too large on real ones: on thirteen development tables half of them does
    better than all or none."""

    @property
    def in_channels(self) -> int:
        return 2

    @property
    def out_channels(self) -> int:
        return 3 * self.components

    @property
    def without_correction(self) -> ScaleFree:
        """The codec that keeps a prior's means and takes only the form about them."""
        return replace(self, correction=0.0)

    def scale_for(self, scale: Scale) -> Scale:
        """Return the scale of the table: any will do."""
        return scale

    def encode(self, values: Tensor, stats: ValueStats) -> Tensor:
        return torch.stack([stats.standardise(values), stats.ranks(values)], dim=1)

    def read(self, outputs: Tensor, stats: ValueStats) -> Distribution:
        """Decode outputs (Q, O), or (Q, O + 2): then relative to a prior's mean and deviation."""
        mixing, prior = outputs[:, : self.out_channels], outputs[:, self.out_channels :]
        weights, locations, scales = mixing.chunk(3, dim=1)
        # Components start apart: equal ones would stay equal.
        start = _constant(
            tuple(torch.linspace(-1.5, 1.5, self.components).tolist()),
            locations.dtype,
            locations.device,
        )
        if not prior.shape[1]:
            locations, scales = locations + start, functional.softplus(scales) + 0.01
        else:  # together as wide as the prior: .31 of its variance between components, .69 within
            relative_scales = functional.softplus(scales - 0.695) + MIN_COMPONENT_SCALE
            away = locations + start / 2
            if self.correction != 1:
                shift = (weights.softmax(dim=1) * away).sum(dim=1, keepdim=True)
                away = away - (1 - self.correction) * shift
            locations = prior[:, :1] + prior[:, 1:] * away
            scales = prior[:, 1:] * relative_scales
        mixture = LogisticMixture(
            weights.log_softmax(dim=1),
            locations * stats.deviation + stats.mean,
            scales * stats.deviation,
        )
        if not stats.scale.levels:
            return mixture
        return mixture.on_levels(stats.levels(outputs))


Codec = OneHot | ScaleFree


def codec_for(scale: Scale, encoding: Encoding | None = None) -> Codec:
    """Return the codec of ``encoding``; by default one-hot for few levels, else scale-free."""
    if encoding is not None and encoding not in get_args(Encoding):
        raise InputError(
            f"encoding must be one of {', '.join(get_args(Encoding))}, but is {encoding!r}"
        )
    if encoding == "one-hot" and not scale.levels:
        raise InputError("one-hot encoding needs a scale with levels, but the values are real")
    few = 0 < len(scale.levels) <= MAX_ONE_HOT_LEVELS
    if encoding == "one-hot" or (encoding is None and few):
        return OneHot(len(scale.levels), scale.levels)
    return ScaleFree()


def encoder(codec: Codec, stats: ValueStats) -> Callable[[Tensor], Tensor]:
    """Return the function that encodes values (E, 1) as the channels (E, K) that a model takes."""
    return lambda values: codec.encode(values.squeeze(1), stats).to(torch.float32)


def codec_to_json(codec: Codec) -> dict[str, Any]:
    return {"encoding": "one-hot" if isinstance(codec, OneHot) else "scale-free", **asdict(codec)}


def codec_from_json(stored: dict[str, Any]) -> Codec:
    if stored["encoding"] == "one-hot":
        return OneHot(stored["levels"], tuple(stored["values"]))
    return ScaleFree(stored["components"], stored.get("correction", 1.0))
