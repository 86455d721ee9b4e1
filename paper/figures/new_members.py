"""New users and films: trained on ML-100K, shown p % of a part of ML-1M, the rest predicted.

    python -m paper.figures.new_members --device cuda

Draws the paper's figure (docs/pictures/new-members.png) from the runs that there are. All but ours
are fitted to what is shown.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.lib import problems, provenance, runs, transferred
from paper.lib.command import run_command
from paper.lib.problems import Problem
from paper.lib.tables import parse_arguments

SHARES = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95)
SIZE = (1000, 1500)
"""Users and films of the part."""
METHODS = {
    "mean": "mean of what is shown",
    "bias": "empirical-Bayes bias",
    "vmf": "variational MF",
    "bmf": "Bayesian MF",
    "user-knn": "user neighbours",
    "item-knn": "item neighbours",
    "factorized-released-transferred": "the paper's, as released",
    "factorized-hiding-transferred": "the paper's, predicting hidden cells",
    "ours-transferred": "ours, trained on ML-100K",
}
PICTURE = Path("docs/pictures/new-members.png")


def part(seed: int) -> Problem:
    """Some users and films of ML-1M, drawn at random, and their ratings."""
    whole, generator = problems.load("ml-1m"), np.random.default_rng(seed)
    inside, index = np.ones(len(whole.values), bool), whole.index.copy()
    for axis, (members, number) in enumerate(zip(whole.shape, SIZE, strict=True)):
        places = np.full(members, -1)
        places[np.sort(generator.choice(members, number, replace=False))] = np.arange(number)
        index[:, axis] = places[index[:, axis]]
        inside &= index[:, axis] >= 0
    return replace(
        whole, name="ml-1m-part", index=index[inside], values=whole.values[inside], shape=SIZE,
        tests={}, features={},
    )  # fmt: skip


def run(
    problem: Problem, share: int, method: str, seed: int, device: str, **changed: Any
) -> dict[str, Any]:
    """How well the rest is answered when so many percent are shown."""
    drawn = np.random.default_rng([seed, share]).permutation(len(problem.values))
    number = round(share / 100 * len(drawn))
    seen, asked = np.sort(drawn[:number]), np.sort(drawn[number:])
    summary: dict[str, Any] = {}
    if method.endswith("-transferred"):
        model, made, _ = transferred.trained(
            method.removesuffix("-transferred"), seed, device, **changed
        )
        answers = transferred.answers(model, made, problem, seen, asked, device)
    else:
        fitted = runs.fitted_baseline(problem, method, seen, seed)
        answers, summary = fitted.predict(problem.index[asked]), runs.baseline_summary(fitted)
    truth = torch.from_numpy(problem.values[asked])
    told = {"problem": problem.name, "split": f"p{share:02d}", "method": method, "seed": seed}
    return {**told, **runs.scores(answers, truth), **summary, **runs.environment_facts(device)}


def main() -> None:
    given = parse_arguments(__doc__ or "")
    for seed in range(0 if given.print else given.seeds):
        problem = part(seed)
        for method in [m for m in METHODS if not given.only or m in given.only]:
            for share in SHARES:
                place = runs.place_of(problem.name, f"p{share:02d}", method, seed, given.out)
                if not place.exists() or given.again:
                    found = run(problem, share, method, seed, given.device, **given.changed)
                    runs.keep(found, given.out)
                    print(f"p {share} % {method}: RMSE {found['rmse']:.4f}", flush=True)
    stored = [one for one in runs.results(given.out) if one["problem"] == "ml-1m-part"]
    curves = _curves(stored)
    rows = {
        METHODS[method]: [
            (provenance.kind_of(method), one) for one in stored if one["method"] == method
        ]
        for method in curves
    }
    told = provenance.check_one_code(rows, given.any_commit)
    print("\n| shown | " + " | ".join(METHODS[m] for m in curves) + " |")
    print("|---|" + "---|" * len(curves))
    for share in SHARES:
        cells = [f"{curve[share]:.4f}" if share in curve else "–" for curve in curves.values()]
        print(f"| {share} % | " + " | ".join(cells) + " |")
    commits = [provenance.commits_of([one for _, one in row]) for row in rows.values()]
    print("| commit | " + " | ".join(commits) + f" |\n\n{told}")
    if curves:
        draw(curves, PICTURE)


def _curves(found: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    curves: dict[str, dict[int, float]] = {}
    for method in METHODS:
        for share in SHARES:
            values = [
                one["rmse"] for one in found
                if (one["problem"], one["split"], one["method"])
                == ("ml-1m-part", f"p{share:02d}", method)
            ]  # fmt: skip
            if values:
                curves.setdefault(method, {})[share] = float(np.mean(values))
    return curves


def draw(curves: dict[str, dict[int, float]], path: Path) -> None:
    """RMSE by share shown, a line for each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    panel = figure.subplots()
    for method, curve in curves.items():
        mine = method.startswith("ours")
        panel.plot(
            list(curve), list(curve.values()), marker="o", markersize=3.5,
            linewidth=2.5 if mine else 1.2, label=METHODS[method], zorder=3 if mine else 2,
        )  # fmt: skip
    panel.set(xlabel="share of the ratings that is shown, %", ylabel="RMSE on the rest")
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#eeeeee")
    panel.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    run_command(main)
