"""Who answers: methods of this package and of others, and what each can be asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arena.problem import Problem
from benchmarks.peers.runs import python_of

from exchangeable.arrays.cells import Cells
from exchangeable.baselines.gaussian import suits
from exchangeable.values.scale import Scale

PEERS = Path("benchmarks/peers")
MAX_DENSE, MAX_COLUMNS = 20_000_000, 600
"""Cells of a matrix that imputers take as a whole, and columns, each regressed on the others."""


@dataclass(frozen=True)
class Method:
    """A row of every table of results."""

    title: str
    takes: Callable[[Problem], bool]
    """Whether it is made for problems of this kind; of others there is no row."""
    fits: Callable[[Problem], str] = lambda problem: ""
    """Why a problem is too large for it, or nothing."""
    environment: str | None = None
    """Environment of a peer; ours have none."""
    packages: tuple[str, ...] = ()
    """Distributions that are installed there."""
    script: str = "arena_cells.py"
    modules: tuple[str, ...] = ()
    """Modules that the script uses for a peer."""
    fitted: bool = False
    """Whether a method of ours is fitted alone, without ``Completer``."""
    optional: bool = False
    """Whether it runs only if it is named."""

    def command(self, name: str, folder: Path, budget: float, environments: Path) -> list[str]:
        """The command line of a run."""
        arguments = [name, str(folder), str(budget)]
        if self.environment is None:
            return [sys.executable, "-m", "benchmarks.arena.ours", *arguments]
        python = python_of(environments / self.environment)
        return [str(python), str(PEERS / self.script), *arguments]


def values(problem: Problem) -> bool:
    return problem.kind != "positives"


def lists(problem: Problem) -> bool:
    return problem.kind == "positives"


def matrix(problem: Problem) -> bool:
    return values(problem) and problem.order == 2


def binary(problem: Problem) -> bool:
    return matrix(problem) and problem.kind == "binary"


def tensor(problem: Problem) -> bool:
    return values(problem) and problem.order == 3


def narrow(problem: Problem) -> bool:
    """Whether the table is one that ``auto`` compares the Gaussian on."""
    return matrix(problem) and suits(
        Cells(problem.index, problem.values, problem.shape, Scale("real"))
    )


def dense(problem: Problem) -> str:
    size = problem.shape[0] * problem.shape[1]
    return "" if size <= MAX_DENSE else f"{size:,} numbers are more than {MAX_DENSE:,}"


def imputed(problem: Problem) -> str:
    columns = min(problem.shape)
    return "" if columns <= MAX_COLUMNS else f"{columns:,} columns are more than {MAX_COLUMNS}"


CELLS, IMPLICIT, IRSPACK = "peers-cells", "peers-implicit", "peers-irspack"
SURPRISE, SKLEARN = (
    ("surprise_svd.py", "scikit-surprise", "pandas"),
    ("imputers.py", "scikit-learn"),
)
"""Modules of peers, and what they need."""


def peer(
    title: str, takes: Callable[[Problem], bool], module: str, *packages: str, **facts: Any
) -> Method:
    """A peer that predicts values."""
    facts = {"environment": CELLS, "packages": packages, "modules": (module,), **facts}
    return Method(title, takes, **facts)


def ranker(title: str, environment: str, package: str) -> Method:
    """A peer that ranks positives."""
    return Method(
        title,
        lists,
        environment=environment,
        packages=(package, "threadpoolctl"),
        script="arena_lists.py",
        modules=("ranking_harness.py", f"{package}_ranking.py"),
    )


METHODS: Mapping[str, Method] = {
    "pretrained": Method("ours, zero-shot", lambda problem: True),
    "auto": Method("ours, auto", lambda problem: True),
    "finetuned": Method("ours, finetuned", values, optional=True),
    "means": Method("means, the best of three", values, fitted=True),
    "bias": Method("biases, empirical Bayes", values, fitted=True),
    "vmf": Method("variational MF, best rank", values, fitted=True),
    "bmf": Method("Bayesian MF, best rank", values, fitted=True),
    "gaussian": Method("Gaussian of few columns", narrow, fitted=True),
    "neighbours": Method("neighbours, best of four", matrix, fitted=True),
    "rasch": Method("Rasch model", binary, fitted=True),
    "myfm": peer("myFM", values, "myfm_members.py", "myfm", "setuptools<81"),
    "surprise-svd": peer("Surprise SVD", matrix, *SURPRISE),
    "surprise-svd++": peer("Surprise SVD++", matrix, *SURPRISE),
    "lenskit": peer("LensKit ALS", matrix, "lenskit_als.py", "lenskit"),
    "knn-imputer": peer("scikit-learn KNNImputer", matrix, *SKLEARN, fits=dense),
    "iterative-imputer": peer("scikit-learn IterativeImputer", matrix, *SKLEARN, fits=imputed),
    "lightgbm": peer("LightGBM: ids, counts, means", values, "boosted_trees.py", "lightgbm"),
    "tensorly-cp": peer("TensorLy CP", tensor, "tensorly_cp.py", "tensorly"),
    "popularity": Method("popularity", lists),
    "ease": Method("EASE", lists),
    "implicit-als": ranker("implicit ALS", IMPLICIT, "implicit"),
    "implicit-bpr": ranker("implicit BPR", IMPLICIT, "implicit"),
    "irspack-ials": ranker("irspack iALS", IRSPACK, "irspack"),
    "irspack-ease": ranker("irspack EASE", IRSPACK, "irspack"),
    "irspack-edlae": ranker("irspack EDLAE", IRSPACK, "irspack"),
    "irspack-rp3beta": ranker("irspack RP3beta", IRSPACK, "irspack"),
}
