"""What a new model is to be measured against: means, biases, factorizations and neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import Baseline, Fitted, State
from exchangeable.baselines.gibbs import BayesianFactorization
from exchangeable.baselines.means import MemberMean
from exchangeable.baselines.neighbours import Neighbours
from exchangeable.baselines.variational import Bias, VariationalFactorization

BASELINES: Mapping[str, Callable[[], Baseline]] = MappingProxyType(
    {
        "mean": MemberMean,
        "row-mean": lambda: MemberMean(axis=0),
        "column-mean": lambda: MemberMean(axis=-1),
        "bias": Bias,
        "vmf": VariationalFactorization,
        "bmf": BayesianFactorization,
        "item-knn": Neighbours,
        "user-knn": lambda: Neighbours(axis=0),
        "knn": Neighbours,
    }
)
"""The names that commands take, and what each of them stands for."""

__all__ = [
    "BASELINES",
    "UNKNOWN",
    "Baseline",
    "BayesianFactorization",
    "Bias",
    "Fitted",
    "MemberMean",
    "Neighbours",
    "State",
    "VariationalFactorization",
]
