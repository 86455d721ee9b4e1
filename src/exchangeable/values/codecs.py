"""What a cell's value is to a model: channels in, a loss, and a distribution out.

A codec says how values enter and how answers are read; a ``Reference`` holds what the observed
values of one table are like, so that a codec without levels of its own fits tables of any scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from exchangeable.errors import InputError
from exchangeable.values.distributions import (
    Distribution,
    LogisticMixture,
    Normal,
    OnLevels,
    nearest_level,
)
from exchangeable.values.scale import Scale

Loss = Literal["cross-entropy", "squared", "both", "relative"]
Encoding = Literal["one-hot", "scale-free"]

MOST_ONE_HOT = 20
"""With more levels than these, neighbouring ones have too few cells to be learned apart."""
_KNOTS = 257


@dataclass(frozen=True)
class ValueStats:
    """What the observed values of a table are like: all that a codec needs to know of them."""

    scale: Scale
    mean: float
    deviation: float
    """Of the observed values; 1 where all are equal."""
    knots: tuple[float, ...]
    """Values at evenly spaced ranks, ascending, ends included."""

    @classmethod
    def of(cls, values: NDArray[np.float64], scale: Scale) -> ValueStats:
        """From the observed values; without any, a standard normal is assumed."""
        if not len(values):
            return cls(scale, 0.0, 1.0, (0.0,))
        knots = np.quantile(values, np.linspace(0, 1, min(_KNOTS, len(values))))
        deviation = float(values.std())
        # What is left of equal values by rounding must not be blown up to deviations of 1.
        rounding = 1e-12 * float(np.abs(values).max())
        spread = deviation if deviation > rounding else 1.0
        return cls(scale, float(values.mean()), spread, tuple(knots.tolist()))

    def levels(self, like: Tensor) -> Tensor:
        return like.new_tensor(self.scale.levels)

    def standardised(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.deviation

    def ranks(self, values: Tensor) -> Tensor:
        """How large each value is among the observed ones, from -1 to 1; ties in their middle."""
        knots = values.new_tensor(self.knots)
        if len(knots) == 1 or bool(knots[0] == knots[-1]):
            return torch.zeros_like(values)
        return (_rank(knots, values, True) + _rank(knots, values, False)) / (len(knots) - 1) - 1


def _rank(knots: Tensor, values: Tensor, right: bool) -> Tensor:
    """The place of each value among the knots, between two of them in proportion."""
    at = torch.searchsorted(knots, values.contiguous(), right=right).clamp(1, len(knots) - 1)
    low, high = knots[at - 1], knots[at]
    between = ((values - low) / (high - low).clamp(min=torch.finfo(values.dtype).tiny)).clamp(0, 1)
    tied = (high == low) & (values >= high)  # the last knots, where no value lies between
    return at - 1 + torch.where(tied & right, 1.0, between)


@dataclass(frozen=True)
class OneHot:
    """A channel for each level in, a score for each level out, as in the paper."""

    levels: int
    values: tuple[float, ...] = ()
    """The levels of the table it was made for."""

    @property
    def in_channels(self) -> int:
        return self.levels

    @property
    def out_channels(self) -> int:
        return self.levels

    def scale_for(self, scale: Scale) -> Scale:
        """The scale on which a table of this one is answered; raises if there is none.

        Where a table lacks some of the levels, they are possible nevertheless.
        """
        if scale.levels and set(scale.levels) <= set(self.values):
            return Scale("levels", self.values)
        if len(scale.levels) != self.levels:
            raise InputError(
                f"the model was made for {self.levels} levels, but the table has {scale}; a "
                f"scale-free model takes any"
            )
        return scale

    def encode(self, values: Tensor, reference: ValueStats) -> Tensor:
        at = nearest_level(values, reference.levels(values))
        return functional.one_hot(at, self.levels).to(values.dtype)

    def read(self, outputs: Tensor, reference: ValueStats) -> Distribution:
        """From (Q, O); where two channels more say what a prior knows, relative to it."""
        scores, prior = outputs[:, : self.levels], outputs[:, self.levels :]
        levels = reference.levels(outputs)
        if prior.shape[1]:
            before = Normal(prior[:, 0], prior[:, 1], reference.standardised(levels))
            scores = scores + before.on_levels().log_probabilities
        return OnLevels(levels, scores.log_softmax(dim=1))


FINEST = 0.05
"""Scale of a component at least, of what a prior leaves. Where one value comes again and again, as
on a floor, a density may grow without end, and all else would count for nothing."""


@dataclass(frozen=True)
class ScaleFree:
    """The standardised value and its rank in; a mixture of logistics on that scale out.

    On a scale with levels the mixture gives each level the probability of the values that
    are nearest to it. No channel stands for a level, so tables of other scales fit as well.
    """

    components: int = 4

    @property
    def in_channels(self) -> int:
        return 2

    @property
    def out_channels(self) -> int:
        return 3 * self.components

    def scale_for(self, scale: Scale) -> Scale:
        """Any scale will do."""
        return scale

    def encode(self, values: Tensor, reference: ValueStats) -> Tensor:
        return torch.stack([reference.standardised(values), reference.ranks(values)], dim=1)

    def read(self, outputs: Tensor, reference: ValueStats) -> Distribution:
        """From (Q, O); where two channels more say what a prior knows, relative to it."""
        own, prior = outputs[:, : self.out_channels], outputs[:, self.out_channels :]
        weights, locations, scales = own.chunk(3, dim=1)
        # Components start apart: alike, they would stay alike.
        start = torch.linspace(-1.5, 1.5, self.components).to(locations)
        if not prior.shape[1]:
            locations, scales = locations + start, functional.softplus(scales) + 0.01
        else:  # and together as wide as the prior is: .31 of its variance apart, .69 within
            own_scales = functional.softplus(scales - 0.695) + FINEST
            locations = prior[:, :1] + prior[:, 1:] * (locations + start / 2)
            scales = prior[:, 1:] * own_scales
        mixture = LogisticMixture(
            weights.log_softmax(dim=1),
            locations * reference.deviation + reference.mean,
            scales * reference.deviation,
        )
        if not reference.scale.levels:
            return mixture
        return mixture.on_levels(reference.levels(outputs))


Codec = OneHot | ScaleFree


def codec_for(scale: Scale, encoding: Encoding | None = None) -> Codec:
    """One-hot for few levels and scale-free for others, unless one of them is asked for."""
    if encoding is not None and encoding not in get_args(Encoding):
        raise InputError(
            f"encoding must be one of {', '.join(get_args(Encoding))}, but is {encoding!r}"
        )
    if encoding == "one-hot" and not scale.levels:
        raise InputError("one-hot encoding needs a scale with levels, but the values are real")
    few = 0 < len(scale.levels) <= MOST_ONE_HOT
    if encoding == "one-hot" or (encoding is None and few):
        return OneHot(len(scale.levels), scale.levels)
    return ScaleFree()


def encoder(codec: Codec, stats: ValueStats) -> Callable[[Tensor], Tensor]:
    """Return the function that encodes values (E, 1) as the channels (E, K) that a model takes."""
    return lambda values: codec.encode(values.squeeze(1), stats).to(torch.float32)


def codec_to_json(codec: Codec) -> dict[str, Any]:
    return {"encoding": "one-hot" if isinstance(codec, OneHot) else "scale-free", **asdict(codec)}


def codec_of_json(stored: dict[str, Any]) -> Codec:
    if stored["encoding"] == "one-hot":
        return OneHot(stored["levels"], tuple(stored["values"]))
    return ScaleFree(stored["components"])


def loss_of(
    answers: Distribution, truth: Tensor, reference: ValueStats, kind: Loss, squared_weight: float
) -> Tensor:
    """How wrong the answers are: of their distribution, of their mean, or both added.

    By "relative" the logarithm of the mean's error is added, so that a table with little noise
    counts as much as one with much.
    """
    surprise = -answers.log_likelihood(truth).mean()
    if kind == "cross-entropy":
        return surprise
    squared = ((answers.mean() - truth) / reference.deviation).square().mean()
    if kind == "relative":
        return surprise + squared_weight * 0.5 * squared.clamp(min=1e-8).log()
    return squared if kind == "squared" else surprise + squared_weight * squared


def draw_negatives_among(
    members: Sequence[NDArray[np.int64]],
    index: NDArray[np.int64],
    shape: tuple[int, ...],
    number: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """As ``negatives``, but only where the given members of each axis meet."""
    places = [np.full(size, -1) for size in shape]
    for place, some in zip(places, members, strict=True):
        place[some] = np.arange(len(some))
    inside = np.stack([place[index[:, axis]] for axis, place in enumerate(places)], axis=1)
    inside = inside[(inside >= 0).all(axis=1)]
    drawn = negatives(inside, tuple(len(some) for some in members), number, generator)
    return np.stack([some[drawn[:, axis]] for axis, some in enumerate(members)], axis=1)


def negatives(
    index: NDArray[np.int64], shape: tuple[int, ...], number: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Cells that were not observed, each as likely as any other and none twice: (number, D).

    Fewer come where fewer are left.
    """
    total = math.prod(shape)
    if total > 2**62:
        raise InputError(f"cells to draw among must be fewer than 2^62, but the shape is {shape}")
    seen = np.unique(np.ravel_multi_index(tuple(index.T), shape))
    number = min(number, total - len(seen))
    if number * 2 > total - len(seen):  # most of what is left: list it
        free = np.setdiff1d(np.arange(total), seen, assume_unique=True)
        drawn = generator.choice(free, number, replace=False)
    else:
        drawn = np.empty(0, dtype=np.int64)
        while len(drawn) < number:
            more = generator.integers(0, total, 2 * (number - len(drawn)) + 16)
            drawn = np.concatenate([drawn, more[~np.isin(more, seen)]])
            _, first = np.unique(drawn, return_index=True)
            drawn = drawn[np.sort(first)]
        drawn = drawn[:number]
    return np.stack(np.unravel_index(drawn, shape), axis=1).astype(np.int64)
