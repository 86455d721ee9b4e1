"""Similarities that outlive an update agree with members compared again."""

import numpy as np
import pytest
import torch
from tests.support.strangers import STRANGERS

from exchangeable.baselines import similarity
from exchangeable.completion.completer import Completer
from exchangeable.prior.later_cells import UpdatedSimilarity


def estimates_after_update(monkeypatch, limit, shape):
    """Estimate cells of a new user after an update: (Q, D, 4); also return the similarities."""
    monkeypatch.setattr(similarity, "MAX_INSTANT_PRODUCTS", limit)
    monkeypatch.setattr(similarity, "MAX_INSTANT_PAIRS", limit)
    rng = np.random.default_rng(0)
    index = np.argwhere(rng.random(shape) < 0.5)
    effects = [rng.normal(size=(size, 2)) for size in shape]
    values = (effects[0][index[:, 0]] * effects[1][index[:, 1]]).sum(axis=1)
    values = values + 0.1 * rng.normal(size=len(values))
    completer = Completer("pretrained", scale="real").fit(index, values)
    completer.predict(index)  # compares all members
    rest = [np.zeros(4, dtype=int)] * (len(shape) - 2)
    taste = effects[0][3]
    new = np.stack([np.full(4, shape[0]), np.arange(4), *rest], axis=1)
    completer.update(new, (taste * effects[1][:4]).sum(axis=1))
    rest = [np.zeros(shape[1] - 4, dtype=int)] * (len(shape) - 2)
    asked = np.stack([np.full(shape[1] - 4, shape[0]), np.arange(4, shape[1]), *rest], axis=1)
    fitted = completer.predictor_.prior.fitted
    asked = np.concatenate([new, asked])
    return fitted.estimates(torch.from_numpy(asked)).similar, fitted.similarities


@STRANGERS
@pytest.mark.parametrize("shape", [(60, 40), (30, 20, 3)])
def test_kept_similarities_estimate_nearly_as_those_compared_again(monkeypatch, shape):
    kept, updated = estimates_after_update(monkeypatch, 0, shape)
    again, fresh = estimates_after_update(monkeypatch, 1 << 40, shape)
    assert {type(each) for each in updated} == {UpdatedSimilarity}
    assert UpdatedSimilarity not in map(type, fresh)
    scale = again.std(dim=0).clamp(min=0.01)
    assert ((kept - again).square().mean(dim=0).sqrt() / scale).max() < 0.5


@STRANGERS
def test_members_of_one_update_stay_compared_after_the_next(monkeypatch):
    monkeypatch.setattr(similarity, "MAX_INSTANT_PRODUCTS", 0)
    rng = np.random.default_rng(0)
    index = np.argwhere(rng.random((60, 40)) < 0.5)
    effects = [rng.normal(size=(size, 2)) for size in (60, 40)]
    values = (effects[0][index[:, 0]] * effects[1][index[:, 1]]).sum(axis=1)
    completer = Completer("pretrained", scale="real").fit(index, values)
    completer.predict(index)  # compares all members
    asked = torch.tensor([(60, film) for film in range(20, 40)])

    def rate(user, like, films):
        films = np.array(films)
        taste = (effects[0][like] * effects[1][films]).sum(axis=1)
        completer.update(np.stack([np.full(len(films), user), films], axis=1), taste)
        fitted = completer.predictor_.prior.fitted
        return fitted.similarities[0], fitted.estimates(asked).similar[:, 0]

    _, first = rate(60, 3, range(4))
    assert first.abs().max() > 0.1
    users, second = rate(61, 8, range(10, 12))
    torch.testing.assert_close(second, first)
    assert (users.members.tolist(), users.sizes.tolist()) == ([60, 61], [4, 2])
    users, third = rate(60, 3, range(4, 8))
    assert not torch.allclose(third, first)
    assert (users.members.tolist(), users.sizes.tolist()) == ([60, 61], [8, 2])


def test_cells_with_other_values_are_averaged_as_they_are_now(monkeypatch):
    """Those of a user whose ratings change, in two goes, count for others at the same films."""
    monkeypatch.setattr(similarity, "MAX_INSTANT_PRODUCTS", 0)
    monkeypatch.setattr(similarity, "MAX_INSTANT_PAIRS", 0)
    rng = np.random.default_rng(0)
    index = np.argwhere(rng.random((60, 40)) < 0.5)
    values = rng.normal(size=len(index))
    completer = Completer("pretrained", scale="real").fit(index, values)
    completer.predict(index)  # compares all members
    own = np.flatnonzero(index[:, 0] == 3)[:6]
    for some in (own[:3], own[3:]):
        before = completer.predictor_.prior.fitted
        completer.update(index[some], values[some] + 5)
    fitted = completer.predictor_.prior.fitted
    users = fitted.similarities[0]
    assert isinstance(users, UpdatedSimilarity)
    assert len(users.replaced) == len(own)
    assert users.before is before.similarities[0].before
    cells = torch.from_numpy(index[own]).clone()
    cells[:, 0] = 4  # another user, at the same films
    place = fitted.index.tolist().index(index[own[0]].tolist())
    table, row = users.table, users.table.row_of[3]
    at = table.combinations.find(torch.from_numpy(index[own[:1]]))
    stored = table.values[row, at] if table.is_dense else table.values.to_dense()[at, row]
    torch.testing.assert_close(stored[0], fitted.residuals_at(slice(None))[place].float())
    means = users.estimate(cells)[:, 2]  # by presence, where all weights are positive
    old = users.before.estimate(cells)[:, 2]
    assert (means > old).all()
