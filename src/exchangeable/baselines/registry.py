"""Baselines by name, as commands and the estimator take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from exchangeable.baselines.base import Baseline
from exchangeable.baselines.gaussian import Gaussian
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
        "gaussian": Gaussian,
        "item-knn": Neighbours,
        "user-knn": lambda: Neighbours(axis=0),
        "knn": Neighbours,
    }
)
"""Each name with the baseline it builds."""
