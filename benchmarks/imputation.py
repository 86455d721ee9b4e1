"""Missing values of measured tables: our imputer beside those of scikit-learn.

    python benchmarks/imputation.py [--seeds 5]

A fifth of the values of three of scikit-learn's tables is hidden, and predicted from the raw
columns. Errors are in deviations of each column, so that the mean of a column has about 1. The
neighbours of KNNImputer are chosen on values hidden of the others, and its columns are
standardised, without which it is far worse; IterativeImputer has up to 100 rounds, of which it uses
all where it does not converge (diabetes).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

from exchangeable import Imputer

Matrix = NDArray[np.float64]
HIDDEN = 0.2
NEIGHBOURS = (3, 5, 10, 20, 40)


def by_column_mean(table: Matrix) -> Matrix:
    return np.where(np.isnan(table), np.nanmean(table, axis=0), table)


def by_neighbours(table: Matrix) -> Matrix:
    centre, unit = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    standard = (table - centre) / unit
    generator = np.random.default_rng(0)
    tried = np.where(generator.random(table.shape) < 0.1, np.nan, standard)
    judged = np.isnan(tried) & ~np.isnan(standard)

    def error(count: int) -> float:
        filled = KNNImputer(n_neighbors=count).fit_transform(tried)
        return float(((filled - standard)[judged] ** 2).mean())

    best = min(NEIGHBOURS, key=error)
    return np.asarray(KNNImputer(n_neighbors=best).fit_transform(standard) * unit + centre)


def by_regressions(table: Matrix) -> Matrix:
    return np.asarray(IterativeImputer(max_iter=100, random_state=0).fit_transform(table))


METHODS: dict[str, Callable[[Matrix], Matrix]] = {
    "column mean": by_column_mean,
    "KNNImputer": by_neighbours,
    "IterativeImputer": by_regressions,
    "Imputer (auto)": lambda table: Imputer().fit_transform(table),
    "Imputer (pretrained)": lambda table: Imputer("pretrained").fit_transform(table),
    "Imputer (gaussian)": lambda table: Imputer("gaussian").fit_transform(table),
    "Imputer (bias)": lambda table: Imputer("bias").fit_transform(table),
    "Imputer (bmf)": lambda table: Imputer("bmf").fit_transform(table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    for load in (load_breast_cancer, load_wine, load_diabetes):
        whole = load().data
        print(f"\n{load.__name__}, {whole.shape[0]} x {whole.shape[1]}")
        print("| | error | s |\n|---|---|---|")
        for name, impute in METHODS.items():
            errors, start = [], time.perf_counter()
            for seed in seeds:
                hidden = np.random.default_rng(seed).random(whole.shape) < HIDDEN
                shown = np.where(hidden, np.nan, whole)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of rounds that did not converge
                    away = (impute(shown) - whole) / np.nanstd(shown, axis=0)
                errors.append(np.sqrt((away[hidden] ** 2).mean()))
            seconds = (time.perf_counter() - start) / len(errors)
            error = f"{np.mean(errors):.4f} ± {np.std(errors) / len(errors) ** 0.5:.4f}"
            print(f"| {name} | {error} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
