"""Fits of the factorizations that the prior is made of, to features of the members.

Two of them: a fine one, and a coarse one of half the rank. Both weigh cells by the noise of their
members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from exchangeable.baselines.factorization import VectorLayout
from exchangeable.baselines.posterior import Posterior
from exchangeable.baselines.regression import Block
from exchangeable.baselines.sweeps import fit_noise_ratios, sweep
from exchangeable.baselines.variational import (
    START_PRECISION_WITH_FEATURES,
    START_WITH_FEATURES,
    with_factors,
)
from exchangeable.runtime.threads import run_all
from exchangeable.sums.member_sums import MemberSums

PATTERN_START, GIVEN_START = 0.01, 0.001
"""Sums of squares that the weights of the pattern and of given features have at least. With .1 for
both, features of noise do harm; with .001 for both, Douban's pattern is switched off."""

MIN_CELLS_PER_FACTOR = 5
"""Cells that members have on average for each factor. With fewer, false factors stay on, which
move with every cell that comes."""

MAX_REFITTED_CELLS = 1 << 22
"""Cells up to which models are fitted again to all cells once the trust is found. Of more the 8,000
held-out ones are too few to change anything."""


@dataclass(frozen=True)
class Sweeps:
    """Sweeps with the same noise everywhere, and then with that of the members."""

    even: int
    uneven: int


@dataclass(frozen=True)
class Schedule:
    """Sweeps over most cells, to find the trust, and then over all of them."""

    most: Sweeps
    all: Sweeps
    warm: bool
    """Whether the fit to all cells starts from that to most, and similarities found with most cells
    serve all. In a small table they would depend on which cells were held out."""
    keeps: bool = False
    """Whether the fit to most cells serves as that to all."""

    @classmethod
    def of(cls, cells: int) -> Schedule:
        """Return the schedule for a table with this number of cells."""
        if cells <= 50_000:
            return cls(Sweeps(12, 6), Sweeps(12, 6), warm=False)
        if cells <= 500_000:
            return cls(Sweeps(8, 4), Sweeps(2, 2), warm=True)
        if cells <= MAX_REFITTED_CELLS:
            return cls(Sweeps(4, 2), Sweeps(0, 2), warm=True)
        return cls(Sweeps(4, 4), Sweeps(0, 0), warm=True, keeps=True)


class Regressors(NamedTuple):
    """What the vectors of an axis's members are regressed on."""

    table: Tensor  # (N + 1, P); the last row is that of an unknown member
    blocks: list[Block]

    @classmethod
    def of(cls, places: Tensor, given: Tensor | None) -> Regressors:
        """Join places (N, K) in the pattern and given features (N, P)."""
        blocks = [Block(places.shape[1], PATTERN_START, uncertain=False)]
        if given is not None and given.shape[1]:
            blocks.append(Block(given.shape[1], GIVEN_START, uncertain=True))
            places = torch.cat([places, given], dim=1)
        return cls(pad(places, (0, 0, 0, 1)), blocks)


def fit_factors(
    values: Tensor,
    sums: Sequence[MemberSums],
    features: Sequence[Regressors],
    rank: int,
    sweeps: Sweeps,
    *,
    biases: Posterior,
    starts: tuple[Posterior, Posterior] | None = None,
) -> tuple[Posterior, Posterior]:
    """Fit fine and coarse factors; ``starts`` were fitted to nearly the same cells."""
    warm = starts is not None
    if starts is None:
        fine = with_factors(
            biases,
            sums,
            values,
            rank if values.any() else 0,
            START_WITH_FEATURES,
            START_PRECISION_WITH_FEATURES,
        )
        starts = fine, _narrowed(fine, (fine.layout.rank + 1) // 2)
    tables, blocks = zip(*features, strict=True)
    fine, coarse = (each.with_features(tables, blocks) for each in starts)
    if coarse.layout == fine.layout:
        coarse = fine
    fits = [
        partial(_sweep, each, sums, values, sweeps, warm=warm)
        for each in ((fine,) if coarse is fine else (fine, coarse))
    ]
    # Processes exchange sums in one sequence, which threads would not keep to; and of tables in
    # parts these are what threads share, with the memory of one fit.
    at_once = sums[0].processes.size == 1 and len(sums[0].parts) == 1
    run_all(fits, len(values) if at_once else 0, values.device)
    return fine, coarse


def limit_rank(sums: Sequence[MemberSums], rank: int) -> int:
    """Limit the rank: a member has a vector for each other axis, all to be found from its cells."""
    members, order = sum(len(each.with_cells) for each in sums), len(sums)
    cells, others = len(sums[0]) * order / members, max(order - 1, 1)
    return min(rank, max(1, round(cells / others / MIN_CELLS_PER_FACTOR)))


def _narrowed(posterior: Posterior, rank: int) -> Posterior:
    """Return the same biases, with the first factors of each pair of axes only."""
    before, columns = posterior.layout, []
    for axis in range(before.order):
        blocks = [before.block(axis, other) for other in before.others(axis)]
        kept = [c for block in blocks for c in range(block.start, block.start + rank)]
        columns.append([0, *kept])
    tables = posterior.means, posterior.covariances, posterior.precisions
    pairs = list(zip(columns, *tables, strict=True))
    return replace(
        posterior,
        layout=VectorLayout(before.order, rank),
        means=[means[:, kept] for kept, means, _, _ in pairs],
        covariances=[spread[:, kept][:, :, kept] for kept, _, spread, _ in pairs],
        precisions=[row[kept] for kept, _, _, row in pairs],
    )


def _sweep(
    posterior: Posterior,
    sums: Sequence[MemberSums],
    values: Tensor,
    sweeps: Sweeps,
    *,
    warm: bool,
) -> None:
    """Fit a posterior by sweeps; a warm one starts with the regression on its features."""
    if warm:
        for each in sums:
            posterior.update_prior(each)
    for _ in range(sweeps.even):
        sweep(posterior, sums, values)
    fit_noise_ratios(posterior, sums[0], values)
    weighted = [each.weighted(posterior.member_weights) for each in sums]
    for _ in range(sweeps.uneven):
        sweep(posterior, weighted, values)
