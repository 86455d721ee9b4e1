"""Errors and warnings that commands show in one line, without a traceback."""

from __future__ import annotations


class InputError(ValueError):
    """Wrong input that the user can correct: what was needed, what came, and where."""


class Failed(RuntimeError):
    """Correct input whose work failed: what happened, and what was saved."""


class InputWarning(UserWarning):
    """Input that is taken as it came, although something else may have been meant."""
