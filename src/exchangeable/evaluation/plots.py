"""Plots with matplotlib, which is an extra: ``pip install exchangeable[plot]``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exchangeable.arrays.cells import Floats
from exchangeable.errors import InputError
from exchangeable.runtime.files import whole_file

SOFT, ACCENT = "#9aa5b1", "#1f6f8b"


def _figure(width: float, height: float, panels: int = 1) -> tuple[Any, Sequence[Any]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'exchangeable[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def bars(
    path: Path,
    rows: Mapping[str, tuple[float, float]],
    *,
    title: str,
    label: str,
    marked: Sequence[str] = (),
) -> None:
    """Plot a dot with its deviation for each row, the first on top; marked rows are yardsticks."""
    figure, (panel,) = _figure(7, 1.2 + 0.35 * len(rows))
    for row, (name, (mean, deviation)) in enumerate(rows.items()):
        colour = SOFT if name in marked else ACCENT
        panel.errorbar(mean, -row, xerr=deviation, fmt="o", color=colour, capsize=3)
        panel.annotate(
            f"{mean:.4f}",
            (mean, -row),
            (0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    panel.set_yticks([-row for row in range(len(rows))], list(rows))
    panel.set_ylim(-len(rows) + 0.4, 0.8)
    panel.margins(x=0.12)
    panel.set(title=title, xlabel=label)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", color="#eeeeee")
    panel.set_axisbelow(True)
    with whole_file(path) as target:
        figure.savefig(target, dpi=120, format="png")


def side_by_side(tables: Mapping[str, Floats], *, across: str, down: str) -> bytes:
    """Draw tables of numbers on one scale of colours, grey where a number is missing, as a PNG."""
    figure, panels = _figure(5.2 * len(tables), 4.8, len(tables))
    finite = np.concatenate([t[np.isfinite(t)] for t in tables.values()])
    low, high = np.quantile(finite, [0.01, 0.99]) if len(finite) else (0.0, 1.0)
    for panel, (title, values) in zip(panels, tables.items(), strict=True):
        panel.set_facecolor("#ececec")
        image = panel.imshow(
            np.ma.masked_invalid(values),
            cmap="RdYlBu_r",
            vmin=low,
            vmax=high if high > low else low + 1,
            aspect="auto",
            interpolation="nearest",
        )
        panel.set(title=title, xticks=[], yticks=[], xlabel=across)
    panels[0].set_ylabel(down)
    figure.colorbar(image, ax=list(panels), shrink=0.6)
    return png(figure)


def calibration(promised: Sequence[float], held: Sequence[float]) -> bytes:
    """Plot the coverage of intervals against the coverage they promise, as a PNG."""
    figure, (panel,) = _figure(4.2, 4.0, 1)
    panel.plot([0, 1], [0, 1], color=SOFT, linewidth=1, label="as promised")
    panel.plot(promised, held, "o-", color=ACCENT, label="hidden cells")
    panel.set(
        xlabel="share that the interval promises",
        ylabel="share that it held",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, loc="upper left")
    return png(figure)


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    return buffer.getvalue()
