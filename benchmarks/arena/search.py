"""The choice of settings on validation cells within a budget of time, the same for all methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.arena.problem import Floats, Index, Mask, Problem

Settings = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """The settings with the smallest error on validation cells."""

    settings: Settings
    error: float
    tried: int
    of: int
    """Number of settings that would have been tried in more time."""
    seconds: float


def validation_error(problem: Problem, answer: Callable[[Mask, Index], Floats]) -> float:
    """Root mean square error of all validation cells, each draw hidden in turn.

    ``answer`` fits to the cells of a mask, and answers others.
    """
    squares = [
        (problem.clipped(answer(~hidden, problem.index[hidden]), ~hidden) - problem.values[hidden])
        ** 2
        for hidden in problem.validation
    ]
    return float(np.sqrt(np.concatenate(squares).mean()))


def choose(grid: Sequence[Settings], error: Callable[[Settings], float], budget: float) -> Choice:
    """Try settings in turn, and stop before one that would probably outlast the budget.

    The first of the grid is tried in any case. Settings that fail are passed over, unless all do.
    How long the next one takes is known from the longest so far, less the first if others were
    tried: it has the import and the compilation of a library.
    """
    started, longest = time.perf_counter(), 0.0
    found: list[tuple[float, int]] = []
    failure: Exception | None = None
    tried = 0
    for place, settings in enumerate(grid):
        before = time.perf_counter()
        if tried and before - started + longest > budget:
            break
        tried += 1
        try:
            found.append((error(settings), place))
        except (ArithmeticError, ValueError, RuntimeError) as raised:  # diverged, or does not fit
            failure = raised
        taken = time.perf_counter() - before
        longest = taken if place <= 1 else max(longest, taken)
    found = [pair for pair in found if pair[0] == pair[0]]  # NaN is no error
    if not found:
        raise RuntimeError(f"no settings of {tried} could be fitted") from failure
    best, place = min(found)
    return Choice(dict(grid[place]), best, tried, len(grid), time.perf_counter() - started)
