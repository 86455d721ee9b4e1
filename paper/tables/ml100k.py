"""RMSE on ML-100K, u1.base and u1.test; ours on u2 to u5 too (the paper's first table of results).

python -m paper.tables.ml100k --device cuda --seeds 3
"""

from __future__ import annotations

from paper.lib.command import run_command
from paper.lib.tables import Column, Row, table

COLUMNS = [Column("u1", "ml-100k", ("u1",)), Column("u2–u5", "ml-100k", ("u2", "u3", "u4", "u5"))]
ROWS = [
    Row("MC", [0.973]),
    Row("GMC", [0.996]),
    Row("GRALS", [0.945]),
    Row("sRGCNN", [0.929]),
    Row("GC-MC", [0.910]),
    Row("self-supervised, as in the text", [0.910], "self-supervised-text", 1, first=True),
    Row("self-supervised, dropping elements", [0.910], "self-supervised-elements", 1, first=True),
    Row("self-supervised, as released", [0.910], "self-supervised-released", 1, first=True),
    Row("factorized, as in the text", [0.920], "factorized-text", 1, first=True),
    Row("factorized, dropping elements", [0.920], "factorized-elements", 1, first=True),
    Row("factorized, as released", [0.920], "factorized-released", 1, first=True),
    Row("factorized, predicting hidden cells", [0.920], "factorized-hiding", 1, first=True),
    Row("empirical-Bayes bias", [], "bias", 1),
    Row("variational MF", [], "vmf", 1),
    Row("Bayesian MF", [], "bmf"),
    Row("ours, without prior", [], "ours-without-prior", first=True),
    Row("**ours**", [], "ours"),
    Row("**ours**, with features and times", [], "ours-with-features", first=True),
    Row("**pretrained**, finetuned", [], "finetuned", first=True),
    Row(
        "**pretrained**, finetuned with features and times",
        [],
        "finetuned-with-features",
        first=True,
    ),
]


def main() -> None:
    table(__doc__ or "", "ML-100K, RMSE", COLUMNS, ROWS)


if __name__ == "__main__":
    run_command(main)
