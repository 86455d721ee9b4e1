"""Baselines that predict cells without training a network.

Means, biases, variational and Bayesian factorization, normal rows, and neighbours. ``BASELINES``
maps their names to them; each has ``fit(cells)``, and what it returns has ``predict(index)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from exchangeable.runtime.lazy import attach

if TYPE_CHECKING:
    from exchangeable.arrays.cells import UNKNOWN as UNKNOWN
    from exchangeable.baselines.base import Baseline as Baseline
    from exchangeable.baselines.base import FittedBaseline as FittedBaseline
    from exchangeable.baselines.base import State as State
    from exchangeable.baselines.gaussian import Gaussian as Gaussian
    from exchangeable.baselines.gibbs import BayesianFactorization as BayesianFactorization
    from exchangeable.baselines.means import MemberMean as MemberMean
    from exchangeable.baselines.neighbours import Neighbours as Neighbours
    from exchangeable.baselines.registry import BASELINES as BASELINES
    from exchangeable.baselines.variational import Bias as Bias
    from exchangeable.baselines.variational import (
        VariationalFactorization as VariationalFactorization,
    )

_NAMES = {
    "base": ("UNKNOWN", "Baseline", "FittedBaseline", "State"),
    "gaussian": ("Gaussian",),
    "gibbs": ("BayesianFactorization",),
    "means": ("MemberMean",),
    "neighbours": ("Neighbours",),
    "registry": ("BASELINES",),
    "variational": ("Bias", "VariationalFactorization"),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]
__getattr__, __dir__ = attach(__name__, _NAMES)
