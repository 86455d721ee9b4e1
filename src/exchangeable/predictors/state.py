"""What a model's predictor has read, as JSON and tensors: a folder is loaded without reading again.

Kept are the pools of the memory and the fitted models of the prior. What follows from them and
from the cells in little time is computed when it is loaded or first needed: readouts, residuals,
which members have cells. Weights of similar members are kept where members took long to compare.
The models that were fitted without held-out cells are not kept, but how members without cells are
read, which they were for.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from exchangeable.arrays.array import ExchangeableArray, FeatureTensors
from exchangeable.arrays.groups import Diagonal
from exchangeable.arrays.support import Support
from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.reference_weights import DenseWeights, SparseWeights
from exchangeable.baselines.regression import Block, Regression
from exchangeable.baselines.similarity import Similarity
from exchangeable.models.memory import Memory
from exchangeable.models.stream import features_at
from exchangeable.nn.layers import LayerReadout
from exchangeable.nn.pool_states import PoolStates
from exchangeable.nn.pools import GroupReadout
from exchangeable.predictors.unseen import UnseenReading, try_unseen
from exchangeable.prior.closed_form import ClosedForm
from exchangeable.prior.drift import Drift, MemberDrift
from exchangeable.prior.later_cells import UpdatedSimilarity
from exchangeable.prior.pattern import Pattern, Scaling
from exchangeable.prior.presence import Presence
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import SideInformation
from exchangeable.prior.trust import ScarceTrust, Trust
from exchangeable.runtime.structure import pack, unpack
from exchangeable.training.trained_model import TrainedModel
from exchangeable.values.calibration import Calibration
from exchangeable.values.codecs import OneHot, ScaleFree, ValueStats
from exchangeable.values.scale import Scale

VERSION = 2
"""Version of the state; one of another version is not used, and the cells are read again."""

PREFIX = "state."
"""Beginning of the names of the state's tensors."""

_KINDS: dict[str, type] = {
    "block": Block,
    "calibration": Calibration,
    "dense weights": DenseWeights,
    "diagonal": Diagonal,
    "drift": Drift,
    "group readout": GroupReadout,
    "layer readout": LayerReadout,
    "member drift": MemberDrift,
    "one-hot": OneHot,
    "pattern": Pattern,
    "pools": PoolStates,
    "posterior": Posterior,
    "regression": Regression,
    "scale": Scale,
    "scale-free": ScaleFree,
    "scaling": Scaling,
    "sparse weights": SparseWeights,
    "stats": ValueStats,
    "scarce trust": ScarceTrust,
    "trust": Trust,
    "unseen": UnseenReading,
    "vectors": VectorLayout,
}
_MODELS = ("biases", "fine", "coarse", "pattern", "drift", "near_axes")
"""Parts of the closed-form models that are stored as they are."""


def has_state(config: dict[str, Any]) -> bool:
    """Whether the stored parts of a predictor have a state that this version can use."""
    stored = config.get("state")
    return isinstance(stored, dict) and stored.get("version") == VERSION


def can_store(prior: Prior) -> bool:
    """Whether a prior has cells, and members were compared by all of them."""
    later = (isinstance(each, UpdatedSimilarity) for each in prior.fitted.similarities)
    return bool(len(prior.fitted.values)) and not any(later)


