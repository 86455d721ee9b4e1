"""Well-known words in the place of a value, in lower case."""

from __future__ import annotations

MISSING_WORDS = ("na", "n/a", "#n/a", "null", "none", "nan", "?", "-", ".")
TRUTH_WORDS = {"true": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "n": 0.0}
"""Words for 1 and 0."""
