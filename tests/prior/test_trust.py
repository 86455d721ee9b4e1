"""The trust in estimates is found on held-out cells, and makes no prediction too sure."""

from dataclasses import replace

import pytest
import torch

from exchangeable.prior.trust import FOLDS, Trial, find_trust

USUAL, DEVIATIONS = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.3, 0.3]).double()


def trial_of(cells=400, spread=1.0, seed=0):
    """Estimates of which the first says something, and variances that are those of the errors."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    estimates = normal(cells, 2)
    truth = 0.8 * estimates[:, 0] + spread * normal(cells)
    base = torch.zeros_like(truth)
    variances = torch.ones(cells, 2, dtype=torch.float64)
    counts = torch.full((cells, 2), 100)
    return Trial(truth, base, estimates, variances, torch.arange(cells) % FOLDS, counts)


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0])
def test_variances_are_never_narrowed(spread):
    """Errors may be small on the held-out cells, and large on others."""
    trust = find_trust(trial_of(spread=spread), USUAL, DEVIATIONS)
    variances = torch.tensor([[2.0, 0.5], [0.3, 0.3], [0.4, 0.9]]).double()
    plain = variances[:, 0] + trust.share * (variances[:, 1] - variances[:, 0])
    torch.testing.assert_close(trust.variance(variances), trust.widening * plain)
    assert trust.widening >= 1


def test_variances_are_widened_to_the_errors_of_held_out_cells():
    wide = find_trust(trial_of(cells=4000, spread=2.0), USUAL, DEVIATIONS)
    assert wide.widening == pytest.approx(4.0, rel=0.1)


def test_the_weights_without_a_fold_do_not_depend_on_its_cells():
    trial = trial_of()
    other = torch.where(trial.fold == 1, -5 * trial.truth, trial.truth)
    before, after = (
        find_trust(each, USUAL, DEVIATIONS) for each in (trial, replace(trial, truth=other))
    )
    torch.testing.assert_close(before.without_fold(1).weights, after.without_fold(1).weights)
    for fold in (0, 2, 3, 4):
        assert not torch.equal(before.crossed[fold], after.crossed[fold])
    assert not torch.equal(before.weights, after.weights)


def test_the_share_of_estimates_that_are_noise_is_small_however_many_there_are():
    """Weights fit the cells that they were found on; the share is that of other cells."""
    generator = torch.Generator().manual_seed(0)
    estimates = torch.randn(150, 60, generator=generator, dtype=torch.float64)
    truth = torch.randn(150, generator=generator, dtype=torch.float64)
    variances = torch.ones(150, 2, dtype=torch.float64)
    fold, counts = torch.arange(150) % FOLDS, torch.full((150, 2), 100)
    trial = Trial(truth, torch.zeros_like(truth), estimates, variances, fold, counts)
    usual, wide = torch.zeros(60).double(), torch.full((60,), 3.0).double()
    trust = find_trust(trial, usual, wide)
    fitted = estimates @ trust.weights
    assert float(fitted @ truth / (fitted @ fitted)) > 0.9  # on these very cells they look right
    assert trust.share < 0.4
