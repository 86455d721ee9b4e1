"""Which column of a file or frame is what: label, value or time, by name, header or position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exchangeable.errors import InputError

VALUE_NAMES = {
    "rating",
    "ratings",
    "value",
    "score",
    "stars",
    "weight",
    "count",
    "plays",
    "affinity",
    "measurement",
    "target",
    "y",
}
TIME_NAMES = {
    "timestamp",
    "day",
    "month",
    "year",
    "time",
    "date",
    "datetime",
    "ts",
    "unixtime",
    "created_at",
}
MEMBER_NAMES = {
    "user",
    "userid",
    "user_id",
    "item",
    "itemid",
    "item_id",
    "movie",
    "movieid",
    "movie_id",
    "film",
    "filmid",
    "film_id",
    "artist",
    "artistid",
    "artist_id",
    "tag",
    "tagid",
    "tag_id",
    "drug",
    "drugid",
    "drug_id",
    "protein",
    "proteinid",
    "protein_id",
    "book",
    "bookid",
    "book_id",
    "product",
    "productid",
    "product_id",
    "row",
    "column",
    "customer",
    "customer_id",
    "query",
    "document",
    "student",
    "question",
    "member",
}
KNOWN_NAMES = VALUE_NAMES | TIME_NAMES | MEMBER_NAMES


@dataclass(frozen=True)
class Roles:
    """What each column is for."""

    axes: tuple[str, ...]
    value: str | None
    time: str | None
    found: tuple[str, ...]


def guess_roles(
    name: str,
    columns: Sequence[str],
    axes: Sequence[str | int] | None,
    value: str | int | None,
    time: str | int | None,
    titled: bool,
) -> Roles:
    """The roles that were named; the others by header, or else by position."""
    if len(columns) < 2 and axes is None:
        raise InputError(f"{name}: two columns or more are needed, but there is {len(columns)}")
    lower = {c: c.strip().lower() for c in columns}
    named_value = None if value is None else _column(name, columns, value)
    named_time = None if time is None else _column(name, columns, time)
    if axes is not None:
        labels = [_column(name, columns, axis) for axis in axes]
    else:
        known = [c for c in columns if titled and lower[c] in MEMBER_NAMES]
        free = [
            c
            for c in columns
            if c not in (named_value, named_time)
            and not (titled and lower[c] in VALUE_NAMES | TIME_NAMES)
        ]
        labels = known if len(known) >= 2 else free[:2]
    if len(labels) < 1 or (axes is None and len(labels) < 2):
        raise InputError(
            f"{name}: two label columns are needed, but of {list(columns)} none is one"
        )
    if len(set(labels)) != len(labels) or named_value in labels:
        raise InputError(f"{name}: a column can be used once, but axes are {labels}, value {value}")
    if named_value is None:
        rest = [c for c in columns if c not in labels and c != named_time]
        scored = [c for c in rest if titled and lower[c] in VALUE_NAMES]
        after = list(columns)[max(columns.index(c) for c in labels) + 1 :]
        timeless = [c for c in rest if c in after and not (titled and lower[c] in TIME_NAMES)]
        guess = scored or timeless
        named_value = guess[0] if guess else None
    used = {*labels, named_value, named_time}
    ignored = [c for c in columns if c not in used]
    what = f"axes {', '.join(labels)}; " + (
        f"value {named_value}" if named_value else "no value column: every row is a 1"
    )
    return Roles(
        tuple(labels),
        named_value,
        named_time,
        (what + (f"; ignored: {', '.join(ignored)}" if ignored else ""),),
    )


def _column(name: str, columns: Sequence[str], wanted: str | int) -> str:
    if isinstance(wanted, str) and wanted in columns:
        return wanted
    text = str(wanted)
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= number <= len(columns):
        raise InputError(
            f"{name}: a column is one of {', '.join(columns)}, or its number, but is {wanted!r}"
        )
    return columns[number - 1]
