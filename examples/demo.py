"""Train on one simulated table of ratings, then complete that table and one never seen.

The two tables share no user and no film. Ratings are low-rank: a film's quality, times how
much a user cares for it (some care for the opposite), plus how generous the user is. A model
that gives each user and film one number, a bias, cannot express that. Factorization can, but
has to be fitted to each table; a model that learned *how tables work* needs no training for
the second one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from exchangeable import Completer, TrainingConfig
from exchangeable.metrics import coverage, rmse

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]
BASELINES = ("mean", "bias", "bmf", "vmf")


@dataclass(frozen=True, eq=False)
class Ratings:
    """A simulated table: what is shown, what is hidden, and the truth."""

    seen: Cells  # (E, 2) of users and films
    values: Floats  # (E,)
    hidden: Cells
    hidden_values: Floats
    truth: Floats  # (users, films), sorted so that its structure shows


def simulate(users: int, films: int, *, share: float, seed: int) -> Ratings:
    """Ratings 1-5 in about ``share`` of the cells; a fifth of them are hidden."""
    generator = np.random.default_rng(seed)
    care = np.sort(generator.normal(0.5, 0.7, (users, 1)), axis=0)
    quality = np.sort(generator.normal(0, 1, (1, films)), axis=1)
    truth = 3.2 + care * quality + generator.normal(0, 0.4, (users, 1))
    ratings = (truth + generator.normal(0, 0.4, truth.shape)).round().clip(1, 5)
    # Some users rate more than others, and some films are rated more.
    activity = np.exp(generator.normal(0, 0.5, (users, 1)) + generator.normal(0, 0.5, (1, films)))
    cells = np.argwhere(generator.random(truth.shape) < share * activity / activity.mean())
    hide = generator.random(len(cells)) < 0.2
    values = ratings[tuple(cells.T)]
    return Ratings(cells[~hide], values[~hide], cells[hide], values[hide], truth.clip(1, 5))


def trained(ratings: Ratings, steps: int) -> Completer:
    """Hide some of the table's cells, predict them from the rest, step; again and again."""
    training = TrainingConfig(steps=steps, learning_rate=1e-2, evaluate_every=25)
    completer = Completer("self-supervised", training=training)
    columns = (
        TextColumn("Training on the first table"),
        BarColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        return completer.fit(
            ratings.seen,
            ratings.values,
            watch=lambda what, share: progress.update(task, description=what, completed=share),
        )


def picture(tables: dict[str, tuple[Ratings, Completer]], path: Path) -> None:
    """Observed, true and completed, a row for each table."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        len(tables), 3, figsize=(11, 7.2), layout="constrained", squeeze=False
    )
    colours = matplotlib.colormaps["RdYlBu_r"].with_extremes(bad="#ececec")
    for row, (name, (ratings, completer)) in zip(panels, tables.items(), strict=True):
        shape = ratings.truth.shape
        completed = completer.predict(np.argwhere(np.ones(shape))).reshape(shape)
        observed = np.full(shape, np.nan)
        observed[tuple(ratings.seen.T)] = ratings.values
        error = rmse(ratings.hidden_values, completed[tuple(ratings.hidden.T)])
        shown = {
            f"{name}: observed ({len(ratings.seen):,} cells)": observed,
            "true": ratings.truth,
            f"completed (RMSE {error:.2f} on hidden ratings)": completed,
        }
        for panel, (title, values) in zip(row, shown.items(), strict=True):
            image: Any = panel.imshow(
                values, cmap=colours, vmin=1, vmax=5, aspect="auto", interpolation="nearest"
            )
            panel.set(title=title, xticks=[], yticks=[], xlabel=f"{shape[1]} films")
            panel.title.set_fontsize(10)
        row[0].set_ylabel(f"{shape[0]} users")
    figure.colorbar(image, ax=panels, shrink=0.5, label="rating")
    figure.suptitle(
        "Rows and columns are in the order of the simulation's hidden factors,\n"
        "which the model does not know",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on one table, complete two.")
    parser.add_argument("--steps", type=int, default=300, help="training steps")
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="the picture")
    options = parser.parse_args()

    console = Console(width=None if sys.stdout.isatty() else 110)
    first = simulate(300, 200, share=0.15, seed=1)
    second = simulate(250, 180, share=0.15, seed=2)
    console.print("Two simulated tables of ratings 1-5, with no user and no film in common.")
    started = time.perf_counter()
    model = trained(first, options.steps)
    console.print(f"Trained a model on the first one in {time.perf_counter() - started:.1f} s.")
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        started = time.perf_counter()
        elsewhere = Completer(f"{folder}/model").fit(second.seen, second.values)
        read = time.perf_counter() - started
    console.print(f"It has read the second one in {read:.2f} s, with no training.")

    tables = {"trained on": (first, model), "never seen": (second, elsewhere)}
    report = Table(title="RMSE on hidden ratings")
    headings = (
        "table",
        "users x films",
        "shown",
        "hidden",
        *BASELINES,
        "model",
        "in its 80 % interval",
    )
    for heading in headings:
        report.add_column(heading, justify="left" if heading == "table" else "right")
    for name, (ratings, completer) in tables.items():
        asked = [Completer(other).fit(ratings.seen, ratings.values) for other in BASELINES]
        errors = [
            rmse(ratings.hidden_values, c.predict(ratings.hidden)) for c in [*asked, completer]
        ]
        held = coverage(ratings.hidden_values, completer.predict_interval(ratings.hidden))
        report.add_row(
            name,
            " x ".join(map(str, ratings.truth.shape)),
            f"{len(ratings.seen):,}",
            f"{len(ratings.hidden):,}",
            *(f"{error:.3f}" for error in errors),
            f"{held:.0%}",
        )
    console.print(report)
    picture(tables, options.out)
    console.print(f"Wrote {options.out}: observed, true and completed, for both tables.")


if __name__ == "__main__":
    main()
