"""Metrics of predictions, and tests whether one model predicts better than another.

Every metric needs a prediction for every cell: a missing one is an error, as leaving it out
would flatter the model that lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable.errors import InputError

Floats = NDArray[np.float64]


def rmse(truth: ArrayLike, answers: ArrayLike) -> float:
    """Root mean squared error.

    >>> rmse([1, 2], [1, 4])
    1.4142135623730951
    """
    actual, predicted = _numbers(truth=truth, answers=answers)
    return float(np.sqrt(((actual - predicted) ** 2).mean()))


def mae(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean absolute error."""
    actual, predicted = _numbers(truth=truth, answers=answers)
    return float(np.abs(actual - predicted).mean())


def log_likelihood(log_probabilities: ArrayLike) -> float:
    """Mean log probability, or log density, of the truth.

    A cell predicted to be impossible (-inf) is an error: it would dominate all others.
    """
    (logarithms,) = _numbers(log_probabilities=log_probabilities)
    return float(logarithms.mean())


def coverage(truth: ArrayLike, intervals: ArrayLike) -> float:
    """Share of cells whose truth lies in their interval (Q, 2), ends included."""
    ends = _array("intervals", intervals)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise InputError(f"intervals must have shape (Q, 2), but have shape {ends.shape}")
    actual, low, high = _numbers(truth=truth, low=ends[:, 0], high=ends[:, 1])
    crossed = np.flatnonzero(low > high)
    if len(crossed):
        cell = crossed[0]
        raise InputError(
            f"an interval must go from low to high, but that of cell {cell} goes from "
            f"{low[cell]:g} to {high[cell]:g}"
        )
    return float(((low <= actual) & (actual <= high)).mean())


def concordance(truth: ArrayLike, answers: ArrayLike) -> float:
    """Share of pairs with different truth that the predictions rank correctly.

    A pair of equal predictions counts half, so that constant predictions give 0.5. It follows from

        tau_b = (right - wrong) / sqrt(pairs of different truth * pairs of different predictions)
    """
    from scipy.stats import kendalltau  # half a second to import, which other metrics do not need

    actual, predicted = _numbers(truth=truth, answers=answers)
    untied, differing = _untied_pairs(actual), _untied_pairs(predicted)
    if untied == 0:
        raise InputError("concordance needs two different values in truth, but found one")
    if differing == 0:
        return 0.5  # tau is not defined
    tau = kendalltau(actual, predicted).statistic
    return float(np.clip((1 + tau * np.sqrt(differing / untied)) / 2, 0, 1))


def ndcg(truth: ArrayLike, answers: ArrayLike, groups: ArrayLike, n: int = 10) -> float:
    """Discounted gain of the first ``n`` of a group, relative to the best list; mean over groups.

    The gain of a cell is its truth above the smallest truth of all, discounted by the
    logarithm of its position; equal predictions share the gains of their positions. Groups
    whose truth is all equal are left out.
    """
    from sklearn.metrics import ndcg_score  # a second to import

    actual, predicted = _numbers(truth=truth, answers=answers)
    number, sizes = _groups(groups, len(actual))
    _check_whole("n", n, 1)
    permutation = np.argsort(number, kind="stable")
    starts = np.cumsum(sizes) - sizes
    gains, predicted = (actual - actual.min())[permutation], predicted[permutation]
    varied = np.maximum.reduceat(gains, starts) > np.minimum.reduceat(gains, starts)
    if not varied.any():
        raise InputError("ndcg needs a group with different values in truth, but found none")
    total = 0.0
    for size in np.unique(sizes[varied]):  # groups of one size make a matrix for scikit-learn
        cells = starts[varied & (sizes == size)][:, None] + np.arange(size)
        total += ndcg_score(gains[cells], predicted[cells], k=n) * len(cells)
    return float(total / varied.sum())


