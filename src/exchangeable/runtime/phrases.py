"""Phrases that notes and summaries share."""

from __future__ import annotations


def format_count(number: int, noun: str) -> str:
    """Put a number before its noun, in the singular or plural.

    >>> format_count(1, "cell"), format_count(4200, "bad line")
    ('1 cell', '4,200 bad lines')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
