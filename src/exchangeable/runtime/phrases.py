"""Phrases that notes, summaries and errors share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def format_count(number: int, noun: str) -> str:
    """Put a number before its noun, in the singular or plural.

    >>> format_count(1, "cell"), format_count(4200, "bad line")
    ('1 cell', '4,200 bad lines')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return the end of an error about a word that is no choice: the closest one, if any is close.

    >>> did_you_mean("flim", ["user", "film"]), did_you_mean("studio", ["user", "film"])
    ("; did you mean 'film'?", '')
    """
    by_lower_case = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.75)
    return f"; did you mean {by_lower_case[close[0]]!r}?" if close else ""
