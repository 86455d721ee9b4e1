"""Members of a memory whose cells have other values: their pools are those of all their cells."""

from dataclasses import replace

import pytest
import torch

from exchangeable import ResidualConfig, ResidualModel
from exchangeable.models.rewrite import rewrite
from exchangeable.nn.layers import LayerReadout
from exchangeable.testing import random_array

SHAPES = [(6, 5), (4, 3, 3)]
POOLINGS = [("mean", "attention"), ("max", "least_squares"), ("sum",)]


def network(order, pooling, depth=3):
    config = ResidualConfig(2, 3, order, width=8, depth=depth, pooling=pooling, heads=2, rank=2)
    torch.manual_seed(0)
    return ResidualModel(config).double().eval()


def members_cells(observed, changed):
    """All cells of the members that the changed cells have."""
    index = observed.support.index
    met = (index[:, None, :] == index[changed][None]).any(dim=2).any(dim=1)
    return observed.take(met.nonzero().squeeze(1))


def assert_same_pools(found, expected, axes_left=()):
    for one, other in zip(found.pools, expected.pools, strict=True):
        for axes, states in other.states.items():
            if axes not in axes_left:
                torch.testing.assert_close(one.states[axes], states)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_rewriting_the_values_of_before_changes_nothing(shape, pooling):
    model, observed = network(len(shape), pooling), random_array(shape, density=0.5, channels=2)
    changed = torch.tensor([0, 3])
    with torch.no_grad():
        memory = model.condition(observed)
        again = rewrite(
            model, memory, members_cells(observed, changed), observed.support.index[changed]
        )
    assert_same_pools(again, memory)
    for one, other in zip(again.readouts, memory.readouts, strict=True):
        assert isinstance(one, LayerReadout)
        for axes, rows in other.on.items():
            torch.testing.assert_close(one.on[axes], rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_members_have_the_pools_of_a_model_that_read_the_new_values(shape, pooling):
    """In the first layer; deeper ones read what other members and the whole table had before."""
    model, observed = network(len(shape), pooling), random_array(shape, density=0.6, channels=2)
    changed = torch.tensor([1, 4])
    values = observed.values.clone()
    values[changed] += 1
    later = observed.with_values(values)
    with torch.no_grad():
        memory, expected = model.condition(observed), model.condition(later)
        found = rewrite(model, memory, members_cells(later, changed), later.support.index[changed])
    first = replace(found, pools=found.pools[:1]), replace(expected, pools=expected.pools[:1])
    assert_same_pools(*first, axes_left=[()])
    for axes, rows in expected.readouts[0].on.items():
        if axes:
            torch.testing.assert_close(found.readouts[0].on[axes], rows)


def test_other_members_keep_their_pools():
    model, observed = network(2, ("mean",)), random_array((6, 5), density=0.5, channels=2)
    cell = observed.support.index[:1]
    values = observed.values.clone()
    values[0] += 1
    later = observed.with_values(values)
    with torch.no_grad():
        memory = model.condition(observed)
        found = rewrite(model, memory, members_cells(later, torch.tensor([0])), cell)
    for one, before in zip(found.pools, memory.pools, strict=True):
        for axis in (0, 1):
            others = torch.arange(observed.shape[axis]) != cell[0, axis]
            for mine, theirs in zip(one.states[(axis,)], before.states[(axis,)], strict=True):
                for a, b in zip(mine, theirs, strict=True):
                    torch.testing.assert_close(a[others], b[others], rtol=0, atol=0)
        torch.testing.assert_close(one.states[()], before.states[()], rtol=0, atol=0)


def test_a_memory_that_is_only_read_cannot_be_rewritten():
    model, observed = network(2, ("mean",)), random_array((6, 5), density=0.5, channels=2)
    memory = replace(model.condition(observed), pools=())
    with pytest.raises(ValueError, match="read only: it cannot be rewritten"):
        rewrite(model, memory, observed, observed.support.index[:1])
