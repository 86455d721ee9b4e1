"""Similarities after cells came: most members keep the weights that they were compared with.

Members that have many more cells than when they were compared, and new ones, are compared anew with
the references of before. Cells are averaged as they are now at all combinations where some came,
and as they were elsewhere. When many came, all members are compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.reference_weights import CHANNELS, Weights
from exchangeable.baselines.similarity import Similarity
from exchangeable.baselines.unfolding import Combinations, MemberCells, Unfolding
from exchangeable.prior.new_members import NewMembersSimilarity
from exchangeable.sums.solved_members import SolvedMembers

MIN_GROWTH = 0.1
"""Share of further cells from which on a member is compared anew."""

MAX_SHARE = 0.25
"""Share of the members, or of the combinations, with later cells up to which weights are kept."""

Residuals = Callable[[Tensor], Tensor]
"""Gives the residuals of cells by their positions, as they are now."""


@dataclass(frozen=True, eq=False)
class UpdatedSimilarity:
    """Similarities of members by the cells of before, with later cells beside them."""

    before: Similarity
    table: Unfolding
    """All cells at combinations where some came later."""
    members: Tensor  # (T,), compared anew, ascending
    sizes: Tensor  # (T,), numbers of cells that they were compared with
    weights: Weights
    """Weights of the references for these."""
    replaced: Tensor  # (R,), positions of cells of before that have other values since

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D) as ``Similarity.estimate`` does: (Q, 4)."""
        before, doubt = self.before, self.before.doubt
        member = index[:, before.axis].contiguous()
        at, place = self.table.combinations.find(index), _find(self.members, member)
        result = before.residuals.new_zeros(len(index), CHANNELS)
        # 0: neither, 1: compared anew, 2: at a combination with later cells, 3: both.
        kind = (place != UNKNOWN) + 2 * (at != UNKNOWN)
        some = kind.bincount(minlength=4).tolist()
        plain, anew, later, both = (
            (kind == number).nonzero().squeeze(1) if count else None
            for number, count in enumerate(some)
        )
        if plain is not None:
            result[plain] = before.estimate(index[plain])
        if anew is not None:
            known = before.unfolded.combinations.find(index[anew])
            anew, known = anew[known != UNKNOWN], known[known != UNKNOWN]
            result[anew] = self.weights.average(before.unfolded, known, place[anew], doubt)
        if both is not None:
            result[both] = self.weights.average(self.table, at[both], place[both], doubt)
        if later is not None:
            inside = (member[later] >= 0) & (member[later] < before.unfolded.members)
            later = later[inside]
            if len(later):
                weights, column = before.weights_of(member[later])
                result[later] = weights.average(self.table, at[later], column, doubt)
        return result


Similarities = (
    tuple[Similarity, ...] | tuple[UpdatedSimilarity, ...] | tuple[NewMembersSimilarity, ...]
)
"""Similarities of the members of each axis."""


def similarities_without_later_cells(similarities: Similarities) -> list[Similarity]:
    """Return the similarities of a whole table as they were before cells came later."""
    assert not any(isinstance(each, NewMembersSimilarity) for each in similarities), (
        "the prior of new members cannot be changed"
    )
    return [each if isinstance(each, Similarity) else each.before for each in similarities]


def update_similarities(
    similarities: Similarities,
    index: Tensor,
    residuals: Residuals,
    shape: tuple[int, ...],
    changed: Sequence[SolvedMembers],
    replaced: Tensor,
) -> tuple[UpdatedSimilarity, ...] | None:
    """Add cells to the similarities of all axes; None where all members are compared again.

    ``changed`` are the members of each axis with changed cells, and ``replaced`` the positions of
    those that had a value before.
    """
    updated: list[UpdatedSimilarity] = []
    known: Sequence[Similarity | UpdatedSimilarity | NewMembersSimilarity] = similarities
    for each, members in zip(known, changed, strict=True):
        assert not isinstance(each, NewMembersSimilarity), "new members cannot be changed"
        one = update_similarity(each, index, residuals, shape, members, replaced)
        if one is None:
            return None
        updated.append(one)
    return tuple(updated)


