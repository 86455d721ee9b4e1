"""Pools of members' features are those of a copy that is broadcast to every cell."""

from itertools import pairwise

import pytest
import torch

from exchangeable import ExchangeableArray, ExchangeableLinear, Support
from exchangeable.models.configs import FactorizedConfig, SelfSupervisedConfig, build
from exchangeable.models.rewrite import rewrite
from exchangeable.models.stream import Plan
from exchangeable.testing import assert_same, random_array

SIZES = (3, 0, 2)


def layer_of(order, *, pools_features=True):
    generator = torch.Generator().manual_seed(order)
    return ExchangeableLinear(
        2, 4, order=order, features=SIZES[:order], pools_features=pools_features,
        generator=generator,
    ).double()  # fmt: skip


def features_of(shape, sizes=SIZES, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(n, size, generator=generator).double() if size else None
        for n, size in zip(shape, sizes, strict=False)
    )


def broadcast(x, features):
    """The array with the features of its members as further channels of every cell."""
    columns = [f[x.support.index[:, axis]] for axis, f in enumerate(features) if f is not None]
    return x.with_values(torch.cat([x.values, *columns], dim=1))


def copying(layer, order):
    """The layer without features that takes them as channels, with the same weights."""
    plain = ExchangeableLinear(
        2 + sum(SIZES[:order]), 4, order=order, generator=torch.Generator()
    ).double()
    plain.own.data = torch.cat([layer.own, *layer.features]).detach()
    plain.bias.data = layer.bias.data
    for mine, theirs in zip(plain.terms, layer.terms, strict=True):
        mine.weights[0].data = torch.cat(list(theirs.weights)).detach()
    return plain


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_the_layer_is_that_of_features_broadcast_to_every_cell(order, density):
    layer, x = layer_of(order), random_array((6, 5, 4)[:order], density=density, channels=2)
    features = features_of(x.shape)
    expected = copying(layer, order)(broadcast(x, features)).values
    assert_same(layer(x, features=features).values, expected)
    if density == 1.0:
        assert_same(layer(x.to_dense(), features=features), layer(x, features=features).to_dense())


@pytest.mark.parametrize("order", [2, 3])
def test_cells_that_only_read_have_no_part_in_the_pools_of_features(order):
    layer, x = layer_of(order), random_array((6, 5, 4)[:order], density=0.6, channels=2)
    features = features_of(x.shape)
    writers = torch.arange(len(x)) % 3 > 0
    some = copying(layer, order)(broadcast(x.take(writers), features)).values
    support = x.support.with_writers(writers)
    readout = layer.readout(layer.write(x.values, support, features=features), features)
    assert_same(layer.read(x.values, support, readout)[writers], some)


def test_features_are_spread_to_the_cells_a_few_at_a_time(monkeypatch):
    spread, widths = torch.Tensor.index_select, []

    def watch(tensor, dim, index):
        widths.append(tensor.shape[-1])
        return spread(tensor, dim, index)

    layer = ExchangeableLinear(2, 3, order=2, features=(50, 40), pools_features=True).double()
    x = random_array((5, 6), density=0.7, channels=2)
    features = features_of(x.shape, (50, 40))
    monkeypatch.setattr(torch.Tensor, "index_select", watch)
    layer(x, features=features)
    assert max(widths) == 8


def models(order, **options):
    sizes = {"features": SIZES[:order], "pools_features": True, "dropout": 0.0, **options}
    factorized = {"encoder": (8, 4), "decoder": (8, 8), "maps": True, "map_hidden": (6,)}
    return [
        build(SelfSupervisedConfig(2, 3, order, width=8, depth=3, **sizes)).double().eval(),
        build(FactorizedConfig(2, 3, order, **factorized, **sizes)).double().eval(),
    ]


