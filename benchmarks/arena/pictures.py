"""Pictures of the page: light, small and legible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.arena.methods import METHODS
from benchmarks.arena.summary import OURS, YARDSTICKS, Board, Estimate
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

OWN, MARKED, OTHER = "#1f6f8b", "#d08c2e", "#9aa5b1"
# Thirteen colours and seven markers: together they differ for ninety methods.
LINES = (
    *("#2e7d32", "#8e44ad", "#c0392b", "#16a085", "#7f8c8d"),
    *("#e377c2", "#9a9a1c", "#1f77b4", "#8c564b", "#111111"),
    *("#ad1457", "#5dade2", "#b39ddb"),
)
MARKERS = ("o", "s", "^", "v", "D", "P", "X")
CAP = 0.3
"""Relative error above which the heat map has one colour."""


def colour(method: str) -> str:
    return OWN if method in OURS else MARKED if method in YARDSTICKS else OTHER


def line_of(method: str) -> dict[str, Any]:
    """How the line of a method is drawn, the same in all pictures."""
    facts = {"linewidth": 2.2 if method in OURS else 1.3, "markersize": 4}
    facts |= {"linestyle": "--" if method in ("auto", "bias") else "-"}
    if method in (*OURS, *YARDSTICKS):
        return facts | {"color": colour(method), "marker": "o"}
    place = [name for name in METHODS if name not in (*OURS, *YARDSTICKS)].index(method)
    return facts | {"color": LINES[place % len(LINES)], "marker": MARKERS[place % len(MARKERS)]}


def figure_of(width: float, height: float, panels: int = 1, **shared: bool) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    found = figure.subplots(1, panels, squeeze=False, **shared)[0]
    for panel in found:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="#eeeeee")
        panel.set_axisbelow(True)
    return figure, found


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=100, format="png", metadata={"Software": None})


def draw_standings(path: Path, found: Mapping[str, tuple[Estimate, Estimate]], title: str) -> None:
    """Mean rank and mean relative error with their intervals, the best on top."""
    figure, panels = figure_of(9, 1.2 + 0.3 * len(found), 2, sharey=True)
    for place, (method, pair) in enumerate(found.items()):
        for panel, each, scale in zip(panels, pair, (1, 100), strict=True):
            ends = [[scale * (each.mean - each.low)], [scale * (each.high - each.mean)]]
            panel.errorbar(
                scale * each.mean, -place, xerr=ends, fmt="o", color=colour(method), capsize=3
            )
    names = [f"{METHODS[name].title} ({pair[0].tables})" for name, pair in found.items()]
    panels[0].set_yticks([-place for place in range(len(found))], names)
    panels[0].set(xlabel="mean rank: 0 best, 1 last", title=title)
    panels[1].set(xlabel="error above the best, per cent", title="in brackets: tables")
    panels[1].set_xscale("symlog", linthresh=10)
    panels[1].set_xlim(0, 130 * max(pair[1].high for pair in found.values()) + 1)
    panels[1].xaxis.set_major_formatter("{x:g}")
    save(figure, path)


def draw_heat(path: Path, board: Board, question: str) -> None:
    """Error above the best of each table, tables by methods."""
    keys = [(table, question) for table in board.tables if (table, question) in board.errors]
    methods = [m for m in board.methods if any(m in board.errors[key] for key in keys)]
    errors = np.array([[board.relative(key, name) for name in methods] for key in keys])
    figure, (panel,) = figure_of(2.5 + 0.55 * len(methods), 1.8 + 0.3 * len(keys))
    panel.imshow(np.minimum(errors, CAP), cmap="YlOrBr", vmin=0, vmax=1.3 * CAP, aspect="auto")
    for row, key in enumerate(keys):
        for column, method in enumerate(methods):
            error = errors[row, column]
            if not np.isnan(error):
                failed = np.isnan(board.errors[key][method])
                text = "–" if failed else "0" if error == 0 else f"{100 * error:.1f}"
                text = f"{100 * error:.0f}" if not failed and error >= 0.095 else text
                weight = "bold" if error == 0 else "normal"
                panel.text(
                    column, row, text, ha="center", va="center", fontsize=8, fontweight=weight
                )
    panel.set_xticks(range(len(methods)), methods, rotation=40, ha="right")
    panel.set_yticks(range(len(keys)), [key[0] for key in keys])
    panel.grid(visible=False)
    panel.set_title(f"RMSE above the best of the table, per cent ({question})", fontsize=10)
    save(figure, path)


def draw_time(path: Path, rows: Mapping[str, tuple[float, float]]) -> None:
    """Mean relative error over the median seconds of a run."""
    figure, (panel,) = figure_of(8, 4.6)
    for method, (seconds, error) in rows.items():
        panel.plot(seconds, 100 * error, "o", color=colour(method))
        panel.annotate(
            method, (seconds, 100 * error), (5, 4), textcoords="offset points", fontsize=8
        )
    panel.set_xscale("log")
    panel.set_yscale("symlog", linthresh=10)
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.margins(x=0.15)
    panel.set_ylim(top=130 * max(error for _, error in rows.values()))
    panel.set(
        xlabel="median seconds from start to answers, choice of settings included",
        ylabel="mean error above the best, per cent",
    )
    save(figure, path)


def draw_shares(path: Path, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """RMSE in deviations of the values, over the share of cells that are shown."""
    figure, (panel,) = figure_of(7, 4.4)
    for method, points in lines.items():
        shares, errors = zip(*points, strict=True)
        panel.plot(shares, errors, label=METHODS[method].title, **line_of(method))
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set(xlabel="cells shown, per cent", ylabel="RMSE in deviations of the values, mean")
    panel.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, path)


def draw_sizes(path: Path, rows: Mapping[str, Sequence[tuple[int, float, float]]]) -> None:
    """Seconds and memory over the number of cells."""
    figure, panels = figure_of(10.5, 4.4, 2)
    for method, points in rows.items():
        cells, seconds, memory = zip(*points, strict=True)
        for panel, column in zip(panels, (seconds, memory), strict=True):
            panel.plot(cells, column, label=METHODS[method].title, **line_of(method))
    for panel, label in zip(panels, ("seconds without the choice of settings", "MB"), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="cells that are read", ylabel=label)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter("{x:g}")
    panels[1].legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, path)
