"""implicit: alternating least squares for implicit feedback, all cores.

Ratings are taken as confidences that a user likes an item. Scores say who rates what, not how
high. They are near 1 on training cells and near 0 on others, so that a line through training cells
makes ratings of them that are worse than a constant: on ML-100K u1, RMSE 1.68, a constant 1.15,
and the best line through the test cells themselves 1.148.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from harness import Cells, Floats, Labels, run
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

AT_ONCE = 2**18
"""Cells whose factors are multiplied at a time: 200 MB."""


class Implicit:
    """Its defaults: 100 factors, 15 iterations."""

    package = "implicit"
    refits = False

    def __init__(self) -> None:
        self.model = AlternatingLeastSquares(random_state=0)

    def fit(self, train: Cells) -> None:
        self.users, rows = np.unique(train.users, return_inverse=True)
        self.items, columns = np.unique(train.items, return_inverse=True)
        shape = (len(self.users), len(self.items))
        self.model.fit(
            csr_matrix((train.values.astype(np.float32), (rows, columns)), shape),
            show_progress=False,
        )

    def predict(self, test: Cells) -> Floats:
        scores = np.zeros(len(test.values))  # of members without training cells: 0, no factors
        rows, known = places(self.users, test.users)
        columns, also = places(self.items, test.items)
        asked = np.flatnonzero(known & also)
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            users = self.model.user_factors[rows[part]]
            scores[part] = np.einsum("qk,qk->q", users, self.model.item_factors[columns[part]])
        return scores

    def serve(self, items: Labels, values: Floats) -> object:
        columns, _ = places(self.items, items)
        own = csr_matrix(
            (values.astype(np.float32), (np.zeros_like(columns), columns)), (1, len(self.items))
        )
        return self.model.recommend(0, own, N=10, recalculate_user=True)

    def calibrate(self, train: Cells) -> Callable[[Floats], Floats]:
        """The least-squares line from scores to ratings, on a million training cells at most."""
        chosen = np.random.default_rng(0).permutation(len(train.values))[:1_000_000]
        some = Cells(*(column[chosen] for column in train))
        slope, offset = np.polyfit(self.predict(some), some.values, 1)
        return lambda scores: offset + slope * scores


def places(known: Labels, asked: Labels) -> tuple[Labels, np.ndarray]:
    """Where labels stand among the known ones, which ascend, and whether they are among them."""
    at = np.searchsorted(known, asked).clip(max=len(known) - 1)
    return at, known[at] == asked


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):  # as implicit itself advises: it has threads of its own
        peer = Implicit()
        run(peer, peer.calibrate)
