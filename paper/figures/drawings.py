"""The paper's drawings, made by the package: ``python -m paper.figures.drawings``.

What they show is asked of the code and not drawn from a formula: weights are a layer's answers to
single cells, pools are the groups of a support, samples are a sampler's draws. All is measured in
inches from the lower left corner, and the same each time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable import Support
from exchangeable.arrays.groups import Axes, proper_subsets
from exchangeable.errors import InputError
from exchangeable.runtime.files import whole_file
from paper.lib.canvas import (
    BLANK,
    EMPTY,
    INK,
    SOFT,
    Colours,
    Floats,
    Point,
    arrow,
    boxed,
    grid,
    heat,
    legend,
    mixed,
    outline,
    ramp,
    say,
    shapes,
    sheet,
)
from paper.lib.command import run_command
from paper.lib.measurements import (
    SEED,
    Shape,
    chances,
    completed,
    layer_of,
    matrix_of,
    pooled_with,
    samplers_of,
    skewed,
    tied,
)

ITSELF, OUTPUT, DRAWN, SEEN, BAND = INK, "#56b4e9", "#d55e00", "#b9c3ce", "#fbe4d3"
# Okabe and Ito's colours, which colour-blind people tell apart; two axes mix those of each.
SHARED: Mapping[Axes, str] = {
    (): "#d3dae2",
    (0,): "#0072b2",
    (1,): "#f0dc4e",
    (2,): "#d55e00",
    (0, 1): "#009e73",
    (0, 2): "#cc79a7",
    (1, 2): "#e69f00",
}


# Colours and names


def _colour(axes: Axes, order: int) -> str:
    return ITSELF if len(axes) == order else SHARED[axes]


def _name(axes: Axes) -> str:
    return f"{{{', '.join(map(str, axes))}}}" if axes else "{ }"


# The pictures


def tied_weights() -> Any:
    """Figure 1: the weight matrices of orders 1, 2 and 3."""
    shapes: tuple[Shape, ...] = ((5,), (4, 5), (3, 4, 3))
    titles = ("a set of 5", "a matrix, 4 × 5", "an array, 3 × 4 × 3")
    figure, panel = sheet(10.4, 4.5)
    for number, (shape, title) in enumerate(zip(shapes, titles, strict=True)):
        matrix = matrix_of(layer_of(len(shape)), shape)
        values = tied(matrix, shape)
        colours = np.vectorize(lambda v, s=shape, t=values: _colour(t[v], len(s)))(matrix)
        left, top, size = 0.35 + 3.35 * number, 3.9, 3.0 / len(matrix)
        grid(panel, colours, (left, top), size, width=1.2 - 0.4 * number)
        _between_blocks(panel, shape, left, top)
        say(panel, left + 1.5, 4.18, f"{title}: {len(values)} weights", 11)
    say(panel, 0.35, 0.6, "An entry's weight says on which axes its two cells agree:", ha="left")
    legend(panel, {_name(axes): colour for axes, colour in SHARED.items()}, (0.35, 0.28), 0.86)
    legend(panel, {"all: the cell itself": ITSELF}, (6.4, 0.28))
    return figure


def _between_blocks(panel: Any, shape: Shape, left: float, top: float) -> None:
    """White lines between cells that differ on the first axis."""
    if len(shape) > 1:
        for cut in np.arange(1, shape[0]) * 3.0 / shape[0]:
            panel.plot([left, left + 3], [top - cut, top - cut], color=BLANK, linewidth=2.5)
            panel.plot([left + cut, left + cut], [top, top - 3], color=BLANK, linewidth=2.5)


def sharing() -> Any:
    """Figure 2: with which weight each input cell enters one output cell, and another."""
    shape, size, top = (5, 6), 0.33, 2.95
    matrix = matrix_of(layer_of(2), shape)
    values = tied(matrix, shape)
    figure, panel = sheet(10.4, 3.5)
    for left, cell in ((0.35, (1, 2)), (5.5, (3, 4))):
        entering = matrix[cell[0] * shape[1] + cell[1]].reshape(shape)
        colours = np.vectorize(lambda value: _colour(values[value], 2))(entering)
        grid(panel, colours, (left, top), size, width=1.2)
        for row, column in np.ndindex(*shape):
            ink = BLANK if values[entering[row, column]] in ((0,), (0, 1)) else INK
            place = left + size * (column + 0.5), top - size * (row + 0.5)
            say(panel, *place, f"{entering[row, column]:g}", color=ink)
        _output(panel, shape, cell, (left + 2.57, top), size)
        arrow(panel, (left + 2.06, 2.125), (left + 2.49, 2.125))
        say(panel, left + 0.99, top + 0.22, "input", 11)
        say(panel, left + 3.56, top + 0.22, "output", 11)
    sentence = (
        "With weights of 1 for the cell itself, 2 for all cells, 4 for its row and 8 for its "
        "column, input cells enter the output cell with:"
    )
    say(panel, 0.35, 0.85, sentence, ha="left")
    names = {(0, 1): "the cell itself", (0,): "its row", (1,): "its column", (): "every other cell"}
    entries = {axes: f"{names[axes]}, {_sum(value)}" for value, axes in values.items()}
    for left, axes in zip((0.35, 3.45, 5.4, 7.6), names, strict=True):
        legend(panel, {entries[axes]: _colour(axes, 2)}, (left, 0.45))
    return figure


def _sum(value: float) -> str:
    """The powers of two that a number is the sum of: 10 is "2 + 8 = 10"."""
    parts = [str(2**n) for n in range(int(value).bit_length()) if int(value) >> n & 1]
    return f"{' + '.join(parts)} = {value:g}" if len(parts) > 1 else parts[0]


def _output(panel: Any, shape: Shape, cell: tuple[int, int], at: Point, size: float) -> None:
    """An empty matrix with one cell of it marked."""
    colours = np.full(shape, EMPTY)
    colours[cell] = OUTPUT
    grid(panel, colours, at, size, width=1.2)
    outline(panel, at, size, cell)


def factorized() -> Any:
    """Figure 3: a table, what the encoder makes of it, and what the decoder rebuilds."""
    shown, size, top = completed(), 0.105, 3.25
    asked = _first_unknown(shown.observed, after=7)
    figure, panel = sheet(11.2, 4.05)
    for left, ratings in ((0.3, shown.observed), (9.45, shown.answers)):
        grid(panel, heat(ratings, "viridis", 1, 5), (left, top), size, width=0.5)
        outline(panel, (left, top), size, asked)
    _channels(panel, shown.encoded, (2.32, top), size)
    _factors(panel, shown.factors, (4.5, top), size, asked)
    _channels(panel, shown.decoded, (7.27, top), size)
    for end in (2.22, 4.4, 7.17, 9.35):
        arrow(panel, (end - 0.33, 2.2), (end, 2.2))
    _captions(panel, *shown.observed.shape)
    ramp(panel, heat(np.arange(1.0, 6.0), "viridis", 1, 5), ("rating 1", "5"), (0.95, 0.25))
    ramp(panel, _signed(np.linspace(-1, 1, 5)), ("channels −", "+"), (5.4, 0.25))
    return figure


def _first_unknown(table: Floats, after: int) -> tuple[int, int]:
    """A cell with no value, the first after so many rows and columns."""
    row, column = np.argwhere(np.isnan(table[after:, after:]))[0] + after
    return int(row), int(column)


def _signed(values: Floats) -> Colours:
    most = float(np.nanquantile(np.abs(values), 0.98))
    return heat(values, "PuOr", -most, most)


def _channels(panel: Any, values: Floats, at: Point, size: float) -> None:
    """The three channels that vary most, one behind the other."""
    busiest = np.argsort(-np.nanvar(values, axis=(0, 1)), kind="stable")[:3]
    for depth in (2, 1, 0):
        place = at[0] + 0.08 * depth, at[1] + 0.08 * depth
        grid(panel, _signed(values[..., busiest[depth]]), place, size, width=0.5)


def _factors(
    panel: Any, factors: Sequence[Floats], at: Point, size: float, asked: tuple[int, int]
) -> None:
    """The vectors of rows and of columns, and how those of one cell meet."""
    (left, top), (rows, columns) = at, factors
    beside = left + size * (rows.shape[1] + 1), top
    grid(panel, _signed(rows), at, size, width=0.5)
    grid(panel, _signed(columns.T), beside, size, width=0.5)
    outline(panel, at, size, (asked[0], 0), (1, rows.shape[1]))
    outline(panel, beside, size, (0, asked[1]), (columns.shape[1], 1))
    x, y = beside[0] + size * (asked[1] + 0.5), top - size * (asked[0] + 0.5)
    start, bottom = left + size * rows.shape[1], top - size * columns.shape[1]
    panel.plot([start, x, x], [y, y, bottom], color=INK, linewidth=1, linestyle=(0, (2, 2)))
    shapes(panel, [boxed(x - size / 2, y + size / 2, size, size)], [OUTPUT], INK, 1.6)


def _captions(panel: Any, members: int, films: int) -> None:
    texts = {
        ("observed", f"{members} members, {films} films,\nnone of them trained on"): 1.03,
        ("encoder", "3 layers on observed cells\n(3 of 16 channels)"): 3.13,
        ("factors", "6 numbers for each member\nand for each film"): 5.61,
        ("decoder", "3 layers on all cells\n(3 of 16 channels)"): 8.08,
        ("answers", "a rating for every cell,\nfrom two vectors"): 10.18,
    }
    for (title, text), x in texts.items():
        say(panel, x, 3.72, title, 11)
        say(panel, x, 0.87, text)


def sampling() -> Any:
    """Figure 4: cells at random, the paper's conditional samples, and their unbiased form."""
    support = skewed()
    how = ("any cells", "rows by their cells, then columns by theirs", "any rows and any columns")
    figure, panel = sheet(10.6, 4.1)
    for number, (sampler, caption) in enumerate(zip(samplers_of(support), how, strict=True)):
        left = 0.35 + 3.45 * number
        drawn = sampler.draw(np.random.default_rng(SEED))
        _sample(panel, support, drawn, (left, 2.95), blocks=number > 0)
        say(panel, left + 1.3, 3.9, type(sampler).__name__, 11)
        say(panel, left + 1.3, 3.68, caption)
        low, high = (f"{chance:.1f}" for chance in chances(sampler))
        who, often = ("a", f"{low} to {high}") if low < high else ("every", low)
        say(panel, left + 1.3, 0.88, f"{who} cell is drawn with a chance of {often}")
    names = {"observed": SEEN, "drawn": DRAWN, "chosen rows and columns": BAND}
    legend(panel, names, (0.35, 0.3), 1.2)
    return figure


