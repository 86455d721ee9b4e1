"""Well-known words in the place of a value, in lower case."""

from __future__ import annotations

import re

MISSING_WORDS = ("na", "n/a", "#n/a", "null", "none", "nan", "?", "-", ".")
TRUTH_WORDS = {"true": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "n": 0.0}
"""Words for 1 and 0."""
WITH_UNIT = re.compile(r"[^\w\s.,+-]?\s?[+-]?[0-9]+([.,][0-9]+)?\s?([^\w\s.,]|[^\W\d]{1,4})?")
"""A number with a unit or a sign, such as 50 kg, 10% or $4."""
MINUS = "\u2212"
"""The minus sign of typesetters, in the place of a hyphen."""
OTHER_TRUTH_WORDS = {
    *("t", "f", "ja", "nein", "oui", "non", "si", "s\u00ed", "on", "off", "up", "down", "x"),
    *("like", "dislike", "liked", "disliked", "pass", "fail", "won", "lost"),
}
"""Words that may stand for 1 and 0, or for labels: they are not read, but named in errors."""
