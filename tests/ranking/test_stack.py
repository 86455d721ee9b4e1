"""The stack weighs channels by hidden positives, whatever the numbering."""

import torch
from tests.ranking.test_rankers import positives_of, rows_of, some_positives

from exchangeable.ranking.channels import CHANNEL_RANKERS, FORMS, Channels, stacked_forms
from exchangeable.ranking.registry import RANKERS
from exchangeable.ranking.stack import fit_softmax, hide, stack_scores, usual_weights


def test_channels_are_in_deviations_of_a_users_unseen_items():
    table = some_positives()
    deviations = Channels.fit(positives_of(table)).deviations(rows_of(table))
    assert len(deviations) == len(CHANNEL_RANKERS)
    for name, each in zip(CHANNEL_RANKERS, deviations, strict=True):
        for user in (0, 7):
            own = each.T[user][table[user] == 0]
            if "low-pass" in name:  # all vectors of so small a table
                assert (own == 0).all()
                continue
            torch.testing.assert_close(own.mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
            torch.testing.assert_close(own.std(correction=0), torch.tensor(1.0), atol=1e-3, rtol=0)


def test_channels_with_one_source_are_those_of_their_own_rankers():
    table = some_positives()
    together = Channels.fit(positives_of(table)).deviations(rows_of(table))
    for (name, ranker), found in zip(CHANNEL_RANKERS.items(), together, strict=True):
        alone = Channels.fit(positives_of(table), rankers={name: ranker})
        torch.testing.assert_close(found, alone.deviations(rows_of(table))[0], atol=2e-3, rtol=1e-3)


def test_the_stack_is_the_weighted_sum_of_its_channels():
    table = some_positives()
    channels, rows = Channels.fit(positives_of(table)), rows_of(table)
    deviations = channels.deviations(rows)
    weights = torch.linspace(-1, 1, FORMS * len(CHANNEL_RANKERS))
    found = stack_scores(deviations, weights, rows)
    assert torch.equal(found == -torch.inf, rows.seen)
    expected = stacked_forms(deviations) @ weights
    torch.testing.assert_close(found[~rows.seen], expected[~rows.seen], atol=1e-4, rtol=1e-4)
    assert usual_weights(channels).shape == weights.shape


def test_every_channel_is_a_ranker_by_name():
    assert {name.split()[0] for name in CHANNEL_RANKERS} <= set(RANKERS)


def test_hidden_positives_are_of_users_that_keep_some():
    table = some_positives(200, 60)
    table[0], table[1] = 0, 0
    table[0, :2], table[1, 5] = 1, 1  # too few to hide one
    kept, hidden, users = hide(positives_of(table))
    both = kept.by_user.to_dense() + hidden.by_user.to_dense()
    torch.testing.assert_close(both, table)
    share = hidden.per_user[users].sum() / (hidden.per_user + kept.per_user)[users].sum()
    assert 0.15 < share < 0.35
    assert len(users) <= 200 / 3
    assert kept.per_user.min() >= 1
    assert not {0, 1} & set(users.tolist())
    turn = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    again = hide(positives_of(table[turn]))[1].by_user.to_dense()
    torch.testing.assert_close(again, hidden.by_user.to_dense()[turn])


def test_weights_are_the_minimum_of_the_regularised_loss():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 30, 5, generator=generator, dtype=torch.float64)
    truth = torch.tensor([1.0, 0.5, 0.0, -0.5, 0.2], dtype=torch.float64)
    hidden = torch.zeros(40, 30, dtype=torch.float64)
    hidden[torch.arange(40), (z @ truth * 3).argmax(1)] = 1
    usual = torch.full((5,), 0.1, dtype=torch.float64)
    weights = fit_softmax(z, hidden, usual, 20.0).requires_grad_()
    loss = -((z @ weights).log_softmax(1) * hidden).sum()
    loss = loss + 20.0 / 2 * (weights - usual).square().sum()
    loss.backward()
    assert weights.grad.abs().max() < 1e-4
    assert torch.corrcoef(torch.stack([weights.detach(), truth]))[0, 1] > 0.95
