"""The prior that a model starts from, fitted within a limit of memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from exchangeable.arrays.array import ExchangeableArray
from exchangeable.baselines.similarity import MAX_CACHED_PAIRS
from exchangeable.baselines.unfolding import MAX_ENTRIES_PER_CELL
from exchangeable.models.memory import MemoryModel
from exchangeable.prior.prior import Prior
from exchangeable.prior.side_information import NO_SIDE_INFORMATION, SideInformation
from exchangeable.prior.summed_similarity import describe_references, is_summed
from exchangeable.runtime.devices import available_memory, format_size, used_memory
from exchangeable.runtime.processes import ALONE, Processes
from exchangeable.sums.member_sums import MIN_PARTED_CELLS
from exchangeable.values.codecs import ValueStats

CELL_BYTES, PARTED_CELL_BYTES = 220, 48
"""Bytes of a cell while models are fitted at once, and in parts: measured."""

COMPARED_CELL_BYTES = 120
"""Bytes of a cell while members are compared, in tables that are not compared by sums."""

TABLE_ROW_BYTES = 3 * 8
"""Bytes of covariances' entries, sums over cells and solutions, for each entry of a gram."""

WIDEST = 64
"""Factors at most where held-out cells ask for more than the model's usual number."""

MIN_RANK = 4
"""Factors that are left at least where memory is too small for all of them."""


def fit_prior(
    model: MemoryModel,
    observed: ExchangeableArray,
    stats: ValueStats,
    side: SideInformation = NO_SIDE_INFORMATION,
    limit: int | None = None,
    processes: Processes = ALONE,
    note: Callable[[str], None] = lambda sentence: None,
) -> Prior | None:
    """Fit the prior that a model starts from to observed values (E, 1); None if it has none.

    Within ``limit`` bytes; where these are too few there are fewer factors, and no similar members,
    which ``note`` is given in sentences.
    """
    if not model.prior_rank:
        return None
    room = available_memory(model.device) if limit is None else limit - used_memory(model.device)
    cells, budget = len(observed), float(model.comparison_budget)
    rank, wanted = model.prior_rank, prior_size(observed.shape, cells, model.prior_rank)
    while rank > MIN_RANK and prior_size(observed.shape, cells, rank) > room:
        rank -= 1
    if rank < model.prior_rank:
        note(
            f"the factorization has {rank} factors, since {model.prior_rank} take about "
            f"{format_size(wanted)} of {format_size(max(room, 0))}"
        )
    widest = WIDEST if rank == model.prior_rank else rank
    while widest > rank and prior_size(observed.shape, cells, widest) > room:
        widest -= 1
    base = prior_size(observed.shape, cells, rank)
    summed = is_summed(cells, side, observed.order)
    compared = comparison_size(observed.shape, cells, budget)
    compared += 0 if summed else COMPARED_CELL_BYTES * cells
    if base > room:
        note(
            f"the prior takes about {format_size(base)}, but {format_size(max(room, 0))} are left: "
            f"a larger memory, or more processes, would do"
        )
    if base + compared > room and budget:
        budget = 0.0
        note(
            f"similar members are not compared, since that takes about "
            f"{format_size(base + compared)} of {format_size(max(room, 0))}: errors on ML-1M are "
            f".8 % larger without"
        )
    prior = Prior.of(observed, stats, rank, budget, side, processes, widest)
    if summed and budget:
        note(describe_references(prior.fitted.known_similarities))
    return replace(prior, joint=model.layers[0].joint)


def comparison_size(shape: tuple[int, ...], cells: int, budget: float) -> int:
    """Estimate the bytes of the tables of references and of their weights."""
    total = 0.0
    for size in shape:
        combinations = min(math.prod(shape) // max(size, 1), cells)
        most = min(size * combinations, MAX_ENTRIES_PER_CELL * cells)
        references = min(size, budget // max(most, 1))
        # Sparse tables have the references' cells only, and no more weights than are cached.
        entries = references * combinations
        entries = entries if entries <= MAX_ENTRIES_PER_CELL * cells else cells
        total += 24 * entries + 12 * min(references * size, MAX_CACHED_PAIRS)
    return int(total)


def prior_size(shape: tuple[int, ...], cells: int, rank: int) -> int:
    """Estimate the bytes that a fit of the prior takes at most, beside the cells themselves."""
    width = 1 + rank * (len(shape) - 1)
    members = sum(size + 1 for size in shape) * width**2 * TABLE_ROW_BYTES
    return members + cells * (PARTED_CELL_BYTES if cells >= MIN_PARTED_CELLS else CELL_BYTES)
