"""The tables of the arena as arrays, by name, and simulated ones of given sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from benchmarks.arena.problem import Floats, Index

from exchangeable.data.splits import Split
from exchangeable.datasets import load

LOGARITHMS = frozenset({"lastfm-plays"})
"""Tables whose values are read as ln(1 + value): a few users have most of the squared errors."""


@dataclass(frozen=True, eq=False)
class TableArrays:
    """Cells as numbers, with what the publisher gives beside them."""

    index: Index  # (E, D)
    values: Floats  # (E,)
    shape: tuple[int, ...]
    kind: str
    """levels, real, binary or positives."""
    levels: Floats
    features: Mapping[int, Floats] = field(default_factory=dict)
    """A block (N, F) by axis: columns of features, or similarities to all other members."""
    splits: Mapping[str, Split] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A table that has not been loaded."""

    load: Callable[[], TableArrays]
    kind: str
    """values, binary or positives: which questions are asked."""
    order: int = 2
    features: tuple[int, ...] = ()
    """Axes whose members have features."""
    least: float = 0.0
    """Value from which a cell is a positive; 0 if the table has no such question."""
    large: bool = False
    """Over 200,000 cells: last in turn, and not in the quick form."""


def published(name: str) -> TableArrays:
    """Load a dataset, members numbered by their labels."""
    dataset = load(name)
    table = dataset.table
    values = np.log1p(table.values) if name in LOGARITHMS else table.values
    kind = "real" if name in LOGARITHMS else table.scale.kind
    features = {axis: own.values.astype(np.float64) for axis, own in dataset.features.items()}
    features |= {axis: graph.astype(np.float64) for axis, graph in dataset.graphs.items()}
    levels = np.array([] if name in LOGARITHMS else table.scale.levels, dtype=np.float64)
    return TableArrays(table.index, values, table.shape, kind, levels, features, dataset.splits)


def simulated(cells: int, seed: int = 0) -> TableArrays:
    """Biases, four factors and noise, as whole numbers 1-5; shapes grow with the cells."""
    rng = np.random.default_rng(seed)
    rows, columns = int(2 * cells**0.5) + 4, int(cells**0.5) + 4
    keys = np.unique(rng.integers(0, rows * columns, 2 * cells))
    keys = np.sort(rng.permutation(keys)[:cells])
    index = np.stack([keys // columns, keys % columns], axis=1)
    left, right = rng.normal(0, 0.6, (rows, 5)), rng.normal(0, 0.6, (columns, 5))
    exact = 3.4 + left[index[:, 0], 0] + right[index[:, 1], 0]
    exact += np.einsum("ek,ek->e", left[index[:, 0], 1:], right[index[:, 1], 1:])
    values = np.clip(np.rint(exact + rng.normal(0, 0.7, len(keys))), 1, 5)
    features = {0: left + rng.normal(0, 0.3, left.shape)}
    levels = np.arange(1.0, 6.0)
    return TableArrays(index, values, (rows, columns), "levels", levels, features)


def simulated_binary(cells: int) -> TableArrays:
    """The same as 0 and 1: above the middle or not."""
    table = simulated(cells, seed=1)
    values = (table.values > 3).astype(np.float64)
    return TableArrays(table.index, values, table.shape, "binary", np.array([0.0, 1.0]))


def simulated_order_3(cells: int) -> TableArrays:
    """Real numbers of three axes: a sum of two products of three factors, and noise."""
    rng = np.random.default_rng(2)
    shape = (int(cells ** (1 / 3)) + 2,) * 3
    keys = np.sort(rng.permutation(int(np.prod(shape)))[:cells])
    index = np.stack(np.unravel_index(keys, shape), axis=1)
    vectors = [rng.normal(1, 0.5, (size, 2)) for size in shape]
    product = np.prod([v[index[:, axis]] for axis, v in enumerate(vectors)], axis=0)
    values = 10 + 5 * product.sum(axis=1) + rng.normal(0, 0.5, len(keys))
    return TableArrays(index, values, shape, "real", np.empty(0))


TABLES: Mapping[str, Entry] = {
    **{
        name: Entry(partial(published, name), *facts)
        for name, facts in {
            "coat": ("values", 2, (1,)),
            "republican-votes": ("values",),
            "verbal-aggression": ("values", 2, (0, 1)),
            "ability": ("binary",),
            "davis": ("values", 2, (0, 1)),
            "big-five": ("values", 2, (0,)),
            "yahoo-music": ("values", 2, (1,)),
            "flixster": ("values", 2, (0, 1)),
            "insteval": ("values", 2, (0, 1)),
            "llm-gsm": ("binary",),
            "lastfm-plays": ("values", 2, (), 1e-9),
            "movietweetings": ("values", 2, (), 7.0),
            "ml-100k": ("values", 2, (0, 1), 4.0),
            "kiba": ("values", 2, (1,)),
            "douban": ("values", 2, (0,)),
            "nations": ("binary", 3),
            "birmingham": ("values", 3),
        }.items()
    },
    **{
        name: Entry(partial(published, name), *facts, large=True)
        for name, facts in {
            "lastfm-tags": ("positives", 3),
            "hangzhou": ("values", 3),
            "llm-ifeval": ("binary",),
            "llm-arc": ("binary",),
            "kinships": ("binary", 3),
            "moods": ("values",),
            "umls": ("binary", 3),
            "new-york": ("values", 3),
            "ml-1m": ("values", 2, (0, 1), 4.0),
            "gowalla": ("positives",),
            "yelp2018": ("positives",),
        }.items()
    },
}
SIZES: Mapping[str, Entry] = {
    f"simulated-{name}": Entry(partial(simulated, cells), "values", large=cells > 200_000)
    for name, cells in (
        ("1k", 1_000),
        ("10k", 10_000),
        ("100k", 100_000),
        ("1m", 1_000_000),
        ("10m", 10_000_000),
    )
}
"""Tables for time and memory over the number of cells; no figure of accuracy is of these."""
TINY: Mapping[str, Entry] = {
    "tiny": Entry(partial(simulated, 600), "values", 2, (0,), 4.0),
    "tiny-binary": Entry(partial(simulated_binary, 600), "binary"),
    "tiny-order-3": Entry(partial(simulated_order_3, 400), "values", 3),
}
"""Tables of the tests, which need no data."""
