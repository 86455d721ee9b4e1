"""Synthetic tables beside real ones: what the pretrained model learned from, and what it covers.

    python -m paper.pretrained.synthetic_tables           # writes docs/pictures/draws.png

Above a dozen draws as they look, members in the order of their means; below statistics of many
draws, and of real tables (without their test cells). Of tables unlike all draws it learned nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.arrays.cells import Cells
from exchangeable.arrays.support import Support
from exchangeable.pretraining.synthetic import draw_table
from exchangeable.prior.prior import Prior
from exchangeable.runtime.files import whole_file
from exchangeable.values.codecs import ValueStats
from paper.lib import problems
from paper.lib.canvas import INK, SOFT
from paper.lib.command import run_command

REAL = {
    "ml-100k": "ML-100K",
    "ml-1m": "ML-1M",
    "flixster": "Flixster",
    "douban": "Douban",
    "yahoo-music": "YahooMusic",
    "davis": "Davis",
    "kiba": "KIBA",
}
MOST = 60_000
"""Cells of a real table that are looked at: those of some of its rows."""
DRAWN = 300
CELLS = 12_000
SHOWN = 12
SPECTRUM = 8
RANK = 12


@dataclass(frozen=True)
class Statistics:
    """What a table is like."""

    per_row: float
    per_column: float
    """Cells of a member on average, where it has any."""
    uneven: float
    """Cells of a row that nine tenths are below, over those of the middle one."""
    by_biases: float
    by_factors: float
    """Shares of the variance of hidden cells that are explained: by biases, by factors further."""
    spectrum: tuple[float, ...]
    """Shares of what biases leave that lie along each of the leading singular vectors."""
    commonest: float
    """Share of the cells that have the most frequent value."""


def statistics(cells: Cells, seed: int) -> Statistics:
    rows, columns = (np.bincount(cells.index[:, axis]) for axis in (0, 1))
    rows, columns = rows[rows > 0], columns[columns > 0]
    hide = np.random.default_rng([seed, 7]).random(len(cells.values)) < 0.1
    hide[0] = False
    hide[1] = True
    shown = cells.values[~hide]
    reference = ValueStats.of(shown, cells.scale)
    index = torch.from_numpy(cells.index)
    observed = ExchangeableArray.unchecked(
        Support(index[~torch.from_numpy(hide)], cells.shape), torch.from_numpy(shown)[:, None]
    )
    prior = Prior.of(observed, reference, RANK, comparison_budget=0)
    truth = torch.from_numpy((cells.values[hide] - reference.mean) / reference.deviation)
    asked = index[torch.from_numpy(hide)]
    whole = float(truth.square().mean())
    left = [
        float((truth - mean).square().mean())
        for mean in (prior.fitted.biases.predict(asked)[0], prior.predict(asked)[0])
    ]
    own = torch.from_numpy((cells.values - reference.mean) / reference.deviation)
    residuals = (own - prior.fitted.biases.predict(index)[0]).numpy()
    table = csr_array((residuals, (cells.index[:, 0], cells.index[:, 1])), shape=cells.shape)
    number = min(SPECTRUM, min(cells.shape) - 1)
    found = svds(table, number, return_singular_vectors=False, v0=np.ones(min(cells.shape)))
    _, counts = np.unique(cells.values, return_counts=True)
    return Statistics(
        float(rows.mean()),
        float(columns.mean()),
        float(np.quantile(rows, 0.9) / np.median(rows)),
        1 - left[0] / whole,
        (left[0] - left[1]) / whole,
        tuple((np.sort(found)[::-1] ** 2 / (residuals**2).sum()).tolist()),
        float(counts.max() / len(cells.values)),
    )


def real(name: str) -> Cells:
    problem = problems.load(name)
    seen, _, _ = problem.parts(next(iter(problem.tests)), 0)
    if len(seen) > MOST:
        rows = np.random.default_rng(0).permutation(problem.shape[0])
        some = rows[: round(len(rows) * MOST / len(seen))]
        seen = seen[np.isin(problem.index[seen, 0], some)]
    return Cells(problem.index[seen], problem.values[seen], problem.shape, problem.scale)


def drawn(number: int) -> Cells:
    table = draw_table([0, 9, number], 2, CELLS)
    return Cells(table.index, table.values, table.shape, table.scale)


def look(panel: Any, cells: Cells) -> None:
    """As it looks, at most 100 rows and columns, in the order of their means."""
    orders = []
    for axis in (0, 1):
        member = cells.index[:, axis]
        counts = np.bincount(member, minlength=cells.shape[axis])
        sums = np.bincount(member, weights=cells.values, minlength=cells.shape[axis])
        busy = np.argsort(-counts)[:100]
        orders.append(busy[np.argsort((sums / np.maximum(counts, 1))[busy])])
    places = [np.full(size, -1) for size in cells.shape]
    for place, order in zip(places, orders, strict=True):
        place[order] = np.arange(len(order))
    at = np.stack([places[a][cells.index[:, a]] for a in (0, 1)])
    inside = (at >= 0).all(axis=0)
    image = np.full([len(order) for order in orders], np.nan)
    ranks = np.searchsorted(np.sort(cells.values), cells.values) / len(cells.values)
    image[tuple(at[:, inside])] = ranks[inside]
    from matplotlib import colormaps

    colours = colormaps["RdYlBu_r"].with_extremes(bad="#ececec")
    panel.imshow(image, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    size = " x ".join(f"{n:,}" for n in cells.shape)
    panel.set(xticks=[], yticks=[])
    panel.set_title(f"{size}, {len(cells.values):,} cells\n{cells.scale}", fontsize=7, color=INK)


def picture(path: Path, number: int) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8.6), layout="constrained", facecolor="white")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    above, below = halves
    for panel, at in zip(above.subplots(2, 6).flat, range(SHOWN), strict=True):
        look(panel, drawn(at))
    above.suptitle("A dozen draws: the 100 busiest members of each axis", fontsize=10, color=INK)
    theirs = [statistics(drawn(at), at) for at in range(number)]
    known = {title: statistics(real(name), 0) for name, title in REAL.items()}
    panels = below.subplots(1, 4)
    _points(panels[0], theirs, known, "per_row", "per_column", log=True)
    panels[0].set(xlabel="cells per row", ylabel="cells per column")
    _points(panels[1], theirs, known, "by_biases", "by_factors")
    panels[1].set(
        xlabel="variance explained by biases", ylabel="by factors further",
        xlim=(-0.1, 1), ylim=(-0.05, 0.6),
    )  # fmt: skip
    _points(panels[2], theirs, known, "commonest", "uneven")
    panels[2].set(
        xlabel="share of the commonest value", ylabel="busy over middling rows, cells",
        yscale="log",
    )  # fmt: skip
    for one in theirs:
        panels[3].plot(range(1, len(one.spectrum) + 1), one.spectrum, color=SOFT, lw=0.4, alpha=0.3)
    for number_of, (title, one) in enumerate(known.items()):
        colour = f"C{number_of}"
        panels[3].plot(range(1, len(one.spectrum) + 1), one.spectrum, color=colour, label=title)
    panels[3].set(
        yscale="log", xlabel="singular value", ylabel="share of what biases leave", ylim=(1e-3, 1)
    )
    if known:
        panels[3].legend(fontsize=6)
    below.suptitle(f"{number} draws (grey) and real tables", fontsize=10, color=INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as target:
        figure.savefig(target, dpi=120, format="png")


def _points(
    panel: Any,
    theirs: list[Statistics],
    known: dict[str, Statistics],
    x: str,
    y: str,
    *,
    log: bool = False,
) -> None:
    drawn_x, drawn_y = ([getattr(one, name) for one in theirs] for name in (x, y))
    panel.plot(drawn_x, drawn_y, ".", color=SOFT, ms=3, alpha=0.6)
    for number, (title, one) in enumerate(known.items()):
        at = getattr(one, x), getattr(one, y)
        panel.plot(*at, "o", color=f"C{number}", ms=5)
        panel.annotate(title, at, xytext=(3, 3), textcoords="offset points", fontsize=6)
    if log:
        panel.set(xscale="log", yscale="log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/draws.png"))
    parser.add_argument("--draws", type=int, default=DRAWN)
    given = parser.parse_args()
    picture(given.out, given.draws)
    print(f"wrote {given.out}")


if __name__ == "__main__":
    run_command(main)
