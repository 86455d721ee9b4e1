"""What the steps of a training run are shown: cells, some of which are hidden.

Without a prior these are drawn anew at each step. A prior that had seen the hidden cells would
give them away, and fitting one takes as long as many steps. So with one a few sets of hidden cells
take turns, to whose others it is fitted, and now and then a new set takes the place of the oldest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.models.memory import MemoryModel
from exchangeable.models.prior import fit_prior
from exchangeable.training.config import TrainingConfig
from exchangeable.training.masking import drawn, hidden
from exchangeable.training.samplers import Sampler
from exchangeable.values.codecs import ValueStats


class Example(NamedTuple):
    """What a step is about."""

    cells: ExchangeableArray
    hide: Tensor  # (E,)
    known: Tensor | None
    """What the prior says of the cells, (E, 2)."""


@dataclass(eq=False)
class ExampleSource:
    """The sets of hidden cells that take turns, each told by a number it can be made from again."""

    observed: ExchangeableArray
    reference: ValueStats
    model: MemoryModel
    """Which says whether there is a prior."""
    config: TrainingConfig
    sampler: Sampler
    made: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def shown(
        self, keys: list[int], step: int, generator: np.random.Generator
    ) -> tuple[list[int], Example]:
        """For one step: the numbers of the sets that take turns from now on, and what there is."""
        if not self.model.prior_rank:
            mask = drawn(self.observed, self.sampler, generator)
            some = self.observed if mask is None else self.observed.take(mask)
            return keys, Example(some, hidden(some.support, self.config, generator), None)
        if step % self.config.view_steps == 0 or not keys:
            keys = [*keys, int(generator.integers(2**63))][-self.config.views :]
        hide, known = self._made(keys, keys[int(generator.integers(len(keys)))])
        mask = drawn(self.observed, self.sampler, generator, hide)
        if mask is None:
            return keys, Example(self.observed, hide, known)
        return keys, Example(self.observed.take(mask), hide[mask], known[mask])

    def _made(self, keys: list[int], key: int) -> tuple[Tensor, Tensor]:
        """A set of hidden cells, and what a prior that has not seen them says of all."""
        for old in set(self.made) - set(keys):
            del self.made[old]
        if key not in self.made:
            mask = hidden(self.observed.support, self.config, np.random.default_rng(key))
            prior = fit_prior(self.model, self.observed.take(~mask), self.reference)
            assert prior is not None
            self.made[key] = mask, prior(self.observed.support.index)
        return self.made[key]