def _sample(
    panel: Any, support: Support, drawn: NDArray[np.int64], at: Point, *, blocks: bool
) -> None:
    """Observed cells and those drawn, with their numbers by row and column at the sides."""
    index, size = support.index.numpy(), 0.13
    colours = np.full(support.shape, EMPTY)
    if blocks:
        colours[np.unique(index[drawn, 0])] = BAND
        colours[:, np.unique(index[drawn, 1])] = BAND
    colours[tuple(index.T)] = SEEN
    colours[tuple(index[drawn].T)] = DRAWN
    grid(panel, colours, at, size)
    for axis, members in enumerate(support.shape):
        for cells, colour in ((index, SEEN), (index[drawn], DRAWN)):
            counts = np.bincount(cells[:, axis], minlength=members).tolist()
            _bars(panel, counts, colour, at, support.shape, axis, size)


def _bars(
    panel: Any, counts: list[int], colour: str, at: Point, shape: Shape, axis: int, size: float
) -> None:
    """Numbers of cells: for rows to the right of a grid, for columns above it."""
    (left, top), thick, boxes = at, 0.7 * size, []
    for number, count in enumerate(counts):
        along, length = size * (number + 0.15), 0.035 * count
        if axis == 0:
            boxes.append(boxed(left + size * shape[1] + 0.05, top - along, length, thick))
        else:
            boxes.append(boxed(left + along, top + 0.05 + length, thick, length))
    shapes(panel, boxes, [colour] * len(boxes), "none", 0)


