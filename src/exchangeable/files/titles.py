"""Titles of columns: they must differ, and polars must take each for the name of one column."""

from __future__ import annotations

from collections.abc import Iterable

from exchangeable.errors import InputError


def check_titles(where: str, titles: Iterable[str]) -> None:
    """Raise if a title comes twice, or is a pattern.

    Polars takes ``*`` for all columns and ``^a.*$`` for those that match, so that what is checked
    in one column could be read from another.
    """
    seen: set[str] = set()
    for title in titles:
        if title in seen:
            raise InputError(f"{where}: column names must differ, but {title!r} comes twice")
        if title == "*" or (title.startswith("^") and title.endswith("$")):
            raise InputError(f"{where}: a column needs a plain name, but {title!r} is a pattern")
        seen.add(title)
