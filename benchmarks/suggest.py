"""Measurements that suggestions save, on tables of which all values are known.

    python benchmarks/suggest.py --seeds 0 1 2 --json out/suggest.json

A fifth of the known cells is set apart for the test, and no method may choose them. All methods
start from the same random 5 % of the known cells, and choose 5 % more in each round until 30 %;
the pretrained model then reads all of them again, and predicts the test cells. The methods are
random cells, those with the widest 80 % intervals, and ``suggest``. The figure is the share of the
measurements with which a method comes to the error that random cells have at 30 %.

For the goal ``best`` 1 % is chosen in each of ten rounds, from 5 % on, of all known cells. The
figure is the share of the highest 1 % that was found, of those that were not in the start; the
methods are random cells, the highest predictions, and ``suggest``.

The tables are Davis (68 x 442, whole), a block of KIBA (drugs with 100 measured proteins or more,
proteins measured with half of these drugs: 520 x 136, 94 % known), and language models x questions
of ARC (218 x 300, questions drawn at random; answers are right or wrong, so that none is the best).
Settings were chosen with seeds 100 and 101, and on questions of GSM (``gsm``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from exchangeable import Completer
from exchangeable.datasets import load
from exchangeable.datasets.source import roots
from exchangeable.metrics import rmse

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
Cells = NDArray[np.int64]
Choose = Callable[[Completer, Cells, int, np.random.Generator], Cells]

TEST_SHARE = 0.2
SHARES = (0.05, 0.10, 0.15, 0.20, 0.25, 0.30)
BEST_START, BEST_STEP, BEST_ROUNDS = 0.05, 0.01, 10
TOP_SHARE = 0.01
QUESTIONS = {"arc_challenge": 300, "gsm": 400}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=["davis", "kiba", "arc_challenge"])
    parser.add_argument("--goals", nargs="+", default=["error", "best"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for name in options.tables:
        matrix = read_matrix(name)
        if "error" in options.goals:
            results.append(compare_errors(name, matrix, options.seeds))
        if "best" in options.goals and name not in QUESTIONS:
            results.append(compare_finds(name, matrix, options.seeds))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(json.dumps(results))


def read_matrix(name: str) -> Matrix:
    """Read a table as a matrix, with NaN where nothing is known."""
    if name in QUESTIONS:
        correct = np.load(roots()[0] / "llm-scores" / f"{name}.npz")["correct"]
        drawn = np.random.default_rng(7).permutation(correct.shape[1])[: QUESTIONS[name]]
        return correct[:, drawn].astype(np.float64)
    table = load(name).table
    matrix = np.full(table.shape, np.nan)
    matrix[table.index[:, 0], table.index[:, 1]] = table.values
    if name == "kiba":
        matrix = matrix[(~np.isnan(matrix)).sum(axis=1) >= 100]
        matrix = matrix[:, (~np.isnan(matrix)).mean(axis=0) >= 0.5]
    return matrix


def choose_random(_: Completer, cells: Cells, n: int, generator: np.random.Generator) -> Cells:
    return cells[generator.permutation(len(cells))[:n]]


def choose_widest(completer: Completer, cells: Cells, n: int, _: np.random.Generator) -> Cells:
    low, high = completer.predict_interval(cells).T
    return cells[np.argsort(low - high, kind="stable")[:n]]


def choose_highest(completer: Completer, cells: Cells, n: int, _: np.random.Generator) -> Cells:
    return cells[np.argsort(-completer.predict(cells), kind="stable")[:n]]


def choose_for_error(completer: Completer, cells: Cells, n: int, _: np.random.Generator) -> Cells:
    return completer.suggest(n, among=cells).to_numpy()[:, :2].astype(np.int64)


def choose_for_best(completer: Completer, cells: Cells, n: int, _: np.random.Generator) -> Cells:
    return completer.suggest(n, goal="best", among=cells).to_numpy()[:, :2].astype(np.int64)


FOR_ERROR: dict[str, Choose] = {
    "random": choose_random,
    "widest interval": choose_widest,
    "suggest": choose_for_error,
}
FOR_BEST: dict[str, Choose] = {
    "random": choose_random,
    "highest prediction": choose_highest,
    "suggest": choose_for_best,
}


def compare_errors(name: str, matrix: Matrix, seeds: list[int]) -> dict[str, object]:
    """Measure and print test RMSE by share of measured cells, as means over seeds."""
    print(f"{name}: test RMSE by share of the cells that are measured, seeds {seeds}")
    print(f"{'':>18}  " + "  ".join(f"{share:6.0%}" for share in SHARES) + "  needs  by seed")
    curves: dict[str, list[list[float]]] = {}
    for method, choose in FOR_ERROR.items():
        curves[method] = [error_curve(matrix, choose, seed) for seed in seeds]
        pairs = zip(curves[method], curves["random"], strict=True)
        by_seed = [needed_share(curve, random[-1]) for curve, random in pairs]
        mean = np.mean(curves[method], axis=0)
        need = needed_share(mean.tolist(), float(np.mean(curves["random"], axis=0)[-1]))
        line = "  ".join(f"{error:.4f}" for error in mean)
        each = " ".join("never" if share > 1 else f"{share:.0%}" for share in by_seed)
        print(f"{method:>18}  {line}   {need:4.0%}  {each}", flush=True)
    return {"table": name, "goal": "error", "shares": SHARES, "seeds": seeds, "rmse": curves}


def error_curve(matrix: Matrix, choose: Choose, seed: int) -> list[float]:
    """Return the test error after each round."""
    known = ~np.isnan(matrix)
    cells = np.argwhere(known)[np.random.default_rng(seed).permutation(known.sum())]
    tested = int(TEST_SHARE * len(cells))
    test, rest = cells[:tested], cells[tested:]
    measured, pool = mask_of(rest[: int(SHARES[0] * len(cells))], matrix), mask_of(rest, matrix)
    generator, completer = np.random.default_rng([seed, 1]), read_measured(matrix, measured)
    errors = [test_error(completer, matrix, test)]
    for share in SHARES[1:]:
        n = int(share * len(cells)) - int(measured.sum())
        measure(measured, choose(completer, np.argwhere(pool & ~measured), n, generator), n)
        completer = read_measured(matrix, measured)
        errors.append(test_error(completer, matrix, test))
    return errors


def test_error(completer: Completer, matrix: Matrix, test: Cells) -> float:
    return rmse(matrix[tuple(test.T)], completer.predict(test))


def needed_share(curve: list[float], goal: float) -> float:
    """Return the share of 30 % at which a curve first comes to an error; inf where it does not."""
    for at in range(1, len(curve)):
        if curve[at] <= goal:
            way = (curve[at - 1] - goal) / (curve[at - 1] - curve[at])
            return (SHARES[at - 1] + way * (SHARES[at] - SHARES[at - 1])) / SHARES[-1]
    return float("inf")


def compare_finds(name: str, matrix: Matrix, seeds: list[int]) -> dict[str, object]:
    """Measure and print the share of the highest cells that are found, by round."""
    print(f"{name}: share of the highest {TOP_SHARE:.0%} found, by share of cells measured")
    rounds = [BEST_START + BEST_STEP * (number + 1) for number in range(BEST_ROUNDS)]
    print(f"{'':>18}  " + "  ".join(f"{share:5.0%}" for share in rounds) + "  last by seed")
    curves: dict[str, list[list[float]]] = {}
    for method, choose in FOR_BEST.items():
        curves[method] = [find_curve(matrix, choose, seed) for seed in seeds]
        line = "  ".join(f"{found:.3f}" for found in np.mean(curves[method], axis=0))
        last = " ".join(f"{curve[-1]:.3f}" for curve in curves[method])
        print(f"{method:>18}  {line}  {last}", flush=True)
    return {"table": name, "goal": "best", "shares": rounds, "seeds": seeds, "found": curves}


def find_curve(matrix: Matrix, choose: Choose, seed: int) -> list[float]:
    """Return the share of the highest cells that were found after each round."""
    known = ~np.isnan(matrix)
    cells = np.argwhere(known)[np.random.default_rng(seed).permutation(known.sum())]
    measured = mask_of(cells[: int(BEST_START * len(cells))], matrix)
    highest = known & (matrix >= np.quantile(matrix[known], 1 - TOP_SHARE)) & ~measured
    generator, found, n = np.random.default_rng([seed, 1]), [], int(BEST_STEP * len(cells))
    for _ in range(BEST_ROUNDS):
        completer = read_measured(matrix, measured)
        measure(measured, choose(completer, np.argwhere(known & ~measured), n, generator), n)
        found.append(float((highest & measured).sum() / highest.sum()))
    return found


def read_measured(matrix: Matrix, measured: Mask) -> Completer:
    """Fit the pretrained model; all members are known, also those without a measured cell."""
    index = np.argwhere(np.ones_like(measured))
    binary = set(np.unique(matrix[~np.isnan(matrix)])) == {0.0, 1.0}
    completer = Completer("pretrained", scale="binary" if binary else "real")
    return completer.fit(index, np.where(measured, matrix, np.nan).ravel())


def mask_of(cells: Cells, matrix: Matrix) -> Mask:
    mask = np.zeros(matrix.shape, dtype=np.bool_)
    mask[tuple(cells.T)] = True
    return mask


def measure(measured: Mask, cells: Cells, n: int) -> None:
    """Add cells to the measured ones, ``n`` of them, none of which was measured before."""
    before = int(measured.sum())
    measured[tuple(cells.T)] = True
    assert int(measured.sum()) == before + n


if __name__ == "__main__":
    main()
