"""Flat drawings, measured in inches from the lower left corner of a sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Floats = NDArray[np.float64]
Colours = NDArray[np.str_]

INK, SOFT, EMPTY, BLANK = "#22303f", "#8793a1", "#f1f4f7", "#ffffff"


def sheet(width: float, height: float) -> tuple[Any, Any]:
    """A white sheet and the one panel that fills it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    panel = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    panel.set_axis_off()
    return figure, panel


def say(panel: Any, x: float, y: float, text: str, size: float = 9, **how: Any) -> None:
    panel.text(
        x, y, text, **{"fontsize": size, "color": INK, "ha": "center", "va": "center", **how}
    )


def shapes(
    panel: Any,
    corners: Sequence[Any],
    colours: Sequence[str],
    edge: str = BLANK,
    width: float = 0.8,
) -> None:
    """Polygons, the later ones on top."""
    from matplotlib.collections import PolyCollection

    panel.add_collection(
        PolyCollection(
            corners, facecolors=colours, edgecolors=edge, linewidths=width, joinstyle="round"
        ),
        autolim=False,
    )


def boxed(left: float, top: float, width: float, height: float) -> list[Point]:
    right, bottom = left + width, top - height
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def grid(panel: Any, colours: Colours, at: Point, size: float, **edges: Any) -> None:
    """A matrix of coloured squares whose upper left corner is ``at``."""
    (left, top), (rows, columns) = at, colours.shape
    boxes = [
        boxed(left + size * column, top - size * row, size, size)
        for row in range(rows)
        for column in range(columns)
    ]
    shapes(panel, boxes, colours.flatten().tolist(), **edges)


def outline(
    panel: Any, at: Point, size: float, cell: tuple[int, int], span: tuple[int, int] = (1, 1)
) -> None:
    """A dark frame around some cells of a grid."""
    left, top = at[0] + size * cell[1], at[1] - size * cell[0]
    box = boxed(left, top, size * span[1], size * span[0])
    shapes(panel, [box], ["none"], INK, 1.6)


def arrow(panel: Any, start: Point, end: Point, colour: str = SOFT, bend: float = 0) -> None:
    how = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", end, start, arrowprops={**how, "color": colour, "linewidth": 1.6})


def legend(panel: Any, entries: Mapping[str, str], at: Point, step: float = 1) -> None:
    """Coloured squares with their names, one after the other to the right."""
    for number, (name, colour) in enumerate(entries.items()):
        x = at[0] + number * step
        shapes(panel, [boxed(x, at[1] + 0.08, 0.16, 0.16)], [colour])
        say(panel, x + 0.23, at[1], name, ha="left")


def ramp(panel: Any, colours: Colours, ends: tuple[str, str], at: Point) -> None:
    """A row of colours between the names of the first and the last."""
    grid(panel, colours[None], (at[0], at[1] + 0.08), 0.16)
    say(panel, at[0] - 0.07, at[1], ends[0], ha="right")
    say(panel, at[0] + 0.16 * len(colours) + 0.07, at[1], ends[1], ha="left")


def heat(values: Floats, name: str, low: float, high: float) -> Colours:
    """Numbers as colours of a map; blank where there is none."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    colours = colormaps[name](np.clip((values - low) / (high - low), 0, 1))
    hexes = [to_hex(tuple(colour)) for colour in colours.reshape(-1, 4).tolist()]
    known = np.isfinite(values)
    return np.where(known, np.array(hexes).reshape(values.shape), EMPTY)


def mixed(colour: str, other: str, share: float) -> str:
    from matplotlib.colors import to_hex, to_rgb

    pairs = zip(to_rgb(colour), to_rgb(other), strict=True)
    red, green, blue = ((1 - share) * own + share * more for own, more in pairs)
    return to_hex((red, green, blue))
