"""The tables that are used, counted from what the loaders give (the paper's table of datasets).

python -m paper.tables.dataset_sizes
"""

from __future__ import annotations

import math

from exchangeable.datasets import load
from exchangeable.errors import InputError
from paper.lib.command import run_command

NAMES = {
    "ml-100k": "MovieLens 100K",
    "ml-1m": "MovieLens 1M",
    "flixster": "Flixster",
    "douban": "Douban",
    "yahoo-music": "YahooMusic",
    "netflix": "Netflix",
    "davis": "Davis",
    "kiba": "KIBA",
    "lastfm-tags": "Last.fm tags",
    "movietweetings": "MovieTweetings",
}


def row(name: str, title: str) -> str:
    """A line of the table; of a dataset that is not here, dashes."""
    try:
        table = load(name).table
    except InputError:
        return f"| {title} | – | – | – | – |"
    cells = len(table.values)
    sizes = " × ".join(f"{size:,}" for size in table.shape)
    values = table.values[table.is_observed]
    kind = str(table.scale) if len(values) else "given or not known"
    return f"| {title} | {sizes} | {cells:,} | {cells / math.prod(table.shape):.3%} | {kind} |"


def main() -> None:
    print("| | members | cells | observed | values |\n|---|---|---|---|---|")
    for name, title in NAMES.items():
        print(row(name, title), flush=True)


if __name__ == "__main__":
    run_command(main)
