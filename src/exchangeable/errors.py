"""The errors that people see: in one line, without a traceback."""

from __future__ import annotations


class InputError(ValueError):
    """Wrong input, which a person can mend: what was needed, what came, and where."""


class Failed(RuntimeError):
    """The input was right, but the work could not be done: what happened, and what is left."""
