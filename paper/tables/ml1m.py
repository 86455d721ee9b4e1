"""RMSE on ML-1M, random 90/10 splits of seeds 0 to 2 (the paper's second table of results).

python -m paper.tables.ml1m --device cuda --seeds 3
"""

from __future__ import annotations

from paper.lib.command import run_command
from paper.lib.tables import Column, Row, table

COLUMNS = [Column("90/10", "ml-1m", ("0", "1", "2"))]
ROWS = [
    Row("PMF", [0.883]),
    Row("I-RBM", [0.854]),
    Row("BiasMF", [0.845]),
    Row("NNMF", [0.843]),
    Row("LLORMA-Local", [0.833]),
    Row("GC-MC", [0.832]),
    Row("I-AutoRec", [0.831]),
    Row("CF-NADE", [0.829]),
    Row("self-supervised, as in the text", [0.863], "self-supervised-text", 1),
    Row("self-supervised, dropping elements", [0.863], "self-supervised-elements", 1),
    Row("self-supervised, as released", [0.863], "self-supervised-released", 1),
    Row("self-supervised, conditional samples", [0.863], "self-supervised-sampled", 1),
    Row("factorized, as in the text", [0.860], "factorized-text", 1),
    Row("factorized, dropping elements", [0.860], "factorized-elements", 1),
    Row("factorized, as released", [0.860], "factorized-released", 1),
    Row("factorized, predicting hidden cells", [0.860], "factorized-hiding", 1),
    Row("empirical-Bayes bias", [], "bias"),
    Row("variational MF", [], "vmf"),
    Row("Bayesian MF", [], "bmf"),
    Row("**ours**", [], "ours"),
    Row("**pretrained**, finetuned", [], "finetuned"),
    Row("**pretrained**, finetuned with features and times", [], "finetuned-with-features"),
]


def main() -> None:
    table(__doc__ or "", "ML-1M, RMSE", COLUMNS, ROWS)


if __name__ == "__main__":
    run_command(main)