def state_to_parts(
    memory: Memory,
    stats: ValueStats,
    prior: Prior | None,
    unseen: dict[tuple[int, ...], UnseenReading],
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what was read as JSON and tensors."""
    state = {
        "stats": stats,
        "pools": memory.pools,
        "readouts": () if memory.pools else memory.readouts,  # which follow from pools
        "prior": None if prior is None else _prior_parts(prior),
        "unseen": unseen,
    }
    described, tensors = pack(state, _KINDS, PREFIX)
    return {"version": VERSION, "parts": described}, tensors


def read_all_unseen(
    trained: TrainedModel,
    memory: Memory,
    prior: Prior,
    stats: ValueStats,
    unseen: dict[tuple[int, ...], UnseenReading],
) -> None:
    """Find how members without cells are read for all subsets of the axes, and keep it."""
    order = len(memory.shape)
    for size in range(1, order + 1):
        for axes in combinations(range(order), size):
            if axes not in unseen:
                unseen[axes] = try_unseen(trained, memory, prior, stats, axes)


def state_from_parts(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    trained: TrainedModel,
    observed: ExchangeableArray,
    side: SideInformation,
    features: FeatureTensors | None,
) -> tuple[Memory, ValueStats, Prior | None, dict[tuple[int, ...], UnseenReading]]:
    """Return memory, statistics, prior and readings of unseen members, of the observed cells.

    ``features`` are those that layers read, with a row for each spare member.
    """
    device = trained.model.device
    moved = {n: t.to(device) for n, t in tensors.items() if n.startswith(PREFIX)}
    state = unpack(config["state"]["parts"], _KINDS, moved)
    stats: ValueStats = state["stats"]
    prior = None
    if state["prior"] is not None:
        budget = float(trained.model.comparison_budget)
        prior = _prior_from(state["prior"], stats, observed, side, budget)
        prior = replace(prior, joint=trained.config.joint)
    memory = _memory_from(state, trained, trained.model.grouped(observed.support), features)
    at_times = None if prior is None else prior.at(side.times)
    return replace(memory, prior=at_times), stats, prior, state["unseen"]


def _memory_from(
    state: dict[str, Any],
    trained: TrainedModel,
    cells: Support,
    features: FeatureTensors | None,
) -> Memory:
    """Build a memory from pools, or from readouts alone."""
    group_index = cells.group_index
    pools, readouts, layers = state["pools"], state["readouts"], list(trained.model.layers)
    if len(pools or readouts) != len(layers):
        raise ValueError(f"pools of {len(layers)} layers were needed, but came from {len(pools)}")
    for each in pools:
        for axes, states in each.states.items():
            _check_rows([part for kept in states for part in kept], group_index.number(axes))
    for each in readouts:
        for axes, (rows, per_cell) in each.on.items():
            tables = [*per_cell] if rows is None else [rows, *per_cell]
            _check_rows(tables, group_index.number(axes))
    if pools:
        levels = enumerate(zip(layers, pools, strict=True))
        with torch.no_grad():
            readouts = tuple(
                layer.readout(own, features_at(level, features)) for level, (layer, own) in levels
            )
    return Memory(group_index, pools, readouts, features)


def _check_rows(tables: list[Tensor], rows: int) -> None:
    """Raise unless each table has a row for every group."""
    for table in tables:
        if not table.ndim or len(table) != rows:
            raise ValueError(f"{rows} rows were needed, but a table has shape {table.shape}")


def _prior_parts(prior: Prior) -> dict[str, Any]:
    """Return the parts of a prior that are stored."""
    fitted = prior.fitted
    parts = {name: getattr(fitted, name) for name in _MODELS}
    compared = [each.compared for each in fitted.known_similarities]
    # Similarities of all axes are of the same cells, which are stored once.
    narrow = {id(each.index): each.index.int() for each in compared if each is not None}
    similarities = [_similarity_parts(each, narrow) for each in fitted.known_similarities]
    return {**parts, "similarities": similarities, "trust": prior.trust, "later": prior.later}


def _similarity_parts(similarity: Similarity, narrow: dict[int, Tensor]) -> dict[str, Any]:
    compared = similarity.compared
    return {
        "index": None if compared is None else narrow[id(compared.index)],
        "residuals": None if compared is None else compared.residuals,
        "weights": None if compared is None else compared.all_weights,
        "queries": sum(similarity.queries),
        "compares_all": similarity.has_weights,
    }


def _prior_from(
    state: dict[str, Any],
    stats: ValueStats,
    observed: ExchangeableArray,
    side: SideInformation,
    budget: float,
) -> Prior:
    index, shape, drift = observed.support.index, observed.shape, state["drift"]
    values = stats.standardise(observed.values.squeeze(1).double())
    if drift is not None:
        values = values - drift.at(index, side.times)
    models = {name: state[name] for name in _MODELS}
    for name in ("biases", "fine", "coarse"):
        models[name] = _posterior_from(models[name], shape)
    fitted = ClosedForm(
        index=index,
        values=values,
        shape=shape,
        side=side,
        comparison_budget=budget,
        presence=Presence.by_axis(index, shape),
        **models,
    )
    pairs = zip(fitted.known_similarities, state["similarities"], strict=True)
    similarities = tuple(_similarity_from(each, stored) for each, stored in pairs)
    return Prior(
        stats, fitted.with_similarities(similarities), state["trust"], later=state["later"]
    )


def _posterior_from(stored: Posterior, shape: tuple[int, ...]) -> Posterior:
    """Return a posterior that may be changed, after a check of its tables."""
    posterior = replace(
        stored,
        means=list(stored.means),
        covariances=list(stored.covariances),
        precisions=list(stored.precisions),
        regressions=list(stored.regressions),
        centres=list(stored.centres),
        noise_ratios=list(stored.noise_ratios),
    )
    by_features = [regression.features for regression in posterior.regressions]
    for tables in (posterior.means, posterior.covariances, posterior.noise_ratios, by_features):
        for table, size in zip(tables, shape, strict=bool(tables)):
            _check_rows([table], size + 1)
    return posterior


def _similarity_from(similarity: Similarity, stored: dict[str, Any]) -> Similarity:
    """Return a similarity that is queried as before."""
    if "all_weights" in vars(similarity):  # found again by sums over all cells
        return similarity
    compared = None
    if stored["index"] is not None:
        index, residuals = stored["index"].long(), stored["residuals"]
        compared = replace(similarity, index=index, residuals=residuals, queries=[])
        compared = compared.with_weights(stored["weights"])
    return replace(
        similarity,
        compared=compared,
        compares_all=stored["compares_all"],
        queries=[stored["queries"]],
    )
