"""implicit's ALS behind the same HTTP as the service, for benchmarks/serve_load.py.

    python benchmarks/peers/serve_als.py CELLS.npz PORT

``CELLS.npz`` has ``users``, ``items`` and ``values``. A new user is solved by ``recalculate_user``.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI
from implicit.als import AlternatingLeastSquares
from pydantic import BaseModel
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits


class Wanted(BaseModel):
    ratings: list[tuple[int, float]] = []
    member: int | None = None
    n: int = 10


class Recommendation(BaseModel):
    labels: dict[str, int]
    mean: float


class Recommendations(BaseModel):
    recommended: list[Recommendation]


def create_app(path: str) -> FastAPI:
    """Fit to the cells, and serve lists of the best items."""
    with np.load(path) as cells:
        users, rows = np.unique(cells["users"], return_inverse=True)
        items, columns = np.unique(cells["items"], return_inverse=True)
        values = cells["values"].astype(np.float32)
    table = csr_matrix((values, (rows, columns)), (len(users), len(items)))
    model = AlternatingLeastSquares(random_state=0)  # its defaults: 100 factors, 15 iterations
    model.fit(table, show_progress=False)
    app = FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/model")
    async def about() -> dict[str, object]:
        return {"axes": [{"name": "user"}, {"name": "item"}], "levels": np.unique(values).tolist()}

    @app.get("/v1/members")
    async def members(axis: str, limit: int) -> dict[str, object]:
        labels, column = (users, rows) if axis == "user" else (items, columns)
        best = np.argsort(-np.bincount(column))[:limit]
        return {"members": [{"label": int(label)} for label in labels[best]]}

    @app.post("/v1/recommend")
    def recommend(query: Wanted) -> Recommendations:
        if query.member is None:
            rated = np.searchsorted(items, [label for label, _ in query.ratings])
            given = np.array([value for _, value in query.ratings], dtype=np.float32)
            own = csr_matrix((given, (np.zeros_like(rated), rated)), (1, len(items)))
            found, scores = model.recommend(0, own, N=query.n, recalculate_user=True)
        else:
            user = int(np.searchsorted(users, query.member))
            found, scores = model.recommend(user, table[user], N=query.n)
        return Recommendations(
            recommended=[
                Recommendation(labels={"item": int(items[place])}, mean=float(score))
                for place, score in zip(found, scores, strict=True)
            ]
        )

    return app


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with threadpool_limits(1, "blas"):  # as implicit itself advises: it has threads of its own
        uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
