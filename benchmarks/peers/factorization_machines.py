"""Bayesian factorization machines by Gibbs sampling (myFM) on ML-100K, in four variants.

    EXCHANGEABLE_DATA=... python benchmarks/peers/factorization_machines.py --setup
    EXCHANGEABLE_DATA=... python benchmarks/peers/factorization_machines.py --splits u1 u2

``--setup`` puts myFM into an environment of its own first, at the version of requirements.txt.
The cells are those of the files u1.base and u1.test, as everywhere else here. The variants, each
with all that stands before it:

- ids: user and film, one column each;
- sets: the films that a user rated in the training cells, and the users who rated a film, each
  set divided by the root of its size;
- dates: the day of the rating (UTC) as a category, one for all days not seen in training;
- features: age and year in 11 bins between percentiles, sex, occupation, genres.

Settings are those of myFM's example for this dataset, ml-100k-extended.ipynb, which are also the
defaults of its ml-100k-regression.py: rank 10, 512 iterations of which all are kept, seed 42, a
prior for each kind of column, and the default hyperpriors. The example has the first digit of the
zip code where the features here have sex. Nothing is chosen by test cells. An ordered probit
answers with its mean rating. All answers are clipped to 1-5. A row is a process of one thread;
seconds are those to fit and answer from a table in memory, CPU those of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from runs import HERE, Record, install, python_of

PACKAGES = ("myfm", "setuptools<81")
"""myFM imports pkg_resources, which later versions of setuptools do not have."""
SPLITS = ("u1", "u2", "u3", "u4", "u5")
MODELS = ("regression", "probit")
VARIANTS = ("ids", "sets", "dates", "features")
"""Each has what those before it have."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measured(python: Path, options: argparse.Namespace, *chosen: str) -> Record:
    """A row: split, model and variant, and what the run told or why it ended."""
    split, model, variant = chosen
    settings = {"rank": options.rank, "iterations": options.iterations, "seed": options.seed}
    record: Record = {"split": split, "model": model, "variant": variant, **settings}
    numbers = [str(number) for number in settings.values()]
    parts = ",".join(VARIANTS[: VARIANTS.index(variant) + 1])
    script = str(HERE / "myfm_gibbs.py")
    command = [str(python), script, split, parts, model, *numbers]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        return record | {"failed": last}
    return record | json.loads(done.stdout.splitlines()[-1])


HEAD = f"{'split':>5}  {'model':>10}  {'variant':>8}  {'columns':>7}  {'RMSE':>6}  seconds     CPU"


def row(record: Record) -> str:
    names = f"{record['split']:>5}  {record['model']:>10}  {record['variant']:>8}"
    if "failed" in record:
        return f"{names}  {record['failed']}"
    seconds = f"{record['fit_s'] + record['predict_s']:7.1f}  {record['cpu_s']:6.1f}"
    return f"{names}  {record['columns']:7,}  {record['rmse']:.4f}  {seconds}"


def means(records: Sequence[Record]) -> list[str]:
    """A line for each model and variant: the RMSE over all splits."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if "rmse" in record:
            found.setdefault((record["model"], record["variant"]), []).append(record["rmse"])
    return [
        f"{'mean':>5}  {model:>10}  {variant:>8}  {'':7}  {fmean(errors):.4f}  of {len(errors)}"
        for (model, variant), errors in found.items()
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setup", action="store_true", help="install myFM first")
    parser.add_argument("--venv", type=Path, default=Path("out/peers-myfm"), help="where to")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=["u1"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=512)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if "EXCHANGEABLE_DATA" not in os.environ:
        sys.exit("EXCHANGEABLE_DATA must name the folder that has ml-100k/u1.base in it")
    if options.setup and (why := install(options.venv, PACKAGES)):
        sys.exit(f"myFM {why}")
    python = python_of(options.venv)
    if not python.exists():
        sys.exit(f"myFM is not installed in {options.venv}: --setup does it")
    records = []
    print(HEAD)
    for chosen in product(options.splits, options.models, options.variants):
        records.append(measured(python, options, *chosen))
        print(row(records[-1]), flush=True)
    if len(options.splits) > 1:
        print("\n".join(means(records)))
    print(json.dumps(records))


if __name__ == "__main__":
    main()
