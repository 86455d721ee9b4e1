"""Errors and warnings that commands show in one line, without a traceback.

They name options by what stands for them in Python, ``encoding='latin-1'``. A command, a service or
its page has other words for the same: ``word`` writes a message with those, since errors, warnings
and notes keep which of their words are options.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

_ANY = object()
# Marks around options and clauses: characters that Unicode keeps out of all texts.
_OPTION = re.compile("\ufdd0(\\w+)=([^\ufdd1]*)\ufdd1")
_CLAUSE = re.compile("\ufdd2([^\ufdd2\ufdd3]*)\ufdd3")
_MARKS = re.compile("[\ufdd0-\ufdd3]")

Wording = Callable[[str, Any], str | None]
"""Words for an option with its value, for one without (None), or None where it is not offered."""


def option(name: str, value: object = _ANY) -> str:
    """Write an option into the message of an error, a warning or a note, with a value if given."""
    return f"\ufdd0{name}={'' if value is _ANY else _MARKS.sub('', repr(value))}\ufdd1"


def where_offered(clause: str) -> str:
    """Mark a part of a message that is left out where one of its options is not offered."""
    return f"\ufdd2{clause}\ufdd3"


def word(message: object, wording: Wording) -> str:
    """Write an error, a warning or a note with other words for its options.

    >>> word(Note(f"{option('header', True)} reads them"), lambda name, value: f"--{name}")
    '--header reads them'
    """
    template = getattr(message, "template", None) or str(message)

    def write_option(found: re.Match[str]) -> str:
        words = _word_option(found, wording)
        return f"{found[1]}={found[2]}" if words is None else words

    def write_clause(found: re.Match[str]) -> str:
        options = _OPTION.finditer(found[1])
        return "" if any(_word_option(one, wording) is None for one in options) else found[1]

    return _MARKS.sub("", _OPTION.sub(write_option, _CLAUSE.sub(write_clause, template)))


def _word_option(found: re.Match[str], wording: Wording) -> str | None:
    try:
        value = ast.literal_eval(found[2]) if found[2] else None
    except (SyntaxError, ValueError):  # no option of ours
        return None
    return wording(found[1], value)


class _Worded(Exception):
    """An exception whose message may have options."""

    def __init__(self, message: object = "", *others: object) -> None:
        self.template: str = getattr(message, "template", str(message))
        """The message, with marks around its options."""
        super().__init__(_MARKS.sub("", self.template), *others)


class InputError(_Worded, ValueError):
    """Wrong input that the user can correct: what was needed, what came, and where."""


class Failed(_Worded, RuntimeError):
    """Correct input whose work failed: what happened, and what was saved."""


class InputWarning(_Worded, UserWarning):
    """Input that is taken as it came, although something else may have been meant."""


class Note(str):
    """A sentence about what was read or done, in which options may be named."""

    template: str
    """The sentence, with marks around its options."""

    def __new__(cls, sentence: str) -> Note:
        template = getattr(sentence, "template", sentence)
        note = super().__new__(cls, _MARKS.sub("", template))
        note.template = template
        return note
