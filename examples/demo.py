"""Complete the film club's table with the model in the package, which was not trained on it.

The film club is simulated (200 members, 120 films, ratings 1-5), so the true taste of everybody
is known. A fifth of the ratings is hidden. No gradient step is taken: closed forms are fitted to
the other ratings, the network reads them, and any cell is predicted with how sure that is.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from exchangeable import Completer
from exchangeable.datasets.film_club import film_club
from exchangeable.metrics import coverage, rmse

Floats = NDArray[np.float64]
OTHERS = {
    "mean": "mean",
    "bias": "bias per member and film",
    "vmf": "variational factorization",
    "bmf": "Bayesian factorization",
}
LISTED = 8
DRAWN = 60


def main() -> None:
    parser = argparse.ArgumentParser(description="Complete a table without a gradient step.")
    parser.add_argument("--seed", type=int, default=0, help="of which ratings are hidden")
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="the picture")
    options = parser.parse_args()

    console = Console(width=None if sys.stdout.isatty() else 100)
    club = film_club()
    table, truth = club.table, club.truth
    assert truth is not None
    generator = np.random.default_rng(options.seed)
    hide = generator.random(len(table)) < 0.2
    people, films = (np.array(v.decode(np.arange(len(v)))) for v in table.vocabularies)
    labels = np.stack([people[table.index[:, 0]], films[table.index[:, 1]]], axis=1)
    shown, shown_ratings = labels[~hide], table.values[~hide]
    hidden, ratings = labels[hide], table.values[hide]
    console.print(
        f"The film club (simulated): {len(people)} members x {len(films)} films, {len(shown):,} "
        f"ratings shown, {len(hidden):,} hidden."
    )

    started = time.perf_counter()
    completer = Completer("pretrained").fit(shown, shown_ratings)
    means, intervals = completer.predict(hidden), completer.predict_interval(hidden)
    every = np.stack([np.repeat(people, len(films)), np.tile(films, len(people))], axis=1)
    completed = completer.predict(every).reshape(truth.shape)
    console.print(
        f"The pretrained model read them and answered for all {truth.size:,} cells in "
        f"{time.perf_counter() - started:.1f} s. No gradient step."
    )

    errors = Table(title="RMSE", title_justify="left")
    for heading in ("", "on hidden ratings", "of the true taste, all cells"):
        errors.add_column(heading, justify="right" if heading else "left")
    for name, title in OTHERS.items():
        other = Completer(name).fit(shown, shown_ratings)
        of_truth = rmse(truth.clip(1, 5).ravel(), other.predict(every))
        errors.add_row(title, f"{rmse(ratings, other.predict(hidden)):.3f}", f"{of_truth:.3f}")
    of_truth = rmse(truth.clip(1, 5).ravel(), completed.ravel())
    errors.add_row("pretrained model", f"{rmse(ratings, means):.3f}", f"{of_truth:.3f}")
    console.print(errors)
    held = coverage(ratings, intervals)
    console.print(f"Its 80 % intervals hold {held:.0%} of the hidden ratings. Some of them:")

    listed = Table()
    for heading in ("member", "film", "completed", "80 % interval", "rated", "true taste"):
        listed.add_column(heading, justify="left" if heading in ("member", "film") else "right")
    own_truth = truth[tuple(table.index[hide].T)]
    for at in generator.choice(len(hidden), LISTED, replace=False):
        low, high = intervals[at]
        listed.add_row(
            *hidden[at], f"{means[at]:.2f}", f"{low:.2f} to {high:.2f}", f"{ratings[at]:.0f}",
            f"{own_truth[at]:.2f}",
        )  # fmt: skip
    console.print(listed)

    observed = np.full(truth.shape, np.nan)
    observed[tuple(table.index[~hide].T)] = shown_ratings
    some = generator.choice(len(hidden), min(DRAWN, len(hidden)), replace=False)
    drawn = (means[some], intervals[some], ratings[some])
    picture(observed, truth, completed, drawn, options.out)
    console.print(f"Wrote {options.out}: observed, true and completed, and intervals.")


def picture(
    observed: Floats,
    truth: Floats,
    completed: Floats,
    hidden: tuple[Floats, Floats, Floats],
    path: Path,
) -> None:
    """Three tables in the same order, and intervals of hidden ratings beside what was rated."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    # From the most severe to the most generous, and from the least to the most liked.
    rows, columns = np.argsort(truth.mean(axis=1)), np.argsort(truth.mean(axis=0))
    figure, panels = pyplot.subplots(1, 4, figsize=(15, 4.6), layout="constrained")
    colours = matplotlib.colormaps["RdYlBu_r"].with_extremes(bad="#ececec")
    error = rmse(truth.clip(1, 5).ravel(), completed.ravel())
    shown = {
        f"observed ({np.isfinite(observed).sum():,} ratings)": observed,
        "true taste": truth,
        f"completed, no gradient step (RMSE {error:.2f})": completed,
    }
    for panel, (title, values) in zip(panels[:3], shown.items(), strict=True):
        image: Any = panel.imshow(
            values[rows][:, columns],
            cmap=colours, vmin=1, vmax=5, aspect="auto", interpolation="nearest",
        )  # fmt: skip
        panel.set(title=title, xticks=[], yticks=[], xlabel=f"{truth.shape[1]} films")
        panel.title.set_fontsize(10)
    panels[0].set_ylabel(f"{truth.shape[0]} members")
    figure.colorbar(image, ax=panels[2], label="rating")
    means, intervals, ratings = hidden
    order = np.argsort(means)
    at = np.arange(len(order))
    last = panels[3]
    last.vlines(at, *intervals[order].T, color="#9db8d2", lw=3, label="80 % interval")
    last.plot(at, means[order], ".", color="#2b5c8a", ms=4, label="completed")
    last.plot(at, ratings[order], "o", mfc="none", color="#c0392b", ms=4, label="rated")
    last.set(title="hidden ratings", xticks=[], yticks=range(1, 6), xlabel=f"{len(at)} of them")
    last.title.set_fontsize(10)
    last.legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
