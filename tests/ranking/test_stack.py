"""The stack weighs channels by hidden positives, whatever the numbering."""

import pytest
import torch
from tests.ranking.test_rankers import positives_of, some_positives

from exchangeable.ranking.channels import FORMS, NAMES, Channels
from exchangeable.ranking.stack import RIDGE, Stack, fit_weights, hide


def test_channels_are_in_deviations_of_a_users_unseen_items():
    table = some_positives()
    z, seen = Channels.fit(positives_of(table)).of(table.T)
    assert z.shape == (30, 24, FORMS * len(NAMES))
    assert torch.equal(seen, table > 0)
    assert (z[seen] == 0).all()
    plain = z[..., 1::FORMS] * 4
    for user in (0, 7):
        own = plain[user][~seen[user]]
        torch.testing.assert_close(own.mean(0), torch.zeros(len(NAMES)), atol=1e-4, rtol=0)
        ones = own.std(0, correction=0)
        torch.testing.assert_close(ones, torch.ones(len(NAMES)), atol=1e-3, rtol=0)
    torch.testing.assert_close(z[..., ::FORMS], plain.asinh())


def test_hidden_positives_are_of_users_that_keep_some():
    table = some_positives(200, 60)
    table[0], table[1] = 0, 0
    table[0, :2], table[1, 5] = 1, 1  # too few to hide one
    kept, hidden, users = hide(positives_of(table))
    both = kept.by_user.to_dense() + hidden.by_user.to_dense()
    torch.testing.assert_close(both, table)
    share = hidden.per_user[users].sum() / (hidden.per_user + kept.per_user)[users].sum()
    assert 0.15 < share < 0.35
    assert kept.per_user.min() >= 1
    assert not {0, 1} & set(users.tolist())
    turn = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    again = hide(positives_of(table[turn]))[1].by_user.to_dense()
    torch.testing.assert_close(again, hidden.by_user.to_dense()[turn])


def test_weights_are_the_minimum_of_the_regularised_loss():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 30, 5, generator=generator, dtype=torch.float64)
    truth = torch.tensor([1.0, 0.5, 0.0, -0.5, 0.2], dtype=torch.float64)
    seen = torch.rand(40, 30, generator=generator) < 0.2
    logits = (z @ truth * 3).masked_fill(seen, -torch.inf)
    hidden = torch.zeros(40, 30, dtype=torch.float64)
    hidden[torch.arange(40), logits.argmax(1)] = 1
    usual = torch.full((5,), 0.1, dtype=torch.float64)
    weights = fit_weights([(z, seen, hidden)], usual).requires_grad_()
    chance = (z @ weights).masked_fill(seen, -torch.inf).log_softmax(1)
    loss = -(chance.masked_fill(seen, 0) * hidden).sum()
    loss = loss + RIDGE / 2 * (weights - usual).square().sum()
    loss.backward()
    assert weights.grad.abs().max() < 1e-4
    assert torch.corrcoef(torch.stack([weights.detach(), truth]))[0, 1] > 0.95


@pytest.mark.parametrize("seed", [0, 1])
def test_a_stack_ranks_hidden_items_well_above_popularity(seed):
    table = some_positives(150, 90, seed)
    generator = torch.Generator().manual_seed(seed)
    held = (torch.rand(table.shape, generator=generator) < 0.25) & (table > 0)
    held[(table * ~held).sum(1) == 0] = False
    known = table * ~held
    stack = Stack.fit(positives_of(known))
    scores = stack.score(known.T).T.masked_fill(known > 0, -torch.inf)
    popular = known.sum(0).expand_as(known).masked_fill(known > 0, -torch.inf)
    hits = [
        held.gather(1, each.topk(10, 1).indices).float().sum() / held.sum()
        for each in (scores, popular)
    ]
    assert hits[0] > 2 * hits[1]
    nobody = stack.score(torch.zeros(90, 1))
    assert nobody.isfinite().all()


def test_a_tiny_table_has_the_usual_weights():
    table = torch.eye(3)
    stack = Stack.fit(positives_of(table))
    assert stack.score(table.T).isfinite().all()