def update_similarity(
    similarity: Similarity | UpdatedSimilarity,
    index: Tensor,
    residuals: Residuals,
    shape: tuple[int, ...],
    changed: SolvedMembers,
    replaced: Tensor,
) -> UpdatedSimilarity | None:
    """Add cells of the ``changed`` members of its axis to a similarity; ``index`` has all (E, D).

    None where all members are to be compared again: many cells came, or it takes no time.
    """
    before = similarity if isinstance(similarity, Similarity) else similarity.before
    if not len(before.residuals) or before.compares_at_once:
        return None
    axis, old = before.axis, before.unfolded
    if isinstance(similarity, UpdatedSimilarity):
        replaced = torch.cat([similarity.replaced, replaced]).unique()
    replaced = replaced[replaced < len(before.residuals)]
    later = torch.arange(len(before.residuals), len(index), device=index.device)
    later = torch.cat([replaced, later])
    others = [other for other in range(len(shape)) if other != axis]
    combinations, _ = Combinations.of(index[later], others, shape)
    if len(combinations) > MAX_SHARE * len(old):
        return None
    cells = _is_among(combinations, index, shape).nonzero().squeeze(1)
    budget = before.comparison_budget
    table = Unfolding.of(index[cells], residuals(cells).float(), shape, axis, budget, old)
    is_anew = _compares_again(similarity, shape, changed)
    anew, sizes = changed.members[is_anew], changed.sums.sizes[is_anew]
    members, all_sizes = anew, sizes
    weights = _compare(before, index, residuals, changed, is_anew)
    if isinstance(similarity, UpdatedSimilarity):
        kept = (_find(anew, similarity.members) == UNKNOWN).nonzero().squeeze(1)
        members = torch.cat([similarity.members[kept], anew])
        all_sizes = torch.cat([similarity.sizes[kept], sizes])
        weights = before.kind.joined([similarity.weights.take(kept), weights])  # type: ignore[list-item]
        members, permutation = members.sort()
        all_sizes, weights = all_sizes[permutation], weights.take(permutation)
    if len(members) > MAX_SHARE * old.members:
        return None
    return UpdatedSimilarity(before, table, members, all_sizes, weights, replaced)


def _compares_again(
    similarity: Similarity | UpdatedSimilarity, shape: tuple[int, ...], changed: SolvedMembers
) -> Tensor:
    """Tell which of the changed members have many more cells than before: (M,)."""
    before = similarity if isinstance(similarity, Similarity) else similarity.before
    old = before.unfolded.starts.diff()
    compared = torch.cat([old, old.new_zeros(shape[before.axis] - len(old))])
    if isinstance(similarity, UpdatedSimilarity):
        compared[similarity.members] = similarity.sizes
    return changed.sums.sizes > (1 + MIN_GROWTH) * compared[changed.members]


def _compare(
    before: Similarity,
    index: Tensor,
    residuals: Residuals,
    changed: SolvedMembers,
    is_anew: Tensor,
) -> Weights:
    """Compare some of the changed members (M,), a mask, with the references of before."""
    cells, starts = changed.of_members(is_anew)
    combination = before.unfolded.combinations.find(index[cells])
    shared = combination != UNKNOWN
    cells, combination = cells[shared], combination[shared]
    starts = torch.cat([starts[:1], shared.cumsum(0)])[starts]
    sizes, members = changed.sums.sizes[is_anew], changed.members[is_anew]
    own = MemberCells(starts, combination, residuals(cells).float(), sizes, members)
    return before.kind.compare(before.unfolded, own, before.shrink)


def _is_among(combinations: Combinations, index: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Whether each cell (E, D) is at one of some combinations: (E,)."""
    if len(combinations.axes) != 1:
        return combinations.find(index) != UNKNOWN
    (axis,) = combinations.axes
    flags = torch.zeros(shape[axis], dtype=torch.bool, device=index.device)
    flags[combinations.levels[0]] = True
    return flags.index_select(0, index[:, axis])


def _find(ascending: Tensor, wanted: Tensor) -> Tensor:
    """Return the position of each number among ascending ones, -1 where it is not there."""
    if not len(ascending):
        return torch.full_like(wanted, UNKNOWN)
    at = torch.searchsorted(ascending, wanted).clamp(max=len(ascending) - 1)
    return torch.where(ascending[at] == wanted, at, UNKNOWN)