def everywhere(shape):
    return random_array(shape, density=1.0).support


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("order", [2, 3])
def test_models_read_in_parts_and_hide_cells_as_at_once(kind, order):
    model, x = models(order)[kind], random_array((6, 5, 4)[:order], density=0.7, channels=2)
    features, queries = features_of(x.shape), everywhere(x.shape)
    without = models(order, pools_features=False)[kind]
    without.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        expected = model(x, queries, features)
        assert not torch.allclose(without(x, queries, features), expected)
        for cells in (1, 7):
            memory = model.condition(x, features, plan=Plan(chunk_cells=cells))
            assert_same(model.read(memory, queries), expected)
    hide = torch.arange(len(x)) % 4 == 0
    wanted = model(x.take(~hide), x.support.take(hide), features)
    assert_same(model.predict_hidden(x, hide, features), wanted)
    ours = model.predict_hidden(x, hide, features, plan=Plan(chunk_cells=5))
    assert_same(ours, wanted)
    for one, other in zip(gradients(model, ours), gradients(model, wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def gradients(model, outputs):
    weights = [weight for weight in model.parameters() if weight.numel()]
    return torch.autograd.grad(outputs.square().sum(), weights)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_later_layer_sees_the_pools_of_cells_that_come_later(kind):
    """With one layer of pools, extending is reading everything again."""
    model = models(2)[kind]
    first = model.layers[0]
    x = random_array((7, 5), density=0.7, channels=2)
    rows = features_of(x.shape)
    is_old = x.support.index[:, 0] < 5
    old = ExchangeableArray(Support(x.support.index[is_old], (5, 5)), x.values[is_old])
    memory = model.condition(old, (rows[0][:5], None))
    longer = model.extend(memory, x.take(~is_old), (rows[0][5:], None))
    whole = first.write(x.values, x.support, features=rows)
    for axes, states in whole.states.items():
        for mine, theirs in zip(longer.pools[0].states[axes], states, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert_same(one, other)


@pytest.mark.parametrize("kind", [0, 1])
def test_cells_written_again_with_their_own_values_change_nothing(kind):
    model, x = models(2)[kind], random_array((5, 4), density=1.0, channels=2)
    features = features_of(x.shape)
    memory = model.condition(x, features)
    again = rewrite(model, memory, x, x.support.index)
    queries = everywhere(x.shape)
    assert_same(model.read(again, queries), model.read(memory, queries))


def test_new_members_are_read_with_their_features():
    model, x = models(2)[0], random_array((6, 5), density=0.8, channels=2)
    features = features_of(x.shape)
    own = x.support.index[:, 0] == 5
    old = ExchangeableArray(Support(x.support.index[~own], (5, 5)), x.values[~own])
    memory = model.condition(old, (features[0][:5], None))
    index = x.support.index[own] - torch.tensor([5, 0])
    alone = ExchangeableArray(Support(index, (1, 5)), x.values[own])
    read = model.for_new_members(memory, 0, alone, (features[0][5:], None))
    row = model.layers[0].write(x.values, x.support, features=features).states[(0,)]
    local = model.layers[0].readout(
        type(memory.pools[0])({(0,): tuple(tuple(p[5:] for p in s) for s in row)}),
        (features[0][5:], None),
    )
    assert_same(read.readouts[0].on[(0,)].rows, local.on[(0,)].rows)


def test_the_literal_form_pools_the_features_of_queried_cells_too():
    plain, literal = (models(2, literal=flag)[0] for flag in (False, True))
    literal.load_state_dict(plain.state_dict())
    x = random_array((5, 4), density=0.5, channels=2)
    features, queries = features_of(x.shape), everywhere(x.shape)
    padded = torch.zeros(len(queries), 2).double()
    padded[queries.find(x.support.index)] = x.values
    every = ExchangeableArray(queries, padded)
    expected = plain.layers[0](every, features)
    for before, layer in pairwise(plain.layers):
        assert before is not layer
        expected = layer(expected)
    assert_same(literal(x, queries, features), expected.values)


@pytest.mark.parametrize("kind", [0, 1])
def test_joint_models_pool_features_in_parts_as_at_once(kind):
    shared = {"joint": True, "features": (3, 3)}
    model, x = models(2, **shared)[kind], random_array((6, 6), density=0.7, channels=2)
    members = features_of((6,))[0]
    queries = everywhere(x.shape)
    with torch.no_grad():
        expected = model(x, queries, (members, members))
        memory = model.condition(x, (members, members), plan=Plan(chunk_cells=4))
        assert_same(model.read(memory, queries), expected)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    renamed = x.relabel((order, order))
    moved = members[order.argsort()]
    asked = Support(order[queries.index], x.shape)
    assert_same(model(renamed, asked, (moved, moved)), expected)
