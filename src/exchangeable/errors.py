"""The error that a person can mend: wrong input, said in one line."""

from __future__ import annotations


class InputError(ValueError):
    """What was needed, what came, and where; shown to people without a traceback."""