def recall(relevant: ArrayLike, answers: ArrayLike, groups: ArrayLike, n: int = 10) -> float:
    """Share of a group's relevant cells among its ``n`` highest predictions; mean over groups.

    In a group with more than ``n`` relevant cells the share is of ``n``. Equal predictions at
    the border have equal chances, and the expected number counts. Groups without a relevant
    cell are left out.
    """
    wanted = _array("relevant", relevant)
    if wanted.dtype != np.bool_:
        raise InputError(f"relevant must be true or false, but is {wanted.dtype}")
    hits, predicted = _numbers(relevant=wanted, answers=answers)
    number, sizes = _groups(groups, len(hits))
    _check_whole("n", n, 1)
    known = np.bincount(number, weights=hits)
    if not known.any():
        raise InputError("recall needs a group with a relevant cell, but found none")
    permutation = np.lexsort((-predicted, number))
    number, predicted, hits = number[permutation], predicted[permutation], hits[permutation]
    changes = np.r_[True, (np.diff(number) != 0) | (np.diff(predicted) != 0)]
    ties = np.flatnonzero(changes)  # where each run of equal predictions in a group starts
    length = np.diff(np.r_[ties, len(hits)])
    before = ties - (np.cumsum(sizes) - sizes)[number[ties]]  # better predictions in the group
    chance = np.clip(n - before, 0, length) / length
    found = np.bincount(number[ties], weights=chance * np.add.reduceat(hits, ties))
    some = known > 0
    return float((found[some] / np.minimum(known[some], n)).mean())


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of a metric over several seeds."""

    mean: float
    deviation: float | None
    """Sample standard deviation; None for one seed."""
    number: int
    """Number of seeds."""

    def __str__(self) -> str:
        mean = f"{self.mean:.3f}"
        return mean if self.deviation is None else f"{mean} ± {self.deviation:.3f}"


def over_seeds(values: ArrayLike) -> Spread:
    """Return mean and deviation of a metric over seeds.

    >>> print(over_seeds([0.913, 0.915, 0.917]), over_seeds([0.915]), sep=", ")
    0.915 ± 0.002, 0.915
    """
    (results,) = _numbers(values=values)
    deviation = float(results.std(ddof=1)) if len(results) > 1 else None
    return Spread(float(results.mean()), deviation, len(results))


@dataclass(frozen=True)
class Paired:
    """Difference of two models' RMSE on the same cells."""

    difference: float
    """RMSE of the first less that of the second: below 0 if the first is better."""
    low: float
    high: float
    """Ends of the 95 % interval."""
    p: float
    """Two-sided p-value of the difference."""


def paired_bootstrap(
    truth: ArrayLike, one: ArrayLike, other: ArrayLike, *, draws: int = 2000, seed: int = 0
) -> Paired:
    """Bootstrap the difference in RMSE, ``one`` less ``other``, over cells.

    Cells are drawn with replacement, the same for both, since errors on one cell are correlated.
    """
    actual, first, second = _numbers(truth=truth, one=one, other=other)
    _check_whole("draws", draws, 1)
    _check_whole("seed", seed, 0)
    squares = np.stack([(first - actual) ** 2, (second - actual) ** 2])  # (2, Q)
    generator = np.random.default_rng(seed)
    # One draw at a time: all together would need draws x cells of memory.
    drawn = np.array([_difference(squares, generator) for _ in range(draws)])
    low, high = np.quantile(drawn, [0.025, 0.975])
    # The draws that contradict the sign, plus one, since draws cannot show a p of 0.
    against = 1 + min((drawn <= 0).sum(), (drawn >= 0).sum())
    mine, others = np.sqrt(squares.mean(axis=1))
    p = min(1.0, 2 * against / (draws + 1))
    return Paired(float(mine - others), float(low), float(high), float(p))


def _difference(squares: Floats, generator: np.random.Generator) -> float:
    cells = squares.shape[1]
    times = np.bincount(generator.integers(cells, size=cells), minlength=cells)
    mine, others = np.sqrt(squares @ times.astype(np.float64) / cells)
    return float(mine - others)


def _untied_pairs(values: Floats) -> int:
    """Return the number of pairs of different values."""
    _, counts = np.unique(values, return_counts=True)
    return (len(values) ** 2 - int((counts**2).sum())) // 2


def _numbers(**given: ArrayLike) -> list[Floats]:
    """Convert to arrays of finite numbers, one per cell; errors use the names of the arguments."""
    arrays = [_finite(name, values) for name, values in given.items()]
    for name, array in zip(given, arrays, strict=True):
        if len(array) != len(arrays[0]):
            raise InputError(
                f"{name} must be as many as {next(iter(given))}, {len(arrays[0])}, but are "
                f"{len(array)}"
            )
    return arrays


def _finite(name: str, values: ArrayLike) -> Floats:
    array = _array(name, values)
    if array.dtype.kind not in "biufO":
        raise InputError(f"{name} must be numbers, but are {array.dtype}")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers, but {error}") from error
    if array.ndim != 1 or len(array) == 0:
        raise InputError(f"{name} must be a list of numbers, but has shape {array.shape}")
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise InputError(
            f"{name} must be finite for every cell, but cell {wrong[0]} has {array[wrong[0]]}"
        )
    return array


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # such as rows of different lengths
        raise InputError(f"{name} must be an array, but {error}") from error


def _groups(groups: ArrayLike, cells: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group of each cell, and the sizes of the groups."""
    given = _array("groups", groups)
    if given.shape != (cells,):
        raise InputError(f"groups must have shape ({cells},), but have shape {given.shape}")
    if given.dtype.kind == "f" and np.isnan(given).any():
        cell = int(np.isnan(given).argmax())
        raise InputError(f"every cell must be in a group, but cell {cell} is in none")
    try:
        _, number, sizes = np.unique(given, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise InputError(f"groups must be of one type, but {error}") from error
    return number, sizes


def _check_whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of {least} or more, but is {value!r}")
