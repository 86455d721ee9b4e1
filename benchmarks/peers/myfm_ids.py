"""myFM: a Bayesian factorization machine of users and items by Gibbs sampling, one thread.

A new user means a refit. Members without training cells share an empty row.
"""

from __future__ import annotations

import numpy as np
from harness import Cells, Floats, Labels, best, run
from myfm import MyFMRegressor, RelationBlock
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, identity, vstack

RANK = 10
"""The rank of myFM's examples; it has no default."""


class Machine:
    """Its defaults: 100 iterations, all of which are kept; a prior for users and one for items."""

    package = "myfm"
    refits = True

    def __init__(self) -> None:
        self.model = MyFMRegressor(rank=RANK, random_seed=42)

    def fit(self, train: Cells) -> None:
        self.members = [np.unique(labels) for labels in train[:2]]
        sizes = [len(members) for members in self.members]
        self.rows = [vstack([identity(size), csr_matrix((1, size))]).tocsr() for size in sizes]
        self.model.fit(None, train.values, X_rel=self.blocks(train), group_shapes=sizes)

    def blocks(self, cells: Cells) -> list[RelationBlock]:
        """One for each axis: its members as rows, and which row each cell has."""
        axes = zip(self.members, cells[:2], self.rows, strict=True)
        return [RelationBlock(places(members, asked), rows) for members, asked, rows in axes]

    def predict(self, test: Cells) -> Floats:
        return self.model.predict(None, self.blocks(test))

    def serve(self, items: Labels, values: Floats) -> object:
        """Score a known user, as the new one will be after the refit."""
        every = self.members[1]
        return best(self.predict(Cells(np.full_like(every, self.members[0][0]), every, values)))


def places(known: Labels, asked: Labels) -> NDArray[np.int64]:
    """Where labels stand among the known ones, which ascend; after the last if they do not."""
    at = np.searchsorted(known, asked).clip(max=len(known) - 1)
    return np.where(known[at] == asked, at, len(known))


if __name__ == "__main__":
    run(Machine())
