"""Members with few cells have weights of their own, found on members that showed few."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from exchangeable import Completer
from exchangeable.metrics import rmse
from exchangeable.prior.estimates import Estimates
from exchangeable.prior.fit import fit_models
from exchangeable.prior.side_information import NO_SIDE_INFORMATION
from exchangeable.prior.trust import ENOUGH, Trial, find_scarce_trust, find_scarcity, find_trust


def complete_table(shape=(150, 20), rank=2, seed=0):
    """Products of factors and noise in every cell."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(shape[0], rank)), rng.normal(size=(shape[1], rank))
    values = rng.normal(0, 0.7, shape[0])[:, None] + left @ right.T + rng.normal(0, 1, shape)
    return np.argwhere(np.ones(shape)), values.ravel()


@pytest.fixture(scope="module")
def fitted():
    index, values = (torch.from_numpy(part) for part in complete_table())
    models, trust, holdouts = fit_models(index, values, (150, 20), 4, np.inf, NO_SIDE_INFORMATION)
    return index, values, models, trust, holdouts


def test_members_that_are_tried_show_few_of_the_cells_that_were_not_held_out(fitted):
    index, _, _, _, holdouts = fitted
    assert {few.axis for few in holdouts[0].few} == {0, 1}
    for few in holdouts[0].few:
        assert not holdouts[0].mask[few.shown].any()
        assert holdouts[0].mask[few.cells].all()
        shown = index[few.shown, few.axis].bincount()
        shown = shown[shown > 0]
        assert len(shown) == few.count
        assert set(shown.tolist()) <= {1, 2, 4, 8, 16}
        assert shown.float().mean() < index[:, few.axis].bincount().float().mean() / 2


def test_later_held_out_cells_are_tried_where_the_first_have_none():
    generator = torch.Generator().manual_seed(58)
    cells = torch.randperm(144, generator=generator)[:24].sort().values
    index = torch.stack([cells // 12, cells % 12], dim=1)
    values = torch.randn(24, generator=generator, dtype=torch.float64)
    _, trust, holdouts = fit_models(index, values, (12, 12), 4, np.inf, NO_SIDE_INFORMATION)
    assert [len(each.few) for each in holdouts] == [0, 2]
    assert trust.scarce is not None


def test_cells_are_estimated_from_what_their_member_shows_alone(fitted):
    index, values, _, _, holdouts = fitted
    for few in holdouts[0].few:
        member = index[:, few.axis]
        numbers = torch.full((150,), -1)
        numbers[index[few.cells, few.axis]] = few.index[:, few.axis]
        some = few.shown[:3]
        assert torch.equal(few.fitted.index[:3, few.axis], numbers[member[some]])
        torch.testing.assert_close(few.fitted.values, values[few.shown])
        counts = few.estimates.counts[:, few.axis]
        shown = few.fitted.index[:, few.axis].bincount(minlength=few.count)
        assert torch.equal(counts, shown[few.index[:, few.axis]])


def test_scarcity_falls_from_one_cell_to_enough():
    counts = torch.tensor([[0], [1], [2], [4], [8], [9]])
    scarcity = find_scarcity(counts, torch.tensor([8.0]))[:, 0]
    assert scarcity.tolist() == pytest.approx([0, 1, 3 / 7, 1 / 7, 0, 0])
    assert not find_scarcity(counts, torch.tensor([1.0])).any()


def trial_of(generator, cells, counts, worth):
    """A trial in which factors are worth this share of themselves."""
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    zeros = torch.zeros(cells, 2, 4)
    factors = draw(cells)[:, None].expand(-1, 2)
    estimates = Estimates(
        torch.zeros(cells, dtype=torch.float64),
        torch.zeros(cells, dtype=torch.float64),
        factors,
        torch.ones(cells, 2, dtype=torch.float64),
        zeros,
        torch.zeros(cells, 2, 2, dtype=torch.float64),
        counts,
    )
    truth = worth * factors[:, 0] + draw(cells)
    return Trial.of(truth, estimates, torch.arange(cells) % 5), estimates


def test_what_estimates_of_few_cells_are_worth_is_found_and_others_stay():
    generator = torch.Generator().manual_seed(0)
    many, few = (torch.full((3000, 2), count) for count in (40, 1))
    few[:, 1] = 40
    usual, of_many = trial_of(generator, 3000, many, 1.0)
    trial, of_few = trial_of(generator, 3000, few, 0.2)
    weights = torch.tensor([1.0, 0.5, 0.5] + [0.0] * 8, dtype=torch.float64)
    trust = find_trust(usual, weights, torch.full_like(weights, 0.3))
    scarce = replace(trust, scarce=find_scarce_trust(trust, usual, trial))
    assert scarce.scarce.enough.tolist() == [ENOUGH, ENOUGH]
    assert torch.equal(scarce.mean(of_many), trust.mean(of_many))
    worth = scarce.mean(of_few) / of_few.factors[:, 0]
    assert float(worth.mean()) == pytest.approx(0.2, abs=0.05)
    assert float((trust.mean(of_few) / of_few.factors[:, 0]).mean()) > 0.9


def test_trust_in_few_cells_of_a_fold_does_not_depend_on_its_values(fitted):
    _, values, _, trust, holdouts = fitted
    few = Trial.joined([each.trial(values) for each in holdouts[0].few])
    usual = Trial.of(values[holdouts[0].cells], holdouts[0].estimates, holdouts[0].fold)
    moved = replace(few, truth=torch.where(few.fold == 2, few.truth + 1, few.truth))
    one, two = (find_scarce_trust(trust, usual, each).crossed for each in (few, moved))
    torch.testing.assert_close(one[2], two[2])
    assert not torch.allclose(one[1], two[1])


def test_rows_with_few_cells_in_a_complete_table_are_predicted_no_worse_than_by_biases():
    ratios = []
    for seed in range(3):
        index, values = complete_table(seed=seed)
        rng = np.random.default_rng(seed)
        first = index[:, 1] == index[:, 0] % 20
        hide = (index[:, 0] % 5 == 0) & ~first & (rng.random(len(index)) < 0.9)
        errors = [
            rmse(
                values[hide], Completer(name).fit(index[~hide], values[~hide]).predict(index[hide])
            )
            for name in ("pretrained", "bias")
        ]
        ratios.append(errors[0] / errors[1])
    assert max(ratios) < 1.01


def test_a_new_column_with_few_cells_is_no_further_off_than_biases():
    index, values = complete_table((400, 16), seed=1)
    rng = np.random.default_rng(0)
    seen = rng.random(len(index)) < 0.97
    own = index[:, 1] == 15
    shown = own & (index[:, 0] % 100 == 0)
    asked = own & ~shown
    fitted = Completer("pretrained").fit(index[seen & ~own], values[seen & ~own])
    updated = fitted.update(index[shown], values[shown])
    biases = Completer("bias").fit(index[(seen & ~own) | shown], values[(seen & ~own) | shown])
    errors = [rmse(values[asked], each.predict(index[asked])) for each in (updated, biases)]
    assert errors[0] < 1.05 * errors[1]