def pooling() -> Any:
    """Figure 7: what an output cell reads in a matrix, and in an array of order 3."""
    figure, panel = sheet(11.2, 4.5)
    say(panel, 2.55, 4.25, "a matrix: the cell and 3 pools", 11)
    _matrix_pools(panel, (4, 5), (1, 2), (0.35, 3.35), 0.34)
    for number, (axes, kind) in enumerate(
        {(0, 1): "the cell", (0,): "its row", (1,): "its column", (): "everything"}.items()
    ):
        place = 0.35 + 2.4 * (number // 2), 0.65 - 0.3 * (number % 2)
        legend(panel, {f"{_name(axes)}: {kind}": _colour(axes, 2)}, place)
    say(panel, 8.05, 4.25, "an array of order 3: the cell and 7 pools", 11)
    kinds = ("everything", "a slice", "a fibre", "the cell")
    for number, axes in enumerate([(0, 1, 2), *sorted(proper_subsets(3), key=lambda a: -len(a))]):
        left, top = 5.3 + 1.48 * (number % 4), 3.35 - 1.92 * (number // 4)
        _cube(panel, (3, 3, 3), axes, (1, 1, 0), (left, top), 0.29)
        say(panel, left + 0.6, top - 1.07, f"{_name(axes)}: {kinds[len(axes)]}")
    return figure


def _matrix_pools(
    panel: Any, shape: tuple[int, int], cell: tuple[int, int], at: Point, size: float
) -> None:
    """An input, its pools at its sides, and arrows from what one output cell reads."""
    (left, top), (rows, columns) = at, shape
    right, below = left + size * columns + 0.12, top - size * rows - 0.12
    colours = np.full(shape, SHARED[()])
    for axes in ((0,), (1,)):
        colours[pooled_with(shape, axes, cell)] = mixed(SHARED[axes], BLANK, 0.4)
    colours[cell] = ITSELF
    grid(panel, colours, at, size, width=1.2)
    grid(panel, _pools(rows, cell[0], SHARED[0,])[:, None], (right, top), size, width=1.2)
    grid(panel, _pools(columns, cell[1], SHARED[1,])[None], (left, below), size, width=1.2)
    grid(panel, np.array([[SHARED[()]]]), (right, below), size, width=1.2)
    output = (right + 1.15, top)
    _output(panel, shape, cell, output, size)
    say(panel, left + size * columns / 2, top + 0.2, "input")
    say(panel, output[0] + size * columns / 2, top + 0.2, "output")
    x, y = output[0] + size * cell[1], output[1] - size * cell[0]
    middle = size / 2
    own = left + size * (cell[1] + 0.5)
    arrow(panel, (own, y - 0.05), (x + middle, y), ITSELF, -0.35)
    arrow(panel, (right + size, y - middle), (x, y - middle), SHARED[0,])
    arrow(panel, (right + size, below - middle), (x, y - size), SOFT, 0.1)
    arrow(panel, (own, below - size), (x + middle, y - size), SHARED[1,], 0.4)


def _pools(number: int, own: int, colour: str) -> Colours:
    """A pool for each member, of which one is read."""
    return np.array([mixed(colour, BLANK, 0 if n == own else 0.8) for n in range(number)])


def _cube(panel: Any, shape: Shape, axes: Axes, cell: Shape, at: Point, size: float) -> None:
    """The cells that are pooled on ``axes`` for one cell, in a box seen from above and right."""
    hull = [face for place in np.ndindex(*shape) for face in _outside(_faces(place), place, shape)]
    shapes(panel, [_moved(face, at, size) for face in hull], ["none"] * len(hull), SHARED[()], 0.6)
    pooled = np.argwhere(pooled_with(shape, axes, cell))
    far_first = pooled[np.lexsort((pooled[:, 1], -pooled[:, 0], -pooled[:, 2]))]
    for place in map(tuple, far_first.tolist()):
        colour = ITSELF if place == cell else _colour(axes, len(shape))
        shades = [colour, mixed(colour, BLANK, 0.35), mixed(colour, INK, 0.25)]
        shapes(panel, [_moved(face, at, size) for face in _faces(place)], shades, width=0.7)


def _moved(face: Sequence[Point], at: Point, size: float) -> list[Point]:
    return [(at[0] + size * x, at[1] - size * y) for x, y in face]


def _outside(faces: Sequence[Any], place: Shape, shape: Shape) -> list[Any]:
    """Those of front, top and side that no other cell of the box hides."""
    row, column, depth = place
    seen = (depth == 0, row == 0, column == shape[1] - 1)
    return [face for face, kept in zip(faces, seen, strict=True) if kept]


def _faces(place: Shape) -> tuple[list[Point], ...]:
    """Front, top and right side of a cell of size 1, projected; y goes down as rows do."""
    row, column, depth = place

    def at(down: int, right: int, back: int) -> Point:
        slant = 0.42 * (depth + back)
        return column + right + slant, row + down - slant

    front = [at(0, 0, 0), at(0, 1, 0), at(1, 1, 0), at(1, 0, 0)]
    top = [at(0, 0, 0), at(0, 1, 0), at(0, 1, 1), at(0, 0, 1)]
    side = [at(0, 1, 0), at(1, 1, 0), at(1, 1, 1), at(0, 1, 1)]
    return front, top, side


PICTURES: Mapping[str, Callable[[], Any]] = {
    "tied-weights": tied_weights,
    "sharing": sharing,
    "factorized": factorized,
    "sampling": sampling,
    "pooling": pooling,
}


def draw(name: str, folder: Path) -> Path:
    """Draw one of the pictures into a folder."""
    try:
        from matplotlib import style
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'exchangeable[plot]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    with style.context("default"):  # whatever the settings of whoever draws
        figure = PICTURES[name]()
        # Without the version of matplotlib the same drawing is the same file.
        how = {"dpi": 150, "format": "png", "metadata": {"Software": None}}
        with whole_file(path) as target:
            figure.savefig(target, **how)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the paper's conceptual figures.")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"), help="the folder")
    parser.add_argument("--only", choices=list(PICTURES), help="one picture instead of all")
    options = parser.parse_args()
    # The tensors are small: threads would only wait for one another, long on a busy machine.
    torch.set_num_threads(1)
    try:
        for name in [options.only] if options.only else PICTURES:
            print(f"Wrote {draw(name, options.out)}")
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    run_command(main)
