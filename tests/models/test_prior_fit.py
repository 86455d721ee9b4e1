"""What models start from is fitted within a limit of memory, with fewer factors if need be."""

from unittest.mock import patch

import pytest

from exchangeable import ResidualConfig, ResidualModel
from exchangeable.models import prior_fit
from exchangeable.testing import random_array
from exchangeable.values.codecs import ValueStats
from exchangeable.values.scale import Scale


@pytest.mark.parametrize(("room", "rank"), [(2**34, 16), (2**18, 4)])
def test_a_prior_that_does_not_fit_has_fewer_factors_and_says_so(room, rank):
    table = random_array((60, 50), density=0.5, seed=0)
    stats = ValueStats.of(table.values.squeeze(1).numpy(), Scale("real"))
    model = ResidualModel(ResidualConfig(2, 2, width=8, depth=2, prior=16, pooling=("mean",)))
    notes, ranks = [], []
    plain = prior_fit.Prior.of

    def noted(*given):
        ranks.append(given[2])
        return plain(*given)

    with (
        patch.object(prior_fit, "used_memory", lambda device: 0),
        patch.object(prior_fit.Prior, "of", noted),
    ):
        prior_fit.fit_prior(model, table, stats, limit=room, note=notes.append)
    assert ranks == [rank]
    assert any(note.startswith("the factorization has 4 factors") for note in notes) == (rank == 4)


def test_as_many_factors_are_left_as_fit():
    sizes = [prior_fit.prior_size((480_000, 17_000), 100_000_000, rank) for rank in (4, 10, 16)]
    assert sizes == sorted(sizes)
    assert sizes[2] - sizes[1] > 1e9
