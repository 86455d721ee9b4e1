"""Similar members: estimates of a member's cells from those of similar members.

A table of residuals r is unfolded to the members of one axis by the combinations of all others.
Two members are similar by their values, the cosine of their residuals over the n_ij combinations
that both have, shrunk where these are few, and by presence, the combinations at which both have a
cell:

    s_ij = max(0, cosine) n_ij / (n_ij + shrink)        p_ij = n_ij / sqrt(n_i n_j)

A cell is estimated by the weighted mean of the cells of other members at the same combination,
with weights s^2 or p^3, shrunk towards 0 where the total weight is small. In large tables only the
members with the most cells serve as references. A member never contributes to its own cells.
Where cells are too few for factors, this does better than they do, and it uses what they do not:
which cells are present, whatever their values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from exchangeable.arrays.cells import UNKNOWN
from exchangeable.baselines.base import chunks
from exchangeable.baselines.reference_weights import (
    CHANNELS,
    ENTRIES_PER_QUERY,
    DenseWeights,
    SparseWeights,
    Weights,
)
from exchangeable.baselines.unfolding import Unfolding
from exchangeable.runtime.cache import cached_property
from exchangeable.runtime.threads import MIN_PARALLEL_CELLS, run_all
from exchangeable.sums.products import MIN_HALF_PRODUCTS

NUMBERS_PER_CHUNK = 1 << 25
"""Members compared at a time, times the references and combinations they are compared with."""

PAIRS_PER_COMPARISON = 1 << 20
"""Pairs of members that are compared at a time in sparse tables."""

READING_PARTS = 16
"""Parts in which the weights of sparse tables are read, on all cores."""

PAIRS_PER_CELL = 40
"""Pairs of members whose weights take as long to read as a cell of a dense table."""

MAX_CACHED_PAIRS = 1 << 25
"""Pairs of members up to which weights are cached for later queries."""

MAX_REPEATED_PRODUCTS = 1 << 33
"""Multiplications below which members of a dense table are compared anew for nearly the same cells.
Weights without a tenth of the cells cost .7 % on KIBA and .05 % on ML-100K."""

MAX_REPEATED_PAIRS = 1 << 22
"""Pairs of cells up to which members of a sparse table are."""

MAX_INSTANT_PRODUCTS, MAX_INSTANT_PAIRS = 1 << 25, 1 << 18
"""Multiplications of a dense table, and pairs of cells of a sparse one, up to which members are
compared again whenever a cell comes."""

MAX_CACHED_ESTIMATES = 1 << 25
"""Entries of the table up to which the estimates of all of them are cached."""

MAX_CACHED_FLOAT32 = 1 << 23
"""Entries up to which they are cached in 16 bytes each; larger tables take half of that, since
digits beyond the third mean nothing for a rating."""


@dataclass(frozen=True, eq=False)
class Similarity:
    """The members of one axis, with the residuals (E,) of their cells (E, D)."""

    index: Tensor
    residuals: Tensor
    shape: tuple[int, ...]
    axis: int
    shrink: float = 30.0
    """Number of common cells at which a similarity is shrunk by half."""
    doubt: float = 0.1
    """Total weight at which an estimate is shrunk by half."""
    comparison_budget: float = math.inf
    """Limit of references times table entries; above it only members with the most cells serve."""

    compared: Similarity | None = None
    """The members compared by nearly the same cells, whose weights these cells are averaged with;
    None: by these cells."""

    compares_all: bool = False
    """Whether all members are compared at the first query, whichever it is of."""

    queries: list[int] = field(default_factory=list, repr=False, compare=False)
    """The number of cells that were queried so far, once there were any."""

    @cached_property
    def unfolded(self) -> Unfolding:
        """The cells as a matrix of members by combinations."""
        cells = self.index, self.residuals, self.shape, self.axis
        if self.compared is None:
            return Unfolding.of(*cells, self.comparison_budget)
        return Unfolding.of(*cells, self.comparison_budget, self.compared.unfolded)

    def with_cells(self, index: Tensor, residuals: Tensor) -> Similarity:
        """Return similarities for nearly the same cells (E, D) of the same members.

        Members are not compared again where that takes long.
        """
        compared = None if self._compares_fast else self.compared or self
        return replace(self, index=index, residuals=residuals, compared=compared, queries=[])

    @property
    def _compares_fast(self) -> bool:
        table = self.unfolded
        if not table.is_dense:
            return table.pairs <= MAX_REPEATED_PAIRS
        return table.products < MAX_REPEATED_PRODUCTS

    @property
    def compares_at_once(self) -> bool:
        """Whether members are compared in so little time that weights need not be kept."""
        table = self.unfolded
        if not table.is_dense:
            return table.pairs <= MAX_INSTANT_PAIRS
        return table.products <= MAX_INSTANT_PRODUCTS

    def weights_of(self, members: Tensor) -> tuple[Weights, Tensor]:
        """Return weights of the references for members (Q,), and the column of each of these."""
        most = 2 * len(members) > self.unfolded.members
        found = self.all_weights if most or self.has_weights else None
        if isinstance(found, DenseWeights):
            return found, members
        chosen, column = members.unique(return_inverse=True)
        return self.compare(chosen) if found is None else found.take(chosen), column

    def estimate(self, index: Tensor) -> Tensor:
        """Estimate cells (Q, D): mean and certainty by s, then by p: (Q, 4)."""
        result = self.residuals.new_zeros(len(index), CHANNELS)
        if not len(self.residuals) or not len(self.unfolded.references):
            return result
        at, member = self.unfolded.combinations.find(index), index[:, self.axis]
        inside = (member >= 0) & (member < self.unfolded.members)
        queries = ((at != UNKNOWN) & inside).nonzero().squeeze(1)
        if self._caches_all(len(queries)):
            result[queries] = self._all_estimates[at[queries], member[queries]].to(result)
            return result
        kept = self.all_weights if self.has_weights and len(queries) < MIN_PARALLEL_CELLS else None
        if isinstance(kept, DenseWeights):  # parts would gain nothing
            at, member = at[queries], member[queries]
            result[queries] = kept.average(self.unfolded, at, member, self.doubt)
            return result
        queries = queries[member[queries].argsort(stable=True)]
        members, column = member[queries].unique_consecutive(return_inverse=True)
        # Weights for all members are not computed for the sake of a few.
        most = 2 * len(members) > self.unfolded.members
        cached = self.all_weights if most or self.has_weights else None

        def fill(part: slice) -> None:
            first, last = torch.searchsorted(column, column.new_tensor([part.start, part.stop]))
            positions, columns = queries[first:last], column[first:last] - part.start
            chosen = members[part]
            if cached is None:
                weights = self.compare(chosen)
            else:
                weights, columns = cached, chosen[columns]
            result[positions] = weights.average(self.unfolded, at[positions], columns, self.doubt)

        parts, cells = self.parts(len(members)), len(queries)
        if isinstance(cached, DenseWeights):  # nothing is compared, so that one part a core will do
            parts = list(chunks(len(members), max(1, -(-len(members) // 2))))
        elif isinstance(cached, SparseWeights):  # which reads members in blocks of its own
            parts = list(chunks(len(members), -(-len(members) // READING_PARTS) or 1))
            share = len(members) / self.unfolded.members
            cells = max(cells, int(share * len(cached.weights)) // PAIRS_PER_CELL)
        run_all([partial(fill, part) for part in parts], cells, index.device)
        return result

    def _caches_all(self, queries: int) -> bool:
        """Whether estimates of all cells are cached, or are to be, as so many more are queried.

        They are as soon as all queries so far have taken as long: it does not matter in how many
        calls they come.
        """
        if "_all_estimates" in vars(self):
            return True
        entries = len(self.unfolded) * self.unfolded.members
        if not self.unfolded.is_dense or entries > MAX_CACHED_ESTIMATES:
            return False
        self.queries[:] = [sum(self.queries, queries)]
        return ENTRIES_PER_QUERY * self.queries[0] > entries

    def compare_all(self) -> None:
        """Compare all members now if all weights fit, for queries to come.

        Not those of a dense table where that is fast: its estimates are cached, not its weights.
        """
        if len(self.residuals) and not (self.unfolded.is_dense and self._compares_fast):
            self.all_weights  # noqa: B018

    @cached_property
    def _all_estimates(self) -> Tensor:
        members = torch.arange(self.unfolded.members, device=self.index.device)
        wide = len(self.unfolded) * len(members) <= MAX_CACHED_FLOAT32
        estimates = self.residuals.new_empty(
            (len(self.unfolded), len(members), CHANNELS), dtype=None if wide else torch.float16
        )
        for part in self.parts(len(members)):
            weights = self.compare(members[part])
            assert isinstance(weights, DenseWeights)
            estimates[:, part] = weights.average_everywhere(self.unfolded, self.doubt)
        return estimates

    def with_weights(self, weights: Weights | None) -> Similarity:
        """Return the same similarities with the weights of all members, which were found before."""
        similarity = replace(self)
        vars(similarity)["all_weights"] = weights
        return similarity

    @cached_property
    def all_weights(self) -> Weights | None:
        """Weights of the references for all members; None where they are too many."""
        if self.compared is not None:
            return self.compared.all_weights
        table = self.unfolded
        pairs = len(table.references) * table.members
        if not table.is_dense:
            pairs = min(pairs, table.pairs)
        if pairs > MAX_CACHED_PAIRS:
            return None
        members = torch.arange(table.members, device=self.index.device)
        tasks = [partial(self._compare, members[part]) for part in self.parts(table.members)]
        parts = run_all(tasks, len(self.residuals), self.index.device)
        return self.kind.joined(parts)  # type: ignore[arg-type]

    @property
    def has_weights(self) -> bool:
        """Whether all weights were computed already, or are at the next query.

        In half precision all are computed together, so that none depends on who is asked for.
        """
        compared = self.compared or self
        if self.compares_all or "all_weights" in vars(compared):
            return True
        return compared.unfolded.is_dense and compared.unfolded.products >= MIN_HALF_PRODUCTS

    def parts(self, members: int) -> list[slice]:
        """Cut members into parts that are compared at a time, so that memory stays small.

        Those of larger tables are two at least, one for each core.
        """
        references, combinations = len(self.unfolded.references), len(self.unfolded)
        if not self.unfolded.is_dense:
            return list(chunks(members, max(1, PAIRS_PER_COMPARISON // references)))
        size = max(1, NUMBERS_PER_CHUNK // (references + combinations))
        if len(self.residuals) >= MIN_PARALLEL_CELLS and not self._compares_fast:
            size = min(size, -(-members // 2))
        return list(chunks(members, max(1, size)))

    @property
    def kind(self) -> type[DenseWeights] | type[SparseWeights]:
        """The kind of weights that suits the table."""
        return DenseWeights if self.unfolded.is_dense else SparseWeights

    def compare(self, members: Tensor) -> Weights:
        """Compare references with members (B,)."""
        if self.compared is not None:
            return self.compared.compare(members)
        found = self.all_weights if self.has_weights else None
        return self._compare(members) if found is None else found.take(members)

    def _compare(self, members: Tensor) -> Weights:
        table = self.unfolded
        mutual = len(members) == len(table.references) == table.members
        return self.kind.compare(table, table.cells_of(members), self.shrink, mutual=mutual)
