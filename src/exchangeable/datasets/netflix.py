"""The Netflix Prize: 100 million ratings, which cannot be downloaded."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from exchangeable.data.splits import Split, by_position
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source, roots
from exchangeable.errors import InputError

NETFLIX = Source(
    "netflix",
    "Netflix Prize: 100 million ratings 1-5",
    "Netflix Prize rules: research, not to be redistributed",
    "James Bennett and Stan Lanning. 2007. The Netflix Prize. KDD Cup and Workshop.",
    "https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
)


def load_netflix() -> Dataset:
    """Read mv_*.txt or combined_data_*.txt, and probe.txt, in ``netflix/`` of the data folder."""
    folder = next((root / "netflix" for root in roots() if (root / "netflix").is_dir()), None)
    files = sorted(
        path
        for path in (folder.rglob("*.txt") if folder else [])
        if re.fullmatch(r"(mv_\d+|combined_data_\d+)\.txt", path.name)
    )
    if folder is None or not files:
        raise InputError(
            f"netflix: mv_*.txt or combined_data_*.txt are not there; get them from "
            f"{NETFLIX.page} and put them into {roots()[0] / 'netflix'}"
        )
    frame = pl.concat([_read_ratings(path) for path in files])
    table = Table.of(frame, axes=["user", "film"], value="rating", time="day")
    return Dataset(NETFLIX, table, _probe_split(table, folder))


def _read_ratings(path: Path) -> pl.DataFrame:
    """Read users, films, ratings 1-5 and days as numbers."""
    texts = _read_blocks(path, 3)
    frame = texts.select(
        pl.col("user", "film").cast(pl.Int64, strict=False),
        pl.col("rating").cast(pl.Float64, strict=False),
        pl.col("date").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).alias("day"),
    )
    good = pl.all_horizontal(pl.all().is_not_null()) & pl.col("rating").is_between(1, 5)
    wrong = frame.select(~good).to_series().arg_true()
    if len(wrong):
        row = texts.row(int(wrong[0]), named=True)
        raise InputError(
            f"{path}: a film, a user, a rating 1-5 and a date are needed, but this is "
            f"{', '.join(str(field) for field in row.values())!r}"
        )
    return frame


def _read_blocks(path: Path, fields: int) -> pl.DataFrame:
    """Read blocks that begin with "film:" and go on with a line per user."""
    lines = pl.read_csv(
        path, has_header=False, separator="\x1e", quote_char=None, schema={"line": pl.String}
    ).with_row_index("number", offset=1)
    titled = pl.col("line").str.ends_with(":")
    frame = lines.with_columns(
        film=pl.when(titled).then(pl.col("line").str.strip_suffix(":")).forward_fill()
    ).filter(~titled & pl.col("line").is_not_null())
    parts = pl.col("line").str.split(",")
    wrong = frame.filter((parts.list.len() != fields) | pl.col("film").is_null())
    if len(wrong):
        raise InputError(
            f"{path}: line {wrong['number'][0]}: {fields} fields below a line 'film:' are needed, "
            f"but this is {wrong['line'][0]!r}"
        )
    names = ("user", "rating", "date")[:fields]
    return frame.select("film", *[parts.list.get(i).alias(n) for i, n in enumerate(names)])


def _probe_split(table: Table, folder: Path) -> dict[str, Split]:
    path = next(iter(folder.rglob("probe.txt")), None)
    if path is None:
        return {}
    cells = _read_blocks(path, 1).select(
        pl.col("user").cast(pl.Int64), pl.col("film").cast(pl.Int64)
    )
    return {"probe": by_position(table, table.positions(cells))}
