"""A ranker of positives as a predictor: chances that unseen cells are positives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.arrays.cells import UNKNOWN, Cells, Floats, Index
from exchangeable.errors import InputError
from exchangeable.pretraining import bundled
from exchangeable.ranking.chances import MORE, shares_of
from exchangeable.ranking.channels import FACTORS
from exchangeable.ranking.network import RankingNetwork, network_from_parts, network_to_parts
from exchangeable.ranking.positives import (
    Positives,
    Rows,
    relative_strengths,
    usual_strength,
)
from exchangeable.ranking.ranker import PretrainedRanker, fit_pretrained
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.single import RankingModel, fit_single
from exchangeable.ranking.stack import users_per_block
from exchangeable.runtime.threads import threads_for_training
from exchangeable.values.distributions import Distribution, OnLevels

LEVELS = (0.0, 1.0)
MAX_CHANCE = 1 - 1e-6
"""Highest chance of an unseen cell; that of an observed one is 1."""
_TINY = 1e-12


@dataclass(frozen=True)
class Usual:
    """The usual number of items and the usual strength in the table that was read."""

    items: float
    """Mean number of items of the users that have some."""
    strength: float

    @classmethod
    def of(cls, cells: Cells) -> Usual:
        users = len(np.unique(cells.index[:, 0]))
        return cls(len(cells) / max(1, users), usual_strength(torch.from_numpy(cells.values)))

    def positives_of(self, cells: Cells, device: torch.device) -> Positives:
        """Make positives of cells, whose strengths are compared with the usual one."""
        index = torch.from_numpy(cells.index).to(device)
        strengths = torch.from_numpy(cells.values).to(device)
        shape = (cells.shape[0], cells.shape[1])
        return Positives.of(index, shape, relative_strengths(strengths, self.strength))


@dataclass(frozen=True, eq=False)
class RankingPredictor:
    """Users and items of a table, and the model that ranks items for users.

    Users beyond those that the model has read are ranked from their own items, and items beyond
    those that it has read have the least chances until all cells are read together.
    """

    name: str
    model: RankingModel
    positives: Positives
    """The items of all users, among those that the model has read."""
    shape: tuple[int, int]
    """Members of the table; some may be new."""
    usual: Usual
    device: torch.device
    later: Index = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    """Cells (L, 2) of items that came since the model has read the table."""

    @classmethod
    def fit(cls, name: str, cells: Cells, device: torch.device) -> RankingPredictor:
        """Fit a ranker by its name to the cells, which are all positives."""
        return cls._of(name, cells, device, None)

    @classmethod
    def _of(
        cls, name: str, cells: Cells, device: torch.device, network: RankingNetwork | None
    ) -> RankingPredictor:
        usual = Usual.of(cells)
        positives = usual.positives_of(cells, device)
        with threads_for_training(len(cells), device):
            model: RankingModel
            if name == bundled.NAME:
                network = bundled.bundled_ranker() if network is None else network
                model = fit_pretrained(network.to(device), positives)
            else:
                model = fit_single(name, positives)
        return cls(name, model, positives, (cells.shape[0], cells.shape[1]), usual, device)

    def predict(self, index: Index, times: Floats | None = None) -> Distribution:
        chances = np.empty(len(index))
        users, place = np.unique(index[:, 0], return_inverse=True)
        per_block = users_per_block(self.positives)
        for start in range(0, len(users), per_block):
            inside = (place >= start) & (place < start + per_block)
            block = users[start : start + per_block]
            columns, items = place[inside] - start, index[inside, 1]
            chances[inside] = self._chances(block)[items, columns]
        return self.distribution(chances)

    @staticmethod
    def distribution(chances: Floats) -> OnLevels:
        """Return the distributions of cells with these chances."""
        both = torch.from_numpy(np.stack([1 - chances, chances], axis=1)).clamp(min=_TINY)
        return OnLevels(torch.tensor(LEVELS, dtype=torch.float64), both.log())

    def _chances(self, users: Index) -> Floats:
        """Return the chances of all items, the last one that of unknown ones: (M + 1, B)."""
        rows = self.rows(users)
        chances = self._chances_of(self._shares_of(rows, self.scores(rows)))
        chances[self._seen(users, rows)] = 1.0
        return chances.double().cpu().numpy()

    def _seen(self, users: Index, rows: Rows) -> Tensor:
        """Return which items users (B,) have, those that came later too: (M + 1, B)."""
        seen = pad(rows.seen, (0, 0, 0, self.shape[1] + 1 - len(rows.seen)))
        for column in np.flatnonzero(np.isin(users, self.later[:, 0])):
            items = self.later[self.later[:, 0] == users[column], 1]
            seen[torch.from_numpy(items), int(column)] = True
        return seen

    @torch.no_grad()
    def scores(self, rows: Rows) -> Tensor:
        """Score all items, -inf for what a row has; the last stands for unknown ones: (M + 1, B).

        Items that came since the model has read the table have the least of all scores.
        """
        scores = self.model.score(rows)
        least = torch.where(rows.seen, torch.inf, scores).amin(dim=0, keepdim=True)
        added = self.shape[1] - len(scores) + 1
        return torch.cat([scores, least.nan_to_num(posinf=0.0).expand(added, -1)])

    def _shares_of(self, rows: Rows, scores: Tensor) -> Tensor:
        """Share out what users have to find, by scores; one without items is a usual one."""
        counts = torch.where(rows.counts > 0, rows.counts, self.usual.items)
        known = len(rows.seen)
        shares = shares_of(scores[:known], counts)
        least = torch.where(rows.seen, torch.inf, shares).amin(dim=0, keepdim=True)
        least = torch.where(least.isfinite(), least, MORE * counts / known)  # who has all items
        return torch.cat([shares, least.expand(len(scores) - known, -1)])

    def _chances_of(self, shares: Tensor) -> Tensor:
        return self.model.chances.of(shares).clamp(max=MAX_CHANCE)

    def rows(self, users: Index) -> Rows:
        """Return the items of users (B,); ``UNKNOWN`` ones have none."""
        return self.positives.rows(torch.tensor(users, device=self.device))

    def best(
        self, users: Index, n: int, items: Index, *, unseen: bool = True
    ) -> Iterator[tuple[Index, Floats]]:
        """Find the ``n`` likeliest of some items for users (B,), and their chances: (B', n) each.

        Users come in blocks; the best items come first, and ``UNKNOWN`` fills the end of shorter
        lists. With ``unseen`` what a user has is not listed.
        """
        n, size = min(n, len(items)), users_per_block(self.positives)
        for start in range(0, len(users), size):
            block = users[start : start + size]
            with threads_for_training(len(block) * self.shape[1], self.device):
                found = self._best_of(block, n, torch.from_numpy(items).to(self.device), unseen)
            top, chances = (each.cpu().numpy() for each in found)
            yield np.where(top == UNKNOWN, UNKNOWN, items[top]), chances

    @torch.no_grad()
    def _best_of(self, users: Index, n: int, items: Tensor, unseen: bool) -> tuple[Tensor, Tensor]:
        """Return where the likeliest of items are, ``UNKNOWN`` after the last, and chances."""
        rows = self.rows(users)
        scores = self.scores(rows)
        shares = self._shares_of(rows, scores)
        seen = self._seen(users, rows)[items].T
        # By scores, since cells with different scores may have equal chances.
        wanted = scores[items].T.masked_fill(seen, -torch.inf if unseen else torch.inf)
        found, top = wanted.topk(n, dim=1)
        chances = self._chances_of(shares[items].T.gather(1, top)).double()
        if not unseen:
            chances = chances.masked_fill(seen.gather(1, top), 1)
        return top.masked_fill(found == -torch.inf, UNKNOWN), chances

    def updated(self, cells: Cells, changed: Index, *, known: int) -> RankingPredictor:
        items = len(self.positives.per_item)
        was_read = cells.index[:, 1] < items
        read = replace(cells.take(was_read), shape=(cells.shape[0], items))
        return replace(
            self,
            positives=self.usual.positives_of(read, self.device),
            shape=(cells.shape[0], cells.shape[1]),
            later=cells.index[~was_read],
        )

    def needs_refit(self, cells: Cells, changed: Index, *, known: int) -> bool:
        return False

    def refreshed(self, cells: Cells) -> RankingPredictor:
        network = self.model.network if isinstance(self.model, PretrainedRanker) else None
        return self._of(self.name, cells, self.device, network)

    def for_new_members(
        self,
        axis: int,
        index: Index,
        values: Floats,
        features: Tensor | None = None,
        *,
        count: int = 1,
    ) -> RankingPredictor | None:
        if axis != 0:
            return None
        items = len(self.positives.per_item)
        known = index[:, 1] < items
        cells = Cells(index[known], values[known], (count, items))
        positives = self.usual.positives_of(cells, self.device)
        shape = (count, self.shape[1])
        return replace(self, positives=positives, shape=shape, later=index[~known])

    def factors(self) -> tuple[Floats, ...]:
        fitted = self.model.channels.table.factors(FACTORS)
        users = fitted.factors.solve(self.positives.by_user, fitted.items)
        found = [vectors.double().cpu().numpy() for vectors in (users, fitted.items)]
        spare = max(0, self.shape[1] - len(found[1]))  # items that came since have no direction
        found[1] = np.concatenate([found[1], np.zeros((spare, found[1].shape[1]))])
        return tuple(found)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if not isinstance(self.model, PretrainedRanker):
            return {"ranker": self.name}, {}
        config, tensors = network_to_parts(self.model.network)
        return {"ranker": self.name, "network": config}, tensors

    @classmethod
    def from_parts(
        cls,
        config: dict[str, Any],
        tensors: dict[str, Tensor],
        cells: Cells,
        device: torch.device,
    ) -> RankingPredictor:
        """Build a predictor from what ``to_parts`` returned; it reads the cells anew."""
        name = str(config["ranker"])
        if "network" in config:
            return cls._of(name, cells, device, network_from_parts(config["network"], tensors))
        if name not in RANKERS:
            raise InputError(f"a ranker is one of {', '.join(RANKERS)}, but this is {name!r}")
        return cls.fit(name, cells, device)
