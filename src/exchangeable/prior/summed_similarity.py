"""Similarities of the members of large tables, by sums over their cells.

What members are compared by are sums over their cells: of the references' cells at the same
combinations, of products with these, and of squares. So cells pass through in parts, processes
share them, and nothing of a cell is kept but of those of the references.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.reference_weights import DenseWeights
from exchangeable.baselines.similarity import MAX_CACHED_PAIRS, Similarity
from exchangeable.baselines.unfolding import MAX_ENTRIES_PER_CELL, Combinations, Unfolding
from exchangeable.prior.side_information import SideInformation
from exchangeable.sums.cell_parts import CellPart, CellValues
from exchangeable.sums.member_sums import MemberSums

MIN_SUMMED_CELLS = 1 << 22
"""Cells from which on members are compared by sums. The budget leaves few references of them."""

MIN_REFERENCES = 8
"""References with fewer of which none are compared: with 8 the error on ML-1M falls by .07 %, with
35 by .14 %, with 1,074 by .77 %."""


def is_summed(cells: int, side: SideInformation, order: int) -> bool:
    """Whether members of a table are compared by sums over its cells."""
    return cells > MIN_SUMMED_CELLS and side.times is None and order == 2


def compare_by_sums(
    sums: Sequence[MemberSums], values: Tensor, fine: Posterior, budget: float
) -> tuple[Similarity, ...]:
    """Compare the members of both axes, by what ``fine`` leaves of the values (E,) of cells."""

    @cache
    def residuals(part: CellPart) -> Tensor:
        mean = fine.predict_mean(part.index)
        return (part.take(values).to(mean) - mean).float()

    return tuple(_compare(sums, axis, residuals, len(values), budget) for axis in (0, 1))


def _compare(
    sums: Sequence[MemberSums], axis: int, residuals: CellValues, cells: int, budget: float
) -> Similarity:
    one, other = sums[axis], 1 - axis
    references = _choose_references(sums, axis, residuals, budget)
    row_of = torch.full_like(one.sizes, UNKNOWN)
    row_of[references] = torch.arange(len(references), device=one.device)
    tables = [_table_of(sums, axis, row_of, len(references), each) for each in (None, residuals)]
    occupied = tables[0].any(dim=1).nonzero().squeeze(1)
    shape = tuple(each.members for each in sums)
    table = Unfolding(
        Combinations((other,), (shape[other],), (occupied,)),
        torch.cat([one.sizes.new_zeros(1), one.sizes.cumsum(0)]),
        row_of.new_empty(0),
        tables[1].new_empty(0),
        references,
        row_of,
        *(each[occupied].T.contiguous() for each in (tables[1], tables[1].square(), tables[0])),
    )
    # No cell is read again, but their number tells which came later.
    index, lengths = row_of.new_empty(0, 2), tables[1].new_zeros(1).expand(cells)
    similarity = Similarity(index, lengths, shape, axis, comparison_budget=budget)
    weights = _weigh(one, other, table, tables, residuals, similarity.shrink)
    similarity = similarity.with_weights(weights)
    vars(similarity)["unfolded"] = table
    return similarity


def _choose_references(
    sums: Sequence[MemberSums], axis: int, residuals: CellValues, budget: float
) -> Tensor:
    """Choose the members with the most cells, as many as the budget allows; ascending."""
    one, combinations = sums[axis], len(sums[1 - axis].with_cells)
    entries = min(one.members * combinations, MAX_ENTRIES_PER_CELL * len(one))
    most = min(one.members, MAX_CACHED_PAIRS // one.members)
    count = int(min(most, budget // max(entries, 1)))
    if count < MIN_REFERENCES:
        return one.sizes.new_empty(0)
    # Ties are broken by values, not by how members are numbered.
    weight = one.of_cells(lambda part: residuals(part).square()).double()
    return (one.sizes + weight / (1 + weight)).topk(count).indices.sort().values


def _table_of(
    sums: Sequence[MemberSums], axis: int, row_of: Tensor, count: int, values: CellValues | None
) -> Tensor:
    """Return the values of the references' cells, or ones, by combination: (C, S)."""
    one, combinations = sums[axis], sums[1 - axis].members
    table = torch.zeros(combinations, count, device=one.device)
    for part in one.parts if count else ():
        row = row_of[part.own]
        at = (row != UNKNOWN).nonzero().squeeze(1)
        entries = table.new_ones(len(at)) if values is None else values(part)[at]
        table[part.column(1 - axis)[at], row[at]] = entries
    return one.processes.all_sum([table])[0]


def _weigh(
    one: MemberSums,
    other: int,
    table: Unfolding,
    tables: Sequence[Tensor],
    residuals: CellValues,
    shrink: float,
) -> DenseWeights:
    """Compare all members with the references, as ``DenseWeights.compare`` does."""
    ones, values = tables
    count = ones.shape[1]
    if not count:
        return DenseWeights(ones.new_zeros(2, 0, one.members))
    common, lengths = one.over(other, torch.cat([ones, values.square()], dim=1)).split(count, dim=1)
    lengths = lengths * one.over(other, ones, lambda part: residuals(part).square())
    by_value = one.over(other, values, residuals) / lengths.sqrt().clamp(min=1e-12)
    by_value = (by_value * common / (common + shrink)).clamp(min=0).square()
    roots = one.sizes.to(ones).clamp(min=1).rsqrt()
    by_presence = (common * table.reference_roots * roots[:, None]).pow(3)
    weights = torch.stack([by_value.T, by_presence.T])
    weights[:, torch.arange(count, device=ones.device), table.references] = 0
    return DenseWeights(weights.contiguous())


def describe_references(similarities: Sequence[Similarity]) -> str:
    """Say how many members others are compared with, and what it costs to have no more."""
    counts = [len(each.unfolded.references) for each in similarities]
    if not any(counts):
        return (
            "similar members are not compared, since the table is too large: errors on ML-1M are "
            ".8 % larger without"
        )
    listed = " and ".join(
        f"{count:,} of {each.shape[each.axis]:,}"
        for count, each in zip(counts, similarities, strict=True)
    )
    return (
        f"members are compared with those that have the most cells, {listed}: errors on ML-1M "
        f"are .6 % larger with 35 than with all that a small table has"
    )
