"""A model that was trained on ML-100K alone and predicts tables that it never saw.

What it is trained on is the training part of u1; its weights are kept, so that the experiments on
new members and on other datasets share them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exchangeable.models.memory import MemoryModel
from exchangeable.values.codecs import ScaleFree
from exchangeable.values.distributions import Distribution, Share
from exchangeable.values.scale import Scale
from paper.lib import methods, problems, provenance, runs
from paper.lib.methods import Deep
from paper.lib.problems import Index, Problem

WEIGHTS = Path(".paper-weights")
STARS = Scale("levels", (1.0, 2.0, 3.0, 4.0, 5.0))


def settings(method: str, seed: int, **changed: Any) -> Deep:
    """For tables of any scale: ours without channels for levels, the paper's with five of them."""
    made = methods.deep(method, problems.load("ml-100k"), seed)
    if not method.startswith("ours"):
        return methods.changed_in(made, method, **changed)
    codec = ScaleFree()
    config = replace(made.config, in_channels=codec.in_channels, out_channels=codec.out_channels)
    # Other tables are sparser, and of new members little is shown: nearly all may be hidden, often,
    # and weights are chosen by how well they do with little, too.
    training = replace(
        made.training,
        steps=1500,
        hide_most=0.98,
        hide_scale="log",
        view_steps=20,
        judged_shares=(1.0, 0.3, 0.05),
    )
    return methods.changed_in(Deep(config, codec, training), method, **changed)


@lru_cache(maxsize=1)  # asked for again for every table that it answers for
def trained(
    method: str, seed: int, device: str, **changed: Any
) -> tuple[MemoryModel, Deep, dict[str, Any]]:
    """Load the model from its folder, or train it now; also returns a summary of the training."""
    # It needs safetensors, which tables can be printed without.
    from exchangeable.training.trained_model import TrainedModel

    trial = [f"{name}={value}" for name, value in sorted(changed.items())]
    place = WEIGHTS / ".".join([method, str(seed), *trial])
    if place.exists():
        known = TrainedModel.load(place)
        made = Deep(known.config, known.codec, known.training)
        return known.model.to(device), made, known.facts["told"]
    made, problem = settings(method, seed, **changed), problems.load("ml-100k")
    train_cells, validation, _ = problem.parts("u1", seed)
    state = runs.fit(problem, made, train_cells, validation, device)
    told = runs.training_summary(state, made)
    facts = {"validation RMSE": state.best_rmse, "commit": provenance.commit(), "told": told}
    place.parent.mkdir(parents=True, exist_ok=True)
    TrainedModel(made.config, made.codec, state.best, made.training, method, facts).save(place)
    return state.best, made, told


def answers(
    model: MemoryModel,
    made: Deep,
    problem: Problem,
    seen: Index,
    asked: Index,
    device: str,
) -> Distribution:
    """As they are where the model takes any scale, and else through five bins, as in the paper."""
    if isinstance(made.codec, ScaleFree) or problem.scale == STARS:
        return runs.predictions_of(model, made, problem, seen, asked, device)
    low, high = problem.scale.levels[0], problem.scale.levels[-1]
    stars = 1 + 4 * (problem.values - low) / (high - low)
    binned = replace(problem, values=np.rint(stars), scale=STARS)
    found = runs.predictions_of(model, made, binned, seen, asked, device)
    return Rescaled(found, low, (high - low) / 4)


class Rescaled:
    """Answers in stars as values of another scale."""

    def __init__(self, stars: Distribution, low: float, step: float) -> None:
        self.stars, self.low, self.step = stars, low, step

    def take(self, cells: torch.Tensor) -> Rescaled:
        return Rescaled(self.stars.take(cells), self.low, self.step)

    def mean(self) -> torch.Tensor:
        return self._there(self.stars.mean())

    def quantile(self, share: Share) -> torch.Tensor:
        return self._there(self.stars.quantile(share))

    def bounds(self) -> tuple[float, float] | None:
        ends = self.stars.bounds()
        if ends is None:
            return None
        low, high = self._there(torch.tensor(ends, dtype=torch.float64)).tolist()
        return low, high

    def rank(self, values: torch.Tensor) -> torch.Tensor:
        return self.stars.rank(1 + (values - self.low) / self.step)

    def probabilities(self) -> torch.Tensor:
        return self.stars.probabilities()

    def log_likelihood(self, values: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of the bin that contains each value."""
        stars: torch.Tensor = self.stars.log_likelihood(1 + (values - self.low) / self.step)
        return stars

    def _there(self, stars: torch.Tensor) -> torch.Tensor:
        return self.low + self.step * (stars - 1)
