"""RMSE on Flixster, Douban and YahooMusic, trained on each (half of the paper's third table).

python -m paper.tables.flixster_douban_yahoo --device cuda --seeds 3
"""

from __future__ import annotations

from paper.lib.command import run_command
from paper.lib.tables import Column, Row, table

COLUMNS = [
    Column("Flixster", "flixster", ("published",)),
    Column("Douban", "douban", ("published",)),
    Column("YahooMusic", "yahoo-music", ("published",), 2),
]
ROWS = [
    Row("GRALS", [1.313, 0.833, 38.0]),
    Row("sRGCNN", [1.179, 0.801, 22.4]),
    Row("GC-MC", [0.941, 0.734, 20.5]),
    Row("factorized, as in the text", [0.908, 0.738, 20.0], "factorized-text", 1),
    Row("factorized, dropping elements", [0.908, 0.738, 20.0], "factorized-elements", 1),
    Row("factorized, as released", [0.908, 0.738, 20.0], "factorized-released", 1),
    Row("factorized, predicting hidden cells", [0.908, 0.738, 20.0], "factorized-hiding", 1),
    Row("empirical-Bayes bias", [], "bias", 1),
    Row("variational MF", [], "vmf", 1),
    Row("Bayesian MF", [], "bmf"),
    Row("item neighbours", [], "item-knn", 1),
    Row("**ours**", [], "ours"),
]


def main() -> None:
    table(__doc__ or "", "Trained on each, RMSE", COLUMNS, ROWS)


if __name__ == "__main__":
    run_command(main)
