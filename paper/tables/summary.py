"""The summary of results, printed from the stored runs: five tables, five methods.

    python -m paper.tables.summary [--any-commit]

Baselines and finetuned models are means over seeds (on ML-1M over three random splits). The
pretrained model draws nothing and has one run a table, on ML-1M of the first split. Below the table
are the commits of its rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
PRETRAINED = Path(__file__).parents[1] / "pretrained" / "results"
# Title, problem, splits, digits, and the lowest error that others print, with the method: myFM with
# dates (and, on ML-100K, features) by its authors, the others from ratings by theirs.
ROWS = [
    ("ML-100K, u1", "ml-100k", {"u1"}, 4, "0.8808 (myFM)"),
    ("ML-1M, 90/10", "ml-1m", {"0", "1", "2"}, 4, "0.8140 (myFM)"),
    ("Flixster", "flixster", {"published"}, 4, "0.872 (IGMC)"),
    ("Douban", "douban", {"published"}, 4, "0.7208 (GLocal-K)"),
    ("YahooMusic", "yahoo-music", {"published"}, 2, "18.70 (IMC-GAE)"),
]
HEADS = ("RMSE", "bias", "Bayesian MF", "best peer, as printed", "pretrained", "finetuned")


def stored() -> list[dict[str, Any]]:
    """Read all stored runs."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.rglob("*.json"))]


def runs_of(
    runs: list[dict[str, Any]], problem: str, splits: set[str], method: str
) -> list[dict[str, Any]]:
    """Return the runs of a method on some splits of a table."""
    return [
        run
        for run in runs
        if run.get("method") == method and run["problem"] == problem and run["split"] in splits
    ]


def mean_rmse(runs: list[dict[str, Any]], problem: str, splits: set[str], method: str) -> float:
    """The mean over seeds and splits; NaN where nothing was run."""
    errors = [float(run["rmse"]) for run in runs_of(runs, problem, splits, method)]
    return sum(errors) / len(errors) if errors else float("nan")


def pretrained_run(problem: str) -> dict[str, Any]:
    """Read the run of the pretrained model on the test cells of a table.

    Of files of before, all of whose runs are of one commit, it stands beside them.
    """
    found: dict[str, Any] = json.loads((PRETRAINED / f"test.{problem}.json").read_text())
    return {"commit": found.get("commit", "unknown"), **found["pretrained"]}


def summary() -> str:
    """Render the table as Markdown, with the best of each row in bold."""
    runs = stored()
    lines = ["| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|"]
    for title, problem, splits, digits, peer in ROWS:
        bias, bmf, finetuned = (
            mean_rmse(runs, problem, splits, method) for method in ("bias", "bmf", "finetuned")
        )
        pretrained = float(pretrained_run(problem)["rmse"])
        figures = [bias, bmf, float(peer.split()[0]), pretrained, finetuned]
        best = min(figure for figure in figures if figure == figure)
        cells = [f"{figure:.{digits}f}" if figure == figure else "–" for figure in figures]
        cells[2] = peer
        cells = [
            f"**{cell}**" if figure == best else cell
            for figure, cell in zip(figures, cells, strict=True)
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rows_with_runs() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return the runs behind each row, each with its kind."""
    from paper.lib.provenance import kind_of

    runs, rows = stored(), {}
    for title, problem, splits, *_ in ROWS:
        rows[title] = [
            (kind_of(method), run)
            for method in ("bias", "bmf", "finetuned")
            for run in runs_of(runs, problem, splits, method)
        ]
        rows[title].append(("pretrained", pretrained_run(problem)))
    return rows


def main() -> None:
    from paper.lib.provenance import check_one_code, commits_of

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--any-commit", action="store_true", help="print runs of different code")
    rows = rows_with_runs()
    told = check_one_code(rows, parser.parse_args().any_commit)
    print(summary())
    for title, row in rows.items():
        print(f"{title}: {commits_of([run for _, run in row])}")
    print(told)


if __name__ == "__main__":
    from paper.lib.command import run_command

    run_command(main)
