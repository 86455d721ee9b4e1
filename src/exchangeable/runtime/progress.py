"""Progress of long computations: one object, passed down and split into parts."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

Show = Callable[[float, str], None]
Note = Callable[[str], None]

_log = logging.getLogger("exchangeable")


@dataclass(frozen=True)
class Progress:
    """Receives the share of the work that is done, and notes about how it is done.

    A computation calls ``at`` as it goes; ``part`` gives one of its steps a progress of its own
    that counts from 0 to 1. ``note`` passes on a sentence that the user should see.

    >>> progress = Progress(show=lambda share, text: print(f"{share:.0%} {text}"))
    >>> progress.part(0.5, 1.0).at(0.5, "fitting")
    75% fitting
    """

    show: Show = lambda share, text: None
    note: Note = lambda text: None

    def at(self, share: float, text: str) -> None:
        """Report that ``share`` of the work, from 0 to 1, is done and what is going on."""
        self.show(share, text)

    def part(self, first: float, last: float, name: str = "") -> Progress:
        """Return the progress of a step that covers the shares from ``first`` to ``last``.

        A ``name`` is put before everything the step reports.
        """
        show, prefix = self.show, f"{name}: " if name else ""
        return Progress(
            lambda share, text: show(first + share * (last - first), prefix + text), self.note
        )


SILENT = Progress()
"""Shows nothing."""


def progress_lines(delay: float = 2.0, every: float = 10.0) -> Show:
    """Print a line on standard error after ``delay`` seconds, and then ``every`` so many."""
    due = [time.monotonic() + delay]

    def show(share: float, text: str) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + every
            _print_line(f"{share:4.0%}  {text}")

    return show


def user_progress(verbose: bool) -> Progress:
    """Print progress and notes on standard error, or else log them: as DEBUG and as INFO."""
    if verbose:
        return Progress(progress_lines(delay=0.0, every=1.0), _print_line)
    return Progress(lambda share, text: _log.debug("%3.0f %%  %s", 100 * share, text), _log.info)


def _print_line(text: str) -> None:
    print(f"  {text}", file=sys.stderr)
