"""How errors and notes about a file name options: as parameters of its call, or fields of the page.

The command names them by its own options, and Python by arguments; see ``errors``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

from exchangeable.errors import Wording

Words = Literal["parameters", "fields"]

FIELDS = {
    "encoding": "Text encoding",
    "header": "First line",
    "separator": "Fields are separated by",
    "decimal": "Decimal mark",
    "duplicates": "Cells that occur more than once",
    "wide": "The table is",
    "all": "a row for every cell",
}
"""Labels of fields of the page, by option."""
CHOICES = {
    ("encoding", "cp1252"): "Windows, Western",
    ("encoding", "latin-1"): "Latin-1",
    ("header", True): "titles",
    ("header", False): "a row",
    ("decimal", ","): "comma",
    ("decimal", "."): "point",
    ("wide", True): "wide",
    ("wide", False): "long",
}
"""What the fields show for a value, or begin with."""
_RESERVED = re.compile(r"[\s%&#+]")


def make_wording(words: Words, parameters: Collection[str]) -> Wording:
    """Words for the options of a call with these parameters."""
    return _name_field if words == "fields" else partial(_write_parameter, parameters)


def _write_parameter(parameters: Collection[str], name: str, value: Any) -> str | None:
    if (name, value) == ("scale", "positives"):
        name, value = "likes", True
    if name not in parameters:
        return None
    if value is None:
        return name
    texts = value if isinstance(value, tuple) else (value,)
    text = ",".join(str(one).lower() if isinstance(one, bool) else str(one) for one in texts)
    return f"{name}={_RESERVED.sub(lambda found: quote(found[0]), text)}"


def _name_field(name: str, value: Any) -> str | None:
    if (name, value) == ("scale", "positives"):
        return "\u201cValues are: likes\u201d"
    if name in ("axes", "value"):
        use = "\u201cnames\u201d" if name == "axes" else "\u201cvalue\u201d"
        if value is None:
            return f"the use {use}"
        columns = value if isinstance(value, tuple) else (value,)
        shown = (f"column {one}" if isinstance(one, int) else str(one) for one in columns)
        return f"{use} for {', '.join(shown)}"
    if name not in FIELDS:
        return None
    choice = CHOICES.get((name, value))
    return f"\u201c{FIELDS[name]}{f': {choice}' if choice else ''}\u201d"
