"""MSE and concordance on Davis and KIBA, the test folds of DeepDTA, with and without similarities.

python -m paper.tables.davis_kiba --device cuda --seeds 3
"""

from __future__ import annotations

from paper.lib.command import run_command
from paper.lib.tables import Column, Row, table

COLUMNS = [
    Column(f"{title}, {name}", problem, ("test",), metric=metric)
    for problem, title in (("davis", "Davis"), ("kiba", "KIBA"))
    for metric, name in (("mse", "MSE"), ("concordance", "concordance"))
]
ROWS = [
    Row("empirical-Bayes bias", [], "bias", 1),
    Row("variational MF", [], "vmf", 1),
    Row("Bayesian MF", [], "bmf"),
    Row("**ours**", [], "ours"),
    Row("**ours**, with similarities", [], "ours-with-features"),
    Row("**pretrained**, finetuned", [], "finetuned"),
    Row("**pretrained**, finetuned with similarities", [], "finetuned-with-features"),
]


def main() -> None:
    table(__doc__ or "", "Affinities of drugs and proteins", COLUMNS, ROWS)


if __name__ == "__main__":
    run_command(main)
