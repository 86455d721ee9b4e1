"""ML-100K with the features of users and films against without.

python -m paper.tables.side_features --device cuda --seeds 3
"""

from __future__ import annotations

from paper.lib.command import run_command
from paper.lib.tables import Column, Row, table

COLUMNS = [Column("u1", "ml-100k", ("u1",))]
ROWS = [
    Row("empirical-Bayes bias", [], "bias", 1),
    Row("Bayesian MF", [], "bmf"),
    Row("**ours**", [], "ours"),
    Row("**ours**, with features of users and films", [], "ours-with-features"),
]


def main() -> None:
    table(__doc__ or "", "Side features, ML-100K u1, RMSE", COLUMNS, ROWS)


if __name__ == "__main__":
    run_command(main)
